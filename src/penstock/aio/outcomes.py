"""Waiting for commits without a thread: one call wakes all tasks that wait for the same one."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import Protocol

from penstock.journal import Commit


class Outcomes(Protocol):
    """Tells tasks of one event loop when commits are done."""

    def of(self, commit: Commit) -> asyncio.Future[None]:
        """Done when the commit is."""


class ThreadOutcomes:
    """The commits that tasks of one event loop wait for; the broker's commit thread does them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._create_future = loop.create_future
        self._call_soon_threadsafe = loop.call_soon_threadsafe
        self._waiting: dict[Commit, list[asyncio.Future[None]]] = {}

    def of(self, commit: Commit) -> asyncio.Future[None]:
        """Done when the commit is."""
        future = self._create_future()
        waiting = self._waiting.get(commit)
        if waiting is not None:
            waiting.append(future)
        else:
            self._waiting[commit] = [future]
            commit.on_done(partial(self._wake_soon, commit))
            commit.hurry()
        return future

    def _wake_soon(self, commit: Commit) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
            self._call_soon_threadsafe(self._wake, commit)

    def _wake(self, commit: Commit) -> None:
        for future in self._waiting.pop(commit):
            if not future.done():
                future.set_result(None)
