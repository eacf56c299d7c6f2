"""Standard output as messages are written to it, and when its reader has them."""

from __future__ import annotations

import array
import fcntl
import io
import os
import select
import stat
import sys
import termios
import time
from collections.abc import Callable

from penstock.cli.errors import CommandError

_LOOKS = 50
_PAUSE_S = 0.000_02
_PAUSE_MAX_S = 0.02


class Lines:
    """Writes bytes to standard output. A pipe has a reader who may leave: it tells what that reader took."""

    def __init__(self) -> None:
        if sys.stdout is None:
            raise CommandError("there is no standard output", "let it go to a file or to a pipe")
        sys.stdout.flush()
        self._stream = sys.stdout.buffer
        self._pipe: int | None = None
        try:
            descriptor = self._stream.fileno()
        except io.UnsupportedOperation:
            return
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            self._pipe = descriptor
            self._poll = select.poll()
            self._poll.register(descriptor, 0)  # errors are told anyway: the reader has gone

    @property
    def has_reader(self) -> bool:
        """Whether somebody reads it from a pipe."""
        return self._pipe is not None

    def write(self, data: bytes) -> None:
        """Write it, perhaps only as far as a buffer."""
        self._stream.write(data)

    def flush(self) -> None:
        """Hand over what was written."""
        self._stream.flush()

    def wait_taken(self, idle: Callable[[], None]) -> None:
        """Return when the reader has everything, calling `idle` meanwhile; BrokenPipeError if it left before."""
        self.flush()
        looks = 0
        while self._pipe is not None and self._left_bytes():
            if self._poll.poll(0):
                raise BrokenPipeError
            looks += 1
            if looks > _LOOKS:  # it is not a quick one
                idle()
                time.sleep(min(_PAUSE_MAX_S, looks * _PAUSE_S))
            else:
                os.sched_yield()

    def _left_bytes(self) -> int:
        count = array.array("i", [0])
        try:
            fcntl.ioctl(self._pipe or 0, termios.FIONREAD, count)
        except OSError:  # this system does not tell
            return 0
        return count[0]
