"""What the commands of a group take and give back: a moment, messages that were picked, what became of others."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from penstock.delivery.leases import Lease
from penstock.delivery.offsets import Offsets
from penstock.model.events import Event, EventKind

Logged = tuple[int, Event]
"""An event to be logged, by the number of its partition."""


class Moment(msgspec.Struct, frozen=True, gc=False):
    """Now: by the wall clock, for what is written down, and by the monotonic one, for leases."""

    wall_us: int
    monotonic_s: float


class Pick(NamedTuple):
    """Messages of one lane of one partition, in the order of their offsets."""

    lease: Lease
    lane: int
    offsets: Offsets


class Dying(NamedTuple):
    """Messages that must go to the dead letters: their content has to be read for that first."""

    partition: int
    offsets: Offsets
    kind: EventKind | None
    """How the last delivery ended: FAILED, EXPIRED, or None where it was not a delivery that failed."""
    consumer: str | None
    cause: str
    era: int
    """Of the claims that they were held by."""


class Outcome:
    """What a command led to: events to be logged, by partition; messages to be buried; offsets that were refused."""

    __slots__ = ("dying", "events", "refused")

    def __init__(self) -> None:
        self.events: list[Logged] = []
        self.dying: list[Dying] = []
        self.refused = Offsets()
