"""The thread that commits for whoever does not do it: one for all shards of a process.

While it syncs one journal, the others gather more: a thread for each of them would wake for less, and they would take
turns at the interpreter and at the disk all the same.
"""

from __future__ import annotations

import threading
from functools import partial

from penstock.journal import Journal
from penstock.log.records import NewRecord
from penstock.model.config import BrokerConfig
from penstock.shard.shard import Shard


class Flusher:
    """Commits what is gathered in the journals that it is woken for."""

    def __init__(self, config: BrokerConfig) -> None:
        self._journals: list[Journal[NewRecord]] = []  # never changed, but replaced
        self._sync_interval_s = config.sync_interval if config.sync == "interval" else None
        self._wanted = threading.Event()
        self._waiting: dict[Journal[NewRecord], None] = {}
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="penstock-commit", daemon=True)
        self._thread.start()

    def add(self, shard: Shard) -> None:
        """Commit for a shard from now on."""
        self._journals = [*self._journals, shard.journal]
        shard.journal.wake_flusher = partial(self._wake, shard.journal)

    def remove(self, shard: Shard) -> None:
        """Commit for a shard no more: whoever closes it does that."""
        self._journals = [journal for journal in self._journals if journal is not shard.journal]

    def stop(self) -> None:
        """End after what is under way."""
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
