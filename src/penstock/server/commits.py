"""Replies that wait for the disk: they are sent when their commit is durable."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import Protocol

from penstock.cluster.shards import Shards
from penstock.journal import Commit
from penstock.journal.commit import Committer
from penstock.model.errors import PenstockError
from penstock.model.histograms import QUICK_S, Histogram

_SLOW_S = 0.003  # a disk that takes longer, on average, must not keep the event loop waiting
_SLOW_COMMITS = 64
_TURNS_MAX = 4
_WEIGHT = 0.1  # of the last commit in the average


class Receiver(Protocol):
    """A connection that gets a reply."""

    def answer(self, reply: bytes) -> None:
        """It is done: this is the reply."""

    def refuse(self, correlation: int, error: BaseException) -> None:
        """It was not done."""


OnDone = Callable[[PenstockError | None], object]


class Commits:
    """The commits that somebody waits for, on one event loop.

    What was read from all connections in one turn of the loop is committed together, with what comes in the next few
    turns. While the disk is quick that is done right here, which spares two thread switches a commit; when it was
    slow, the broker's commit thread does most of them, and the loop goes on meanwhile. Only syncs count for that: what
    a large commit computes would keep the loop waiting in a thread, too. Of several shards, one is committed here.

    On a bucket a commit takes long, and may take for ever: threads do all of them.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, shards: Shards) -> None:
        self._loop = loop
        self.send_ready: Callable[[], bool] = lambda: False
        """Sends what is ready to go out, before the disk is waited for and after; whether there was anything."""
        self._shards = shards
        self._syncs_s: dict[Committer, Histogram] = {}  # of those that are known already
        self._only = shards.only.committer if shards.count == 1 and len(shards) else None
        self._is_slow = shards.storage.remote or bool(shards.config.commit_interval)
        self._waiting: dict[Commit, list[OnDone]] = {}
        self._scheduled = False
        self._came = 0  # since the last look
        self._average_s = 0.0  # how long the syncs of a commit took lately
        self._left_to_thread = 0  # how many of the next commits the thread does

    def __len__(self) -> int:
        return len(self._waiting)

    def reply_after(self, commit: Commit | None, receiver: Receiver, correlation: int, reply: bytes) -> None:
        """Reply to a request once the commit is done; at once if there is nothing to wait for."""
        self.when_done(commit, partial(_reply, receiver, correlation, reply))

    def of(self, commit: Commit) -> asyncio.Future[None]:
        """Done when the commit is, for tasks that wait."""
        future = self._loop.create_future()
        self.when_done(commit, partial(_finish, future))
        return future

    async def wait(self, commit: Commit | None) -> None:
        """Return once a commit is durable; raises the error of one that failed."""
        if commit is not None:
            if not commit.done:
                await self.of(commit)
            if commit.failed:
                commit.result()

    def when_done(self, commit: Commit | None, on_done: OnDone) -> None:
        """Call back with the outcome of a commit as soon as it is known."""
        if commit is None or commit.done:
            on_done(None if commit is None else _error_of(commit))
            return
        self._came += 1
        waiting = self._waiting.get(commit)
        if waiting is not None:
            waiting.append(on_done)
            return
        self._waiting[commit] = [on_done]
        if self._is_slow or self._left_to_thread:
            self._left_to_thread -= not self._is_slow
            commit.on_done(partial(self._done_soon, commit))
            commit.hurry()
        elif not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._wait_for_company, _TURNS_MAX)

    def commit_soon(self) -> None:
        """Commit now: everything that arrives in this turn of the loop has arrived."""
        if self._scheduled:
            self._commit()

    def _wait_for_company(self, turns: int) -> None:
        """Wait a few turns of the loop for requests that can share the commit, as long as more of them arrive."""
        if not self._scheduled:  # it was committed meanwhile
            self._came = 0
        elif self._came and turns:
            self._came = 0
            self._loop.call_soon(self._wait_for_company, turns - 1)
        else:
            self._commit()

    def _commit(self) -> None:
        if not self._scheduled:  # it was done already
            return
        if self.send_ready():  # what need not wait for the disk goes out before this thread does
            self._loop.call_soon(self._commit_now)
        else:
            self._commit_now()

    def _commit_now(self) -> None:
        if not self._scheduled:
            return
        self._scheduled = False
        journal = self._only or self._hurry_all_but_one()
        syncs_s = self._syncs_s.get(journal) or self._times_of(journal)
        before_s = syncs_s.sum
        journal.flush()
        self._average_s += _WEIGHT * (syncs_s.sum - before_s - self._average_s)
        if self._average_s > _SLOW_S:
            self._left_to_thread = _SLOW_COMMITS
        for commit in list(self._waiting):
            if commit.done:
                self._done(commit)
            else:  # a thread is about to tell its outcome
                commit.on_done(partial(self._done_soon, commit))
        self.send_ready()  # somebody waits for it

    def _times_of(self, journal: Committer) -> Histogram:
        """How long the syncs of a journal took; those of shards that are here no more are forgotten."""
        self._syncs_s = {shard.committer: shard.meters.fsync_s for shard in self._shards}
        return self._syncs_s.get(journal) or Histogram(QUICK_S)

    def _hurry_all_but_one(self) -> Committer:
        """Of the journals that are waited for, one to be flushed here; threads do the others meanwhile."""
        first, *others = dict.fromkeys(journal for commit in self._waiting for journal in commit.committers)
        for journal in others:
            journal.wake_flusher()
        return first

    def _done_soon(self, commit: Commit) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._done, commit)

    def _done(self, commit: Commit) -> None:
        error = _error_of(commit)
        for on_done in self._waiting.pop(commit, ()):
            on_done(error)


def _reply(receiver: Receiver, correlation: int, reply: bytes, error: PenstockError | None) -> None:
    if error is None:
        receiver.answer(reply)
    else:
        receiver.refuse(correlation, error)


def _finish(future: asyncio.Future[None], _: PenstockError | None) -> None:
    if not future.done():
        future.set_result(None)


def _error_of(commit: Commit) -> PenstockError | None:
    if not commit.failed:
        return None
    try:
        commit.result()
    except PenstockError as error:
        return error
    return None
