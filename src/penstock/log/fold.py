"""The fold: what a record does to the state. Nothing else changes what is committed.

Live commits, recovery, `penstock check` and `Snapshot` all call `apply`, so they cannot disagree. It depends on the
state and the record alone: the same journal makes the same state, whoever reads it, however often (F1).

Some changes are in no record, because the disk itself says them, or the next checkpoint: a segment that was written
(`settle`), a segment of events that was let go (`let_go`), files that are removed (`stages_removed`, `delete_later`,
`hand_over_files`, `journal_file_removed`), schedules that are still in segments (`load_schedules`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from penstock.delivery.offsets import offsets_of
from penstock.journal.layout import BlockKind
from penstock.log.dedupe import DedupeWindow
from penstock.log.effects import (
    Effect,
    Happened,
    Published,
    SchedulesWithdrawn,
    SchedulesWritten,
    TopicChanged,
    TopicDeleted,
)
from penstock.log.partition_log import Log
from penstock.log.producers import ProducerHistories
from penstock.log.records import (
    BatchOfMessages,
    Carried,
    Events,
    LostRecord,
    Messages,
    Record,
    SingleMessages,
    StagedRecord,
    StagedStep,
    StoredMessages,
    TopicChange,
)
from penstock.log.schedules import ScheduleTable
from penstock.log.state import State
from penstock.log.topics import Partition, Topic
from penstock.model.batch import TAGS
from penstock.model.config import TopicConfig, restore_topic_config
from penstock.model.events import Event, EventKind, merge_acks
from penstock.model.message import IdRun
from penstock.model.names import recovered_name
from penstock.model.stored import Place, SegmentInfo, segment_name

_NOTHING: Sequence[Effect] = ()
_GONE = (EventKind.ARCHIVED, EventKind.REMOVED)


def apply(state: State, record: Record, place: Place) -> Sequence[Effect]:
    """Take in a record that is on disk; what that means to others."""
    return _FOLDS[type(record)](state, record, place)


# Messages and events.


def _messages(state: State, record: Messages, place: Place) -> Sequence[Effect]:
    partition = _partition(state, record)
    if partition is None:
        return _NOTHING
    log, base, count = partition.messages, record.base, record.count
    is_new = base >= log.committed_end
    log.add(state.usage, base, count, place, record.timestamp_us, record.content)
    if not is_new:  # the checkpoint has it, or it was carried on
        return _NOTHING
    topic = log.topic
    topic.noted = None
    if record.flags & TAGS:
        _remember(topic, record, state.config.max_producers)
    published = Published(topic, partition, record, place[2])
    return (published, _take_schedules(state, partition, record)) if topic.reserved else (published,)


def _events(state: State, record: Events, place: Place) -> Sequence[Effect]:
    partition = _partition(state, record)
    if partition is None:
        return _NOTHING
    log = partition.event_log(record.base)
    is_new = record.base >= log.committed_end
    log.add(state.usage, record.base, record.count, place, record.timestamp_us, record.content)
    if not is_new:
        return _NOTHING
    topic, events = log.topic, list(merge_acks(record.events))
    topic.noted = None
    for event in events:
        if event.kind in _GONE:
            let_go(state, partition.messages, event)
        partition.apply(event)
    happened = Happened(topic, partition, events, record.base)
    return (happened, *_withdraw_schedules(state, events)) if topic.reserved else (happened,)


def _carried(state: State, record: Carried, place: Place) -> Sequence[Effect]:
    """Settling wrote it again, as it is, which no checkpoint says; its topic may be gone meanwhile."""
    log = _log(state, record)
    if log is not None:
        log.add(state.usage, record.base, record.count, place, record.timestamp_us, record.content)
    return _NOTHING


def _lost(state: State, record: LostRecord, _: Place) -> Sequence[Effect]:
    """A repair lost it: its offsets are never given again."""
    log = _log(state, record) if record.kind in (BlockKind.MESSAGES, BlockKind.EVENTS) else None
    if log is not None:
        log.topic.noted = None
        log.skip(record.base + record.count)
    return _NOTHING


def _log(state: State, record: Record) -> Log | None:
    partition = _partition(state, record)
    if partition is None:
        return None
    return partition.messages if record.kind == BlockKind.MESSAGES else partition.event_log(record.base)


def _partition(state: State, record: Record) -> Partition | None:
    topic = state.catalog.by_id.get(record.topic) or _lost_topic(state, record.topic)
    if topic is None:
        return None
    if record.partition >= len(topic.partitions):
        topic.noted = None
        topic.widen(record.partition + 1)
    return topic.partitions[record.partition]


def _lost_topic(state: State, number: int) -> Topic | None:
    """The topic of a record that nothing else speaks of: a repair lost its beginning; keep what is left."""
    if number < state.first_new_id or number in state.deleted:
        return None
    topic = Topic(number, recovered_name(number), TopicConfig())
    topic.committed = True
    state.catalog.add(topic)
    return topic


# Schedules.


def load_schedules(state: State, messages: Iterable[tuple[int, bytes]]) -> ScheduleTable:
    """Take in the schedules, by offset, as segments and journal hold them; records change them from then on."""
    table = ScheduleTable()
    for offset, value in messages:
        table.take(offset, value)
    state.schedules = table
    return table


def _take_schedules(state: State, partition: Partition, record: Messages) -> SchedulesWritten:
    if state.schedules is not None:
        withdrawn = () if partition.state is None else partition.state.withdrawn
        for row, value in enumerate(record.columns().values):
            if record.base + row not in withdrawn:  # another one may be in its place already
                state.schedules.take(record.base + row, value)
    return SchedulesWritten(range(record.base, record.base + record.count))


def _withdraw_schedules(state: State, events: list[Event]) -> Iterator[SchedulesWithdrawn]:
    for event in events:
        if event.kind == EventKind.PURGED:
            offsets = offsets_of(event)
            if state.schedules is not None:
                state.schedules.withdraw(offsets)
            yield SchedulesWithdrawn(offsets)


# What was published before.


def dedupe_window(topic: Topic) -> DedupeWindow:
    """The topic's memory of dedupe ids, made when the first one comes."""
    if topic.dedupe is None:
        topic.dedupe = DedupeWindow(topic.config.dedupe_window)
    return topic.dedupe


def histories(topic: Topic) -> ProducerHistories:
    """The topic's memory of producers, made when the first one comes."""
    if topic.producers is None:
        topic.producers = ProducerHistories()
    return topic.producers


def _remember(topic: Topic, record: Messages, producers_max: int) -> None:
    """Note the dedupe ids and the producers of messages, and forget the idlest producers beyond the cap."""
    tags, partition, base = record.tags(), record.partition, record.base
    if tags.dedupe_ids is not None:
        _remember_ids(topic, partition, base, record.timestamp_us, tags.dedupe_ids)
    known = topic.producers
    if known is None:
        known = histories(topic)
    if tags.origins is not None:
        known.arrive_singles(tags.origins, partition, base)
    elif tags.producer is not None:
        known.arrive(tags.producer, tags.sequence)
        known.remember(tags.producer, tags.sequence, IdRun(partition, base, record.count))
    known.keep_to(producers_max)


def _remember_ids(topic: Topic, partition: int, base: int, timestamp_us: int, dedupe_ids: Sequence[str | None]) -> None:
    known = dedupe_window(topic)
    for row, identity in enumerate(dedupe_ids):
        if identity is not None:
            known.arrive(identity, partition, base + row)
            known.remember(identity, partition, base + row, timestamp_us)


# Topics.


def _topic_change(state: State, record: TopicChange, place: Place) -> Sequence[Effect]:
    if place[:2] < state.since:
        return _NOTHING
    catalog, change = state.catalog, record.change
    topic = catalog.by_id.get(record.topic)
    if change.config is None:
        state.deleted.add(record.topic)
        catalog.floors[change.name] = change.first_offset
        if topic is None:
            return _NOTHING
        catalog.remove(topic)
        _close_logs(state, topic)
        return (TopicDeleted(topic),)
    config = restore_topic_config(change.config, state.config.topic_defaults)
    if topic is None:
        topic = Topic(record.topic, change.name, config, change.first_offset)
        catalog.add(topic)
    elif topic.committed:
        topic.configure(config)
        topic.changes = topic.changes[1:]
    topic.committed, topic.noted = True, None
    return (TopicChanged(topic),)


def _close_logs(state: State, topic: Topic) -> None:
    """Empty the logs of a deleted topic; its files go."""
    for log in topic.logs():
        state.files_to_delete += [
            segment_name(topic.name, log.table, log.partition, segment.base, segment.epoch)
            for segment in log.segments
            if not segment.archived
        ]
        log.close(state.usage)


# Segments.


def settle(state: State, log: Log, blocks: int, info: SegmentInfo) -> bool:
    """The first blocks of a log are in a segment now; False if its topic was deleted meanwhile."""
    if log.topic.id not in state.catalog.by_id:
        log.close(state.usage)
        state.files_to_delete.append(segment_name(log.topic.name, log.table, log.partition, info.base, info.epoch))
        return False
    log.topic.noted = None
    log.segments.append(info)
    log.drop(state.usage, blocks)
    log.settled_end = info.end
    assert log.settled_end <= log.committed_end, "F3: more is settled than is committed"
    return True


def let_go(state: State, log: Log, event: Event) -> None:
    """A segment went to the archive, or away, as the event says; its file goes."""
    log.topic.noted = None
    log.going = tuple(base for base in log.going if base != event.offset)
    for place, segment in enumerate(log.segments):
        if segment.base == event.offset and segment.end - segment.base == event.count and not segment.archived:
            if event.kind is EventKind.ARCHIVED:
                log.segments[place] = msgspec.structs.replace(segment, archived=True, archive=event.detail)
            else:
                del log.segments[place]
            state.files_to_delete.append(
                segment_name(log.topic.name, log.table, log.partition, segment.base, segment.epoch)
            )
            return


# Files that nothing refers to.


def delete_later(state: State, files: Iterable[str]) -> None:
    """These files are not needed any more, and go when a checkpoint that says so is on disk."""
    state.files_to_delete += files


def hand_over_files(state: State) -> list[str]:
    """The files to delete, which are somebody's else from now on; those that cannot be deleted are given back."""
    files, state.files_to_delete = state.files_to_delete, []
    return files


def topics_noted(state: State) -> None:
    """A checkpoint has all topics: what was deleted before need not be remembered (R1)."""
    state.first_new_id = state.catalog.next_id
    state.deleted.clear()


def journal_file_removed(state: State, sequence: int) -> None:
    """A file of the journal, of which nothing was needed, is not there any more."""
    state.usage.forget(sequence)


# Staged publishes.


def _staged(state: State, record: StagedStep, place: Place) -> Sequence[Effect]:
    if place[:2] < state.since:
        return _NOTHING
    step = record.step
    state.staged.pop(step.producer, None)
    state.staged[step.producer] = step
    _forget_staged(state)
    return _NOTHING


def stages_removed(state: State, record: StagedRecord) -> None:
    """The files of a staged publish that is done are not there any more."""
    if state.staged.get(record.producer) is record:
        state.staged[record.producer] = msgspec.structs.replace(record, files=())
        _forget_staged(state)


def _forget_staged(state: State) -> None:
    """Forget all but the newest so many, unless their files are still there: those would be published again."""
    excess = len(state.staged) - state.config.max_producers
    if excess > 0:
        for producer in [old.producer for old in itertools.islice(state.staged.values(), excess) if not old.files]:
            del state.staged[producer]


def keep_to_limits(state: State) -> None:
    """Forget what is beyond limits that may be other ones than those under which it was written."""
    _forget_staged(state)
    for topic in state.catalog.by_id.values():
        if topic.producers is not None:
            topic.producers.keep_to(state.config.max_producers)
            topic.noted = None


_FOLDS: dict[type, Callable[[State, Any, Place], Sequence[Effect]]] = {
    BatchOfMessages: _messages,
    SingleMessages: _messages,
    StoredMessages: _messages,
    Events: _events,
    Carried: _carried,
    LostRecord: _lost,
    TopicChange: _topic_change,
    StagedStep: _staged,
}
