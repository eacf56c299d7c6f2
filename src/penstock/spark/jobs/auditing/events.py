"""The events of the topics, and what they say as a whole: which groups there are, and what retention took away."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from penstock.model.errors import InvalidArgument
from penstock.model.group_settings import decode_settings
from penstock.spark.frames import union
from penstock.spark.jobs.auditing.frames import NEVER, Frames
from penstock.spark.jobs.auditing.problems import Key
from penstock.spark.jobs.auditing.sides import Run, Side

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RULING = ("created", "sought", "forgotten", "removed", "archived")
"""Rare kinds that say how the other events are to be read."""
_USED = ("event", "kind", "offset", "count", "last", "group", "attempt", "detail", "offsets")


@dataclass(frozen=True)
class Era:
    """A group since it began where it did: what came before does not count."""

    group: str
    since: int
    """The event with which it began."""
    start: int
    until: int
    archived: bool
    """Whether it also gets what is in the archive."""
    missing: tuple[Run, ...]


@dataclass
class EventLog:
    """What the events of a partition say as a whole."""

    count: int = 0
    first: int = 0
    last: int = 0
    highest: int = -1
    """The highest offset that they speak of."""
    lowest: int = 0
    eras: list[Era] = field(default_factory=list)
    removed: list[Run] = field(default_factory=list)
    archived: list[Run] = field(default_factory=list)


def events_of(spark: SparkSession, home: Side, lake: Side | None, ids: Mapping[str, int]) -> DataFrame | None:
    """The events of all topics, each once: those of the place, and older ones from the lake."""
    sides = [home] if lake is None else [home, lake]
    frames: list[DataFrame] = []
    for side in sides:
        cuts = {}
        for view in side.of("events"):
            own = home.log("events", view.key) if side is lake else None
            cuts[view.key] = [NEVER if own is None or not own.runs() else own.first]
        wanted = [f.col(name) for name in ("id", "partition", *_USED)]
        for frame in Frames(spark, side, "events", ids, cuts).all(lambda view: bool(view.runs())):
            kept = frame if side is home else frame.where("event < cuts[0]")
            frames.append(kept.select(*wanted))
    return union(frames)


def read_logs(events: DataFrame, ids: Mapping[str, int]) -> dict[Key, EventLog]:
    """What the events say as a whole, by partition."""
    names = {number: topic for topic, number in ids.items()}
    ruling = f.struct("event", "kind", "offset", "count", "group", "detail")
    about = f.col("count") > 0
    rows = (
        events.groupBy("id", "partition")
        .agg(
            f.count("*"),
            f.min("event"),
            f.max("event"),
            f.min(f.when(about, f.col("offset"))),
            f.max(f.when(about, f.col("last"))),
            f.sort_array(f.collect_list(f.when(f.col("kind").isin(*_RULING), ruling))),
        )
        .collect()
    )
    found = {}
    for number, partition, count, first, last, lowest, highest, listed in rows:
        log = EventLog(count, first, last, -1 if highest is None else highest, 0 if lowest is None else lowest)
        rule(log, listed)
        found[names[number], partition] = log
    return found


def rule(log: EventLog, listed: list[tuple[int, str, int, int, str | None, str | None]]) -> None:
    """Note which groups there are now, and since when; and what retention took. The events are in order."""
    eras: dict[str, Era] = {}
    for event, kind, offset, count, group, detail in listed:
        if kind in ("removed", "archived"):
            (log.removed if kind == "removed" else log.archived).append((offset, offset + count))
        elif group is None:
            continue
        elif kind == "forgotten":
            eras.pop(group, None)
        else:
            try:
                settings = decode_settings(detail)
            except InvalidArgument:
                settings = decode_settings(None)
            known = eras.get(group)
            until = known.until if known else NEVER if settings.until is None else settings.until
            archived = known.archived if known else settings.archived
            if known or kind == "created":
                eras[group] = Era(group, event, offset, until, archived, settings.missing)
    log.eras = list(eras.values())
