"""Finding messages by what happened to them, newest first, in some topics; a bounded part of the log at a time.

Messages and events are read in stretches of one partition. The times in memory say which partition is next, so that of
thousands of partitions only those with the newest messages are read. A search ends after a bounded amount of work, and
says where to continue: its page may be short, or even empty, although there is more.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock.log.partition_log import Log, first_offset
from penstock.log.topics import Partition
from penstock.model.bounds import shown
from penstock.model.errors import InvalidArgument
from penstock.model.events import Event, EventKind
from penstock.model.message import MessageId
from penstock.segments.window import Window
from penstock.shard.reading.log_reader import LogReader
from penstock.views.shard_set import ShardSet

if TYPE_CHECKING:
    from penstock.shard.shard import Shard

_STRETCH_MIN = 100
_STRETCH_MAX = 2000
_SEARCH_S = 0.1
_SEARCH_SEEN = 20_000
_PARTITIONS_AT_ONCE = 500

_OF_EVENT = {
    EventKind.DELIVERED: "delivered",
    EventKind.EXTENDED: "delivered",
    EventKind.RELEASED: "released",
    EventKind.FAILED: "failed",
    EventKind.EXPIRED: "failed",
    EventKind.ACKED: "acked",
    EventKind.DEAD: "dead",
    EventKind.REDRIVEN: "redriven",
    EventKind.LAPSED: "lapsed",
    EventKind.SKIPPED: "skipped",
    EventKind.CANCELLED: "cancelled",
    EventKind.RESCHEDULED: "delayed",
    EventKind.PURGED: "purged",
}
STATUSES = ("published", *dict.fromkeys(_OF_EVENT.values()))
"""The last thing that can have happened to a message; an expired lease is a failure."""


class Mark(NamedTuple):
    """A message among those of all topics, by its time: searches continue before it."""

    time_us: int
    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.time_us}/{self.topic}/{self.partition}/{self.offset}"

    @classmethod
    def parse(cls, text: str) -> Mark:
        """A mark from the text of an earlier page."""
        parts = text.split("/") if len(text) < 300 else []
        if len(parts) != 4 or not all(part.isascii() and part.isdigit() for part in (parts[0], *parts[2:])):
            raise InvalidArgument(f"{shown(text)} is not a cursor: give the one of the page before, as it is")
        return cls(int(parts[0]), parts[1], int(parts[2]), int(parts[3]))


class TraceSummary(NamedTuple):
    """What happened to one message."""

    id: MessageId
    published_us: int
    status: str
    """What happened to it last, or to the group that was searched for."""
    groups: dict[str, str]
    """The same, by group."""
    events: int
    """How many events it has."""


class TraceQuery(NamedTuple):
    """What is searched for."""

    topic: str | None = None
    partition: int | None = None
    group: str | None = None
    from_us: int | None = None
    to_us: int | None = None
    status: str | None = None

    def takes(self, found: TraceSummary) -> bool:
        """Whether a message matches."""
        if self.group is not None:
            # messages never delivered to the group are found only if that status is requested
            return found.status == self.status if self.status is not None else self.group in found.groups
        return self.status is None or self.status == found.status or self.status in found.groups.values()


def search_traces(
    shards: ShardSet, query: TraceQuery, sees: Callable[[str], bool], limit: int, before: Mark | None = None
) -> tuple[list[TraceSummary], Mark | None]:
    """The newest messages that match, and where to continue; None: everything was searched.

    Partitions are merged by time; within a partition, messages are in the order of their offsets.
    """
    now_s = shards.clock.monotonic_s
    deadline_s = now_s() + _SEARCH_S
    heads: list[_Head] = []
    asked: Iterable[Shard] = shards
    if query.topic is not None:
        name, asked = shards.slices(query.topic)
        query = query._replace(topic=name)
    for shard in asked:
        shard.journal.flush()  # so that everything up to now is found
        heads += _heads(shard, query, sees, before)
    heapq.heapify(heads)
    found: list[TraceSummary] = []
    seen = 0
    last: Mark | None = None
    while heads:
        head = heads[0]
        if last is not None and (len(found) >= limit or seen >= _SEARCH_SEEN or now_s() > deadline_s):
            return found, last
        if not head.read:
            if head.read_more():
                heapq.heapreplace(heads, head)
            else:
                heapq.heappop(heads)
            continue
        last = head.mark
        summary = head.take()
        seen += 1
        if query.takes(summary):
            found.append(summary)
        heapq.heapreplace(heads, head)
    return found, None


class _Head:
    """One partition, newest message first; the partition with the newest message sorts first."""

    __slots__ = ("_before", "_end", "_first", "_partition", "_query", "_shard", "_stretch", "mark", "read")

    def __init__(self, shard: Shard, partition: Partition, query: TraceQuery, mark: Mark, before: Mark | None) -> None:
        self._shard = shard
        self._partition = partition
        self._query = query
        self._before: Mark | None = before
        self._first = first_offset(partition.messages)
        self._end: int | None = None  # what is before it is still to be read; None: not known yet
        self._stretch = _STRETCH_MIN
        self.mark = mark
        """The next message; before anything is read, an upper bound for it."""
        self.read: list[TraceSummary] = []  # the newest last

    def __lt__(self, other: _Head) -> bool:
        return self.mark > other.mark

    def take(self) -> TraceSummary:
        """The next message, which must be read."""
        found = self.read.pop()
        self.mark = _mark_of(self.read[-1] if self.read else found)
        return found

    def read_more(self) -> bool:
        """Read a stretch; whether there was any left."""
        log = self._partition.messages
        if self._end is None:
            self._end = self._find_end(log)
        while not self.read and self._end > self._first:
            start = max(self._first, self._end - self._stretch)
            self.read = _summaries(self._shard, self._partition, start, self._end, self._query)
            self._end, self._stretch = start, min(2 * self._stretch, _STRETCH_MAX)
            if self._query.from_us is not None and self.read and self.read[0].published_us < self._query.from_us:
                self.read = [each for each in self.read if each.published_us >= self._query.from_us]
                self._end = self._first  # what is before is older still
        if self.read:
            self.mark = _mark_of(self.read[-1])
        return bool(self.read)

    def _find_end(self, log: Log) -> int:
        """The offset after the newest message that can match."""
        end = self.mark.offset
        if self._query.to_us is not None:
            end = min(end, _offset_at(self._shard, log, self._query.to_us))
        before = self._before
        if before is None:
            return end
        place, own = (before.topic, before.partition), (log.topic.name, log.partition)
        if place == own:
            return min(end, before.offset)
        return min(end, _offset_at(self._shard, log, before.time_us + (own < place)))


def _mark_of(found: TraceSummary) -> Mark:
    return Mark(found.published_us, found.id.topic, found.id.partition, found.id.offset)


def _heads(shard: Shard, query: TraceQuery, sees: Callable[[str], bool], before: Mark | None) -> list[_Head]:
    """All partitions that may have messages of the query, some at a time."""
    with shard.lock:
        shard.check_not_closed()
        if query.topic is not None:
            topic = shard.topic(query.topic)
            partitions = topic.partitions if query.partition is None else [topic.partition(query.partition)]
        else:
            topics = [topic for name, topic in shard.catalog.by_name.items() if sees(name)]
            partitions = [
                partition
                for topic in topics
                for partition in topic.partitions
                if query.partition is None or partition.messages.partition == query.partition
            ]
    found: list[_Head] = []
    for start in range(0, len(partitions), _PARTITIONS_AT_ONCE):
        with shard.lock:
            for partition in partitions[start : start + _PARTITIONS_AT_ONCE]:
                log = partition.messages
                newest_us = _newest_us(log)
                if newest_us is None or (query.from_us is not None and newest_us < query.from_us):
                    continue
                if before is not None:
                    newest_us = min(newest_us, before.time_us)
                if query.to_us is not None:
                    newest_us = min(newest_us, query.to_us)
                mark = Mark(newest_us, log.topic.name, log.partition, log.committed_end)
                found.append(_Head(shard, partition, query, mark, before))
    return found


def _newest_us(log: Log) -> int | None:
    """When the newest message was published, or an upper bound for that; None if there is none."""
    if len(log):
        return log.block(len(log) - 1).timestamp_us
    return next((segment.last_us for segment in reversed(log.segments) if not segment.archived), None)


def _offset_at(shard: Shard, log: Log, time_us: int) -> int:
    """The first offset of messages that were published at a time or later."""
    with shard.lock:
        blocks = len(log)
        first, end = first_offset(log), log.committed_end
        if blocks and log.block(0).timestamp_us < time_us:
            place = bisect_left(range(blocks), time_us, key=lambda index: log.block(index).timestamp_us)
            return log.block(place).base if place < blocks else end
        live = [segment for segment in log.segments if not segment.archived]
        if not live or live[0].first_us >= time_us:
            return first
        if live[-1].last_us < time_us:
            return live[-1].end
    return LogReader(shard, log).first_at(time_us)


def _summaries(shard: Shard, partition: Partition, start: int, end: int, query: TraceQuery) -> list[TraceSummary]:
    """What happened to the messages of a stretch, in order."""
    log = partition.messages
    lives: dict[int, _Life] = {}
    for offsets, times_us, dues_us in LogReader(shard, log).times(Window(start, end)):
        for offset, time_us, due_us in zip(offsets, times_us, dues_us or [0] * len(offsets), strict=True):
            lives[offset] = _Life(time_us, due_us)
    if lives and partition.events is not None:
        for event in LogReader(shard, partition.events, include_deleted=True).events_between(start, end - 1):
            if event.count and event.kind in _OF_EVENT:
                for offset in _inside(event, start, end):
                    if offset in lives:
                        lives[offset].happened(event)
    now_us = shard.clock.wall_us()
    return [
        life.summary(MessageId(log.topic.name, log.partition, offset), query.group, now_us)
        for offset, life in sorted(lives.items())
    ]


def _inside(event: Event, start: int, end: int) -> Sequence[int]:
    if event.offsets is None:
        return range(max(start, event.offset), min(end, event.last + 1))
    return event.offsets[bisect_left(event.offsets, start) : bisect_left(event.offsets, end)]


class _Life:
    """One message, while its events are read."""

    __slots__ = ("_due_us", "_events", "_groups", "_last", "_own", "_published_us")

    def __init__(self, published_us: int, due_us: int) -> None:
        self._published_us = published_us
        self._due_us = due_us
        self._own: str | None = None  # what happened to it for all groups
        self._last: str | None = None
        self._groups: dict[str, str] = {}
        self._events = 0

    def happened(self, event: Event) -> None:
        self._events += 1
        status = _OF_EVENT[event.kind]
        if event.kind == EventKind.RESCHEDULED:
            self._due_us = event.due_us
        elif event.group is None:
            self._own = self._last = status
        else:
            self._groups[event.group] = self._last = status

    def summary(self, identity: MessageId, group: str | None, now_us: int) -> TraceSummary:
        untouched = "delayed" if self._due_us > now_us else "published"
        last = self._last if group is None else self._groups.get(group) or self._own
        return TraceSummary(identity, self._published_us, last or untouched, self._groups, self._events)
