"""The ratios that are asked for: a figure of Penstock beside that of a peer, or of the bare disk, in the same run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.peers.rounds import Figure
from benchmarks.peers.systems.penstock import USED_ROWS
from benchmarks.peers.systems.system import RAW
from benchmarks.rows import Row, Target, alone, compare

Of = Literal["rate", "p50", "p99"]
_UNITS: dict[Of, str] = {"rate": "messages/s", "p50": "s", "p99": "s"}


@dataclass(frozen=True, slots=True)
class Side:
    """Where a figure comes from."""

    row: str
    system: str = "penstock"
    way: str = RAW


@dataclass(frozen=True, slots=True)
class Ratio:
    """A figure of ours, beside whose, and what is asked of it."""

    what: str
    of: Of
    ours: Side
    theirs: Side | None
    beside: str
    target: Target


def _at_least(bound: float) -> Target:
    return Target("ratio", ">=", bound)


def _at_most(bound: float) -> Target:
    return Target("ratio", "<=", bound)


def _against_redis(what: str, row: str, target: Target, of: Of = "rate") -> Ratio:
    return Ratio(what, of, Side(row), Side(row, "redis"), "Redis AOF always", target)


RATIOS = (
    Ratio(
        "one at a time by `client.publish` of the plain client, against raw Redis",
        "rate",
        Side("client-alone", way="plain"),
        Side("alone", "redis"),
        "Redis AOF always, raw",
        _at_least(0.75),
    ),
    _against_redis("one at a time, raw against raw", "alone", _at_least(0.95)),
    Ratio(
        "one at a time, raw: p50",
        "p50",
        Side("alone"),
        Side("alone", "bare", "write + fdatasync"),
        "bare write + fdatasync",
        _at_most(1.6),
    ),
    _against_redis("64 connections", "connections", _at_least(1.2)),
    _against_redis("window of 256", "window-256", _at_least(1.3)),
    _against_redis("receive + ack singly", "receive-1", _at_least(1.0)),
    Ratio(
        "receive + ack by 1,000",
        "rate",
        Side("receive-1000"),
        Side("receive-1000", "kafka"),
        "Kafka, flush 1",
        _at_least(1.1),
    ),
    Ratio("drain 2 million", "rate", Side("drain"), Side("drain", "kafka"), "Kafka, flush 1", _at_least(1.1)),
    _against_redis("end to end at 5,000/s: p50", "steady", _at_most(1.0), "p50"),
    _against_redis("end to end at 5,000/s: p99", "steady", _at_most(1.0), "p99"),
    _against_redis("1,000 queues in turn", "queues", _at_least(0.7)),
    *(
        Ratio(
            f"{row}, with 3,000 used topics",
            "rate",
            Side(row, "penstock-used"),
            Side(row),
            "a fresh server",
            _at_least(0.95),
        )
        for row in USED_ROWS
    ),
    Ratio(
        "`publish_soon` of the plain client",
        "rate",
        Side("client-soon", way="plain"),
        None,
        "",
        Target("measured", ">=", 200_000),
    ),
)


def judge(figures: Sequence[Figure]) -> list[Row]:
    """The ratios of which both sides were measured."""
    rows = []
    for ratio in RATIOS:
        unit, ours = _UNITS[ratio.of], _rounds(figures, ratio.ours, ratio.of)
        if ratio.theirs is None:
            if ours:
                rows.append(alone(ratio.what, unit, ours, ratio.target))
            continue
        theirs = _rounds(figures, ratio.theirs, ratio.of)
        if ours and len(ours) == len(theirs):
            rows.append(compare(ratio.what, unit, list(zip(ours, theirs, strict=True)), ratio.beside, ratio.target))
    return rows


def _rounds(figures: Sequence[Figure], side: Side, of: Of) -> list[float]:
    found = [
        figure for figure in figures if (figure.row, figure.system, figure.way) == (side.row, side.system, side.way)
    ]
    if of == "rate":
        return [figure.messages / figure.seconds for figure in found]
    shown = [figure.p50_s if of == "p50" else figure.p99_s for figure in found]
    return [value for value in shown if value is not None]
