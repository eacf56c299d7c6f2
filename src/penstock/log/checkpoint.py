"""The checkpoint: the state in one file, so that recovery reads only the journal behind it.

A file is `PENCHECK`, a u32 CRC-32C, and msgpack of `Checkpoint`.

Encoded topics are kept until the fold changes them, and so is what is large in them, piece by piece. So encoding costs
what has changed since the last checkpoint, not what there is; only the bytes are written again.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import logging
from collections.abc import Iterator, Sequence

import msgspec
from google_crc32c import extend
from google_crc32c import value as crc32c

from penstock.delivery.partition import DeliveryState, PartitionState
from penstock.log.fold import dedupe_window, histories
from penstock.log.partition_log import Log
from penstock.log.pieces import Pieces, array_head
from penstock.log.records import StagedRecord
from penstock.log.state import State
from penstock.log.topics import Topic
from penstock.model.config import BrokerConfig, restore_topic_config
from penstock.model.message import IdRun
from penstock.model.names import stored_topic_name
from penstock.model.placement import ALONE, Place
from penstock.model.stored import SegmentInfo, is_inside

MAGIC = b"PENCHECK"
VERSION = 1
_log = logging.getLogger("penstock")


class LogState(msgspec.Struct, array_like=True, gc=False):
    """A log's settled part."""

    end: int
    settled_end: int
    segments: list[SegmentInfo]


_Ids = list[tuple[str, int, int, int]]
_Produced = list[tuple[str, int, tuple[int, int, int]]]


class TopicState(msgspec.Struct, array_like=True, gc=False):
    """A topic with everything that is not in the journal behind the checkpoint."""

    id: int
    name: str
    config: dict[str, object]
    messages: list[LogState]
    events: list[LogState | None]
    dedupe: _Ids
    producers: _Produced
    delivery: list[DeliveryState | None] | None = None
    """What the events of each partition say about delivery; None where they say nothing of any."""


class Checkpoint(msgspec.Struct):
    """Everything that a broker is, at one position of its journal."""

    version: int
    number: int
    broker: bytes
    epoch: int
    time_us: int
    journal_files: list[int]
    """The files that are needed; a missing one is corruption, a lower one that is not listed is rubbish."""
    next_sequence: int
    sequence: int
    position: int
    """Behind this place of file `sequence`, changes of topics and segments are not in the checkpoint."""
    synced: int
    """Up to this place the file was on disk."""
    next_topic_id: int
    floors: dict[str, int]
    doomed: list[str]
    """Files that nothing refers to any more; removed once this checkpoint is on disk."""
    clean: bool = False
    """Whether closing wrote it: then no file is there that it does not know of."""
    staged: list[StagedRecord] = []
    """The newest staged publish of each producer, the one silent for longest first."""
    topics: list[TopicState] = []
    """The last field: topics that are encoded already are put behind the others."""


_NOTHING = b"\x90"  # of msgpack: an empty array
_EIGHT = b"\x98"  # an array of eight: a `TopicState`
_FEW = 16  # pieces, which are cheaper to keep as one
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Checkpoint).decode


def encode_checkpoint(checkpoint: Checkpoint, topics: Sequence[Pieces] = ()) -> Pieces:
    """The bytes of a file, with topics that are encoded already behind those of the checkpoint."""
    head = _encode(msgspec.structs.replace(checkpoint, topics=[]))
    assert head.endswith(_NOTHING)
    pieces = [
        head[: -len(_NOTHING)] + array_head(len(checkpoint.topics) + len(topics)),
        *map(_encode, checkpoint.topics),
        *itertools.chain.from_iterable(topics),
    ]
    crc = functools.reduce(extend, pieces, 0)
    return [MAGIC + crc.to_bytes(4, "little"), *pieces]


def decode_checkpoint(data: bytes) -> Checkpoint | None:
    """The checkpoint in a file's bytes, or None where they are damaged."""
    start = len(MAGIC) + 4
    if data[: len(MAGIC)] != MAGIC or data[len(MAGIC) : start] != crc32c(data[start:]).to_bytes(4, "little"):
        return None
    try:
        checkpoint = _decode(data[start:])
    except msgspec.MsgspecError:
        return None
    if checkpoint.version != VERSION:
        return None
    _mend_names(checkpoint)
    return checkpoint


def _mend_names(checkpoint: Checkpoint) -> None:
    """Let no name lead out of the directory: an earlier version could be made to write such a topic (H4)."""
    for topic in checkpoint.topics:
        name = stored_topic_name(topic.name, topic.id)
        if name == topic.name:
            continue
        _log.error("the topic %r is called %s from now on: it has no name that a topic may have", topic.name, name)
        topic.name = name
        for log in (*topic.messages, *topic.events):
            if log is not None:
                log.segments = []  # they are not in this directory
    checkpoint.doomed = [name for name in checkpoint.doomed if is_inside(name)]


def forget_segment(log: LogState, info: SegmentInfo) -> None:
    """A repair took a segment away."""
    log.segments = [other for other in log.segments if other is not info]


def topic_state(topic: Topic) -> TopicState:
    """A topic as the checkpoint keeps it: only what is committed, for the rest may never be."""
    delivery = [None if part.state is None else part.state.state() for part in topic.partitions]
    return TopicState(
        topic.id,
        topic.name,
        dataclasses.asdict(topic.config),
        *_log_states(topic),
        [] if topic.dedupe is None else list(topic.dedupe.entries()),
        [] if topic.producers is None else list(topic.producers.entries()),
        delivery if any(delivery) else None,
    )


def encode_changed(topic: Topic) -> Iterator[None]:
    """Encode what is large in a topic, in small steps; it may change in between."""
    if topic.dedupe is not None:
        yield from topic.dedupe.encode_changed()
    if topic.producers is not None:
        yield from topic.producers.encode_changed()


def encoded_topic(topic: Topic) -> Pieces:
    """The same as `topic_state`, encoded; kept until the fold changes the topic."""
    if topic.noted is None:
        delivery = [None if part.state is None else part.state.encoded() for part in topic.partitions]
        pieces = [
            _EIGHT,
            *map(_encode, (topic.id, topic.name, topic.config, *_log_states(topic))),
            *([_NOTHING] if topic.dedupe is None else topic.dedupe.encoded()),
            *([_NOTHING] if topic.producers is None else topic.producers.encoded()),
            _encode(delivery if any(delivery) else None),
        ]
        topic.noted = [b"".join(pieces)] if len(pieces) <= _FEW else pieces
    return topic.noted


def _log_states(topic: Topic) -> tuple[list[LogState], list[LogState | None]]:
    return (
        [_log_state(partition.messages) for partition in topic.partitions],
        [None if partition.events is None else _log_state(partition.events) for partition in topic.partitions],
    )


def restore(checkpoint: Checkpoint, config: BrokerConfig, place: Place = ALONE) -> State:
    """The state of a checkpoint; topics with the default configuration share one object of it."""
    state = State(config, place)
    state.since = (checkpoint.sequence, checkpoint.position)
    state.first_new_id = state.catalog.next_id = checkpoint.next_topic_id
    state.catalog.floors = dict(checkpoint.floors)
    state.files_to_delete = list(checkpoint.doomed)
    state.staged = {record.producer: record for record in checkpoint.staged}
    for topic in checkpoint.topics:
        state.catalog.add(_restore_topic(topic, config))
    return state


def _restore_topic(known: TopicState, config: BrokerConfig) -> Topic:
    topic = Topic(known.id, known.name, restore_topic_config(known.config, config.topic_defaults))
    for partition, delivery in zip(topic.partitions, known.delivery or (), strict=False):
        partition.state = None if delivery is None else PartitionState.restore(delivery)
    for partition, messages, events in zip(topic.partitions, known.messages, known.events, strict=True):
        _restore_log(partition.messages, messages)
        if events is not None:
            _restore_log(partition.event_log(events.end), events)
    for identity, number, offset, time_us in known.dedupe:
        dedupe_window(topic).remember(identity, number, offset, time_us)
    for producer, sequence, run in known.producers:
        histories(topic).restore(producer, sequence, IdRun(*run))
    topic.committed = True
    return topic


def _log_state(log: Log) -> LogState:
    return LogState(log.committed_end, log.settled_end, log.segments[:])


def _restore_log(log: Log, state: LogState) -> None:
    log.next_offset = log.committed_end = state.end
    log.settled_end = state.settled_end
    log.segments = state.segments
