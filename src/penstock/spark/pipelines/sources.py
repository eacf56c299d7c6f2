"""Sources as DataFrames: topics with their values parsed, events, tables and files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType, TimestampType

from penstock.model.errors import InvalidArgument
from penstock.model.units import parse_duration
from penstock.spark.jobs.place import Place
from penstock.spark.pipelines.spec import MESSAGE, Source
from penstock.spark.registering import register

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

PARTS = ("key", "value", "topic", "partition", "offset", "timestamp", "headers", "priority", "message_id")
"""What the column `message` has."""
_READ = (
    "key BINARY, value BINARY, partition INT, offset BIGINT, timestamp TIMESTAMP, headers MAP<STRING, STRING>, "
    "priority SMALLINT"
)
_PREFIX = "__message_"
TEXT, UNFIT = "__text", "__unfit"
"""Internal columns of parsed values: the text, and the text again if it does not fit the schema."""
PUBLISHED = f"{MESSAGE}.timestamp"
_BLANKS = " \t\r\n"


def read(spark: SparkSession, source: Source, place: Place, group: str, path: str | None) -> DataFrame:
    """The view of a source, with the rows that are fit for it; `path` is that of a table or files."""
    if source.topic is not None:
        frame = _topic(spark, source, place, group)
    elif source.events is not None:
        frame = _stream(spark, source, place, group, source.events, table="events")
    else:
        frame = _files(spark, source, str(path))
    return _with_watermark(frame, source)


def columns_of(schema: str) -> StructType:
    """The fields of a schema, as SQL writes them."""
    found = StructType.fromDDL(schema)
    assert isinstance(found, StructType)
    names = [name.lower() for name in found.fieldNames()]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidArgument(f"there are two columns {', '.join(twice)}")
    if taken := sorted(name for name in names if name in (MESSAGE, TEXT, UNFIT) or name.startswith(_PREFIX)):
        raise InvalidArgument(f"a field cannot be called {', '.join(taken)}: the view has a column of this name")
    return found


# Topics.


def _topic(spark: SparkSession, source: Source, place: Place, group: str) -> DataFrame:
    raw = messages(spark, source, place, group)
    message = _message(str(source.topic)).alias(MESSAGE)
    if source.value != "json":
        value = f.col(_PREFIX + "value")
        return raw.select((value.cast("string") if source.value == "text" else value).alias("value"), message)
    fields = columns_of(str(source.schema))
    rows = _parsed(raw, fields)
    fit = _is_text() & _is_closed() & _has_fields(fields, lambda name: f.col(quoted(name)))
    if source.bad_rows == "fail":
        cause = f.concat(f.lit("the message "), _message_id(str(source.topic)), f.lit(": "), cause_of(fields))
        fit = f.when(fit, f.expr("true")).otherwise(f.raise_error(cause))
    return rows.where(fit).select(*[quoted(name) for name in fields.fieldNames()], message)


def messages(spark: SparkSession, source: Source, place: Place, group: str) -> DataFrame:
    """The messages of a topic as they come, their columns under names that no schema has."""
    raw = _stream(spark, source, place, group, str(source.topic), table="messages", schema=_READ)
    return raw.select(*[f.col(name).alias(_PREFIX + name) for name in raw.columns])


def unfit(raw: DataFrame, topic: str, schema: str) -> DataFrame:
    """Those messages whose values do not fit, with what could be parsed of them.

    The others are only looked at: nothing of them is kept, and so this costs little more than to parse them.
    """
    fields = columns_of(schema)
    rows = raw.withColumn(TEXT, _text())
    has_fields = f.exists(f.array(_data(fields)), lambda data: _has_fields(fields, lambda name: data[name]))
    rows = _parsed(rows.where(~_is_text() | ~_is_closed() | ~has_fields).drop(TEXT), fields)
    return rows.withColumn(MESSAGE, _message(topic))


def _message(topic: str) -> Column:
    """The column `message`; Spark makes the parts of it that are used."""
    made = {"topic": f.lit(topic), "message_id": _message_id(topic)}
    return f.struct(*[made.get(name, f.col(_PREFIX + name)).alias(name) for name in PARTS])


def _message_id(topic: str) -> Column:
    place = [f.col(_PREFIX + name).cast("string") for name in ("partition", "offset")]
    return f.concat_ws("/", f.lit(topic), *place)


def _parsed(raw: DataFrame, fields: StructType) -> DataFrame:
    """Messages with the fields of their values; those that are not fit have some that are NULL.

    The parser is a generator (`inline`): Spark neither runs it twice nor pushes filters below it.
    """
    return raw.withColumn(TEXT, _text()).select("*", f.inline(f.array(_data(fields))))


def _text() -> Column:
    return f.col(_PREFIX + "value").cast("string")


def _data(fields: StructType) -> Column:
    """A value as JSON; in the last field is the text again if something is wrong with it."""
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": UNFIT, "allowSingleQuotes": "false"}
    known = StructType([*fields.fields, StructField(UNFIT, StringType())])
    return f.from_json(TEXT, known, {**options, "allowNonNumericNumbers": "false"})


def _has_fields(fields: StructType, field: Callable[[str], Column]) -> Column:
    """Whether a value that was parsed has the fields of a schema, of the right types."""
    found = field(UNFIT).isNull()
    for part in fields:
        if not part.nullable:
            found = found & field(part.name).isNotNull()
    return found


def cause_of(fields: StructType) -> Column:
    """Why a value is not fit, in a line."""
    given = f.from_json(TEXT, "MAP<STRING, STRING>", {"allowSingleQuotes": "false"})
    wrong = []
    for field in fields:
        name, found = field.name, f.col(quoted(field.name))
        kind = field.dataType.simpleString().upper()
        shown = f.concat(f.lit(f"{name} is not {kind}: "), f.substring(f.element_at(given, name), 1, 40))
        wrong.append(f.when(found.isNull() & f.element_at(given, name).isNotNull(), shown))
        if not field.nullable:
            missing = found.isNull() & f.element_at(given, name).isNull()
            wrong.append(f.when(missing, f.lit(f"{name} is missing")))
    told = f.concat_ws("; ", *wrong) if wrong else f.lit("")
    return f.substring(
        f.when(~_is_text(), f.lit("the value is not UTF-8 text"))
        .when(given.isNull() | ~_is_closed(), f.lit("the value is not an object of JSON"))
        .when(told == "", f.lit("the value does not fit the schema"))
        .otherwise(told),
        1,
        300,
    )


def _is_text() -> Column:
    return f.is_valid_utf8(TEXT)


def _is_closed() -> Column:
    """Whether nothing stands behind the object, as far as that can be seen cheaply."""
    trimmed = f.rtrim(f.col(TEXT), f.lit(_BLANKS))
    return f.endswith(f.col(TEXT), f.lit("}")) | f.endswith(trimmed, f.lit("}"))


def quoted(name: str) -> str:
    """A name as SQL takes it, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def _stream(
    spark: SparkSession, source: Source, place: Place, group: str, topic: str, table: str, schema: str | None = None
) -> DataFrame:
    register(spark)
    options = {
        **place.options,
        "subscribe": topic,
        "table": table,
        "startingOffsets": source.starting,
        "maxMessagesPerTrigger": str(source.max_per_trigger),
        "group": group,
    }
    reader = spark.readStream.format("penstock").options(**options)
    return (reader if schema is None else reader.schema(schema)).load()


def _with_watermark(frame: DataFrame, source: Source) -> DataFrame:
    if source.watermark is None:
        return frame
    column = source.watermark.column
    if column == PUBLISHED and MESSAGE in frame.columns:
        column = "timestamp"
        if column in frame.columns:
            raise InvalidArgument("watermark.column: the view has a column timestamp, which is not that of the message")
        frame = frame.withColumn(column, f.col(PUBLISHED))
    if column not in frame.columns:
        there = ", ".join(frame.columns)
        also = f" or {PUBLISHED}" if MESSAGE in frame.columns else ""
        raise InvalidArgument(f"watermark.column: there is no column {column}; there are {there}{also}")
    kind = frame.schema[column].dataType
    if not isinstance(kind, TimestampType):
        raise InvalidArgument(f"watermark.column: {column} is {kind.simpleString().upper()}, not TIMESTAMP")
    return frame.withWatermark(column, f"{round(parse_duration(source.watermark.delay) * 1000)} milliseconds")


# Tables and files.


def _files(spark: SparkSession, source: Source, path: str) -> DataFrame:
    kind = "parquet" if source.table is not None else str(source.format)
    schema = None if source.schema is None else columns_of(source.schema)
    if "://" not in path:
        if source.table is not None and schema is not None:  # another pipeline may fill it later
            Path(path).mkdir(parents=True, exist_ok=True)
        if not Path(path).exists():
            also = ", and no schema to begin without" if source.table is not None else ""
            raise InvalidArgument(f"there is no {path}{also}")
    if schema is None and kind == "parquet":
        schema = spark.read.parquet(path).schema
    options = {"mode": "DROPMALFORMED" if source.bad_rows == "drop" else "FAILFAST"}
    if kind == "csv":
        options |= {"header": str(source.header).lower(), "enforceSchema": "false"}
    reader = spark.readStream if source.stream else spark.read
    reader = reader.format(kind).options(**options)
    if schema is not None:
        reader = reader.schema(schema)
    return reader.load(path)
