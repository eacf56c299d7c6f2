"""What a task finds out about the messages of a chunk: latencies, causes, consumers, and where each message stands."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.jobs.auditing.events import Era
from penstock.spark.jobs.tracing.chunks import Chunk, events_about, read_messages
from penstock.spark.jobs.tracing.runs import NO_RUNS, Runs, flat, joined, laid_over, layer, runs_of

HOUR_US = 3_600_000_000
RETURNS = ("failed", "expired", "released")
WITHDRAWS = ("cancelled", "purged", "redriven")
STATES = ("acked", "dead", "lapsed", "skipped", "withdrawn", "lost", "held", "waiting")
"""Where a message stands, for a group; together they are all that were published for it."""
METRICS = ("wait", "work", "total")
"""From published to first delivered, from there to acked, and both."""
_FOREVER = 2**63 - 1
PartKey = tuple[str, str, str]
"""A topic, a group, and what it is about."""


def look(chunk: Chunk) -> Iterator[tuple[PartKey, bytes]]:
    """Everything about a chunk: tables as bytes, which belong together with those of other chunks of the same key."""
    return _Look(chunk).parts()


def packed(table: pa.Table) -> bytes:
    """A table as bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def unpacked(data: bytes) -> pa.Table:
    """The table."""
    return pa.ipc.open_stream(data).read_all()


class _Look:
    def __init__(self, chunk: Chunk) -> None:
        self._chunk = chunk
        self._low, self._high = chunk.messages.start, chunk.messages.end
        self._message_runs, self._messages = read_messages(chunk)
        events = events_about(chunk)
        self._kinds, self._groups, self._consumers, self._details, self._numbers, self._attempts = (
            flat(events.column(name)) for name in ("kind", "group", "consumer", "detail", "event", "attempt")
        )
        self._times, self._dues = (flat(events.column(name)).cast(pa.int64()) for name in ("time", "due_at"))
        self._runs = runs_of(events).clipped(self._low, self._high) if len(events) else NO_RUNS
        groups = self._groups.take(self._runs.row)
        self._common = self._runs.where(pc.is_null(groups))
        self._by_group = {
            name: self._runs.where(pc.fill_null(pc.equal(groups, name), False))  # noqa: FBT003
            for name in pc.unique(groups.drop_null()).to_pylist()
        }

    def parts(self) -> Iterator[tuple[PartKey, bytes]]:
        """What is found, group by group."""
        eras = {era.group: era for era in self._chunk.eras}
        for group in sorted({*eras, *self._by_group}):
            mine = self._by_group.get(group, NO_RUNS)
            pieces = self._pieces(mine, eras.get(group))
            tables = {
                "funnel": self._funnel(pieces),
                "open": self._open(pieces) if group in eras else None,
                "causes": self._causes(mine),
                "consumers": self._of_consumers(mine),
                "busy": self._busy(pieces),
                **self._latencies(pieces),
            }
            for kind, table in tables.items():
                if table is not None and len(table):
                    yield (self._chunk.topic, group, kind), packed(table)

    def _of(self, runs: Runs, *kinds: str) -> Runs:
        """The runs of events of some kinds."""
        return runs.where(pc.is_in(self._kinds.take(runs.row), pa.array(kinds, pa.string())))

    def _delivered(self, runs: Runs) -> tuple[Runs, Runs]:
        """First deliveries, and the latest of each message that was delivered again."""
        found = self._of(runs, "delivered")
        first = pc.equal(self._attempts.take(found.row), 1)
        return layer(found.where(first)), layer(found.where(pc.invert(first)), last=True)

    def _pieces(self, mine: Runs, era: Era | None) -> pa.Table:
        """The messages of the chunk as pieces in which nothing differs, with the events that count there."""
        first, again = self._delivered(mine)
        done = layer(self._of(mine, "acked"))
        layers = {"message": self._message_runs, "first": first, "done": done}
        counted = self._since(mine, era)
        if counted is mine:
            layers |= {"held": first, "again": again, "acked": done}
        else:
            held, again = self._delivered(counted)
            layers |= {"held": held, "again": again, "acked": layer(self._of(counted, "acked"))}
        start, until = (0, 0) if era is None else (era.start, era.until)
        one = [pa.array([number], pa.int64()) for number in (start, until, 0)]
        layers |= {
            "concern": Runs(*one).clipped(self._low, self._high),
            "moved": layer(self._of(self._common, "rescheduled"), last=True),
            "withdrawn": layer(self._of(self._common, *WITHDRAWS)),
            "returned": layer(self._of(counted, *RETURNS), last=True),
            "grave": layer(self._of(counted, "dead", "redriven"), last=True),
            "ended": layer(self._of(counted, "lapsed", "skipped")),
            "lost": layer(self._lost(era)),
        }
        pieces = laid_over(layers)
        told = ("concern", "first", "done", "grave", "ended")
        concerned = pc.is_valid(pc.coalesce(*(flat(pieces.column(name)) for name in told)))
        pieces = pieces.filter(pc.and_(concerned, pc.is_valid(flat(pieces.column("message")))))
        return self._described(pieces)

    def _lost(self, era: Era | None) -> Runs:
        """What went to the archive before the group was done with it, and it does not get from there."""
        if era is None or era.archived:
            return NO_RUNS
        found = self._of(self._common, "archived")
        found = found.where(pc.greater(self._numbers.take(found.row), era.since))
        lows, highs = ([run[end] for run in era.missing] for end in (0, 1))
        rows = pa.array([0] * len(lows), pa.int64())  # any: that there is one is what counts
        missing = Runs(pa.array(lows, pa.int64()), pa.array(highs, pa.int64()), rows)
        return joined([found, missing.clipped(self._low, self._high)])

    def _since(self, mine: Runs, era: Era | None) -> Runs:
        """What counts for where messages stand: from where a group began, what happened since it did."""
        if era is None or not len(mine.row):
            return mine
        newer = pc.greater(self._numbers.take(mine.row), era.since)
        if pc.all(newer).as_py():
            return mine
        older = mine.where(pc.invert(newer))
        return joined([mine.where(newer), older.clipped(0, era.start), older.clipped(era.until, _FOREVER)])

    def _described(self, pieces: pa.Table) -> pa.Table:
        """Pieces with their number of messages, times, lane, and state."""
        column = {name: flat(pieces.column(name)) for name in pieces.column_names}
        message = column["message"]
        published, lane = (flat(self._messages.column(name)).take(message) for name in ("published", "lane"))
        due = pc.coalesce(self._dues.take(column["moved"]), flat(self._messages.column("due")).take(message))
        ready = pc.max_element_wise(published, due)
        held = pc.coalesce(column["again"], column["held"])
        back = pc.max_element_wise(column["returned"], column["grave"])
        is_held = pc.and_(pc.is_valid(held), pc.fill_null(pc.greater(held, back), True))  # noqa: FBT003
        again_at = pc.max_element_wise(ready, self._times.take(back), self._dues.take(back))
        state = pc.case_when(
            pc.make_struct(
                pc.is_valid(column["acked"]),
                pc.fill_null(pc.equal(self._kinds.take(column["grave"]), "dead"), False),  # noqa: FBT003
                pc.is_valid(column["ended"]),
                pc.is_valid(column["withdrawn"]),
                pc.is_valid(column["lost"]),
                is_held,
            ),
            *(pa.scalar(name) for name in ("acked", "dead")),
            self._kinds.take(column["ended"]),
            *(pa.scalar(name) for name in ("withdrawn", "lost", "held", "waiting")),
        )
        return pa.table(
            {
                "low": column["low"],
                "count": pc.subtract(column["high"], column["low"]),
                "lane": lane,
                "hour": pc.multiply(pc.divide(published, HOUR_US), HOUR_US),
                "ready": ready,
                "first": column["first"],
                "done": column["done"],
                "again": column["again"],
                "acked": column["acked"],
                "delivery": held,
                "state": state if len(pieces) else pa.array([], pa.string()),
                "since": pc.if_else(is_held, self._times.take(held), again_at),
            }
        )

    # What is told of them.

    def _funnel(self, pieces: pa.Table) -> pa.Table:
        """How many messages there are, were delivered, and stand where."""
        counts = pieces.column("count")
        delivered, again = (pc.is_valid(pieces.column(name)) for name in ("first", "again"))
        rows = [
            ("published", _total(counts)),
            ("delivered", _total(counts.filter(pc.or_(delivered, again)))),
            ("redelivered", _total(counts.filter(again))),
            *((state, _total(counts.filter(pc.equal(pieces.column("state"), state)))) for state in STATES),
        ]
        return pa.table({"stage": [name for name, _ in rows], "messages": pa.array([n for _, n in rows], pa.int64())})

    def _open(self, pieces: pa.Table) -> pa.Table:
        """Messages that are neither settled nor gone, by the time since which they are held or waiting."""
        found = pieces.filter(pc.is_in(pieces.column("state"), pa.array(["held", "waiting"])))
        is_held = pc.equal(found.column("state"), "held")
        holders = self._consumers.take(flat(found.column("delivery")))
        consumer = pc.if_else(is_held, holders, pa.scalar(None, pa.string()))
        seen = pc.if_else(pc.is_valid(found.column("delivery")), "again", "first")
        state = pc.if_else(is_held, found.column("state"), seen)
        table = pa.table(
            {**{n: found.column(n) for n in ("since", "low", "count")}, "state": state, "consumer": consumer}
        )
        table = table.group_by(["state", "since", "consumer"]).aggregate([("low", "min"), ("count", "sum")])
        partition = pa.repeat(pa.scalar(self._chunk.partition, pa.int32()), len(table))
        return table.append_column("partition", partition)

    def _causes(self, mine: Runs) -> pa.Table:
        """Why messages came back."""
        return _counted(self._of(mine, *RETURNS), cause=self._kinds, detail=self._details)

    def _of_consumers(self, mine: Runs) -> pa.Table:
        """What each consumer did."""
        return _counted(self._of(mine, "delivered", "acked", *RETURNS), consumer=self._consumers, kind=self._kinds)

    def _busy(self, pieces: pa.Table) -> pa.Table:
        """From the last delivery of each message to its ack, by who acked it."""
        found = pieces.filter(pc.and_(pc.is_valid(pieces.column("acked")), pc.is_valid(pieces.column("delivery"))))
        acked, delivery = (flat(found.column(name)) for name in ("acked", "delivery"))
        table = pa.table(
            {
                "consumer": self._consumers.take(acked),
                "value": _waited(self._times.take(delivery), self._times.take(acked)),
                "count": found.column("count"),
            }
        )
        return _summed(table, ["consumer", "value"])

    def _latencies(self, pieces: pa.Table) -> dict[str, pa.Table]:
        ready = pieces.column("ready")
        first, done = (self._times.take(flat(pieces.column(name))) for name in ("first", "done"))
        values = {"wait": _waited(ready, first), "work": _waited(first, done), "total": _waited(ready, done)}
        found = {}
        for metric, value in values.items():
            table = pa.table({**{n: pieces.column(n) for n in ("lane", "hour", "count")}, "value": value})
            found[metric] = _summed(table.filter(pc.is_valid(table.column("value"))), ["lane", "hour", "value"])
        return found


def _waited(start: pa.Array | pa.ChunkedArray, end: pa.Array | pa.ChunkedArray) -> pa.Array:
    """How long it took, in µs; a clock that was set back took nothing."""
    passed = pc.subtract(end, start)
    return pc.if_else(pc.less(passed, 0), pa.scalar(0, pa.int64()), passed)


def _counted(runs: Runs, **columns: pa.Array) -> pa.Table:
    """How many messages there are of each combination of what some columns say of the events of runs."""
    table = pa.table({**{name: column.take(runs.row) for name, column in columns.items()}, "messages": runs.lengths})
    return table.group_by(list(columns)).aggregate([("messages", "sum")])


def _summed(table: pa.Table, keys: list[str]) -> pa.Table:
    found = table.group_by(keys).aggregate([("count", "sum")])
    return found.rename_columns([*keys, "count"])


def _total(counts: pa.ChunkedArray) -> int:
    return int(pc.sum(counts).as_py() or 0)
