"""Signals wait for the operation under way: a half-done change of state would be worse than a moment's delay."""

from __future__ import annotations

import functools
import importlib
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import ParamSpec, TypeVar

_fast = importlib.import_module("_signal")  # what `signal` wraps; its enums cost ten times the call
_main = threading.main_thread()
_SIGNALS = (int(signal.SIGINT), int(signal.SIGTERM), int(signal.SIGHUP))
_Handler = Callable[[int, FrameType | None], object]
_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


class Uninterrupted:
    """A context in which the handlers of signals are held back to its end; they run in the main thread only anyway.

    Ctrl-C has one that raises KeyboardInterrupt; programs give SIGTERM one that raises SystemExit.
    """

    __slots__ = ("_came", "_handlers")

    def __enter__(self) -> None:
        self._handlers: list[tuple[int, _Handler]] = []
        if threading.current_thread() is _main:
            self._came: list[tuple[int, FrameType | None]] = []
            for number in _SIGNALS:
                handler = _fast.getsignal(number)
                if callable(handler):
                    self._handlers.append((number, handler))
                    _fast.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came.append((number, frame))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._handlers:
            for number, handler in self._handlers:
                _fast.signal(number, handler)
            for came, frame in self._came:
                dict(self._handlers)[came](came, frame)


def uninterrupted(operation: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """The same operation, which signals wait for."""

    @functools.wraps(operation)
    def whole(*args: _Given.args, **kwargs: _Given.kwargs) -> _Result:
        with Uninterrupted():
            return operation(*args, **kwargs)

    return whole
