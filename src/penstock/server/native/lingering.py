"""Looking for the next request a moment longer, before the loop goes to sleep.

Who asks for one thing at a time sends the next request soon after a reply. To put a processor to sleep and wake it
again takes about as long, above all in a virtual machine. So after a reply the loop looks for more in some turns that
do not wait. Where that was in vain, it is tried less and less often.
"""

from __future__ import annotations

import asyncio
import os

_TURNS = 80  # about 0.2 ms
_IN_VAIN_MAX = 8  # then one reply of 256 is followed by a look


class Lingering:
    """Keeps one loop awake."""

    def __init__(self, loop: asyncio.AbstractEventLoop, processors: int | None = None) -> None:
        self._loop = loop
        self._turns = _TURNS if (processors or _processors()) > 1 else 0  # the client needs one, too
        self._left = 0  # turns
        self._is_looking = False
        self._in_vain = 0  # how often, one after the other
        self._unfollowed = 0  # how many of the next replies are not followed by a look

    def heard(self) -> None:
        """Something came from a client."""
        if self._is_looking:
            self._left = self._in_vain = 0

    def replied(self) -> None:
        """Something went out to a client."""
        if self._unfollowed:
            self._unfollowed -= 1
            return
        self._left = self._turns
        if not self._is_looking and self._turns:
            self._is_looking = True
            self._in_vain += 1
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        if self._left:
            self._left -= 1
            self._loop.call_soon(self._look)
            return
        self._is_looking = False
        if self._in_vain:
            self._in_vain = min(self._in_vain, _IN_VAIN_MAX)
            self._unfollowed = (1 << self._in_vain) - 1


def _processors() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
