"""A window of the past of a topic once more: into a topic, or into files.

Into a topic it goes in parts by offsets, each published once (`parts.py`). Run again, it goes on where it was; without
an end, it goes up to what is there by then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import pyarrow.compute as pc
from pyspark.sql import functions as f

from penstock.model.errors import InvalidArgument
from penstock.model.names import check_topic_name
from penstock.model.options import check_rate
from penstock.model.units import Time
from penstock.spark.frames import no_messages
from penstock.spark.jobs.failing import told_clearly
from penstock.spark.jobs.outcome import SILENCE, Outcome, Progress
from penstock.spark.jobs.parts import OFFSET, ORIGIN, PARTITION, Part, Published, check_repeatable, identity_of, rounds
from penstock.spark.jobs.past import Past, window_of
from penstock.spark.jobs.place import Place
from penstock.spark.jobs.replay_files import FORMATS, Files
from penstock.spark.options import WriteOptions
from penstock.spark.rows import check_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DEFAULT = ("key", "value", "headers", "priority")
_PART_ROWS, _PART_BYTES = 1 << 19, 128 << 20
_SMALL_ROWS, _DRIVER_BYTES = 50_000, 32 << 20
"""Up to this many messages and bytes go through the driver: starting a write of Spark would cost more."""
_DONE_BEFORE = "all of it was replayed before: nothing was published now. Give a name (--name) to do it once more"
_AHEAD_S = 60
"""At a limited rate, messages for this many seconds are read at a time."""


def replay(
    spark: SparkSession,
    place: Place,
    topic: str,
    *,
    to_topic: str | None = None,
    to_files: str | None = None,
    file_format: str | None = None,
    from_time: Time | None = None,
    to_time: Time | None = None,
    from_offset: int | None = None,
    to_offset: int | None = None,
    partition: int | None = None,
    where: str | None = None,
    select: Sequence[str] = (),
    rate: float | None = None,
    name: str | None = None,
    lake: str | None = None,
    dry_run: bool = False,
    progress: Progress = SILENCE,
) -> Outcome:
    """Send a window of a topic (archived messages too) to a topic, or write it to a directory of files.

    `where` is an SQL condition over the columns of messages, `select` gives the columns to write. The same replay is
    done once, however often it is run; another `name` makes it another one.
    """
    with told_clearly():
        window = window_of(from_time, to_time, from_offset, to_offset, partition)
        _check(place, topic, to_topic, to_files, file_format, rate)
        if to_topic == topic and to_time is None and to_offset is None:
            raise InvalidArgument("a replay of a topic into itself needs an end: each run would replay the one before")
        query = Query(where, tuple(select), to_topic)
        query.check(spark)
        words = {
            **asdict(window),
            "topic": topic,
            "to": to_topic,
            "where": where,
            "select": query.select,
            "name": name,
        }
        if to_files is not None:
            shape = file_format or "parquet"
            files = Files(to_files, shape, identity_of("replay", {**words, "format": shape}))
            if (before := files.finished()) is not None:
                return before
        past = Past(place, topic, lake)
        job: _Replay | None = None
        if to_topic is not None:
            job = _Replay(place, past, query, identity_of("replay", words), check_rate(rate))
        windows = past.windows(window) if job is None else past.windows(window, job.reached)
        progress.step("choosing")
        chosen = query.count(spark, past, windows)
        outcome = _outcome(topic, to_topic or str(to_files), windows, chosen, dry_run=dry_run)
        if dry_run:
            return outcome
        if job is None:
            return files.write(spark, past, windows, query.rows, outcome, progress)
        return outcome if job.run(spark, windows, rate, progress) else replace(outcome, notes=(_DONE_BEFORE,))


def _check(
    place: Place, topic: str, to_topic: str | None, to_files: str | None, file_format: str | None, rate: float | None
) -> None:
    """Raise with everything that is wrong with where it goes."""
    problems = []
    if (to_topic is None) == (to_files is None):
        problems.append("give `to_topic` or `to_files`, one of the two")
    for name in (topic, to_topic):
        try:
            check_topic_name(topic if name is None else name)
        except InvalidArgument as error:
            problems.append(str(error))
    if to_topic is not None and file_format is not None:
        problems.append("file_format: it is for files")
    if to_files is not None and rate is not None:
        problems.append("rate: it is for topics; files are written as fast as can be")
    if file_format is not None and file_format not in FORMATS:
        problems.append(f"file_format: {file_format!r} is none of {', '.join(FORMATS)}")
    try:
        check_rate(rate)
    except InvalidArgument as error:
        problems.append(str(error))
    if problems:
        raise InvalidArgument("; ".join(dict.fromkeys(problems)))
    if to_topic is not None:
        place.client("replaying into a topic")


class Query:
    """Which messages are replayed, and what becomes of them."""

    def __init__(self, where: str | None, select: tuple[str, ...], to_topic: str | None) -> None:
        self._where = where
        self.select = select or _DEFAULT
        self.to_topic = to_topic

    def check(self, spark: SparkSession) -> None:
        """Raise if the SQL is wrong, before anything is read."""
        nothing = no_messages(spark)
        rows = self.rows(nothing)
        check_repeatable(rows, "the SQL")
        if self.to_topic is None:
            return
        kinds = {field.name: field.dataType for field in nothing.selectExpr(*self.select).schema}
        headers = kinds.get("headers")
        if headers is not None and headers.simpleString() != "map<string,string>":
            raise InvalidArgument(f"headers is MAP<STRING, STRING>, not {headers.simpleString().upper()}")
        check_columns(self.messages(nothing, 1).drop(OFFSET, PARTITION).schema, self.to_topic)

    def count(self, spark: SparkSession, past: Past, windows: Sequence[Part]) -> dict[int, int]:
        """How many rows are written of each partition; an error where a message would have no value."""
        if self._where is None and self.select == _DEFAULT and not past.is_thinned:
            return {window.partition: window.count for window in windows}
        rows = self._made(past.scan(spark, windows))
        none = f.count_if(f.col("value").isNull()) if self.to_topic is not None else f.lit(0)
        counted = rows.groupBy(PARTITION).agg(f.count("*").alias("rows"), none.alias("none")).collect()
        if without := sum(row["none"] for row in counted):
            raise InvalidArgument(
                f"value is NULL {without:,} times: leave those out (where), or give them one (coalesce)"
            )
        found = {row[PARTITION]: row["rows"] for row in counted}
        return {window.partition: found.get(window.partition, 0) for window in windows}

    def _made(self, messages: DataFrame) -> DataFrame:
        """The selected columns, and the message that each row was made from."""
        chosen = messages if self._where is None else messages.where(self._where)
        return chosen.selectExpr(
            *self.select, f"message_id AS `{ORIGIN}`", f"partition AS {PARTITION}", f"offset AS {OFFSET}"
        )

    def rows(self, messages: DataFrame) -> DataFrame:
        """What is written to files: the id of each message, and what was asked for."""
        chosen = messages if self._where is None else messages.where(self._where)
        if "message_id" in chosen.selectExpr(*self.select).columns:
            return chosen.selectExpr(*self.select)
        return chosen.selectExpr("message_id", *self.select)

    def messages(self, messages: DataFrame, partitions: int) -> DataFrame:
        """What is published: with the id of the original as a header, and keyless ones where they were."""
        made = self._made(messages)
        origin = f.create_map(f.lit(ORIGIN), f.col(f"`{ORIGIN}`"))
        if "headers" in made.columns:
            own = f.coalesce("headers", f.create_map().cast("map<string,string>"))
            origin = f.map_concat(f.map_filter(own, lambda name, _: name != ORIGIN), origin)
        made = made.withColumn("headers", origin).drop(ORIGIN)
        if "partition" in made.columns:
            return made
        place = f.col(PARTITION) % partitions
        keyless = f.when(f.col("key").isNull(), place) if "key" in made.columns else place
        return made.withColumn("partition", keyless)


class _Replay:
    """A replay into a topic."""

    def __init__(self, place: Place, past: Past, query: Query, identity: str, rate: float | None) -> None:
        assert query.to_topic is not None and place.servers is not None
        self._client = place.client("replaying into a topic")
        self._past, self._query, self._to = past, query, query.to_topic
        self._options = WriteOptions(place.servers, place.secrets, self._to)
        self._place = place
        self._is_new = False
        self._published = Published(self._client, self._options, identity, rate)
        self.reached = self._published.reached
        self._driver_rows = max(1, min(_SMALL_ROWS, past.rows_in(_DRIVER_BYTES)))

    def run(self, spark: SparkSession, windows: Sequence[Part], rate: float | None, progress: Progress) -> bool:
        """Publish what was not yet; whether there was anything."""
        reached = {window.partition: self.reached(window.partition) for window in windows}
        if all(window.end <= reached[window.partition] for window in windows):
            return not any(window.count for window in windows)
        partitions = self._target()
        progress.step(f"replaying {self._past.topic} to {self._to}", sum(window.count for window in windows))
        for parts in rounds(windows, self._count(windows, rate)):
            left = [part.within(reached[part.partition], part.end) for part in parts]
            progress.advance(sum(part.count for part in parts) - sum(part.count for part in left))
            left = [part for part in left if part.count]
            if rate is not None or sum(part.count for part in left) <= self._driver_rows:
                self._through_the_driver(spark, left, partitions, progress)
            else:
                self._by_spark(spark, left, partitions, progress)
        return True

    def _count(self, windows: Sequence[Part], rate: float | None) -> int:
        """In how many parts each partition goes."""
        rows = max(1, min(_PART_ROWS, self._past.rows_in(_PART_BYTES)))
        if rate is None:
            return -(-max(window.count for window in windows) // rows)
        rows = max(1, min(rows, self._past.rows_in(_DRIVER_BYTES), max(_SMALL_ROWS, int(rate * _AHEAD_S))))
        return -(-sum(window.count for window in windows) // rows)

    def _target(self) -> int:
        """How many partitions the target has; a new one gets those of the source, so that all messages keep theirs."""
        known = {info.name: len(info.partitions) for info in self._client.topics()}
        self._is_new = self._to not in known
        return known.get(self._to, self._past.partitions)

    def _make_target(self) -> None:
        """Make the topic, when there is something to publish."""
        if self._is_new:
            self._client.create_topic(self._to, partitions=self._past.partitions)
            self._is_new = False

    def _through_the_driver(self, spark: SparkSession, parts: list[Part], partitions: int, progress: Progress) -> None:
        if not parts:
            return
        rows = self._query.messages(self._past.read(spark, parts), partitions).toArrow()
        self._make_target()
        for part in parts:
            mine = rows.filter(pc.equal(rows.column(PARTITION), part.partition)).drop_columns([PARTITION])
            self._published.rows(part, mine, progress.advance)

    def _by_spark(self, spark: SparkSession, parts: list[Part], partitions: int, progress: Progress) -> None:
        self._make_target()
        for part in parts:
            rows = self._query.messages(self._past.read(spark, [part]), partitions).drop(PARTITION, OFFSET)
            options = {
                **self._place.options,
                "topic": self._to,
                "producer": self._published.producer(part.partition),
                "sequence": str(part.end),
            }
            rows.write.format("penstock").options(**options).mode("append").save()
            progress.advance(part.count)


def _outcome(topic: str, to: str, windows: Sequence[Part], chosen: dict[int, int], *, dry_run: bool) -> Outcome:
    summary = {
        "topic": topic,
        "to": to,
        "messages": sum(window.count for window in windows),
        "chosen": sum(chosen.values()),
    }
    rows = [(w.partition, w.start, w.end, w.count, chosen[w.partition]) for w in windows]
    return Outcome("replay", summary, ("partition", ">from", ">to", ">messages", ">chosen"), rows, dry_run=dry_run)
