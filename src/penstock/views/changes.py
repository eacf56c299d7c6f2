"""What was committed since the last look: noted by the commits themselves, so that idle topics cost nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.log.effects import Happened, Published, TopicDeleted
from penstock.log.partition_log import Log
from penstock.log.topics import Topic
from penstock.shard.shard import Shard

_TIMES_MAX = 20_000


class Stretch(NamedTuple):
    """A part of a log that is new: from `start` to before `end`."""

    log: Log
    start: int
    end: int
    passed_over: int
    """How many records before it are new too, but left out because there are too many."""


class News(NamedTuple):
    """All that is new."""

    stretches: list[Stretch]
    """Messages before events."""
    committed_us: dict[tuple[Log, int], int]
    """When blocks of messages were committed, by log and first offset; of some, where there are very many."""
    deleted: set[Topic]
    """Topics that are not there any more."""

    @property
    def passed_over(self) -> int:
        """How many new records are left out."""
        return sum(stretch.passed_over for stretch in self.stretches)


class Changes:
    """Listens to commits, and keeps one number for each log with new records."""

    def __init__(self, shard: Shard, records_max: int) -> None:
        self._shard = shard
        self._records_max = records_max
        self.noticed = threading.Event()
        self._listeners: tuple[tuple[type, Callable[[Any], None]], ...] = (
            (Published, self._published),
            (Happened, self._happened),
            (TopicDeleted, self._topic_deleted),
        )
        self._forget()

    def follow(self) -> None:
        """Note everything that is committed from now on."""
        for kind, listener in self._listeners:
            self._shard.folding.listen(kind, listener)

    def unfollow(self) -> None:
        """Stop listening to commits."""
        for kind, listener in self._listeners:
            self._shard.folding.ignore(kind, listener)

    def take(self) -> News:
        """What is new: the newest records, up to the limit."""
        self.noticed.clear()
        with self._shard.lock:
            starts, times, deleted = self._starts, self._times, self._deleted
            self._forget()
            spans = [(log, start, log.committed_end) for log, start in starts.items()]
        spans.sort(key=lambda span: span[0].table, reverse=True)
        total = sum(end - start for _, start, end in spans)
        stretches = []
        for log, start, end in spans:
            kept = end - start if total <= self._records_max else (end - start) * self._records_max // total
            stretches.append(Stretch(log, end - kept, end, end - kept - start))
        return News(stretches, times, deleted)

    def _forget(self) -> None:
        self._starts: dict[Log, int] = {}
        self._times: dict[tuple[Log, int], int] = {}
        self._deleted: set[Topic] = set()

    def _published(self, effect: Published) -> None:
        log, base = effect.partition.messages, effect.record.base
        if not effect.topic.reserved:  # else the broker's own
            self._begins(log, base)
            if len(self._times) < _TIMES_MAX:
                self._times[log, base] = self._shard.clock.wall_us()

    def _happened(self, effect: Happened) -> None:
        if effect.partition.events is not None and not effect.topic.reserved:
            self._begins(effect.partition.events, effect.base)

    def _topic_deleted(self, effect: TopicDeleted) -> None:
        self._deleted.add(effect.topic)
        self.noticed.set()

    def _begins(self, log: Log, base: int) -> None:
        """Note where the new records begin. Publishers wait for this: it must be quick, and never fail."""
        self._starts.setdefault(log, base)
        if not self.noticed.is_set():
            self.noticed.set()
