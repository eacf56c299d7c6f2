"""Ctrl-C at the right moment: at once while a command waits, and otherwise when the step under way is done."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Self


class Interrupts:
    """While this is entered, Ctrl-C raises only where the command waits or asks; a second one raises anywhere."""

    def __init__(self) -> None:
        self._came = False
        self._waiting = False
        self._before: object = None

    def __enter__(self) -> Self:
        before = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is threading.main_thread() and before is not signal.SIG_IGN:
            self._before = before
            signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)  # type: ignore[arg-type]

    def check(self) -> None:
        """Raise if Ctrl-C was pressed."""
        if self._came:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Something that may take for ever and that can be left at any point."""
        self._waiting = True
        try:
            self.check()
            yield
        finally:
            self._waiting = False

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._waiting or self._came:
            raise KeyboardInterrupt
        self._came = True
