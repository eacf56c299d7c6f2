"""The threads that commit for whoever does not do it.

One does for all shards of a process whose disk is quick: while it syncs one journal, the others gather more; a thread
for each of them would wake for less, and they would take turns at the interpreter and at the disk all the same. A shard
on a bucket has one of its own: a request that is not answered keeps nobody else waiting.
"""

from __future__ import annotations

import threading
from functools import partial

from penstock.journal import Journal
from penstock.log.records import NewRecord
from penstock.model.clock import ShardClock
from penstock.model.config import BrokerConfig
from penstock.shard.shard import Shard

_LOOK_AGAIN_S = 0.005  # a group that waits for company may be full


class Flusher:
    """Commits what is gathered in the journals that it is woken for."""

    def __init__(self, config: BrokerConfig) -> None:
        self._journals: list[Journal[NewRecord]] = []  # never changed, but replaced
        self._own_threads: dict[Journal[NewRecord], OwnThread] = {}
        self._sync_interval_s = config.sync_interval if config.sync == "interval" else None
        self._wanted = threading.Event()
        self._waiting: dict[Journal[NewRecord], None] = {}
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="penstock-commit", daemon=True)
        self._thread.start()

    def add(self, shard: Shard) -> None:
        """Commit for a shard from now on."""
        journal = shard.journal
        if journal.is_slow:
            self._own_threads[journal] = OwnThread(journal, shard.clock)
        else:
            journal.wake_flusher = partial(self._wake, journal)
        self._journals = [*self._journals, journal]

    def remove(self, shard: Shard) -> None:
        """Commit for a shard no more: whoever closes it does that."""
        self._journals = [journal for journal in self._journals if journal is not shard.journal]
        own = self._own_threads.pop(shard.journal, None)
        if own is not None:
            own.end()

    def stop(self) -> None:
        """End after what is under way."""
        for own in self._own_threads.values():
            own.end()
        self._stopping = True
        self._wanted.set()
        self._thread.join()

    def _wake(self, journal: Journal[NewRecord]) -> None:
        self._waiting[journal] = None
        self._wanted.set()

    def _run(self) -> None:
        while not self._stopping:
            self._wanted.wait(self._sync_interval_s)
            self._wanted.clear()
            for journal in list(self._waiting):
                del self._waiting[journal]  # before it is flushed: whoever comes later wakes it again
                journal.flush()
            if self._sync_interval_s is not None:
                for journal in self._journals:
                    journal.sync()


class OwnThread:
    """Commits for one journal, when a group is due."""

    def __init__(self, journal: Journal[NewRecord], clock: ShardClock) -> None:
        self._journal, self._clock = journal, clock
        self._wanted = threading.Event()
        self._ending = False
        journal.wake_flusher = self._wanted.set
        journal.has_own_thread = True
        threading.Thread(target=self._run, name="penstock-commit-own", daemon=True).start()

    def end(self) -> None:
        """End after one more commit, for those who rely on this thread; nobody waits for that."""
        self._journal.has_own_thread = False
        self._ending = True
        self._wanted.set()

    def _run(self) -> None:
        is_last = False
        while not is_last:
            self._wanted.wait()
            self._wanted.clear()
            while not (is_last := self._ending) and (due_s := self._journal.due_in_s()) > 0:
                self._clock.sleep_s(min(due_s, _LOOK_AGAIN_S))
            self._journal.flush()
