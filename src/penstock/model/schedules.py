"""What is still to come: delayed messages, and messages that are published again and again."""

from __future__ import annotations

from datetime import datetime

import msgspec

from penstock.model.errors import InvalidArgument
from penstock.model.message import MessageId
from penstock.model.names import check_topic_name
from penstock.model.singles import Single
from penstock.model.units import to_datetime

SCHEDULES = "penstock.schedules"
"""The topic in which a broker keeps its schedules; nobody else writes or consumes there."""


def check_open_topic(name: object) -> str:
    """The name itself, when it may name a topic that is not the broker's own."""
    checked = check_topic_name(name)
    if checked == SCHEDULES:
        raise InvalidArgument(
            f"the topic {checked} is the broker's own: it can be read; schedules are made and removed by their names"
        )
    return checked


class DelayedMessage(msgspec.Struct, frozen=True, gc=False):
    """A message that is not due yet."""

    id: MessageId
    due_us: int

    @property
    def due_at(self) -> datetime:
        """When it falls due (UTC)."""
        return to_datetime(self.due_us)


class Schedule(msgspec.Struct, frozen=True):
    """A message that is published again and again."""

    name: str
    cron: str
    zone: str
    topic: str
    message: Single
    paused: bool = False
    next_us: int = 0
    """When it fires next; 0 while it is paused."""
    life_us: int = 0
    """How long each message lives from when it is published; 0: for ever."""

    @property
    def next_at(self) -> datetime | None:
        """When it fires next (UTC); None while it is paused."""
        return to_datetime(self.next_us) if self.next_us else None
