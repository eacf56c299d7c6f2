"""The tables of a report: what was gathered, in an order that depends on nothing but the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from penstock.spark.jobs.tracing.looking import METRICS, STATES, PartKey

_TIME = pa.timestamp("us", tz="UTC")
_FIGURES = [("messages", pa.int64()), *((name, pa.float64()) for name in ("p50_ms", "p95_ms", "p99_ms", "highest_ms"))]
_GROUP = [("topic", pa.string()), ("group", pa.string())]
SCHEMAS = {
    "latencies": pa.schema(
        [*_GROUP, ("metric", pa.string()), ("lane", pa.int64()), ("hour", _TIME), *_FIGURES],
    ),
    "histogram": pa.schema(
        [*_GROUP, ("metric", pa.string()), ("from_ms", pa.float64()), ("to_ms", pa.float64()), ("messages", pa.int64())]
    ),
    "funnel": pa.schema([*_GROUP, ("stage", pa.string()), ("messages", pa.int64())]),
    "causes": pa.schema([*_GROUP, ("cause", pa.string()), ("detail", pa.string()), ("messages", pa.int64())]),
    "consumers": pa.schema(
        [
            *_GROUP,
            ("consumer", pa.string()),
            *((name, pa.int64()) for name in ("delivered", "acked", "failed", "expired", "released")),
            *_FIGURES[1:],
        ]
    ),
    "stuck": pa.schema(
        [
            *_GROUP,
            ("state", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("messages", pa.int64()),
            ("since", _TIME),
            ("seconds", pa.float64()),
            ("consumer", pa.string()),
        ]
    ),
}
"""Every table and its columns. `lane` and `hour` are null in lines about all of them."""
STAGES = ("published", "delivered", "redelivered", *STATES)
_STUCK = {"held": "held", "first": "not delivered", "again": "not delivered again"}
"""What stuck messages wait for."""
Rows = dict[str, list[tuple[object, ...]]]


@dataclass(frozen=True)
class Report:
    """The rows of all tables, with the columns of `SCHEMAS`; times are in µs."""

    rows: Rows
    as_of_us: int

    def table(self, name: str) -> pa.Table:
        """One of the tables."""
        columns = list(zip(*self.rows[name], strict=True)) or [()] * len(SCHEMAS[name])
        arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMAS[name], strict=True)]
        return pa.Table.from_arrays(arrays, schema=SCHEMAS[name])


def report_of(found: Mapping[PartKey, pa.Table], as_of_us: int, stuck_after_us: int) -> Report:
    """The report of what was gathered; messages that are open for longer than `stuck_after_us` are stuck."""
    rows: Rows = {name: [] for name in SCHEMAS}
    consumers: dict[tuple[str, str], dict[str | None, dict[str, int]]] = {}
    busy: dict[tuple[str, str, str | None], list[float]] = {}
    for (topic, group, kind), table in sorted(found.items()):
        key = (topic, group)
        if kind in METRICS:
            rows["latencies"] += [(*key, kind, row["lane"], row["hour"], *_figures(row)) for row in table.to_pylist()]
        elif kind.removesuffix("-histogram") in METRICS:
            rows["histogram"] += [(*key, kind.removesuffix("-histogram"), *bar) for bar in _bars(table)]
        elif kind == "funnel":
            counts = {row["stage"]: row["messages_sum"] for row in table.to_pylist()}
            rows["funnel"] += [(*key, stage, counts.get(stage, 0)) for stage in STAGES]
        elif kind == "causes":
            rows["causes"] += [(*key, row["cause"], row["detail"], row["messages"]) for row in table.to_pylist()]
        elif kind == "consumers":
            mine = consumers.setdefault(key, {})
            for row in table.to_pylist():
                mine.setdefault(row["consumer"], {})[row["kind"]] = row["messages_sum_sum"]
        elif kind == "busy":
            busy |= {(*key, row["consumer"]): _figures(row)[1:] for row in table.to_pylist()}
        elif kind == "open":
            rows["stuck"] += [(*key, *stuck) for stuck in _stuck(table, as_of_us, stuck_after_us)]
    for key, mine in consumers.items():
        for name, counts in mine.items():
            did = [counts.get(kind, 0) for kind in ("delivered", "acked", "failed", "expired", "released")]
            rows["consumers"].append((*key, name, *did, *busy.get((*key, name), [None] * 4)))
    for name in ("latencies", "stuck"):
        rows[name].sort(key=lambda row: tuple((value is not None, value) for value in row))
    slowest = SCHEMAS["consumers"].names.index("p95_ms")
    rows["consumers"].sort(key=lambda row: (row[:2], row[slowest] is None, -(row[slowest] or 0), str(row[2])))
    return Report(rows, as_of_us)


def _figures(row: Mapping[str, float]) -> list[float]:
    return [row["messages"], *(row[name] / 1000 for name in ("p50", "p95", "p99", "highest"))]


def _bars(table: pa.Table) -> list[tuple[float, float | None, int]]:
    """The bars of a histogram from the first to the last that has something."""
    bars, low = [], 0.0
    for row in table.to_pylist():
        high = None if row["edge"] is None else row["edge"] / 1000
        bars.append((low, high, row["messages"]))
        low = high or low
    filled = [place for place, bar in enumerate(bars) if bar[2]]
    return bars[filled[0] : filled[-1] + 1] if filled else []


def _stuck(table: pa.Table, as_of_us: int, after_us: int) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    for row in table.to_pylist():
        waited_us = as_of_us - row["since"]
        if waited_us > after_us:
            place = (row["partition"], row["low_min"], row["count_sum"])
            found.append((_STUCK[row["state"]], *place, row["since"], waited_us / 1_000_000, row["consumer"]))
    return found
