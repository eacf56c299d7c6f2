"""The state of one log: everything that journal and checkpoint say, and nothing else.

`fold` is the only writer of what is committed. What is given out before it is committed (offsets, dedupe ids,
sequences, names of topics) is kept apart in the same objects, and `reservations` is its only writer.
"""

from __future__ import annotations

from penstock.log.records import StagedRecord
from penstock.log.schedules import ScheduleTable
from penstock.log.topics import Catalog
from penstock.log.usage import Usage
from penstock.model.config import BrokerConfig
from penstock.model.placement import ALONE, Place


class State:
    """What a log holds."""

    __slots__ = (
        "catalog",
        "config",
        "deleted",
        "files_to_delete",
        "first_new_id",
        "schedules",
        "since",
        "staged",
        "usage",
    )

    def __init__(self, config: BrokerConfig, place: Place = ALONE) -> None:
        self.config = config  # limits, and the options that topics have by default
        self.catalog = Catalog(place)
        self.usage = Usage()
        self.staged: dict[str, StagedRecord] = {}  # by producer, the one silent for longest first
        self.schedules: ScheduleTable | None = None  # None: not read yet, they may be in segments
        self.files_to_delete: list[str] = []  # nothing refers to them; they go when a checkpoint is on disk
        self.since = (0, 0)  # file and position: changes of topics and of stages before are in the checkpoint
        self.first_new_id = 1  # topics with lower numbers are in the checkpoint, or were deleted before it
        self.deleted: set[int] = set()  # numbers of topics that were deleted since
