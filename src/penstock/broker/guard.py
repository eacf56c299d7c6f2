"""Refusing publishes before the disk is full, so that there is room left for everything else."""

from __future__ import annotations

from penstock.journal import Journal
from penstock.model.clock import Clock
from penstock.model.config import BrokerConfig
from penstock.model.errors import DiskFull, Overloaded
from penstock.model.units import format_size
from penstock.storage import Storage

_LOOK_AGAIN_BYTES = 1 << 20
_LOOK_AGAIN_S = 0.1


class DiskGuard:
    """Looks at the disk now and then, and counts what was taken since."""

    def __init__(self, storage: Storage, config: BrokerConfig, clock: Clock, journal: Journal) -> None:
        self._storage, self._config, self._clock, self._journal = storage, config, clock, journal
        self._taken_bytes = _LOOK_AGAIN_BYTES
        self._looked_s = 0.0
        self._free_bytes = 0
        self._journal_bytes = 0

    def check(self, size_bytes: int) -> None:
        """Raise if a message of this size must be refused; under the state lock."""
        now_s = self._clock.monotonic_s()
        if self._taken_bytes >= _LOOK_AGAIN_BYTES or now_s - self._looked_s >= _LOOK_AGAIN_S:
            self._taken_bytes, self._looked_s = 0, now_s
            self._free_bytes = self._storage.free_bytes()
            self._journal_bytes = sum(file.end for file in self._journal.files.values())
        taken = self._taken_bytes + size_bytes
        if self._free_bytes - taken < self._config.min_free_bytes:
            self._looked_s = 0.0
            raise DiskFull(
                f"the disk has {format_size(max(0, self._free_bytes))} free, and "
                f"{format_size(self._config.min_free_bytes)} must stay free (min_free_bytes): nothing was published; free some space and publish again"
            )
        if self._journal_bytes + taken > self._config.max_unsettled_bytes:
            self._looked_s = 0.0
            raise Overloaded(
                f"{format_size(self._journal_bytes)} of journal wait to be settled; the limit is "
                f"{format_size(self._config.max_unsettled_bytes)} (max_unsettled_bytes): publish again later"
            )
        self._taken_bytes = taken
