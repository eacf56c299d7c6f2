"""From the two logs to spans: what a message lived through, told in the words of OpenTelemetry.

A publication is a span, and each delivery to a group is one, a child of it. A delivery is *open* from DELIVERED until
an event ends it; only its span is kept meanwhile. To which trace a message belongs stands in its headers, which are
looked up in the log again when it is delivered: so nothing has to be remembered of messages that wait.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from penstock.log.partition_log import Log
from penstock.log.topics import Topic
from penstock.model.errors import CorruptData, Overloaded
from penstock.model.events import Event, EventKind
from penstock.model.units import to_datetime
from penstock.segments.window import Window
from penstock.server.otlp.spans import Context, Contexts, Span, SpanEvent, SpanKind
from penstock.shard.reading.log_reader import LogReader
from penstock.shard.shard import Shard

_AT_ONCE = 500
_OPEN_MAX = 50_000
_EVENTS_MAX = 64  # of one span: a long task extends its lease very often
_MOVED = "the group was moved or deleted"

_ENDS = (EventKind.ACKED, EventKind.FAILED, EventKind.EXPIRED, EventKind.RELEASED, EventKind.DEAD, EventKind.SKIPPED)
_LONE = (EventKind.DEAD, EventKind.LAPSED, EventKind.REDRIVEN, EventKind.CANCELLED, EventKind.RESCHEDULED)
"""What may happen to a message that nobody holds, and is told in a span of its own."""
_FOR_ALL = (EventKind.CANCELLED, EventKind.PURGED, EventKind.REDRIVEN)
"""What ends deliveries of all groups, where it names none."""
_ERROR_TYPES = {EventKind.FAILED: "failed", EventKind.EXPIRED: "timeout", EventKind.DEAD: "killed"}


class _Place(NamedTuple):
    """What is open: a delivery of a message to a group."""

    log: Log
    offset: int
    group: str


class _Known(NamedTuple):
    """What the log says about a message that is delivered."""

    context: Context
    due_us: int


class _Page(NamedTuple):
    """Neighbouring messages of a log, without their values."""

    log: Log
    first: int
    last: int
    offsets: Sequence[int]
    headers: list[dict[str, str] | None] | None
    deliver_at: Sequence[int] | None

    def row(self, offset: int) -> int | None:
        """Where a message stands; None if it is gone."""
        row = bisect_left(self.offsets, offset)
        return row if row < len(self.offsets) and self.offsets[row] == offset else None


class Lives:
    """Follows messages through the logs; what comes out are finished spans, in lists of a few hundred."""

    def __init__(self, shard: Shard, contexts: Contexts) -> None:
        self._shard = shard
        self._contexts = contexts
        self._open: dict[_Place, Span] = {}
        self._last_page: _Page | None = None
        self.lost = 0
        """Deliveries of which the end was not seen."""

    # Publications.

    def published(
        self, log: Log, start: int, end: int, committed_us: dict[tuple[Log, int], int]
    ) -> Iterator[list[Span]]:
        """The spans of messages from `start` to before `end`."""
        for rows in LogReader(self._shard, log).rows(Window(start, end)):
            durable_us = committed_us.get((log, rows.offsets[0]), 0)
            batch = rows.batch
            for first in range(0, len(rows.offsets), _AT_ONCE):
                spans = []
                for row in range(first, min(first + _AT_ONCE, len(rows.offsets))):
                    identity = _identity(log, rows.offsets[row])
                    context = self._contexts.of(identity, None if batch.headers is None else batch.headers[row])
                    if context is not None:
                        due_us = 0 if batch.deliver_at is None else batch.deliver_at[row]
                        size = len(batch.values[row])
                        spans.append(
                            _publication(log, identity, context, rows.timestamps_us[row], durable_us, due_us, size)
                        )
                yield spans

    # Deliveries.

    def happened(self, log: Log, start: int, end: int) -> Iterator[list[Span]]:
        """The spans that events from `start` to before `end` bring to their end."""
        messages = log.topic.partitions[log.partition].messages
        parts = _in_parts(LogReader(self._shard, log).events(Window(start, end)))
        while some := list(islice(parts, _AT_ONCE)):
            yield from self._some_happened(messages, some)
        self._last_page = None

    def _some_happened(self, log: Log, parts: list[tuple[Event, Sequence[int]]]) -> Iterator[list[Span]]:
        known: dict[int, _Known] = {}
        place = 0
        for number, (event, offsets) in enumerate(parts):
            if number >= place:  # look up what the next few need, at once
                wanted: set[int] = set()
                while place < len(parts) and len(wanted) < _AT_ONCE:
                    ahead, those = parts[place]
                    if ahead.kind == EventKind.DELIVERED or ahead.kind in _LONE:
                        wanted.update(those)
                    place += 1
                known = self._look_up(log, wanted)
            yield self._one_happened(log, event, offsets, known)

    def _one_happened(self, log: Log, event: Event, offsets: Sequence[int], known: dict[int, _Known]) -> list[Span]:
        kind, group = event.kind, event.group
        if group is None:
            found = self._end_for_all(log, event) if kind in _FOR_ALL else []
            return found + (self._alone(log, event, offsets, known) if kind in _LONE else [])
        if kind == EventKind.DELIVERED:
            for offset in offsets:
                if offset in known:
                    self._begin(log, offset, group, event, known[offset])
            return []
        if kind in (EventKind.SOUGHT, EventKind.FORGOTTEN):
            places = [place for place in self._open if place.log is log and place.group == group]
            return [_ended(self._open.pop(place), event, EventKind.RELEASED, _MOVED) for place in places]
        spans = []
        alone = []
        for offset in offsets:
            span = self._open.get(_Place(log, offset, group))
            if span is None:
                alone.append(offset)
            elif kind == EventKind.EXTENDED:
                if len(span.events) < _EVENTS_MAX:
                    span.events.append(SpanEvent("extended", event.time_us, {"penstock.detail": event.detail or ""}))
            elif kind in (EventKind.FAILED, EventKind.EXPIRED) and not event.due_us:
                span.attributes["error.type"] = _ERROR_TYPES[kind]  # for the last time: DEAD comes next
            elif kind in _ENDS or kind in _LONE:
                spans.append(_ended(self._open.pop(_Place(log, offset, group)), event, kind, event.detail))
        return spans + (self._alone(log, event, alone, known) if kind in _LONE else [])

    def _begin(self, log: Log, offset: int, group: str, event: Event, known: _Known) -> None:
        identity, place = _identity(log, offset), _Place(log, offset, group)
        if self._open.pop(place, None) is not None:
            self.lost += 1  # how that delivery ended was refused by the disk
        elif len(self._open) >= _OPEN_MAX:
            del self._open[next(iter(self._open))]
            self.lost += 1
        context = known.context
        attributes = _attributes(log, identity, "process", "process")
        attributes["messaging.consumer.group.name"] = group
        if event.consumer is not None:
            attributes["messaging.client.id"] = event.consumer
        attributes["penstock.delivery.attempt"] = event.attempt
        span_id = self._contexts.delivery_id(identity, group, event.attempt, event.time_us)
        name = f"process {log.topic.name}"
        span = self._open[place] = context.child(span_id, name, SpanKind.CONSUMER, event.time_us, attributes)
        if known.due_us and event.attempt == 1:
            span.events.append(SpanEvent("due", known.due_us, {}))

    def _end_for_all(self, log: Log, event: Event) -> list[Span]:
        if not self._open:
            return []
        places = [place for place in self._open if place.log is log and event.speaks_of(place.offset)]
        return [_ended(self._open.pop(place), event, event.kind, event.detail) for place in places]

    def _alone(self, log: Log, event: Event, offsets: Iterable[int], known: dict[int, _Known]) -> list[Span]:
        """What happened between deliveries, as spans without length."""
        spans = []
        for offset in offsets:
            if offset not in known:
                continue
            context, identity = known[offset].context, _identity(log, offset)
            attributes = _attributes(log, identity, event.kind)
            if event.group is not None:
                attributes["messaging.consumer.group.name"] = event.group
            if event.due_us:
                attributes["penstock.due_at"] = _moment(event.due_us)
            span_id = self._contexts.delivery_id(identity, f"{event.kind} {event.group}", 0, event.time_us)
            name = f"{event.kind} {log.topic.name}"
            span = context.child(span_id, name, SpanKind.INTERNAL, event.time_us, attributes)
            if event.kind == EventKind.DEAD:
                span.error = event.detail or "dead"
                attributes["error.type"] = "lapsed"
            spans.append(span)
        return spans

    # Looking up.

    def _look_up(self, log: Log, offsets: set[int]) -> dict[int, _Known]:
        """What the log says about messages; of those that are gone, what their id alone tells."""
        found: dict[int, _Known] = {}
        state = log.topic.partitions[log.partition].state
        moved = {} if state is None else state.moved
        for offset in sorted(offsets):
            page = self._page(log, offset)
            headers, due_us = None, 0
            if page is not None and (row := page.row(offset)) is not None:
                headers = None if page.headers is None else page.headers[row]
                due_us = 0 if page.deliver_at is None else page.deliver_at[row]
            context = self._contexts.of(_identity(log, offset), headers)
            if context is not None:
                found[offset] = _Known(context, moved.get(offset, due_us))
        return found

    def _page(self, log: Log, offset: int) -> _Page | None:
        """The block, or the row group, in which a message lies: the one that was read last, more often than not."""
        page = self._last_page
        if page is not None and page.log is log and page.first <= offset <= page.last:
            return page
        try:
            chunk = LogReader(self._shard, log).chunk(Window(offset))
        except (CorruptData, OSError, Overloaded):  # whoever consumes it hears of that
            return None
        if chunk is None:
            return None
        rows, batch = chunk[0], chunk[0].batch
        first = min(offset, rows.offsets[0])  # nothing is between: it need not be looked for again
        page = _Page(log, first, rows.offsets[-1], rows.offsets, batch.headers, batch.deliver_at)
        self._last_page = page
        return page

    # Letting go.

    def forget(self, log: Log) -> None:
        """Let go of the open deliveries of a partition: events of its log were passed over."""
        messages = log.topic.partitions[log.partition].messages
        self._let_go([place for place in self._open if place.log is messages])

    def prune(self, deleted: Collection[Topic]) -> None:
        """Let go of the open deliveries of topics that were deleted."""
        self._let_go([place for place in self._open if place.log.topic in deleted])

    @property
    def open(self) -> int:
        """How many deliveries are open."""
        return len(self._open)

    def _let_go(self, places: list[_Place]) -> None:
        for place in places:
            del self._open[place]
        self.lost += len(places)


def _publication(
    log: Log, identity: str, context: Context, time_us: int, durable_us: int, due_us: int, size_bytes: int
) -> Span:
    attributes = _attributes(log, identity, "publish", "send")
    attributes["messaging.message.body.size"] = size_bytes
    span = Span(
        context.trace_id,
        context.span_id,
        context.parent_id,
        f"publish {log.topic.name}",
        SpanKind.PRODUCER,
        time_us,
        durable_us or time_us,
        attributes,
        state=context.state,
        remote=context.remote,
    )
    if due_us:
        span.events.append(SpanEvent("delayed", time_us, {"penstock.due_at": _moment(due_us)}))
    return span


def _attributes(log: Log, identity: str, operation: str, kind: str | None = None) -> dict[str, str | int]:
    attributes: dict[str, str | int] = {
        "messaging.system": "penstock",
        "messaging.destination.name": log.topic.name,
        "messaging.destination.partition.id": str(log.partition),
        "messaging.message.id": identity,
        "messaging.operation.name": str(operation),
    }
    if kind is not None:
        attributes["messaging.operation.type"] = kind
    return attributes


def _ended(span: Span, event: Event, outcome: EventKind, detail: str | None) -> Span:
    """The span of a delivery that is over."""
    span.end_us = event.time_us
    span.attributes["penstock.outcome"] = str(outcome)
    if outcome in _ERROR_TYPES:
        span.attributes.setdefault("error.type", _ERROR_TYPES[outcome])
        span.error = detail or str(outcome)
    elif detail:
        span.attributes["penstock.detail"] = detail
    if event.due_us:
        span.attributes["penstock.retry_at"] = _moment(event.due_us)
    return span


def _in_parts(events: Iterable[Event]) -> Iterator[tuple[Event, Sequence[int]]]:
    """Each event with the offsets that it speaks of, a few hundred at once."""
    for event in events:
        offsets = range(event.offset, event.offset + event.count) if event.offsets is None else event.offsets
        if event.kind in (EventKind.ARCHIVED, EventKind.REMOVED, EventKind.CREATED, EventKind.CONFIGURED):
            continue
        for first in range(0, max(1, len(offsets)), _AT_ONCE):
            yield event, offsets[first : first + _AT_ONCE]


def _identity(log: Log, offset: int) -> str:
    return f"{log.topic.name}/{log.partition}/{offset}"


def _moment(time_us: int) -> str:
    return to_datetime(time_us).isoformat()
