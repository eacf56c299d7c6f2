"""One fold: what the newest checkpoint and the journal say, folded anew, is what the broker holds (F1)."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from weakref import WeakKeyDictionary
from zlib import crc32

import msgspec

from penstock.delivery.partition import PartitionState
from penstock.log import invariants
from penstock.log.checkpoint import TopicState, topic_state
from penstock.log.fold import load_schedules
from penstock.log.state import State
from penstock.log.topics import Topic
from penstock.shard.checkpoint_files import COPIES
from penstock.shard.recovery import recover
from penstock.shard.schedules import read_schedules
from penstock.shard.shard import Shard
from penstock.storage.interface import Buffer
from penstock.testing import FaultyStorage, MemoryStorage
from penstock.testing.memory import MemoryFile


class _LookedAt(MemoryFile):
    """A file that stays as it is, whatever a reader would mend."""

    def write(self, position: int, buffers: Sequence[Buffer]) -> int:
        raise OSError(errno.EROFS, "this is only looked at")

    def truncate(self, length: int) -> None:
        """A torn tail is cut off in the mind of the reader."""


class LookedAt(MemoryStorage):
    """The storage of a broker at work, as its reader sees it; nothing is changed, and no fault strikes."""

    def __init__(self, storage: MemoryStorage) -> None:
        super().__init__()
        self.contents = storage.contents

    def open(self, name: str) -> MemoryFile:
        return _LookedAt(super().open(name).content)


def assert_folded(shard: Shard) -> None:
    """Fold checkpoint and journal anew: it is the state of the broker, and contradicts itself nowhere."""
    storage = shard.storage
    assert isinstance(storage, MemoryStorage)
    invariants.check(shard.state)
    if shard.journal.frozen is not None or (isinstance(storage, FaultyStorage) and storage.crashed):
        return  # nobody can know what is on the disk, until it is opened again
    now_us = shard.clock.wall_us()
    told, held = told_by(_folded(shard, storage), now_us), told_by(shard.state, now_us)
    assert told.keys() == held.keys()
    for topic in shard.state.catalog.by_id.values():
        assert_noted(topic)
    for name, said in told.items():
        assert said == held[name], f"F1: {name} is another one when it is folded anew"
    assert shard.state.schedules is not None
    read = load_schedules(State(shard.config), read_schedules(shard.core))
    assert read.known == shard.state.schedules.known, "F1: schedules"


_NOTHING = PartitionState().state()


def assert_noted(topic: Topic) -> None:
    """What is kept encoded of a topic for the next checkpoint is what it is."""
    if topic.noted is not None:
        noted = msgspec.msgpack.decode(b"".join(topic.noted), type=TopicState)
        assert _telling(noted) == _telling(topic_state(topic)), f"{topic.name} was changed since"


def _telling(state: TopicState) -> bytes:
    """A topic without what says nothing: looking at a partition, or a refused event, may make a state or a log."""
    state.dedupe = []  # those that are too old are forgotten at any time
    delivery = [None if part is None or part == _NOTHING else part for part in state.delivery or ()]
    state.delivery = delivery if any(delivery) else None
    state.events = [
        None if log is None or (log.end == log.settled_end and not log.segments) else log for log in state.events
    ]
    return msgspec.msgpack.encode(state)


_known: WeakKeyDictionary[Shard, tuple[tuple[int, ...], State]] = WeakKeyDictionary()


def _folded(shard: Shard, storage: MemoryStorage) -> State:
    """The state on disk; folded once for as long as nothing was written."""
    written = (shard.journal.commits, *(crc32(storage.contents.get(name, b"")) for name in COPIES))
    if shard not in _known or _known[shard][0] != written:
        found = recover(LookedAt(storage), shard.config, shard.clock).state
        invariants.check(found)
        _known[shard] = (written, found)
    return _known[shard][1]


def told_by(state: State, now_us: int) -> dict[str, object]:
    """Everything that a state says at a time, comparable."""
    told: dict[str, object] = {
        "floors": state.catalog.floors,
        "staged": {producer: (record.sequence, record.messages) for producer, record in state.staged.items()},
    }
    for topic in state.catalog.by_id.values():
        if topic.committed:
            told[f"topic {topic.name}"] = _topic(topic, now_us)
    return told


def _topic(topic: Topic, now_us: int) -> object:
    state = topic_state(topic)
    delivery = [None if partition.state is None else partition.state.state() for partition in topic.partitions]
    says_something = [found for found in delivery if found is not None and (found.groups or found.moved)]
    logs = [
        (log.table, log.partition, log.committed_end, log.settled_end, log.segments, list(log.blocks()))
        for log in topic.logs()
        if log.table == "messages" or log.committed_end > log.settled_end or log.segments
    ]
    window_us = round(topic.config.dedupe_window * 1_000_000)
    known = {entry for entry in state.dedupe if entry[3] + window_us > now_us}  # older ones are forgotten at any time
    return state.id, state.config, logs, known, state.producers, says_something
