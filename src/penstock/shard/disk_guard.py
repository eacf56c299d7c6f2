"""Refusing publishes before the disk is full, so that there is room left for everything else."""

from __future__ import annotations

from penstock.journal.files import JournalFiles
from penstock.model.config import BrokerConfig
from penstock.model.errors import DiskFull, Overloaded
from penstock.model.units import format_size
from penstock.shard.metering.meters import SpaceRefusals
from penstock.storage import Storage

_LOOK_AGAIN_BYTES = 1 << 20
_LOOK_AGAIN_US = 100_000


class DiskGuard:
    """Looks at the disk now and then, and counts what was taken since."""

    def __init__(self, storage: Storage, config: BrokerConfig, journal: JournalFiles, refusals: SpaceRefusals) -> None:
        self._storage, self._config, self._journal, self._refusals = storage, config, journal, refusals
        self._taken_bytes = _LOOK_AGAIN_BYTES
        self._looked_us = 0
        self._free_bytes = 0
        self._journal_bytes = 0

    def check(self, size_bytes: int, now_us: int) -> None:
        """Raise if a message of this size must be refused."""
        taken = self._taken_after(size_bytes, now_us)
        if self._journal_bytes + taken > self._config.max_unsettled_bytes:
            self._looked_us = 0
            raise Overloaded(
                f"{format_size(self._journal_bytes + self._taken_bytes)} of journal wait to be settled; the limit is "
                f"{format_size(self._config.max_unsettled_bytes)} (max_unsettled_bytes): publish again later"
            )
        self._taken_bytes = taken

    def check_room(self, size_bytes: int, now_us: int) -> None:
        """As `check`, for bytes that go elsewhere than into the journal."""
        self._taken_bytes = self._taken_after(size_bytes, now_us)

    def _taken_after(self, size_bytes: int, now_us: int) -> int:
        """What will be taken since the disk was looked at; raises if too little would be left of it."""
        if self._taken_bytes >= _LOOK_AGAIN_BYTES or abs(now_us - self._looked_us) >= _LOOK_AGAIN_US:
            self._taken_bytes, self._looked_us = 0, now_us
            self._free_bytes = self._storage.free_bytes()
            self._journal_bytes = sum(file.end for file in self._journal.files.values())
        taken = self._taken_bytes + size_bytes
        if self._free_bytes - taken < self._config.min_free_bytes:
            self._looked_us = 0
            raise self._refusals.note(
                DiskFull(
                    f"the disk has {format_size(max(0, self._free_bytes))} free, and "
                    f"{format_size(self._config.min_free_bytes)} must stay free (min_free_bytes): "
                    "nothing of this was written; free some space and try again"
                )
            )
        return taken
