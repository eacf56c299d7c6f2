"""A message on its way in, a message as it was stored, and the id that names it everywhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, overload

import msgspec

from penstock.model.bounds import shown
from penstock.model.errors import InvalidArgument
from penstock.model.names import Priority, check_topic_name
from penstock.model.units import Duration, Time, to_datetime

Data = bytes | str
_DIGITS_MAX = 18  # of partitions and offsets: more than there will ever be


class MessageId(msgspec.Struct, frozen=True, order=True, gc=False):
    """The place of a message, the same on every path.

    >>> str(MessageId("orders", 2, 45678))
    'orders/2/45678'
    >>> MessageId.parse("orders/2/45678").offset
    45678
    """

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"

    @classmethod
    def parse(cls, text: str) -> MessageId:
        """The id written as `topic/partition/offset`."""
        parts = text.split("/") if len(text) < 250 else []
        if len(parts) != 3 or not all(
            number.isascii() and number.isdigit() and len(number) <= _DIGITS_MAX for number in parts[1:]
        ):
            raise InvalidArgument(f"{shown(text)} is not a message id: they look like 'orders/2/45678'")
        return cls(check_topic_name(parts[0]), int(parts[1]), int(parts[2]))


class Message(msgspec.Struct, gc=False):
    """A message to publish. Text is stored as UTF-8; `delay` and `expires_in` count from the moment of publishing."""

    value: Data
    key: Data | None = None
    headers: Mapping[str, str] | None = None
    priority: Priority = "normal"
    delay: Duration | None = None
    deliver_at: Time | None = None
    partition: int | None = None
    dedupe_id: str | None = None
    expires_in: Duration | None = None


class StoredMessage(msgspec.Struct, frozen=True, gc=False):
    """A message as the log holds it: the same bytes at the same offset, for ever."""

    topic: str
    partition: int
    offset: int
    timestamp_us: int
    value: bytes
    key: bytes | None
    headers: dict[str, str] | None
    priority: int
    deliver_at_us: int | None
    dedupe_id: str | None
    expires_at_us: int | None = None

    @property
    def id(self) -> MessageId:
        """`topic/partition/offset`."""
        return MessageId(self.topic, self.partition, self.offset)

    @property
    def timestamp(self) -> datetime:
        """When the broker took the message (UTC)."""
        return to_datetime(self.timestamp_us)

    @property
    def deliver_at(self) -> datetime | None:
        """When the message falls due (UTC), if it was delayed."""
        return None if self.deliver_at_us is None else to_datetime(self.deliver_at_us)

    @property
    def expires_at(self) -> datetime | None:
        """When the message is no longer worth delivering (UTC), if it has a time to live."""
        return None if self.expires_at_us is None else to_datetime(self.expires_at_us)


class IdRun(NamedTuple):
    """Consecutive offsets of one partition."""

    partition: int
    base: int
    count: int  # type: ignore[assignment]


class MessageIds(Sequence[MessageId]):
    """The ids of a published batch, in the order of its messages; made only when looked at.

    `runs` tells the same in a few numbers: what the broker assigned, partition by partition.
    """

    __slots__ = ("places", "runs", "topic")

    def __init__(self, topic: str, runs: Sequence[IdRun], places: Sequence[tuple[int, int]] | None = None) -> None:
        self.topic = topic
        self.runs = tuple(runs)
        self.places = places  # (partition, offset) a message, where one run does not tell it

    def __len__(self) -> int:
        return len(self.places) if self.places is not None else sum(run.count for run in self.runs)

    @overload
    def __getitem__(self, index: int) -> MessageId: ...
    @overload
    def __getitem__(self, index: slice) -> list[MessageId]: ...
    def __getitem__(self, index: int | slice) -> MessageId | list[MessageId]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        if self.places is not None:
            return MessageId(self.topic, *self.places[place])
        for run in self.runs:
            if place < run.count:
                return MessageId(self.topic, run.partition, run.base + place)
            place -= run.count
        raise AssertionError("a place inside the batch lies in one of its runs")

    def __iter__(self) -> Iterator[MessageId]:
        if self.places is not None:
            return (MessageId(self.topic, *place) for place in self.places)
        return (
            MessageId(self.topic, run.partition, offset)
            for run in self.runs
            for offset in range(run.base, run.base + run.count)
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        runs = ", ".join(f"{self.topic}/{run.partition}/{run.base}+{run.count}" for run in self.runs)
        return f"<{len(self)} message ids: {runs}>"
