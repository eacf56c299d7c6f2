"""Schedules as the log keeps them: each is a message of the topic `penstock.schedules` that was not withdrawn."""

from __future__ import annotations

import logging

import msgspec

from penstock.delivery.offsets import Offsets
from penstock.model.config import GIB, BrokerConfig
from penstock.model.errors import InvalidArgument, PenstockError
from penstock.model.intake import check_message
from penstock.model.message import Message
from penstock.model.names import check_group_name
from penstock.model.schedules import SCHEDULES, Schedule, check_open_topic
from penstock.model.units import TIME_US_MAX

_ANY_SIZE = BrokerConfig(max_value_bytes=GIB, max_key_bytes=GIB, max_headers_bytes=GIB)
_log = logging.getLogger("penstock")

encode_schedule = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Schedule).decode


class ScheduleTable:
    """All schedules by name, each with the offsets of its messages: one, but for what was forged once."""

    __slots__ = ("_by_offset", "known")

    def __init__(self) -> None:
        self.known: dict[str, tuple[Schedule, Offsets]] = {}
        self._by_offset: dict[int, str] = {}

    def take(self, offset: int, value: bytes) -> None:
        """Take in a message; what is no schedule is left out, for earlier versions let clients write there."""
        try:
            schedule = _check(_decode(value))
        except (msgspec.MsgspecError, PenstockError) as error:
            _log.error("%s/0/%d is left out: it is no schedule: %s", SCHEDULES, offset, error)
            return
        _, offsets = self.known.get(schedule.name, (None, Offsets()))
        if offsets:
            _log.warning("the schedule %s is there more than once: that of offset %d counts", schedule.name, offset)
        self.known[schedule.name] = (schedule, offsets | Offsets([offset]))
        self._by_offset[offset] = schedule.name

    def withdraw(self, offsets: Offsets) -> None:
        """Let go of messages."""
        for offset in offsets:
            name = self._by_offset.pop(offset, None)
            if name is None:
                continue
            schedule, own = self.known[name]
            own = own - Offsets([offset])
            if own:
                self.known[name] = (schedule, own)
            else:
                del self.known[name]


def _check(schedule: Schedule) -> Schedule:
    """The schedule itself, if it could have been made by the broker."""
    check_group_name(schedule.name, "schedule")
    check_open_topic(schedule.topic)
    from penstock.delivery.cron import Cron  # who reads a directory in Spark has no library for it, and no schedules

    Cron.parse(schedule.cron, schedule.zone)
    for time_us in (schedule.next_us, schedule.life_us):
        if not 0 <= time_us <= TIME_US_MAX:
            raise InvalidArgument(f"{time_us} µs is no time before the end of the year 9999")
    single = schedule.message
    if single.deliver_at_us or single.expires_at_us or single.dedupe_id is not None:
        raise InvalidArgument("a scheduled message has no time and no dedupe_id of its own")
    check_message(Message(single.value, single.key, single.headers, single.priority), _ANY_SIZE, 0)
    return schedule
