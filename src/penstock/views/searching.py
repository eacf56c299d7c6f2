"""Reading a topic in pages, also by time and by key: each page takes bounded work, and says where the next begins.

A page may therefore be short, or even empty, although there is more: the last page has no next place.
"""

from __future__ import annotations

from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from penstock.delivery.offsets import Offsets
from penstock.log.partition_log import Log, first_offset
from penstock.model.bounds import shown
from penstock.model.errors import InvalidArgument, MessageNotFound
from penstock.model.message import MessageId, StoredMessage
from penstock.segments.window import OFFSET_MAX, Rows, Window
from penstock.shard.reading.log_reader import LogReader, as_rescheduled, to_messages
from penstock.views.shard_set import ShardSet

if TYPE_CHECKING:
    from penstock.shard.shard import Shard

_PAGE_BYTES = 8 << 20
_PAGE_S = 0.1
_PAGE_SEEN = 1_000_000


class Place(NamedTuple):
    """Where a page begins: an offset of a partition; those of later partitions follow."""

    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}-{self.offset}"

    @classmethod
    def parse(cls, text: str) -> Place:
        """A place from the text of an earlier page."""
        parts = text.split("-") if len(text) < 50 else []
        if len(parts) != 2 or not all(part.isascii() and part.isdigit() for part in parts):
            raise InvalidArgument(f"{shown(text)} is not a cursor: give the one of the page before, as it is")
        return cls(int(parts[0]), int(parts[1]))


class Found(NamedTuple):
    """A page of messages."""

    messages: list[StoredMessage]
    next: Place | None
    """Where the next page begins; None: this was the last."""


class Page(NamedTuple):
    """A page of one partition."""

    messages: list[StoredMessage]
    next_offset: int
    end_offset: int


def read_partition(shard: Shard, place: MessageId, offset: int | None, limit: int) -> Page:
    """The next messages of the partition of a place, from an offset on or from its first one."""
    with shard.lock:
        log = _log(shard, place)
        start = first_offset(log) if offset is None else offset
        end = log.committed_end
    messages: list[StoredMessage] = []
    reached = _read(shard, log, Window(min(start, OFFSET_MAX), end), limit, messages)
    return Page(messages, max(start, end) if reached is None else reached, end)


def search_messages(
    shards: ShardSet,
    topic: str,
    partition: int | None,
    window: Window,
    *,
    key: bytes | None = None,
    limit: int = 100,
    include_deleted: bool = False,
    start: Place | None = None,
) -> Found:
    """The next messages inside a window, of one partition or of all, one after the other; only those with a key."""
    name, slices = shards.slices(topic)
    logs: list[tuple[Log, Shard]] = []
    for shard in slices:
        with shard.lock:
            logs += [(log, shard) for log in _logs(shard, name, partition)]
    logs.sort(key=lambda pair: pair[0].partition)
    deadline_s = shards.clock.monotonic_s() + _PAGE_S
    found: list[StoredMessage] = []
    got_on = False  # every page makes progress, however little time there is
    for log, shard in logs:
        inside = Window(window.start, window.end, window.from_us, window.to_us)
        if start is not None:
            if log.partition < start.partition:
                continue
            if log.partition == start.partition:
                inside.start = max(inside.start, min(start.offset, OFFSET_MAX))
        if got_on and (shards.clock.monotonic_s() > deadline_s or len(found) >= limit):
            return Found(found, Place(log.partition, inside.start))
        got_on = True
        left = limit - len(found)
        reached = _read(shard, log, inside, left, found, key, include_deleted=include_deleted, deadline_s=deadline_s)
        if reached is not None:
            return Found(found, Place(log.partition, reached))
    return Found(found, None)


def find_message(shard: Shard, identity: MessageId) -> StoredMessage:
    """One message by its place, also if it is in the archive."""
    with shard.lock:
        log = _log(shard, identity)
    window = Window(identity.offset, identity.offset + 1)
    found = None
    if identity.offset < OFFSET_MAX:
        found = next(LogReader(shard, log, include_deleted=True).messages(window), None)
    if found is None:
        raise MessageNotFound(f"there is no message {identity}")
    return found


class FoundLog(NamedTuple):
    """A log as it is now."""

    log: Log | None
    """None for events, if there never were any."""
    first: int
    end: int
    withdrawn: Offsets
    """Messages that were cancelled, purged or redriven: a replay leaves them out."""


def find_log(shard: Shard, topic_name: str, partition: int, *, events: bool, replay: bool) -> FoundLog:
    """The messages of a partition, or its events; for a `replay`, with the messages to leave out."""
    with shard.lock:
        shard.check_not_closed()
        found = shard.topic(topic_name).partition(partition)
        withdrawn = Offsets(found.state.withdrawn) if replay and found.state is not None else Offsets()
        log = found.events if events else found.messages
        if log is None:
            return FoundLog(None, 0, 0, withdrawn)
        return FoundLog(log, first_offset(log), log.committed_end, withdrawn)


def _log(shard: Shard, place: MessageId) -> Log:
    shard.check_not_closed()
    return shard.topic(place.topic).partition(place.partition).messages


def _logs(shard: Shard, topic: str, partition: int | None) -> list[Log]:
    """The messages of all partitions that a shard has of a topic, or of one of them."""
    shard.check_not_closed()
    found = shard.topic(topic)
    if partition is not None:
        found.partition(partition)  # which must exist, here or in another slice
    own = found.own_partitions
    return [found.partitions[number].messages for number in own if partition is None or number == partition]


def _read(
    shard: Shard,
    log: Log,
    window: Window,
    limit: int,
    into: list[StoredMessage],
    key: bytes | None = None,
    *,
    include_deleted: bool = False,
    deadline_s: float = inf,
) -> int | None:
    """Add messages of one log; the offset to continue at, or None if the log has no more."""
    left_bytes = _PAGE_BYTES - sum(len(message.value) for message in into)
    seen = 0
    for rows, end, looked_at in LogReader(shard, log, include_deleted).pieces(window, key, limit):
        fitting = _fitting(rows, left_bytes, at_least=0 if into else 1)
        taken = list(to_messages(log.topic.name, log.partition, as_rescheduled(log, rows)))[:fitting]
        into += taken
        limit -= len(taken)
        left_bytes -= sum(len(message.value) for message in taken)
        seen += looked_at
        if fitting < len(rows.offsets):
            return rows.offsets[fitting]
        if limit <= 0 or left_bytes <= 0 or seen >= _PAGE_SEEN or shard.clock.monotonic_s() > deadline_s:
            return end
    return None


def _fitting(rows: Rows, room_bytes: int, at_least: int) -> int:
    """How many of the first rows fit into so many bytes."""
    count = sum(1 for total in accumulate(map(len, rows.batch.values)) if total <= room_bytes)
    return min(len(rows.offsets), max(at_least, count))
