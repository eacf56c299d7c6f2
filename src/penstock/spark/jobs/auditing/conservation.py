"""Q1 by SQL: what became of every message of every group, folded from the events.

An event speaks of a run of messages, and so does this: the runs of a group are cut at all their borders by a sum that
runs along the offsets. Of each piece it is known how many runs of each kind lie over it and, where that is one, the
number of its event; the first of those that settle a message decides. Pieces over which there are more (messages that
were redriven, or purged twice) are few, and are folded message by message.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.delivery.progress import Progress, Tally
from penstock.delivery.standing import Standing
from penstock.model.group_settings import GroupSettings
from penstock.spark.jobs.auditing.events import EventLog
from penstock.spark.jobs.auditing.problems import Findings, Key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ENDS = Tally.__struct_fields__
"""What settles a message for a group, as the broker counts it."""
_KINDS = (*ENDS, "delivered", "redriven", "gone")
_CODES = {kind: number for number, kind in enumerate(_KINDS)}
_BUCKET = 4096
_ONE = 1 << 44
"""Each kind of run has a running sum along the offsets; a run adds this, and the number of its event."""


def _code(*kinds: str) -> str:
    """Kinds as the numbers that they are in the queries."""
    return ", ".join(str(_CODES[kind]) for kind in kinds)


_SPOKEN = f"""
SELECT g.era, e.event, e.offset, e.last, e.offsets, e.offsets IS NOT NULL AS scattered, CASE
    WHEN e.kind IN ('cancelled', 'purged') OR (e.kind = 'redriven' AND e.group IS NULL) THEN {_code("withdrawn")}
    WHEN e.kind IN ('removed', 'archived') THEN IF(e.event > g.since, {_code("lost")}, {_code("gone")})
    {" ".join(f"WHEN e.kind = '{kind}' THEN {_code(kind)}" for kind in _KINDS[:4] + _KINDS[6:8])} END AS what
FROM {{events}} e JOIN {{eras}} g ON e.id = g.id AND e.partition = g.partition AND (
  (e.group = g.group AND e.event > g.since
    AND (e.kind IN ('acked', 'dead', 'lapsed', 'skipped', 'redriven') OR (e.kind = 'delivered' AND e.attempt = 1)))
  OR (e.group IS NULL AND e.kind IN ('cancelled', 'purged', 'redriven', 'removed'))
  OR (e.group IS NULL AND e.kind = 'archived' AND e.event > g.since AND NOT g.archived))
WHERE e.count > 0
"""
_RUNS = f"""
SELECT era, since, event, what, greatest(low, start) AS low, least(high, until) AS high
FROM (
  SELECT era, event, what, min(place) AS low, max(IF(scattered, place, last)) + 1 AS high
  FROM (SELECT era, event, what, scattered, last, posexplode(coalesce(offsets, array(offset))) AS (number, place)
        FROM {{spoken}})
  GROUP BY era, event, what, place - number
  UNION ALL
  SELECT era, since, {_code("lost")}, inline(missing) FROM {{eras}})
JOIN (SELECT era, since, start, until FROM {{eras}}) USING (era)
WHERE greatest(low, start) < least(high, until)
"""
_PIECES = f"""
SELECT era, since, at, lead(at) OVER (PARTITION BY era ORDER BY at) AS behind,
  {", ".join(f"sum(IF(what = {code}, step, 0)) OVER along AS s_{kind}" for kind, code in _CODES.items())}
FROM (SELECT era, since, what, inline(array(
        struct(low AS at, {_ONE} + event AS step), struct(high AS at, -{_ONE} - event AS step))) FROM {{runs}})
WINDOW along AS (PARTITION BY era ORDER BY at RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
"""
_JUDGED = f"""
SELECT *, least({", ".join(f"IF(s_{kind} > 0, s_{kind}, NULL)" for kind in ENDS)}) AS first
FROM (
  SELECT * EXCEPT (s_withdrawn), IF(s_withdrawn > {_ONE} + since OR s_gone = 0, s_withdrawn, 0) AS s_withdrawn,
    {" OR ".join(f"s_{kind} >= {2 * _ONE}" for kind in _KINDS if kind != "gone")} OR s_redriven > 0 AS contested,
    s_acked > 0 AND (s_delivered = 0 OR s_delivered > s_acked) AS early
  FROM {{pieces}} WHERE behind > at)
"""
_FOLDED = f"""
SELECT era, contested, {", ".join(f"sum(IF(first = s_{kind}, behind - at, 0)) AS {kind}" for kind in ENDS)},
  sum(IF(early, behind - at, 0)) AS early, min(IF(early, at, NULL)) AS early_at
FROM {{judged}} GROUP BY era, contested
"""
_OFFSETS = f"""
SELECT era, place, sort_array(collect_list(struct(event, what))) AS life FROM (
  SELECT r.era, r.event, r.what,
    explode(sequence(greatest(r.low, c.at, r.bucket * {_BUCKET}),
                     least(r.high, c.behind, (r.bucket + 1) * {_BUCKET}) - 1)) AS place
  FROM (SELECT *, explode(sequence(low DIV {_BUCKET}, (high - 1) DIV {_BUCKET})) AS bucket FROM {{runs}}) r
  JOIN (SELECT *, explode(sequence(at DIV {_BUCKET}, (behind - 1) DIV {_BUCKET})) AS bucket
        FROM {{judged}} WHERE contested) c
  ON r.era = c.era AND r.bucket = c.bucket AND r.low < c.behind AND r.high > c.at)
GROUP BY era, place
"""
_ONE_BY_ONE = f"""
SELECT era, end, count(*) AS messages, sum(IF(early, 1, 0)) AS early, min(IF(early, place, NULL)) AS early_at
FROM (
  SELECT era, place, exists(life, one -> one.what = {_code("acked")} AND NOT exists(life,
      other -> other.what = {_code("delivered")} AND other.event < one.event)) AS early,
    abs(aggregate(life, 0, (end, one) -> CASE
      WHEN one.what = {_code("delivered")} THEN end
      WHEN one.what = {_code("gone")} THEN 0
      WHEN one.what = {_code("redriven")} THEN IF(end = 1 + {_code("dead")}, 0, end)
      WHEN end = 1 + {_code("dead")} AND one.what = {_code("lost")} THEN -end
      ELSE IF(end = 0, one.what + 1, end) END)) - 1 AS end
  FROM {{offsets}})
GROUP BY era, end
"""


@dataclass
class Fold:
    """What became of the messages of a group in a partition."""

    published: int
    """Messages that it is to get: those since its beginning, of a replay up to its end."""
    ends: dict[str, int]

    @property
    def open(self) -> int:
        """Messages that are ready, leased, delayed, or waiting for another try."""
        return self.published - sum(self.ends.values())


Folds = dict[tuple[str, int, str], Fold]
"""By topic, partition and group."""
_ERAS = (
    "era INT, id INT, partition INT, group STRING, since BIGINT, start BIGINT, until BIGINT, archived BOOLEAN, "
    "missing ARRAY<STRUCT<low: BIGINT, high: BIGINT>>"
)


def fold(
    spark: SparkSession,
    events: DataFrame,
    logs: Mapping[Key, EventLog],
    ends: Mapping[Key, int],
    ids: Mapping[str, int],
    findings: Findings,
) -> Folds:
    """The state of every group; `ends` tells where the messages of partitions end."""
    rows: list[tuple[object, ...]] = []
    folds: Folds = {}
    for (topic, partition), log in logs.items():
        end = ends.get((topic, partition), 0)
        for era in log.eras:
            settings = (era.since, era.start, era.until, era.archived, list(era.missing))
            rows.append((len(rows), ids[topic], partition, era.group, *settings))
            published = Progress(era.start, GroupSettings(until=era.until)).published(end)
            folds[topic, partition, era.group] = Fold(published, dict.fromkeys(ENDS, 0))
    if not rows:
        return {}
    keys = list(folds)
    eras = spark.createDataFrame(rows, _ERAS).hint("broadcast")
    runs = spark.sql(_RUNS, spoken=spark.sql(_SPOKEN, events=events, eras=eras), eras=eras)
    judged = spark.sql(_JUDGED, pieces=spark.sql(_PIECES, runs=runs))
    early: dict[tuple[str, int, str], tuple[int, int]] = {}
    folded = spark.sql(_FOLDED, judged=judged).collect()
    for row in folded:
        if not row.contested:
            for kind in ENDS:
                folds[keys[row.era]].ends[kind] += row[kind]
            _note_early(early, keys[row.era], row.early, row.early_at)
    if any(row.contested for row in folded):
        offsets = spark.sql(_OFFSETS, runs=runs, judged=judged)
        for row in spark.sql(_ONE_BY_ONE, offsets=offsets).collect():
            if row.end >= 0:
                folds[keys[row.era]].ends[_KINDS[row.end]] += row.messages
            _note_early(early, keys[row.era], row.early, row.early_at)
    for (topic, partition, group), (count, at) in early.items():
        what = f"group {group}: {count} messages were acked that were never delivered to it before, this is the first"
        findings.problem(topic, partition, at, what)
    return folds


def _note_early(
    early: dict[tuple[str, int, str], tuple[int, int]], key: tuple[str, int, str], count: int, at: int | None
) -> None:
    if count and at is not None:
        known = early.get(key, (0, at))
        early[key] = (known[0] + count, min(known[1], at))


def standings(folds: Folds) -> dict[tuple[str, str], Standing]:
    """How far each group is, by topic and name: what is done, and the lag."""
    found: dict[tuple[str, str], Standing] = defaultdict(Standing)
    for (topic, _, group), one in folds.items():
        standing = found[topic, group]
        standing.published += one.published
        standing.lag += one.open
        for kind, count in one.ends.items():
            setattr(standing, kind, getattr(standing, kind) + count)
    return dict(found)
