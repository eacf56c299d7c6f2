"""Ctrl-C waits for the operation under way: a half-done change of state would be worse than a moment's delay."""

from __future__ import annotations

import importlib
import signal
import threading
from types import FrameType, TracebackType

_fast = importlib.import_module("_signal")  # what `signal` wraps; its enums cost ten times the call
_main = threading.main_thread()


class Uninterrupted:
    """A context in which Ctrl-C is noted and raised at the end; it reaches only the main thread anyway."""

    __slots__ = ("_noted", "_shielding")

    def __enter__(self) -> None:
        self._noted = False
        self._shielding = (
            threading.current_thread() is _main and _fast.getsignal(signal.SIGINT) is signal.default_int_handler
        )
        if self._shielding:
            _fast.signal(signal.SIGINT, self._note)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self._noted = True

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._shielding:
            _fast.signal(signal.SIGINT, signal.default_int_handler)
            if self._noted:
                raise KeyboardInterrupt
