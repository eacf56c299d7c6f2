"""What is given out before it is committed: offsets, dedupe ids, sequences of producers, topics. And its undo.

Whoever publishes next must see it at once, or two messages would get one offset. When its group is refused, everything
behind it is refused too, and `undo` takes it back, newest first: the state is then as if it had never been (F2).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from penstock.log.effects import Effect, EventRefused, SchedulesRefused
from penstock.log.fold import dedupe_window, histories
from penstock.log.partition_log import Log
from penstock.log.records import (
    BatchOfMessages,
    Carried,
    Events,
    Messages,
    Record,
    SingleMessages,
    TopicChange,
    TopicRecord,
)
from penstock.log.state import State
from penstock.log.topics import Partition, Topic
from penstock.model.batch import TAGS, Batch
from penstock.model.config import TopicConfig
from penstock.model.events import Event, EventKind
from penstock.model.message import IdRun
from penstock.model.names import check_topic_name
from penstock.model.singles import Single, SingleRun


def reserve_batch(log: Log, batch: Batch, now_us: int) -> BatchOfMessages:
    """Give a batch its offsets."""
    record = BatchOfMessages(log, batch, now_us)
    log.next_offset += record.count
    if batch.dedupe_ids is not None:
        known = dedupe_window(log.topic)
        for row, identity in enumerate(batch.dedupe_ids):
            if identity is not None:
                known.expect(identity, record.partition, record.base + row, now_us)
    if batch.producer is not None:
        run = IdRun(record.partition, record.base, record.count)
        histories(log.topic).expect(batch.producer, batch.sequence, run)
    return record


def reserve_single(
    log: Log, record: SingleMessages, single: Single, producer: str | None, sequence: int, name: str | None
) -> int:
    """Give one more message of a record its offset."""
    offset = log.next_offset
    record.add(single, name)
    log.next_offset = offset + 1
    if single.dedupe_id is not None:
        record.flags = TAGS
        dedupe_window(log.topic).expect(single.dedupe_id, record.partition, offset, record.timestamp_us)
    if producer is not None:
        record.add_origin(offset - record.base, producer, sequence, 1)
        histories(log.topic).expect_singles(producer, sequence, record.partition, offset, 1)
    return offset


def reserve_run(log: Log, record: SingleMessages | None, run: SingleRun, now_us: int) -> SingleMessages | None:
    """Give messages their offsets, in this record or a new one; None if one of them may have been published before."""
    known, count = log.topic.producers, len(run.values)
    if known is None:
        known = histories(log.topic)
    if not known.expect_new_singles(run.producer, run.sequence, log.partition, log.next_offset, count):
        return None
    if record is None:
        record = SingleMessages(log, now_us)
    record.add_run(run)
    log.next_offset += count
    return record


def reserve_event(log: Log, record: Events, event: Event) -> None:
    """Give one more event of a record its number."""
    record.add(event)
    log.next_offset = record.base + record.count


def reserve_event_log(partition: Partition) -> Log:
    """The log of events of a partition that has none: its first event gets the number of the next message."""
    return partition.event_log(partition.messages.next_offset)


def reserve_removal(log: Log, base: int) -> None:
    """The segment with this first offset is on its way out: nobody gets a message of it from now on."""
    log.going = (*log.going, base)


def reserve_topic(state: State, name: str, config: TopicConfig, now_us: int, floor: int = 0) -> TopicChange:
    """Make a topic that can be published to at once; it is in the catalog, and not committed.

    Its offsets begin at the floor at least, which other shards know of if it is spread.
    """
    catalog = state.catalog
    topic = Topic(catalog.next_id, check_topic_name(name), config, max(floor, catalog.floors.get(name, 0)))
    catalog.add(topic)
    return TopicChange(topic.id, TopicRecord(name, dataclasses.asdict(config), topic.offset_floor()), now_us)


def reserve_options(topic: Topic, config: TopicConfig, now_us: int) -> TopicChange:
    """Other options for a topic, which the next change builds upon."""
    topic.changes = (*topic.changes, config)
    return TopicChange(topic.id, TopicRecord(topic.name, dataclasses.asdict(config), topic.lowest_offset()), now_us)


def reserve_deletion(topic: Topic, now_us: int, floor: int = 0) -> TopicChange:
    """The end of a topic: nobody publishes to it from now on. One of its name begins at the floor at least."""
    topic.deleting = True
    return TopicChange(topic.id, TopicRecord(topic.name, None, max(floor, topic.offset_floor())), now_us)


def undo(state: State, record: Record) -> Sequence[Effect]:
    """Take back what was given out for a record that was refused; called for the newest first."""
    if isinstance(record, TopicChange):
        _undo_topic(state, record)
        return ()
    if isinstance(record, Carried) or not isinstance(record, Messages | Events):
        return ()  # what was known before still holds
    topic = state.catalog.by_id.get(record.topic)
    if topic is None:
        return ()
    partition = topic.partitions[record.partition]
    if isinstance(record, Events):
        return _undo_events(partition, record)
    assert record.base >= partition.messages.committed_end, "F2: what is committed cannot be refused"
    partition.messages.next_offset = record.base
    _undo_tags(topic, record)
    return (SchedulesRefused(),) if topic.reserved else ()


def _undo_tags(topic: Topic, record: Messages) -> None:
    if isinstance(record, SingleMessages):
        dedupe_ids = {row: single.dedupe_id for row, single in (record.others or {}).items()}
        for _, producer, sequence, count in record.origins or ():
            histories(topic).arrive(producer, sequence, count)
    else:
        batch = record.tags()
        dedupe_ids = dict(enumerate(batch.dedupe_ids or ()))
        if batch.producer is not None:
            histories(topic).arrive(batch.producer, batch.sequence)
    for row, identity in dedupe_ids.items():
        if identity is not None:
            dedupe_window(topic).arrive(identity, record.partition, record.base + row)


def _undo_events(partition: Partition, record: Events) -> Sequence[Effect]:
    log = partition.messages
    events = partition.event_log(record.base)
    assert record.base >= events.committed_end, "F2: what is committed cannot be refused"
    events.next_offset = record.base
    for event in record.events:
        if event.kind in (EventKind.ARCHIVED, EventKind.REMOVED):  # the segment is not on its way out any more
            log.going = tuple(base for base in log.going if base != event.offset)
    effects: list[Effect] = [EventRefused(log.topic, partition, event) for event in reversed(record.events)]
    return [*effects, SchedulesRefused()] if log.topic.reserved else effects


def _undo_topic(state: State, record: TopicChange) -> None:
    topic = state.catalog.by_id.get(record.topic)
    if topic is None:
        return
    if record.change.config is None:
        topic.deleting = False
    elif topic.changes:
        topic.changes = topic.changes[:-1]
    else:
        assert not topic.committed, "F2: a topic that is on disk cannot be refused"
        state.catalog.remove(topic)
