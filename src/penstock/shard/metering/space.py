"""Refusals for lack of space: told in the log, not too often, and known for a while to whoever asks."""

from __future__ import annotations

import logging

from penstock.model.clock import Clock
from penstock.model.errors import DiskFull

_log = logging.getLogger("penstock")
_TELL_AGAIN_S = 10.0
_RECENT_S = 10.0


class SpaceRefusals:
    """What was refused because the disk is full; noted by whoever refuses it, from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_s = self._told_s = float("-inf")
        self._untold = 0

    def note(self, error: DiskFull) -> DiskFull:
        """Note a refusal; the error, to be raised."""
        self._last_s = now_s = self._clock.monotonic_s()
        self._untold += 1
        if now_s - self._told_s >= _TELL_AGAIN_S:
            refusals, self._untold, self._told_s = self._untold, 0, now_s
            _log.warning("refused for lack of space: %s", error, extra={"refusals": refusals})
        return error

    def recent(self) -> bool:
        """Whether something was refused within the last seconds."""
        return self._clock.monotonic_s() - self._last_s < _RECENT_S
