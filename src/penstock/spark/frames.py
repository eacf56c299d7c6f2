"""Topics as DataFrames, the fast way: settled segments by Spark's own Parquet reader, the rest by the data source.

`from_json` parses values that are JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from penstock.model.errors import CorruptData, InvalidArgument
from penstock.model.layout import SegmentPlace, ThinnedSegment
from penstock.spark.copies import Copies
from penstock.spark.filters import Wanted
from penstock.spark.finding import origin_of
from penstock.spark.options import Offsets, read_options
from penstock.spark.origins import open_segment
from penstock.spark.planning import Plan, between
from penstock.spark.registering import register
from penstock.spark.slices import Span
from penstock.spark.tables import schema_of
from penstock.storage.buckets import is_bucket

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


_SAMPLE_ROWS = 1000
PATTERN = frozenset("*?[]{}\\%")
"""What Spark takes for more than a part of a file's name."""


def read_topic(
    spark: SparkSession,
    topic: str,
    *,
    servers: str | None = None,
    path: str | None = None,
    token: str | None = None,
    copies: str | None = None,
    **options: Any,
) -> DataFrame:
    """A topic as a DataFrame, with the columns and options of `format("penstock")` (such as `startingOffsets`).

    What is settled is read by Spark's own Parquet reader, which prunes columns and pushes filters down by itself,
    wherever the driver can see the files; the rest comes through the data source. Together they are exactly the
    messages between the two positions. `copies`: a directory that all machines of Spark see, to which segments of a
    bucket are copied first, once, so that they are such files.
    """
    given = _given(topic, servers, path, token, options)
    checked = read_options(given, streaming=False)
    if checked.table != "messages":
        raise InvalidArgument(
            f"read_topic reads messages, not {checked.table}: for events there is read_events, "
            f'for others spark.read.format("penstock").option("table", "{checked.table}")'
        )
    origin = origin_of(checked)
    plan = Plan(origin, checked)
    start, end = plan.resolve(checked.start, "startingOffsets"), plan.resolve(checked.end, "endingOffsets")
    parts: list[Span] = []
    tail_start = {name: dict(places) for name, places in start.items()}
    spans = plan.spans(start, end, Wanted())
    for span in spans if copies is None else Copies(copies).of([*spans]):
        settled = _settled(span)
        parts += settled
        tail_start[span.topic][span.partition] = settled[-1].end if settled else span.start
    frames = _parquet(spark, parts, checked.fail_on_data_loss)
    if any(tail_start[name][number] < stop for name, stops in end.items() for number, stop in stops.items()):
        frames.append(_tail(spark, given, tail_start, end))
    whole = union(frames)
    return no_messages(spark) if whole is None else whole


def _settled(span: Span) -> list[Span]:
    """The segments of a span from its beginning on, one by one, as far as none is missing and this machine has them."""
    parts: list[Span] = []
    at = span.start
    for segment in span.segments:
        whole = segment.rows == segment.end - segment.base or isinstance(segment, ThinnedSegment)
        if segment.base > at or not whole or not _is_plain(segment):
            break  # the data source reads the rest, and tells what is missing or damaged
        parts.append(Span(span.topic, span.partition, at, min(span.end, segment.end), (segment,)))
        at = parts[-1].end
    return parts


def is_plain_path(path: str) -> bool:
    """Whether Spark's own reader can be given a name: it takes it for no pattern, and it is no address of a bucket."""
    return not (PATTERN & set(path) or is_bucket(path))


def _is_plain(segment: SegmentPlace) -> bool:
    """Whether Spark can read the file: it is here, it is the right one, and Spark takes its name for no pattern."""
    if not is_plain_path(segment.path):
        return False
    try:
        open_segment(segment, "messages").__exit__()  # which checks the footer
    except (OSError, CorruptData):
        return False
    return True


def _parquet(spark: SparkSession, parts: list[Span], fail_on_data_loss: bool) -> list[DataFrame]:
    """The segments, those of one topic in one read; of those at the edges only what is asked for, in another."""
    frames: list[DataFrame] = []
    for topic in dict.fromkeys(part.topic for part in parts):
        mine = [part for part in parts if part.topic == topic]
        whole = [part for part in mine if part.has_whole(part.segments[0])]
        edges = [part for part in mine if not part.has_whole(part.segments[0])]
        if whole:
            frames.append(_columns(_files(spark, whole, fail_on_data_loss), topic))
        if edges:
            asked = any_of([is_within(part.partition, part.start, part.end) for part in edges])
            frames.append(_columns(_files(spark, edges, fail_on_data_loss).where(asked), topic))
    return frames


def _files(spark: SparkSession, parts: list[Span], fail_on_data_loss: bool) -> DataFrame:
    made = ("topic", "message_id")
    schema = StructType([field for field in schema_of("messages") if field.name not in made])
    missing = {"ignoreMissingFiles": "false" if fail_on_data_loss else "true", "ignoreCorruptFiles": "false"}
    return read_segments(spark, schema, [part.segments[0].path for part in parts], **missing)


def read_segments(spark: SparkSession, schema: StructType | str, paths: Iterable[object], **options: str) -> DataFrame:
    """The rows of segment files by Spark's own Parquet reader, with their checksums verified."""
    always = {
        "recursiveFileLookup": "true",  # a directory such as `offset=1` is no column
        "parquet.page.verify-checksum.enabled": "true",
    }
    return spark.read.schema(schema).options(**always, **options).parquet(*[f"file://{path}" for path in paths])


def union(frames: Sequence[DataFrame]) -> DataFrame | None:
    """The rows of all frames; None if there is no frame."""
    return reduce(lambda above, below: above.unionAll(below), frames) if frames else None


def no_messages(spark: SparkSession) -> DataFrame:
    """A frame of messages without a row."""
    return spark.createDataFrame([], schema_of("messages"))


def is_within(partition: int, start: int, end: int) -> Column:
    """Whether a message is one of a partition, from one offset to before another."""
    return (f.col("partition") == partition) & (f.col("offset") >= start) & (f.col("offset") < end)


def any_of(conditions: list[Column]) -> Column:
    """Conditions joined by OR, as a tree that is not deep."""
    if len(conditions) == 1:
        return conditions[0]
    half = len(conditions) // 2
    return any_of(conditions[:half]) | any_of(conditions[half:])


def _columns(segments: DataFrame, topic: str) -> DataFrame:
    """The columns of the data source out of those of a segment."""
    made: dict[str, Column] = {
        "topic": f.lit(topic),
        "message_id": f.concat(f.lit(f"{topic}/"), f.col("partition").cast("string"), f.lit("/"), f.col("offset")),
    }
    return segments.select(
        *[made[name].alias(name) if name in made else f.col(name) for name in schema_of("messages").fieldNames()]
    )


def _tail(spark: SparkSession, given: Mapping[str, str], start: Offsets, end: Offsets) -> DataFrame:
    register(spark)
    left_out = ("startingtimestamp", "endingtimestamp", "startingoffsets", "endingoffsets")
    options = {name: value for name, value in given.items() if name not in left_out}
    return spark.read.format("penstock").options(**options, **between(start, end)).load()


def read_events(
    spark: SparkSession,
    topic: str,
    *,
    per_message: bool = False,
    servers: str | None = None,
    path: str | None = None,
    token: str | None = None,
    **options: Any,
) -> DataFrame:
    """What happened to the messages of a topic: a row for each event, or for each message of each event.

    An event speaks of a run of messages. With `per_message` it is a row for every one of them, with its `offset` and
    `message_id`, and without the columns of the run (`count`, `last`, `offsets`).
    """
    register(spark)
    given = _given(topic, servers, path, token, {**options, "table": "events"})
    events = spark.read.format("penstock").options(**given).load()
    return explode_events(events) if per_message else events


def explode_events(events: DataFrame) -> DataFrame:
    """A row for each message that an event speaks of; works on streams too."""
    run = f.when(f.col("offsets").isNotNull(), f.col("offsets")).otherwise(f.sequence("offset", "last"))
    kept = [name for name in events.columns if name not in ("offset", "count", "last", "offsets")]
    exploded = events.where("count > 0").select(*kept, f.explode(run).alias("offset"))
    return exploded.withColumn(
        "message_id", f.concat_ws("/", "topic", f.col("partition").cast("string"), f.col("offset").cast("string"))
    )


def topics(
    spark: SparkSession,
    *,
    servers: str | None = None,
    path: str | None = None,
    token: str | None = None,
    **options: Any,
) -> DataFrame:
    """Every partition of every topic: where it begins and ends, and how much of it is settled."""
    checked = read_options(_given(".*", servers, path, token, options, pattern=True), streaming=False)
    origin = origin_of(checked)
    rows = [
        (
            name,
            log.partition,
            log.first,
            log.end,
            log.settled_end,
            len(log.segments),
            sum(segment.size_bytes for segment in log.segments),
        )
        for name in origin.topic_names()
        for log in origin.layout(name).messages
    ]
    schema = (
        "topic STRING, partition INT, first_offset BIGINT, end_offset BIGINT, settled_end BIGINT, segments INT, "
        "segment_bytes BIGINT"
    )
    return spark.createDataFrame(rows, schema)


def _given(
    topics: str,
    servers: str | None,
    path: str | None,
    token: str | None,
    options: Mapping[str, Any],
    pattern: bool = False,
) -> dict[str, str]:
    """All options by their names in lower case, as Spark takes them."""
    named = {"servers": servers, "path": path, "token": token, "subscribepattern" if pattern else "subscribe": topics}
    texts = {
        name.lower(): str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
        if value is not None
    }
    if "subscribe" in texts:
        raise InvalidArgument("subscribe: the topic is given already")
    return {**{name: value for name, value in named.items() if value is not None}, **texts}


# Values that are JSON.


def infer_schema(frame: DataFrame, *, column: str = "value", rows: int = _SAMPLE_ROWS) -> StructType:
    """The schema of the JSON in a column, as the first rows have it (of a batch, not of a stream)."""
    if frame.isStreaming:
        raise InvalidArgument(
            "the schema of a stream cannot be inferred: infer it from a batch read of the topic, and give that one"
        )
    texts = [row[0] for row in frame.select(f.col(column).cast("string")).limit(rows).collect() if row[0] is not None]
    if not texts:
        raise InvalidArgument(f"there is nothing in column {column} to infer a schema from: give one")
    session = frame.sparkSession
    schema = session.read.json(session.createDataFrame([(text,) for text in texts], "text STRING")).schema
    if not schema.fields or schema.fieldNames() == ["_corrupt_record"]:
        raise InvalidArgument(f"column {column} holds no JSON objects: {texts[0]!r:.80}")
    return schema


def from_json(
    frame: DataFrame, schema: StructType | str | None = None, *, column: str = "value", into: str = "data"
) -> DataFrame:
    """The rows with their JSON parsed into a column `data`; what does not parse is NULL there.

    Without a schema it is inferred from the first rows.
    """
    found = infer_schema(frame, column=column) if schema is None else schema
    return frame.withColumn(into, f.from_json(f.col(column).cast("string"), found))
