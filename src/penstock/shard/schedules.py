"""Recurring publication: a schedule is itself a message, delayed until it fires next, in a topic of its own.

When it fires, the message it speaks of, the withdrawal of the schedule's old message and its new one are one
commit: after a crash it has fired or it has not. What was missed while the broker was down fires once.

The table of schedules is folded from that topic (`log.schedules`). Changes that are on the way to the disk are kept
beside it, so that the next change builds upon them; when they are refused, they are forgotten, and what was to fire is
tried again.
"""

from __future__ import annotations

import heapq
import logging
from array import array
from collections.abc import Iterator

import msgspec

from penstock.delivery.cron import Cron
from penstock.delivery.offsets import Offsets, written
from penstock.journal import Commit
from penstock.log.effects import SchedulesRefused, SchedulesWithdrawn, SchedulesWritten
from penstock.log.fold import load_schedules
from penstock.log.schedules import ScheduleTable, encode_schedule
from penstock.model.batch import Batch
from penstock.model.bounds import shown
from penstock.model.errors import CorruptData, InvalidArgument, PenstockError, ScheduleNotFound
from penstock.model.events import Event, EventKind
from penstock.model.intake import check_message
from penstock.model.message import Message, StoredMessage
from penstock.model.names import check_group_name
from penstock.model.schedules import SCHEDULES, Schedule, check_open_topic
from penstock.model.singles import batch_of
from penstock.model.units import TIME_US_MAX
from penstock.segments.window import Window
from penstock.shard.core import Core
from penstock.shard.dispatch.dispatcher import Dispatcher
from penstock.shard.flow import check_flow
from penstock.shard.publishing import Publishing
from penstock.shard.reading.log_reader import LogReader, LogSource

_TRY_AGAIN_US = 1_000_000
_BROKEN_US = 60_000_000
_log = logging.getLogger("penstock")

_Known = tuple[Schedule, Offsets]
"""A schedule, and the offsets of its messages."""
_Coming = tuple[Schedule | None, Offsets]
"""The same, where it is on its way to the disk; with no schedule, its messages are on their way out."""


class Schedules:
    """All schedules of a broker."""

    def __init__(self, core: Core, publishing: Publishing, dispatcher: Dispatcher) -> None:
        self._core, self._publishing, self._dispatcher = core, publishing, dispatcher
        self._table = ScheduleTable()
        self._coming: dict[str, _Coming] = {}
        self._retry_us: dict[str, int] = {}  # when those that could not fire are tried again
        self._alarms: list[tuple[int, str]] = []
        core.folding.listen(SchedulesWritten, self._written)
        core.folding.listen(SchedulesWithdrawn, self._withdrawn)
        core.folding.listen(SchedulesRefused, self._refused)

    def load(self) -> None:
        """Read what is scheduled; before anything else."""
        self._table = load_schedules(self._core.state, read_schedules(self._core))
        self._set_alarms()

    def all(self) -> list[Schedule]:
        """Every schedule, by name."""
        assert self._core.lock.held
        names = sorted({*self._table.known, *self._coming})
        return [known[0] for name in names if (known := self._known(name)) is not None]

    def has(self, name: str) -> bool:
        """Whether there is a schedule of this name."""
        assert self._core.lock.held
        return isinstance(name, str) and self._known(name) is not None

    def put(self, name: str, cron: str, zone: str, topic: str, message: Message) -> tuple[Schedule, Commit]:
        """Make a schedule, or another one of the same name instead."""
        check_group_name(name, "schedule")
        now_us = self._core.clock.wall_us()
        parsed = Cron.parse(cron, zone)
        if message.delay is not None or message.deliver_at is not None or message.dedupe_id is not None:
            raise InvalidArgument("a scheduled message has no delay and no dedupe_id of its own")
        single = check_message(message, self._core.config, now_us)
        life_us = single.expires_at_us - now_us if single.expires_at_us else 0
        single = msgspec.structs.replace(single, expires_at_us=0)  # each message has a time of its own
        next_us = parsed.next_after_us(now_us)
        schedule = Schedule(name, cron, zone, check_open_topic(topic), single, next_us=next_us, life_us=life_us)
        return schedule, self._write(schedule)

    def pause(self, name: str, paused: bool) -> tuple[Schedule, Commit]:
        """Stop it from firing, or let it fire again from now on."""
        schedule, _ = self._find(name)
        next_us = 0 if paused else Cron.parse(schedule.cron, schedule.zone).next_after_us(self._core.clock.wall_us())
        changed = msgspec.structs.replace(schedule, paused=paused, next_us=next_us)
        return changed, self._write(changed)

    def remove(self, name: str) -> Commit:
        """It never fires again."""
        _, offsets = self._find(name)
        self._coming[name] = (None, offsets)
        return self._withdraw(offsets)

    def fire(self, now_us: int) -> None:
        """Publish what is due."""
        assert self._core.lock.held
        while self._alarms and self._alarms[0][0] <= now_us:
            due_us, name = heapq.heappop(self._alarms)
            if self._due_us(name) != due_us:
                continue
            known = self._known(name)
            assert known is not None
            try:
                self._publish(known[0], now_us)
                self._core.journal.wake_flusher()
            except PenstockError as error:
                _log.warning("the schedule %s will be tried again: %s", name, error)
                self._try_again(name, now_us + _TRY_AGAIN_US)
            except Exception:  # noqa: BLE001 - not even a bug may keep the others waiting
                _log.exception("the schedule %s failed, and will be tried again", name)
                self._try_again(name, now_us + _BROKEN_US)

    def next_time_us(self) -> int | None:
        """When the next one fires, or is tried again."""
        return self._alarms[0][0] if self._alarms else None

    # What is on the way to the disk, and what became of it.

    def _known(self, name: str) -> _Known | None:
        """A schedule as it is, or will be once everything is written."""
        if name not in self._coming:
            return self._table.known.get(name)
        schedule, offsets = self._coming[name]
        return None if schedule is None else (schedule, offsets)

    def _written(self, effect: SchedulesWritten) -> None:
        """The table has what was written."""
        for name, (schedule, offsets) in list(self._coming.items()):
            if schedule is not None and offsets.max() in effect.offsets:
                del self._coming[name]

    def _withdrawn(self, effect: SchedulesWithdrawn) -> None:
        """What was withdrawn is not in the table any more."""
        for name, (schedule, offsets) in list(self._coming.items()):
            if schedule is None and not offsets - effect.offsets:
                del self._coming[name]
                self._retry_us.pop(name, None)

    def _refused(self, _: SchedulesRefused) -> None:
        """What is in the table holds."""
        if self._coming:
            again_us = self._core.clock.wall_us() + _TRY_AGAIN_US
            for name in self._coming:
                _log.warning("the schedule %s is as it was before: its change could not be written", name)
                self._retry_us[name] = again_us
            self._coming.clear()
            self._set_alarms()
            self._dispatcher.wake_timer()

    def _due_us(self, name: str) -> int:
        """When a schedule fires next, not before it may be tried again; 0: never."""
        known = self._known(name)
        if known is None or not known[0].next_us:
            return 0
        return max(known[0].next_us, self._retry_us.get(name, 0))

    def _set_alarms(self) -> None:
        self._alarms = [(due_us, name) for name in self._table.known if (due_us := self._due_us(name))]
        heapq.heapify(self._alarms)

    def _try_again(self, name: str, time_us: int) -> None:
        self._retry_us[name] = time_us
        heapq.heappush(self._alarms, (time_us, name))

    # Writing.

    def _publish(self, schedule: Schedule, now_us: int) -> None:
        topic = self._core.catalog.by_name.get(schedule.topic)
        if topic is not None:
            check_flow(topic, 1, 0, now_us)
        message = schedule.message
        if schedule.life_us:
            message = msgspec.structs.replace(message, expires_at_us=min(now_us + schedule.life_us, TIME_US_MAX))
        self._publishing.append_internal(schedule.topic, batch_of([message]), now_us)
        next_us = Cron.parse(schedule.cron, schedule.zone).next_after_us(now_us)
        self._write(msgspec.structs.replace(schedule, next_us=next_us))

    def _write(self, schedule: Schedule) -> Commit:
        """Put the schedule's new message in the place of its old one."""
        assert self._core.lock.held
        before = self._known(schedule.name)
        if before is not None:
            self._withdraw(before[1])
        ids, commit = self._publishing.append_schedules(batch_of_schedule(schedule), self._core.clock.wall_us())
        assert commit is not None
        self._coming[schedule.name] = (schedule, Offsets([ids[0].offset]))
        self._retry_us.pop(schedule.name, None)
        if schedule.next_us:
            heapq.heappush(self._alarms, (schedule.next_us, schedule.name))
            self._dispatcher.wake_timer()
        return commit

    def _withdraw(self, offsets: Offsets) -> Commit:
        return withdraw_schedules(self._core, offsets)

    def _find(self, name: str) -> _Known:
        assert self._core.lock.held
        found = self._known(name) if isinstance(name, str) else None
        if found is None:
            raise ScheduleNotFound(f"there is no schedule {shown(name)}")
        return found


def batch_of_schedule(schedule: Schedule) -> Batch:
    """The message that a schedule is, delayed until it fires."""
    batch = Batch([encode_schedule(schedule)], keys=[schedule.name.encode()])
    if schedule.next_us:
        batch.deliver_at = array("q", [schedule.next_us])
    return batch


def withdraw_schedules(core: Core, offsets: Offsets) -> Commit:
    """Let go of the messages of schedules."""
    first, count, others = written(offsets)
    event = Event(EventKind.PURGED, core.clock.wall_us(), first, count, offsets=others)
    return core.log_events(core.catalog.by_name[SCHEDULES], [(0, event)])


def read_schedules(source: LogSource) -> Iterator[tuple[int, bytes]]:
    """The schedules that the log holds, by offset, read from segments and journal."""
    try:
        for message in schedule_messages(source):
            yield message.offset, message.value
    except CorruptData as error:  # everything else must go on without them
        _log.error("schedules are missing: %s", error)


def schedule_messages(source: LogSource) -> Iterator[StoredMessage]:
    """The messages that schedules are, as long as they were not withdrawn."""
    topic = source.catalog.by_name.get(SCHEDULES)
    if topic is None:
        return
    partition = topic.partitions[0]
    withdrawn = Offsets() if partition.state is None else partition.state.withdrawn
    for message in LogReader(source, partition.messages).messages(Window()):
        if message.offset not in withdrawn:
            yield message
