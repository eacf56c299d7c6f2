"""Replies that wait for the disk: sent when what they tell of is committed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Protocol

from penstock.broker.engine import Engine
from penstock.journal import Commit
from penstock.model.errors import PenstockError

_SLOW_S = 0.003  # a disk that takes longer, on average, must not keep the event loop waiting
_SLOW_COMMITS = 64
_WEIGHT = 0.1  # of the last commit in the average


class Receiver(Protocol):
    """Whoever gets a reply."""

    def answer(self, reply: bytes) -> None:
        """It is done: this is the reply."""

    def refuse(self, correlation: int, error: BaseException) -> None:
        """It was not done."""


OnDone = Callable[[PenstockError | None], object]


class Commits:
    """The commits that somebody waits for, on one event loop.

    Everything that was read from all connections in one turn of the loop is committed together. While the disk is
    quick that is done right here, which spares two thread switches a commit; when it was slow, the broker's commit
    thread does most of them, and the loop goes on meanwhile.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, engine: Engine, send_first: Callable[[], bool] = lambda: False
    ) -> None:
        self._loop = loop
        self._send_first = send_first  # sends what is ready to go out; whether there was anything
        self._journal = engine.journal
        self._waiting: dict[Commit, list[OnDone]] = {}
        self._scheduled = False
        self._average_s = 0.0  # how long commits took lately
        self._left_to_thread = 0  # how many of the next commits the thread does

    def __len__(self) -> int:
        return len(self._waiting)

    def reply_after(self, commit: Commit | None, receiver: Receiver, correlation: int, reply: bytes) -> None:
        """Reply to a request once the commit is done; at once if there is nothing to wait for."""
        self.when_done(commit, partial(_reply, receiver, correlation, reply))

    def when_done(self, commit: Commit | None, on_done: OnDone) -> None:
        """Tell the outcome of a commit, as soon as it is known."""
        if commit is None or commit.done:
            on_done(None if commit is None else _error_of(commit))
            return
        waiting = self._waiting.get(commit)
        if waiting is not None:
            waiting.append(on_done)
            return
        self._waiting[commit] = [on_done]
        if self._left_to_thread:
            self._left_to_thread -= 1
            self._leave_to_thread(commit)
        elif not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._commit)

    def _commit(self) -> None:
        if self._send_first():  # what need not wait for the disk goes out before this thread does
            self._loop.call_soon(self._commit_now)
        else:
            self._commit_now()

    def _commit_now(self) -> None:
        self._scheduled = False
        started_s = perf_counter()
        self._journal.flush()
        self._average_s += _WEIGHT * (perf_counter() - started_s - self._average_s)
        if self._average_s > _SLOW_S:
            self._left_to_thread = _SLOW_COMMITS
        for commit in list(self._waiting):
            if commit.done:
                self._done(commit)
            else:  # a thread is about to tell its outcome
                commit.on_done(partial(self._done_soon, commit))

    def _leave_to_thread(self, commit: Commit) -> None:
        commit.on_done(partial(self._done_soon, commit))
        self._journal.wake_flusher()

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


def _error_of(commit: Commit) -> PenstockError | None:
    if not commit.failed:
        return None
    try:
        commit.result()
    except PenstockError as error:
        return error
    return None
