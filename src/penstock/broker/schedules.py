"""Recurring publication: a schedule is itself a message, delayed until it fires next, in a topic of its own.

When it fires, the message it speaks of, the withdrawal of the schedule's old message and its new one are one
commit: after a crash it has fired or it has not. What was missed while the broker was down fires once.
"""

from __future__ import annotations

import heapq
import logging
from array import array
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from penstock.broker.flow import check_flow
from penstock.broker.reading import LogReader
from penstock.delivery.cron import Cron
from penstock.delivery.offsets import Offsets, written
from penstock.model.batch import Batch
from penstock.model.bounds import shown
from penstock.model.config import GIB, BrokerConfig
from penstock.model.errors import CorruptData, InvalidArgument, PenstockError, ScheduleNotFound
from penstock.model.events import Event, EventKind
from penstock.model.intake import batch_of, check_message
from penstock.model.message import Message, StoredMessage
from penstock.model.names import check_group_name
from penstock.model.schedules import SCHEDULES, Schedule, check_open_topic
from penstock.model.units import TIME_US_MAX
from penstock.segments.window import Window

if TYPE_CHECKING:
    from penstock.broker.engine import Engine
    from penstock.broker.topics import Log
    from penstock.journal import Commit

_TRY_AGAIN_US = 1_000_000
_BROKEN_US = 60_000_000
_ANY_SIZE = BrokerConfig(max_value_bytes=GIB, max_key_bytes=GIB, max_headers_bytes=GIB)
_log = logging.getLogger("penstock")


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Schedule).decode


class _Change(NamedTuple):
    """A change of the table that may not be on disk yet."""

    name: str
    before: tuple[Schedule, Offsets] | None
    commit: Commit
    log: Log
    """Where it was written last, and at which offset."""
    offset: int

    @property
    def refused(self) -> bool:
        """Whether it was not written; its offset is free again before the commit tells."""
        return self.commit.failed or (not self.commit.done and self.log.next_offset <= self.offset)


class Schedules:
    """All schedules of a broker; under the state lock unless said otherwise."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: dict[str, tuple[Schedule, Offsets]] = {}  # with its messages: one, but for what was forged once
        self._alarms: list[tuple[int, str]] = []
        self._changes: list[_Change] = []  # those that may still be refused, in order

    def load(self) -> None:
        """Read what is scheduled; without the lock, before anything else."""
        known: dict[str, tuple[Schedule, Offsets]] = {}
        topic = self._engine.catalog.by_name.get(SCHEDULES)
        if topic is not None:
            partition = topic.partitions[0]
            try:
                for message in LogReader(self._engine, partition.messages).messages(Window()):
                    if partition.state is None or message.offset not in partition.state.withdrawn:
                        self._take(known, message)
            except CorruptData as error:  # everything else must go on without them
                _log.error("schedules are missing: %s", error)
        self._known = known
        self._set_alarms()

    def _take(self, known: dict[str, tuple[Schedule, Offsets]], message: StoredMessage) -> None:
        """Take in one entry of the topic; what is none is left out, for earlier versions let clients write there."""
        try:
            schedule = _check(_decode(message.value))
        except (msgspec.MsgspecError, PenstockError) as error:
            _log.error("%s is left out: it is no schedule: %s", message.id, error)
            return
        _, offsets = known.get(schedule.name, (None, Offsets()))
        if offsets:
            _log.warning("the schedule %s is there more than once: that of %s counts", schedule.name, message.id)
        known[schedule.name] = (schedule, offsets | Offsets([message.offset]))

    def _set_alarms(self) -> None:
        self._alarms = [(schedule.next_us, name) for name, (schedule, _) in self._known.items() if schedule.next_us]
        heapq.heapify(self._alarms)

    def all(self) -> list[Schedule]:
        """Every schedule, by name."""
        self._undo_refused()
        return [schedule for _, (schedule, _) in sorted(self._known.items())]

    def put(self, name: str, cron: str, zone: str, topic: str, message: Message) -> tuple[Schedule, Commit]:
        """Make a schedule, or another one of the same name instead."""
        check_group_name(name, "schedule")
        self._undo_refused()
        now_us = self._engine.clock.wall_us()
        parsed = Cron.parse(cron, zone)
        if message.delay is not None or message.deliver_at is not None or message.dedupe_id is not None:
            raise InvalidArgument("a scheduled message has no delay and no dedupe_id of its own")
        single = check_message(message, self._engine.config, now_us)
        life_us = single.expires_at_us - now_us if single.expires_at_us else 0
        single = msgspec.structs.replace(single, expires_at_us=0)  # each message has a time of its own
        next_us = parsed.next_after_us(now_us)
        schedule = Schedule(name, cron, zone, check_open_topic(topic), single, next_us=next_us, life_us=life_us)
        return schedule, self._write(schedule)

    def pause(self, name: str, paused: bool) -> tuple[Schedule, Commit]:
        """Stop it from firing, or let it fire again from now on."""
        self._undo_refused()
        schedule = self._find(name)
        next_us = 0 if paused else Cron.parse(schedule.cron, schedule.zone).next_after_us(self._engine.clock.wall_us())
        changed = msgspec.structs.replace(schedule, paused=paused, next_us=next_us)
        return changed, self._write(changed)

    def remove(self, name: str) -> Commit:
        """It never fires again."""
        self._undo_refused()
        self._find(name)
        commit = self._withdraw(name)
        events = self._engine.catalog.by_name[SCHEDULES].partitions[0].events
        assert events is not None
        self._changes.append(_Change(name, self._known.pop(name), commit, events, events.next_offset - 1))
        return commit

    def fire(self, now_us: int) -> None:
        """Publish what is due."""
        self._undo_refused()
        while self._alarms and self._alarms[0][0] <= now_us:
            due_us, name = heapq.heappop(self._alarms)
            schedule = self._known[name][0] if name in self._known else None
            if schedule is None or schedule.next_us != due_us:
                continue
            try:
                self._publish(schedule, now_us)
                self._engine.journal.wake_flusher()
            except PenstockError as error:
                _log.warning("the schedule %s will be tried again: %s", name, error)
                self._try_again(name, now_us + _TRY_AGAIN_US)
            except Exception:  # noqa: BLE001 - not even a bug may keep the others waiting
                _log.exception("the schedule %s failed, and will be tried again", name)
                self._try_again(name, now_us + _BROKEN_US)

    def _try_again(self, name: str, next_us: int) -> None:
        schedule, offsets = self._known[name]
        self._known[name] = (msgspec.structs.replace(schedule, next_us=next_us), offsets)
        heapq.heappush(self._alarms, (next_us, name))

    def next_time_us(self) -> int | None:
        """When the next one fires, or may have to be tried again."""
        self._undo_refused()
        times_us = [self._alarms[0][0]] if self._alarms else []
        if self._changes:
            times_us.append(self._engine.clock.wall_us() + _TRY_AGAIN_US)
        return min(times_us, default=None)

    def _undo_refused(self) -> None:
        """Make the table right again where a change could not be written; what was to fire is tried again."""
        if not self._changes:
            return
        place = next((place for place, change in enumerate(self._changes) if change.refused), None)
        if place is not None:  # everything behind it was refused with it
            again_us = self._engine.clock.wall_us() + _TRY_AGAIN_US
            for change in reversed(self._changes[place:]):
                _log.warning("the schedule %s is as it was before: its change could not be written", change.name)
                if change.before is None:
                    self._known.pop(change.name, None)
                    continue
                schedule, offsets = change.before
                if schedule.next_us and schedule.next_us < again_us:
                    schedule = msgspec.structs.replace(schedule, next_us=again_us)
                self._known[change.name] = (schedule, offsets)
            del self._changes[place:]
            self._set_alarms()
        self._changes = [change for change in self._changes if not change.commit.done]

    def _publish(self, schedule: Schedule, now_us: int) -> None:
        engine = self._engine
        topic = engine.catalog.by_name.get(schedule.topic)
        if topic is not None:
            check_flow(topic, 1, 0, now_us)
        message = schedule.message
        if schedule.life_us:
            message = msgspec.structs.replace(message, expires_at_us=min(now_us + schedule.life_us, TIME_US_MAX))
        engine.append_internal(schedule.topic, batch_of([message]), now_us)
        next_us = Cron.parse(schedule.cron, schedule.zone).next_after_us(now_us)
        self._write(msgspec.structs.replace(schedule, next_us=next_us))

    def _write(self, schedule: Schedule) -> Commit:
        """Put the schedule's new message in the place of its old one."""
        if schedule.name in self._known:
            self._withdraw(schedule.name)
        batch = Batch([_encode(schedule)], keys=[schedule.name.encode()])
        if schedule.next_us:
            batch.deliver_at = array("q", [schedule.next_us])
        now_us = self._engine.clock.wall_us()
        ids, commit = self._engine.append_schedules(batch, now_us)
        assert commit is not None
        log = self._engine.catalog.by_name[SCHEDULES].partitions[0].messages
        before = self._known.get(schedule.name)
        self._changes.append(_Change(schedule.name, before, commit, log, ids[0].offset))
        self._known[schedule.name] = (schedule, Offsets([ids[0].offset]))
        if schedule.next_us:
            heapq.heappush(self._alarms, (schedule.next_us, schedule.name))
            self._engine.deliveries.wake_timer()
        return commit

    def _withdraw(self, name: str) -> Commit:
        topic = self._engine.catalog.by_name[SCHEDULES]
        first, count, others = written(self._known[name][1])
        event = Event(EventKind.PURGED, self._engine.clock.wall_us(), first, count, offsets=others)
        return self._engine.log_events(topic, [(0, event)])

    def _find(self, name: str) -> Schedule:
        found = self._known.get(name) if isinstance(name, str) else None
        if found is None:
            raise ScheduleNotFound(f"there is no schedule {shown(name)}")
        return found[0]


def _check(schedule: Schedule) -> Schedule:
    """The schedule itself, if `put` could have made it."""
    check_group_name(schedule.name, "schedule")
    check_open_topic(schedule.topic)
    Cron.parse(schedule.cron, schedule.zone)
    for time_us in (schedule.next_us, schedule.life_us):
        if not 0 <= time_us <= TIME_US_MAX:
            raise InvalidArgument(f"{time_us} µs is no time before the end of the year 9999")
    single = schedule.message
    if single.deliver_at_us or single.expires_at_us or single.dedupe_id is not None:
        raise InvalidArgument("a scheduled message has no time and no dedupe_id of its own")
    check_message(Message(single.value, single.key, single.headers, single.priority), _ANY_SIZE, 0)
    return schedule
