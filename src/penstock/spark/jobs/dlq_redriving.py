"""Dead letters brought back by an SQL condition: in place, as copies in another topic, or with another value.

Without a rewrite the broker does it: a letter that it sends back and the letter's end are one commit. With one, the
letter's replacement is published first, once (`parts.py`), and then the letter is purged. Which letters were replaced
is known by their offsets among the dead letters, so a run after a kill purges those, and replaces only the others.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, StringType

from penstock.model.errors import InvalidArgument, TopicNotFound
from penstock.model.names import DEAD_LETTERS, check_topic_name
from penstock.model.options import check_rate
from penstock.model.pace import Pace
from penstock.spark.frames import read_events, read_topic
from penstock.spark.jobs.failing import told_clearly
from penstock.spark.jobs.letters import letters, letters_topics
from penstock.spark.jobs.outcome import SILENCE, Outcome, Progress
from penstock.spark.jobs.parts import OFFSET, ORIGIN, Part, Published, check_repeatable, identity_of
from penstock.spark.jobs.place import Place
from penstock.spark.options import WriteOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.client.sync import Client

_AT_ONCE = 20_000
_TURN_S = 10
"""At a limited rate, one call to the broker has the letters of this many seconds."""


def dlq_redrive(
    spark: SparkSession,
    place: Place,
    topic: str,
    *,
    where: str | None = None,
    value: str | None = None,
    to: str | None = None,
    rate: float | None = None,
    dry_run: bool = False,
    progress: Progress = SILENCE,
) -> Outcome:
    """Bring back the dead letters of a topic that `where` chooses, and look whether they are back.

    They go to the group that gave them up, at their old place; or to the topic `to`. With `value`, an SQL expression
    for a new value, a new message takes the place of each: in its topic, where every group gets it, or in `to`.
    """
    with told_clearly():
        client = place.client("redriving")
        check_rate(rate)
        home = letters_topics(place, [topic])[0]
        if to is not None and check_topic_name(to) == home + DEAD_LETTERS:
            raise InvalidArgument(f"dead letters of {home} are in {to} already: give another topic")
        job = _Redrive(spark, place, client, home, where, value, to, rate)
        job.check()
        progress.step("choosing dead letters")
        chosen = job.table(with_value=True)
        if dry_run or not len(chosen):
            notes = () if len(chosen) else (f"no dead letter of {home} is chosen",)
            return _outcome(job, chosen, None, notes, dry_run=dry_run)
        progress.step(f"redriving {home}", len(chosen))
        skipped = job.send_back(chosen, progress) if value is None else job.replace(chosen, progress)
        progress.step("verifying")
        found = _Verified(job, chosen)
        return _outcome(job, chosen, found, found.notes(skipped))


@dataclass(frozen=True)
class _Redrive:
    """Which letters of a topic come back, what they become, and where they go."""

    spark: SparkSession
    place: Place
    client: Client
    topic: str
    where: str | None
    value: str | None
    to: str | None
    rate: float | None

    def check(self) -> None:
        """Raise if the SQL is wrong, or would not choose the same letters again."""
        some, value = self._chosen(None), self.value
        check_repeatable(some.selectExpr("message_id", *([] if value is None else [f"{value} AS value"])), "the SQL")
        if value is not None:
            kind = some.selectExpr(f"{value} AS value").schema[0].dataType
            if not isinstance(kind, StringType | BinaryType):
                raise InvalidArgument(
                    f"value: the SQL gives {kind.simpleString().upper()}, and a value is STRING or BINARY"
                )

    def _chosen(self, part: Part | None) -> DataFrame:
        found = letters(self.spark, self.place, self.topic, part)
        return found if self.where is None else found.where(self.where)

    def table(self, *, with_value: bool = False) -> pa.Table:
        """The letters that are chosen now, oldest first in each partition; checks that all get a value, if asked to."""
        columns = ["partition", "offset", "message_id", "origin", "group", "died_at"]
        rows = self._chosen(None)
        if not with_value or self.value is None:
            return _sorted(rows.select(*columns))
        table = _sorted(rows.select(*columns, f.expr(f"({self.value}) IS NULL").alias("none")))
        if without := pc.sum(table.column("none")).as_py():
            raise InvalidArgument(f"value: the SQL gives NULL for {without:,} of {len(table):,} dead letters")
        return table.select(columns)

    def _replacements(self, part: Part, partitions: int | None) -> pa.Table:
        """The messages that replace the letters of a part, with the columns OFFSET and `message_id`."""
        own = f.coalesce("headers", f.create_map().cast("map<string,string>"))
        columns = [
            f.expr(f"{self.value}").alias("value"),
            f.col("key"),
            f.map_concat(own, f.create_map(f.lit(ORIGIN), f.col("origin"))).alias("headers"),
            f.col("priority"),
        ]
        if partitions is not None:  # keyless ones stay in their partition
            place = f.element_at(f.split("origin", "/"), 2).cast("int") % partitions
            columns.append(f.when(f.col("key").isNull(), place).alias("partition"))
        rows = self._chosen(part).select(*columns, f.col("offset").alias(OFFSET), "message_id")
        return rows.toArrow().sort_by(OFFSET)

    def send_back(self, chosen: pa.Table, progress: Progress) -> int:
        """Let the broker redrive the letters by their ids; returns how many it skipped."""
        skipped = 0
        ids = chosen.column("message_id").to_pylist()
        for step in self.client.redrive_steps(self.topic, ids, self.to, self.rate):
            skipped += step.skipped
            progress.advance(step.selected)
        return skipped

    def replace(self, chosen: pa.Table, progress: Progress) -> int:
        """Publish a replacement for each letter, then purge the letter; returns how many were gone by then."""
        words = {"topic": self.topic, "where": self.where, "value": self.value, "to": self.to}
        options = WriteOptions(self.place.servers or "", self.place.secrets, self.to or self.topic)
        published = Published(self.client, options, identity_of("redrive", words), self.rate)
        at_once = Pace(self.rate, _TURN_S).at_once(_AT_ONCE)
        known = {info.name: len(info.partitions) for info in self.client.topics()}
        partitions = known.get(self.topic) if self.to is None else None
        skipped = 0
        for number in pc.unique(chosen.column("partition")).to_pylist():
            offsets = chosen.filter(pc.equal(chosen.column("partition"), number)).column("offset")
            for start in range(0, len(offsets), at_once):
                some = offsets.slice(start, at_once)
                part = Part(number, some[0].as_py(), some[-1].as_py() + 1)
                rows = self._replacements(part, partitions)
                published.rows(part, rows.drop_columns(["message_id"]))
                gone = self.client.purge_chosen(self.topic, rows.column("message_id").to_pylist()) if len(rows) else 0
                skipped += len(some) - gone
                progress.advance(len(some))
        return skipped


def _sorted(rows: DataFrame) -> pa.Table:
    return rows.toArrow().sort_by([("partition", "ascending"), ("offset", "ascending")])


class _Verified:
    """What became of the chosen letters, by the logs themselves: which are back, and which are letters still."""

    def __init__(self, job: _Redrive, chosen: pa.Table) -> None:
        self._spark, self._place = job.spark, job.place
        self._since = pc.min(chosen.column("died_at")).as_py()
        self.left = chosen.join(job.table().select(["message_id"]), "message_id", join_type="left semi")
        back = chosen.slice(0, 0)
        rest = chosen
        if job.to is None and job.value is None:
            back = _behind(rest, ["origin", "group"], self._redriven(job.topic))
            rest = rest.join(back.select(["message_id"]), "message_id", join_type="left anti")
        if len(rest):
            copied = _behind(rest, ["origin"], self._copies(job.to or job.topic))
            back = pa.concat_tables([back, copied])
        self.back = back
        self._chosen = chosen

    @property
    def whole(self) -> bool:
        """Whether all letters are back, and none is left."""
        return not len(self.left) and len(self.back) == len(self._chosen)

    def notes(self, skipped: int) -> tuple[str, ...]:
        """What is not as it should be."""
        found = []
        if len(self.left):
            found.append(f"{len(self.left):,} of them are dead letters still")
        if missing := len(self._chosen) - len(self.back):
            found.append(f"{missing:,} of them are not back in the log")
        if skipped:
            found.append(
                f"{skipped:,} were redriven or purged by others meanwhile, or their group was moved back over them"
            )
        return tuple(found)

    def _redriven(self, topic: str) -> pa.Table:
        """The messages that came back to their group, and when that was last."""
        try:
            events = read_events(self._spark, topic, per_message=True, **self._place.options)
        except TopicNotFound:
            return pa.table({"origin": pa.array([], pa.string()), "group": pa.array([], pa.string())})
        rows = events.where((f.col("kind") == "redriven") & (f.col("time") >= f.lit(self._since)))
        found = rows.select(f.col("message_id").alias("origin"), "group", f.col("time").alias("at")).toArrow()
        return found.group_by(["origin", "group"]).aggregate([("at", "max")])

    def _copies(self, topic: str) -> pa.Table:
        """The messages that are copies of others, and when the last was published."""
        options: dict[str, Any] = {**self._place.options, "startingTimestamp": self._since.isoformat()}
        try:
            messages = read_topic(self._spark, topic, **options)
        except TopicNotFound:
            return pa.table({"origin": pa.array([], pa.string())})
        origin = f.element_at("headers", ORIGIN).alias("origin")
        found = messages.select(origin, f.col("timestamp").alias("at")).where("origin IS NOT NULL").toArrow()
        return found.group_by("origin").aggregate([("at", "max"), ("at", "count")])


def _behind(chosen: pa.Table, keys: list[str], found: pa.Table) -> pa.Table:
    """The chosen letters for which something was found after they died."""
    if not len(found):
        return chosen.slice(0, 0)
    joined = chosen.join(found, keys, join_type="inner")
    joined = joined.filter(pc.greater_equal(joined.column("at_max"), joined.column("died_at")))
    if "at_count" in joined.column_names:  # a message that died for two groups has to be there twice
        seen: Counter[str] = Counter()
        enough = []
        for origin, times in zip(
            joined.column("origin").to_pylist(), joined.column("at_count").to_pylist(), strict=True
        ):
            seen[origin] += 1
            enough.append(seen[origin] <= times)
        joined = joined.filter(pa.array(enough, pa.bool_()))
    return joined.select(chosen.column_names)


def _outcome(
    job: _Redrive, chosen: pa.Table, found: _Verified | None, notes: tuple[str, ...], *, dry_run: bool = False
) -> Outcome:
    """Figures in all, and by the group that gave them up."""

    def by_group(table: pa.Table) -> dict[str, int]:
        counted = pc.value_counts(table.column("group").combine_chunks())
        return {entry["values"]: entry["counts"] for entry in counted.to_pylist()}

    summary: dict[str, Any] = {"topic": job.topic, "to": job.to or job.topic, "chosen": len(chosen)}
    columns = ["group", ">chosen"]
    tables = [by_group(chosen)]
    if found is not None:
        summary |= {"back": len(found.back), "left": len(found.left)}
        columns += [">back", ">left"]
        tables += [by_group(found.back), by_group(found.left)]
    rows = [(group, *(counts.get(group, 0) for counts in tables)) for group in sorted(tables[0])]
    whole = found is None or found.whole
    return Outcome("dlq-redrive", summary, columns, rows, notes, dry_run=dry_run, whole=whole)
