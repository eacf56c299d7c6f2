"""The fold: what a record does to the state. Nothing else changes what is committed.

Live commits, recovery, `penstock check` and `Snapshot` all call `apply`, so they cannot disagree. It depends on the
state and the record alone: the same journal makes the same state, whoever reads it, however often (F1).

Some changes are in no record, because the disk itself says them, or the next checkpoint: a segment that was written
(`settle`), a segment of events that was let go (`let_go`), the files of a stage that are removed (`stages_removed`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import msgspec

from penstock.delivery.offsets import offsets_of
from penstock.journal.layout import BlockKind
from penstock.log.dedupe import DedupeWindow
from penstock.log.effects import Effect, Happened, Logged, Published, StepPublished, TopicChanged, TopicDeleted
from penstock.log.partition_log import BlockRef, Log
from penstock.log.producers import ProducerHistories
from penstock.log.records import Events, LostRecord, Messages, Record, StagedRecord, StagedStep, TopicChange
from penstock.log.state import State
from penstock.log.topics import Partition, Topic
from penstock.model.batch import TAGS, Batch
from penstock.model.config import TopicConfig, restore_topic_config
from penstock.model.events import Event, EventKind, merge_acks
from penstock.model.message import IdRun
from penstock.model.names import recovered_name
from penstock.model.stored import Place, SegmentInfo, segment_name

_NOTHING: Sequence[Effect] = ()
_GONE = (EventKind.ARCHIVED, EventKind.REMOVED)


def apply(state: State, record: Record, place: Place) -> Sequence[Effect]:
    """Take in a record that is on disk; what that means to others."""
    if isinstance(record, LostRecord):
        return _skip(state, record)
    return _FOLDS[record.kind](state, record, place)


# Messages and events.


def _messages(state: State, record: Record, place: Place) -> Sequence[Effect]:
    partition = _partition(state, record)
    if partition is None:
        return _NOTHING
    log = partition.messages
    is_new = record.base >= log.committed_end
    _add_block(state, log, record, place)
    if not is_new:  # it was carried on, or the checkpoint has it
        return _NOTHING
    assert isinstance(record, Messages)
    topic = log.topic
    if record.flags & TAGS:
        batch, run = record.tags(), IdRun(record.partition, record.base, record.count)
        _remember_ids(topic, run, record.timestamp_us, batch)
        _remember_producers(topic, run, batch, state.config.max_producers)
    if topic.reserved:
        _take_schedules(state, partition, record)
    return (Published(topic, partition, record, place.length),)


def _events(state: State, record: Record, place: Place) -> Sequence[Effect]:
    partition = _partition(state, record)
    if partition is None:
        return _NOTHING
    log = partition.event_log(record.base)
    is_new = record.base >= log.committed_end
    _add_block(state, log, record, place)
    if not is_new:
        return _NOTHING
    assert isinstance(record, Events)
    topic = log.topic
    effects: list[Effect] = [Logged(topic, partition, record)]
    for event in merge_acks(record.events):
        _apply_event(state, partition, event)
        effects.append(Happened(topic, partition, event))
    return effects


def _apply_event(state: State, partition: Partition, event: Event) -> None:
    if event.kind in _GONE:
        let_go(state, partition.messages, event)
    partition.apply(event)
    if partition.messages.topic.reserved and state.schedules is not None and event.kind == EventKind.PURGED:
        state.schedules.withdraw(offsets_of(event))


def _add_block(state: State, log: Log, record: Record, place: Place) -> None:
    log.add(
        state.usage,
        BlockRef(record.base, record.count, *place, record.timestamp_us, *record.content),
    )
    assert log.settled_end <= log.committed_end <= log.next_offset, "F3: the ends of a log are out of order"


def _skip(state: State, record: Record) -> Sequence[Effect]:
    """A repair lost it: its offsets are never given again."""
    if record.kind not in (BlockKind.MESSAGES, BlockKind.EVENTS):
        return _NOTHING
    partition = _partition(state, record)
    if partition is not None:
        is_message = record.kind == BlockKind.MESSAGES
        log = partition.messages if is_message else partition.event_log(record.base)
        log.skip(record.base + record.count)
    return _NOTHING


def _partition(state: State, record: Record) -> Partition | None:
    topic = state.catalog.by_id.get(record.topic) or _lost_topic(state, record.topic)
    if topic is None:
        return None
    if record.partition >= len(topic.partitions):
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


def _remember_ids(topic: Topic, run: IdRun, timestamp_us: int, batch: Batch) -> None:
    for row, identity in enumerate(batch.dedupe_ids or ()):
        if identity is not None:
            known = dedupe_window(topic)
            known.arrive(identity, run.partition, run.base + row)
            known.remember(identity, run.partition, run.base + row, timestamp_us)


def _remember_producers(topic: Topic, run: IdRun, batch: Batch, producers_max: int) -> None:
    """Note the producers of a batch, and forget the idlest beyond the cap."""
    if batch.producer is None and batch.origins is None:
        return
    known = histories(topic)
    if batch.producer is not None:
        known.arrive(batch.producer, batch.sequence)
        known.remember(batch.producer, batch.sequence, run)
    if batch.origins is not None:
        for row, producer, sequence, count in batch.origins:
            known.arrive(producer, sequence, count)
            known.remember_singles(producer, sequence, run.partition, run.base + row, count)
    known.keep_to(producers_max)


def _take_schedules(state: State, partition: Partition, record: Messages) -> None:
    if state.schedules is not None:
        withdrawn = () if partition.state is None else partition.state.withdrawn
        for row, value in enumerate(record.tags().values):
            if record.base + row not in withdrawn:  # another one may be in its place already
                state.schedules.take(record.base + row, value)


# Topics.


def _topic_change(state: State, record: Record, place: Place) -> Sequence[Effect]:
    assert isinstance(record, TopicChange)
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
        del topic.changes[:1]
    topic.committed = True
    return (TopicChanged(topic),)


def _close_logs(state: State, topic: Topic) -> None:
    """Empty the logs of a deleted topic; its files go."""
    for log in topic.logs():
        state.files_to_delete += [
            segment_name(topic.name, log.table, log.partition, segment.base)
            for segment in log.segments
            if not segment.archived
        ]
        log.close(state.usage)


# Segments.


def settle(state: State, log: Log, blocks: int, info: SegmentInfo) -> bool:
    """The first blocks of a log are in a segment now; False if its topic was deleted meanwhile."""
    if log.topic.id not in state.catalog.by_id:
        log.close(state.usage)
        state.files_to_delete.append(segment_name(log.topic.name, log.table, log.partition, info.base))
        return False
    log.segments.append(info)
    log.drop(state.usage, blocks)
    log.settled_end = info.end
    assert log.settled_end <= log.committed_end, "F3: more is settled than is committed"
    return True


def let_go(state: State, log: Log, event: Event) -> None:
    """A segment went to the archive, or away, as the event says; its file goes."""
    log.going = tuple(base for base in log.going if base != event.offset)
    for place, segment in enumerate(log.segments):
        if segment.base == event.offset and segment.end - segment.base == event.count and not segment.archived:
            if event.kind is EventKind.ARCHIVED:
                log.segments[place] = msgspec.structs.replace(segment, archived=True, archive=event.detail)
            else:
                del log.segments[place]
            state.files_to_delete.append(segment_name(log.topic.name, log.table, log.partition, segment.base))
            return


# Staged publishes.


def _staged(state: State, record: Record, place: Place) -> Sequence[Effect]:
    assert isinstance(record, StagedStep)
    if place[:2] < state.since:
        return _NOTHING
    step = record.step
    state.staged.pop(step.producer, None)
    state.staged[step.producer] = step
    _forget_staged(state)
    return (StepPublished(step),)


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


_FOLDS: dict[int, Callable[[State, Record, Place], Sequence[Effect]]] = {
    BlockKind.MESSAGES: _messages,
    BlockKind.EVENTS: _events,
    BlockKind.TOPIC: _topic_change,
    BlockKind.STAGED: _staged,
}
