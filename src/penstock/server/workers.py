"""The threads in which a server does what may block, for all of its ports."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from penstock.model.errors import Overloaded, PenstockError
from penstock.server.threads import RequestThreads

_log = logging.getLogger("penstock.server")
_THREADS = 16
_WAITING_MAX = 1000
_SLOW_MAX = 64  # what may take hours does not keep the others waiting

Result = TypeVar("Result")


class Workers:
    """Runs work in threads and goes on with its result on the event loop; there is a limit to what may wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._threads = RequestThreads(_THREADS)
        self._slow_threads = RequestThreads(_SLOW_MAX)
        self._in_threads = self._slow = 0

    @property
    def busy(self) -> bool:
        """Whether anything is under way."""
        return bool(self._in_threads or self._slow)

    def in_thread(
        self, work: Callable[[], Result], then: Callable[[Result], None], failed: Callable[[BaseException], None]
    ) -> None:
        """Do what may block in a thread, and go on with its result here."""
        if self._in_threads >= _WAITING_MAX:
            raise Overloaded(f"{_WAITING_MAX} requests of this kind are under way already: try later")
        self._in_threads += 1
        self._threads.submit(partial(self._run, work, then, failed, self._ended))

    def in_slow_thread(
        self, work: Callable[[], Result], then: Callable[[Result], None], failed: Callable[[BaseException], None]
    ) -> None:
        """As `in_thread`, for what may take hours, such as a redrive at a limited rate."""
        if self._slow >= _SLOW_MAX:
            raise Overloaded(f"{_SLOW_MAX} requests that take long are under way already: try later")
        self._slow += 1
        self._slow_threads.submit(partial(self._run, work, then, failed, self._slow_ended))

    async def run(self, work: Callable[[], Result], *, slow: bool = False) -> Result:
        """The result of work that may block; work that nobody waits for any more is finished all the same."""
        future: asyncio.Future[Result] = self._loop.create_future()
        submit = self.in_slow_thread if slow else self.in_thread
        submit(partial(_try, work), partial(_tell, future), partial(_fail, future))
        return await future

    def stop(self) -> None:
        """End the threads once they have nothing more to do; nobody waits for that."""
        self._threads.stop()
        self._slow_threads.stop()

    def _run(
        self,
        work: Callable[[], Result],
        then: Callable[[Result], None],
        failed: Callable[[BaseException], None],
        ended: Callable[[], None],
    ) -> None:
        go_on: Callable[[], None]
        try:
            go_on = partial(then, work())
        except BaseException as error:  # noqa: BLE001 - whoever asked hears of it
            if not isinstance(error, PenstockError):
                _log.exception("a request failed")
            go_on = partial(failed, error)

        def back() -> None:
            ended()
            go_on()

        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
            self._loop.call_soon_threadsafe(back)

    def _ended(self) -> None:
        self._in_threads -= 1

    def _slow_ended(self) -> None:
        self._slow -= 1


def _try(work: Callable[[], Result]) -> tuple[Result, None] | tuple[None, BaseException]:
    """What came of it: whoever waits for the result also deals with an error, which is not logged here then."""
    try:
        return work(), None
    except BaseException as error:  # noqa: BLE001 - see above
        return None, error


def _tell(future: asyncio.Future[Any], outcome: tuple[Any, BaseException | None]) -> None:
    result, error = outcome
    if error is not None:
        _fail(future, error)
    elif not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
    elif not isinstance(error, PenstockError):
        _log.error("a request that nobody waits for any more failed", exc_info=error)
