"""A replay through a client: its filter and its function run here, a group is made by the server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from penstock.client.received import messages_of
from penstock.model.errors import InvalidArgument
from penstock.model.message import StoredMessage
from penstock.model.options import check_rate
from penstock.model.pace import Pace
from penstock.model.units import Time, parse_time_us
from penstock.protocol.consuming import runs_of
from penstock.protocol.session import Page, Read

Choice = Callable[[StoredMessage], bool]


class Replaying:
    """One replay: its window, checked as the broker does, and what was chosen so far."""

    def __init__(
        self,
        topic: str,
        to: str | Callable[[StoredMessage], object],
        from_time: Time | None,
        to_time: Time | None,
        from_offset: int | None,
        to_offset: int | None,
        partition: int | None,
        filter: Choice | None,  # noqa: A002 - the name of the argument
        rate: float | None,
    ) -> None:
        from_us = None if from_time is None else parse_time_us(from_time)
        to_us = None if to_time is None else parse_time_us(to_time)
        start, end = _offset("from_offset", from_offset), _offset("to_offset", to_offset)
        if _is_before(to_us, from_us) or _is_before(end, start):
            raise InvalidArgument("the window of the replay ends before it begins")
        if not isinstance(to, str) and not callable(to):
            raise InvalidArgument(f"{to!r} is not the name of a group and not a function")
        self.request = Read(topic, 0, start or 0, end, from_us, to_us, replay=True)
        self.partition = partition
        self._function = None if isinstance(to, str) else to
        self._filter = filter
        self._pace = Pace(check_rate(rate))
        self._offsets: dict[int, list[int]] = {}
        self.count = 0
        self.to_group: dict[str, Any] | None = None
        """The arguments by which the server makes the group, if there is to be one."""
        if self._function is None:
            self.to_group = {
                "topic": topic,
                "to": to,
                "from_time": from_time,
                "to_time": to_time,
                "from_offset": from_offset,
                "to_offset": to_offset,
                "partition": partition,
                "rate": rate,
            }

    @property
    def reads(self) -> bool:
        """Whether the messages are needed here."""
        return self._function is not None or self._filter is not None

    def check_partition(self, partitions: range) -> None:
        """Raise if the topic has not got the partition that is asked for."""
        if self.partition is not None and self.partition not in partitions:
            raise InvalidArgument(
                f"{self.request.topic} has no partition {self.partition!r}: it has 0 to {partitions[-1]}"
            )

    def chosen(self, page: Page) -> Iterator[StoredMessage]:
        """Those messages of a page that the filter lets through."""
        for rows in page.rows:
            for message in messages_of(rows, StoredMessage):
                if self._filter is None or self._filter(message):
                    yield message

    def ahead_s(self) -> float:
        """How long to wait before the next message, to keep to the rate."""
        return 0.0 if self._function is None else self._pace.ahead_s(time.monotonic())

    def take(self, message: StoredMessage) -> None:
        """Call the function with a message, or note it for the group."""
        if self._function is not None:
            self._pace.went(1, time.monotonic())
            self._function(message)
        else:
            self._offsets.setdefault(message.partition, []).append(message.offset)
        self.count += 1

    @property
    def only(self) -> dict[str, list[int]] | None:
        """What the group gets, as runs by partition; None: everything in the window."""
        if self._filter is None:
            return None
        return {str(number): runs_of(offsets) for number, offsets in self._offsets.items()}


def _offset(name: str, offset: int | None) -> int | None:
    if offset is not None and (not isinstance(offset, int) or isinstance(offset, bool) or offset < 0):
        raise InvalidArgument(f"{name}: {offset!r} is not an offset: they are whole numbers from 0")
    return offset


def _is_before(last: int | None, first: int | None) -> bool:
    return first is not None and last is not None and last < first
