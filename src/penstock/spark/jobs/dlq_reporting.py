"""Dead letters, grouped by what they have in common: cause, group, key, fields of the payload, and error text."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as f

from penstock.model.errors import InvalidArgument
from penstock.spark.frames import union
from penstock.spark.jobs.failing import told_clearly
from penstock.spark.jobs.letters import letters, letters_topics
from penstock.spark.jobs.outcome import SILENCE, Outcome, Progress
from penstock.spark.jobs.place import Place
from penstock.spark.jobs.similar import similar_groups
from penstock.spark.paths import local_path

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

_TEMPLATES_MAX = 5000
"""How many templates are compared with each other; rarer ones are groups of their own."""
_ROWS_MAX = 20
"""How many rows are shown for each topic and each way to group; the tables have all of them."""
_VALUE_MAX = 200
_TEXT_MAX = 500
_PATH = re.compile(r"\$(?:\.[A-Za-z_][\w-]*|\[(?:\d+|'[^'\]]+')\])*")
_BY = ("text", "cause", "group", "key")
_EXAMPLES = "ARRAY<STRUCT<message_id: STRING, origin: STRING, cause: STRING, value: STRING>>"


class Examples(list[dict[str, str]]):
    """Some letters of a group, which a table names and JSON has in full."""

    def __str__(self) -> str:
        return " ".join(example["message_id"] for example in self)


def dlq_report(
    spark: SparkSession,
    place: Place,
    topics: Sequence[str] | None = None,
    *,
    fields: Sequence[str] = (),
    examples: int = 3,
    out: str | None = None,
    dry_run: bool = False,
    progress: Progress = SILENCE,
) -> Outcome:
    """Group the dead letters of some topics, or of all: how many, from when to when, how often tried, and examples.

    `fields` are JSON paths of the payload, such as `$.customer.country`. `out` is a directory for the tables `letters`
    and `groups` as Parquet.
    """
    with told_clearly():
        if out is not None:
            local_path(out, "a report on dead letters")
        _check(fields, examples, out)
        chosen = letters_topics(place, topics)
        progress.step("reading dead letters")
        found = union([letters(spark, place, topic) for topic in chosen])
        if found is None or dry_run:
            return _counted(chosen, found, dry_run=dry_run)
        found = found.persist()
        try:
            similar = _similar(spark, found)
            progress.step("grouping dead letters")
            groups = _groups(similar, tuple(fields), examples)
            total, rows = found.count(), _shown(groups, fields)
            if out is not None:
                progress.step("writing tables")
                _write(similar, groups, Path(out))
        finally:
            found.unpersist()
    return _outcome(total, rows, out)


def _counted(topics: Sequence[str], found: DataFrame | None, *, dry_run: bool) -> Outcome:
    """How many letters there are to look at."""
    counted = [] if found is None else found.groupBy("topic").count().collect()
    counts = {row["topic"]: row["count"] for row in counted}
    rows = [(topic, counts.get(topic, 0)) for topic in topics]
    return Outcome("dlq-report", {"letters": sum(counts.values())}, ("topic", ">letters"), rows, dry_run=dry_run)


def _check(fields: Sequence[str], examples: int, out: str | None) -> None:
    problems = [
        f"{path!r} is not a path of JSON: they look like $.customer.country or $.items[0].price"
        for path in fields
        if not isinstance(path, str) or not _PATH.fullmatch(path) or path == "$"
    ]
    if not isinstance(examples, int) or isinstance(examples, bool) or not 0 <= examples <= 100:
        problems.append(f"examples: {examples!r} is not a whole number from 0 to 100")
    if out is not None and Path(out).exists() and not _is_report(Path(out)):
        problems.append(f"out: {out} is there already, and is no report: give another directory")
    if problems:
        raise InvalidArgument("; ".join(problems))


def _is_report(directory: Path) -> bool:
    """Whether a directory holds the tables of a report, and nothing else; or nothing at all."""
    return directory.is_dir() and {file.name for file in directory.iterdir()} <= {"letters.parquet", "groups.parquet"}


def _similar(spark: SparkSession, found: DataFrame) -> DataFrame:
    """The letters with a column `text`: the template that stands for all that are near."""
    counted = found.groupBy("template").count().orderBy(f.desc("count"), "template").limit(_TEMPLATES_MAX).collect()
    standing = similar_groups({row["template"]: row["count"] for row in counted})
    others = {template: text for template, text in standing.items() if template != text}
    if not others:
        return found.withColumn("text", f.col("template"))
    near = spark.createDataFrame(list(others.items()), "template STRING, text STRING")
    joined = found.join(f.broadcast(near), "template", "left")
    return joined.withColumn("text", f.coalesce("text", "template"))


def _groups(found: DataFrame, fields: tuple[str, ...], examples: int) -> DataFrame:
    """Every way to group in one pass: a row for each topic, way and value."""
    payload = f.col("value").cast("string")
    ways: list[tuple[str, Column]] = [
        ("text", f.col("text")),
        ("cause", f.substring("cause", 1, _TEXT_MAX)),
        ("group", f.col("group")),
        ("key", f.col("key").cast("string")),
        *((path, f.get_json_object(payload, path)) for path in fields),
    ]
    way = f.explode(f.array(*[f.struct(f.lit(by).alias("by"), what.alias("what")) for by, what in ways]))
    kept = ("message_id", "origin", "died_at", "failures", "deliveries")
    cut = [f.substring("cause", 1, _TEXT_MAX).alias("cause"), f.substring(payload, 1, _VALUE_MAX).alias("value")]
    each = found.select("topic", *kept, *cut, way.alias("way")).select(
        "topic", "way.by", f.substring("way.what", 1, _TEXT_MAX).alias("what"), *kept, "cause", "value"
    )
    same = Window.partitionBy("topic", "by", "what")
    placed = each.withColumn("place", f.row_number().over(same.orderBy("died_at", "message_id")))
    example = f.struct("place", "message_id", "origin", "cause", "value")
    few = f.array_sort(f.collect_list(f.when(f.col("place") <= examples, example)))
    return placed.groupBy("topic", "by", "what").agg(
        f.count("*").alias("letters"),
        f.min("died_at").alias("first"),
        f.max("died_at").alias("last"),
        f.sum("failures").alias("failures"),
        f.sum("deliveries").alias("deliveries"),
        f.transform(few, lambda one: one.dropFields("place")).cast(_EXAMPLES).alias("examples"),
    )


def _shown(groups: DataFrame, fields: Sequence[str]) -> list[Row]:
    """The largest groups of each way."""
    order = [*_BY, *fields]
    rank = f.row_number().over(Window.partitionBy("topic", "by").orderBy(f.desc("letters"), "what"))
    rows = groups.withColumn("rank", rank).where(f.col("rank") <= _ROWS_MAX).collect()
    return sorted(rows, key=lambda row: (row["topic"], order.index(row["by"]), row["rank"]))


def _write(found: DataFrame, groups: DataFrame, out: Path) -> None:
    """Both tables, each one file, in place of what was there; the same letters make the same files."""
    out.mkdir(parents=True, exist_ok=True)
    tables = {
        "letters": found.coalesce(1).sortWithinPartitions("topic", "partition", "offset"),
        "groups": groups.coalesce(1).sortWithinPartitions("topic", "by", f.desc("letters"), "what"),
    }
    for name, table in tables.items():
        scratch = out.with_name(f".{out.name}.{name}.writing")
        shutil.rmtree(scratch, ignore_errors=True)
        try:
            table.write.parquet(scratch.absolute().as_uri())
            for file in scratch.glob("part-*.parquet"):
                file.replace(out / f"{name}.parquet")
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def _outcome(total: int, rows: Sequence[Row], out: str | None) -> Outcome:
    columns = ("topic", "by", "what", ">letters", "first", "last", ">failures", ">deliveries", "examples")
    shown = [
        (
            *(row["topic"], row["by"], row["what"], row["letters"]),
            *(row["first"].astimezone(UTC), row["last"].astimezone(UTC)),  # Spark gives local ones
            *(row["failures"], row["deliveries"]),
            Examples(example.asDict() for example in row["examples"]),
        )
        for row in rows
    ]
    summary: dict[str, Any] = {"letters": total}
    if out is not None:
        summary["tables"] = str(out)
    return Outcome("dlq-report", summary, columns, shown)
