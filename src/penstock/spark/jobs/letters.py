"""Dead letters as a table, made by Spark out of the topics that hold them: millions of them are no list any more.

A letter is a message of `<topic>.dlq` whose headers tell how it died. The events of that topic tell which of them were
redriven or purged; those are no letters any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

from penstock.model.errors import InvalidArgument, TopicNotFound
from penstock.model.names import DEAD_LETTERS, check_topic_name
from penstock.spark.frames import is_within, no_messages, read_events, read_topic
from penstock.spark.jobs.similar import template_of
from penstock.spark.planning import between
from penstock.spark.registering import register

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from penstock.model.layout import TopicLayout
    from penstock.spark.jobs.parts import Part
    from penstock.spark.jobs.place import Place

COLUMNS = (
    *("topic", "message_id", "partition", "offset", "origin", "group", "cause", "template", "consumer"),
    *("deliveries", "failures", "died_at", "published_at", "key", "value", "headers", "priority", "history"),
)
"""The columns of the table."""
BY_HAND = "published by hand"
_PREFIX = "penstock-"
_GONE = ("redriven", "purged", "cancelled")
_TEXTS = ("origin", "group", "cause", "consumer")
_NUMBERS = ("deliveries", "failures", "died-at", "published-at")
_HISTORY = "ARRAY<STRING>"


def letters_topics(place: Place, topics: Sequence[str] | None) -> list[str]:
    """The topics whose dead letters are asked for, or all that have any; one that is named has to be there."""
    names = set(place.origin().topic_names())
    if topics is None:
        return sorted(name.removesuffix(DEAD_LETTERS) for name in names if name.endswith(DEAD_LETTERS))
    chosen = list(dict.fromkeys(check_topic_name(name).removesuffix(DEAD_LETTERS) for name in topics))
    if not chosen:
        raise InvalidArgument("there is no topic among those that are asked for: name some, or give none for all")
    missing = [name for name in chosen if name not in names and name + DEAD_LETTERS not in names]
    if missing:
        raise TopicNotFound(f"there is no topic {', '.join(map(repr, missing))}")
    return chosen


def letters(spark: SparkSession, place: Place, topic: str, part: Part | None = None) -> DataFrame:
    """The dead letters of a topic, or those of a part of its `.dlq` topic; in no order."""
    register(spark)
    name = topic + DEAD_LETTERS
    try:
        layout = place.origin().layout(name, segments=False)
    except TopicNotFound:
        return _lineage(no_messages(spark), topic).select(*COLUMNS)
    if not _events_are_whole(layout):  # retention took some of them: the broker itself knows what they told
        return _listed(spark, place, topic, part)
    options: dict[str, Any] = {**place.options}
    if part is not None:
        ends = {log.partition: log.end for log in layout.messages}
        options |= between({name: ends | {part.partition: part.start}}, {name: ends | {part.partition: part.end}})
    messages = read_topic(spark, name, **options)  # before the events: what they withdraw meanwhile is left out
    events = read_events(spark, name, per_message=True, **place.options)
    gone = events.where(f.col("kind").isin(*_GONE)).select("partition", "offset")
    kept = messages.join(gone, ["partition", "offset"], "left_anti")
    return _lineage(kept, topic).select(*COLUMNS)


def _events_are_whole(layout: TopicLayout) -> bool:
    return all(log.first == 0 for log in layout.events)


def _lineage(messages: DataFrame, topic: str) -> DataFrame:
    """What the headers tell; a letter that somebody published by hand has only itself.

    In SQL and in few steps: to build this column by column takes Python longer than Spark takes to run it.
    """
    told = {name: f"headers['{_PREFIX}{name}']" for name in (*_TEXTS, *_NUMBERS)}
    home = "concat_ws('/', topic, CAST(partition AS STRING), CAST(offset AS STRING))"
    parsed = messages.selectExpr(
        f"'{topic}' AS topic",
        *("message_id", "partition", "offset", "timestamp", "key", "value", "priority"),
        f"map_filter(headers, (name, _) -> NOT startswith(name, '{_PREFIX}')) AS own",
        *(f"{told[name]} AS {name}" for name in _TEXTS),
        *(f"try_cast({told[name]} AS BIGINT) AS `{name}`" for name in _NUMBERS),
        f"from_json(headers['{_PREFIX}history'], '{_HISTORY}') AS history",
    )
    origin = f"^{topic.replace('.', '[.]')}/[0-9]{{1,18}}/[0-9]{{1,18}}$"
    present = " AND ".join(f"`{name}` IS NOT NULL" for name in (*_TEXTS, *_NUMBERS, "history"))
    known = parsed.selectExpr("*", f"coalesce(origin RLIKE '{origin}' AND {present}, false) AS known")
    return known.selectExpr(
        *("topic", "message_id", "partition", "offset"),
        f"if(known, origin, {home}) AS origin",
        "if(known, `group`, '') AS `group`",
        f"if(known, cause, '{BY_HAND}') AS cause",
        "if(known, nullif(consumer, ''), NULL) AS consumer",
        "CAST(if(known, deliveries, 0) AS INT) AS deliveries",
        "CAST(if(known, failures, 0) AS INT) AS failures",
        "if(known, timestamp_micros(`died-at`), timestamp) AS died_at",
        "if(known, timestamp_micros(`published-at`), timestamp) AS published_at",
        *("key", "value", "if(size(own) > 0, own, NULL) AS headers", "priority"),
        f"if(known, history, CAST(array() AS {_HISTORY})) AS history",
    ).withColumn("template", template_of(f.col("cause")))


def _listed(spark: SparkSession, place: Place, topic: str, part: Part | None) -> DataFrame:
    """The same as the broker lists it, in one task."""
    listed = spark.read.format("penstock").options(**place.options, subscribe=topic, table="dead_letters").load()
    where = f.split("message_id", "/")
    found = listed.withColumns(
        {
            "partition": f.element_at(where, 2).cast("int"),
            "offset": f.element_at(where, 3).cast("bigint"),
            "template": template_of(f.col("cause")),
        }
    ).select(*COLUMNS)
    return found if part is None else found.where(is_within(part.partition, part.start, part.end))
