"""Where the outcome of a message is told to the thread that published it."""

from __future__ import annotations

import concurrent.futures
import threading
from typing import Any

from penstock.model.message import MessageId

_PENDING, _FINISHED = "PENDING", "FINISHED"  # as the library calls the states of a future
_making = threading.Lock()


class Report(concurrent.futures.Future[MessageId]):
    """A future that costs little as long as nobody waits for it.

    A future of the library is made with a condition, a lock and two lists, which costs more than to publish a message.
    Here they are made when somebody waits, cancels or wants to be called; until then an outcome is two assignments.
    """

    _state = _PENDING
    _result: MessageId | None = None
    _exception: BaseException | None = None

    def __init__(self) -> None:
        """Make nothing: see the class."""

    def __getattr__(self, name: str) -> Any:
        if name not in ("_condition", "_waiters", "_done_callbacks"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        own = vars(self)
        with _making:
            if "_condition" not in own:
                own["_waiters"], own["_done_callbacks"], own["_condition"] = [], [], threading.Condition()
        return own[name]

    def done(self) -> bool:
        return self._state != _PENDING  # nobody says that it is running

    def result(self, timeout: float | None = None) -> MessageId:
        if self._state == _FINISHED and self._result is not None:
            return self._result
        return super().result(timeout)

    def set_result(self, result: MessageId) -> None:
        if not self._finish(result, None):
            super().set_result(result)

    def set_exception(self, exception: BaseException | None) -> None:
        if not self._finish(None, exception):
            super().set_exception(exception)

    def _finish(self, result: MessageId | None, exception: BaseException | None) -> bool:
        """Set the outcome, if nobody has asked for it; else that is the library's to do."""
        with _making:
            if "_condition" in vars(self) or self._state != _PENDING:
                return False
            self._result, self._exception = result, exception
            self._state = _FINISHED  # last: whoever sees it reads the others
        return True


class Answer:
    """The outcome of one message, for one thread that waits for it; at a bare lock, which signals leave as it is."""

    __slots__ = ("_answered", "_error", "_identity", "_is_done")

    def __init__(self) -> None:
        self._answered = threading.Lock()
        self._answered.acquire()
        self._identity: MessageId | None = None
        self._error: BaseException | None = None
        self._is_done = False

    def done(self) -> bool:
        """Whether it is known."""
        return self._is_done

    def set_result(self, identity: MessageId) -> None:
        """It was published."""
        self._identity, self._is_done = identity, True
        self._answered.release()

    def set_exception(self, error: BaseException) -> None:
        """It was not published."""
        self._error, self._is_done = error, True
        self._answered.release()

    def wait(self) -> MessageId:
        """Wait for it."""
        self._answered.acquire()
        if self._error is not None:
            raise self._error
        assert self._identity is not None
        return self._identity
