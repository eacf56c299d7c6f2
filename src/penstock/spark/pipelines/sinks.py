"""Sinks: what a view becomes before it is written, and rows that the broker would refuse."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import functions as f
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from penstock.model.config import BrokerConfig, TopicConfig
from penstock.model.errors import InvalidArgument
from penstock.model.names import LOWEST, PRIORITIES
from penstock.model.units import parse_duration
from penstock.spark.pipelines.letters import letter, with_parts
from penstock.spark.pipelines.sources import PARTS, quoted
from penstock.spark.pipelines.spec import MESSAGE, Sink

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

OBSERVED = "penstock"
"""The name of the metrics of a query: how many rows were `refused` and `written`."""
At = Callable[[str], contextlib.AbstractContextManager[None]]
"""A context in which errors are reported for a part of the sink."""
_UNITS = "us|ms|s|m|h|d|w"
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


class Broken(Exception):
    """It depends on a part that has a problem, which is reported already."""


@dataclass(frozen=True)
class Limits:
    """What the broker takes."""

    value_bytes: int = BrokerConfig().max_value_bytes
    key_bytes: int = BrokerConfig().max_key_bytes
    headers_bytes: int = BrokerConfig().max_headers_bytes
    delay_s: float = TopicConfig().max_delay


UNKNOWN = Limits(1 << 62, 1 << 62, 1 << 62, float("inf"))
"""The limits of a server that could not be asked: nothing is refused, and no such query is started."""


def chosen(view: DataFrame, sink: Sink, at: At) -> DataFrame:
    """The rows of a view that a sink takes."""
    if sink.where is not None:
        with at("where"):
            return view.where(sink.where)
    return view


def plain(view: DataFrame) -> DataFrame:
    """The columns of a view without `message`."""
    kept = [name for name in view.columns if name != MESSAGE]
    if not kept:
        raise InvalidArgument(f"there is no column but {MESSAGE}: select some in a step")
    return view.select(*[quoted(name) for name in kept])


# Topics.


def messages(view: DataFrame, sink: Sink, group: str, limits: Limits, at: At) -> DataFrame:
    """The rows of a view as messages, each with its topic.

    A row that the broker would refuse does not stop the stream: where the message that it comes from is still there,
    that goes to the dead letters of its topic, in the same commit; else it is left out. Both are counted.
    """
    fields: dict[str, Column] = {}
    with at("value"):
        fields["value"] = _bytes(view, "value", f.expr(sink.value) if sink.value is not None else _default(view))
    others: dict[str, Callable[[DataFrame, Any], Column]]
    others = {"key": _key, "priority": _priority, "delay": _delay, "headers": _headers}
    given = {name: getattr(sink, name) for name in others if getattr(sink, name) is not None}
    for name, what in given.items():
        with at(name):
            fields[name] = others[name](view, what)
    for name, column in fields.items():
        with at(name):
            _check_constant(view, name, column, limits)
    if {"value", *given} != set(fields):
        raise Broken
    columns = [column.alias(name) for name, column in fields.items()]
    traced = has_message(view)
    rows = with_parts(view, *columns) if traced else view.select(*columns)
    rows = rows.withColumn("refusal", _refusal(fields, limits))
    taken = f.col("refusal").isNull()
    rows = rows.observe(OBSERVED, f.count_if(~taken).alias("refused"), f.count_if(taken).alias("written"))
    if not traced:
        return rows.where(taken).select(f.lit(sink.topic).alias("topic"), *fields)
    letters = letter(f.col("refusal"), group, limits.headers_bytes)
    ours = {"topic": f.lit(sink.topic), **{name: f.col(name) for name in fields}}
    return rows.select(
        *[
            f.when(taken, ours.get(name, f.lit(None))).otherwise(letters.get(name, f.lit(None))).alias(name)
            for name in dict.fromkeys((*letters, *ours))
        ]
    )


def has_message(view: DataFrame) -> bool:
    """Whether the rows of a view still have the messages that they come from."""
    if MESSAGE not in view.columns:
        return False
    kind = view.schema[MESSAGE].dataType
    return isinstance(kind, StructType) and set(PARTS) <= set(kind.fieldNames())


def _default(view: DataFrame) -> Column:
    """All columns as JSON; one that is a value is it."""
    kept = [name for name in view.columns if name != MESSAGE]
    if kept == ["value"] and isinstance(view.schema["value"].dataType, BinaryType | StringType):
        return f.col("value")
    if not kept:
        raise InvalidArgument(f"there is no column but {MESSAGE}: give an expression, such as message.value")
    return f.to_json(f.struct(*[quoted(name) for name in kept]))


def _bytes(view: DataFrame, field: str, column: Column) -> Column:
    kind = _type(view, column)
    if not isinstance(kind, BinaryType | StringType):
        shown = kind.simpleString().upper()
        raise InvalidArgument(f"the {field} is STRING or BINARY, not {shown}: use to_json(…) or CAST(… AS STRING)")
    return column.cast("binary")


def _key(view: DataFrame, text: str) -> Column:
    return _bytes(view, "key", f.expr(text))


def _priority(view: DataFrame, text: str) -> Column:
    if text.strip() in PRIORITIES:
        return f.lit(PRIORITIES[text.strip()])
    kind = _type(view, f.expr(text))
    if not isinstance(kind, IntegralType):
        raise InvalidArgument(
            f"a priority is a whole number from 0 to {LOWEST}, or one of {', '.join(PRIORITIES)}; not "
            f"{kind.simpleString().upper()}"
        )
    return f.expr(text).cast("bigint")


def _delay(view: DataFrame, text: str) -> Column:
    """Seconds."""
    with contextlib.suppress(InvalidArgument):
        return f.lit(parse_duration(text))
    column = f.expr(text)
    kind = _type(view, column)
    if isinstance(kind, IntegralType | DoubleType | FloatType | DecimalType):
        return column.cast("double")
    if not isinstance(kind, StringType):
        shown = kind.simpleString().upper()
        raise InvalidArgument(f"a delay is seconds, or text such as '5m'; not {shown}")
    parts = f.regexp_extract_all(column, f.lit(rf"[0-9.]+(?:{_UNITS})"), f.lit(0))
    factor = f.create_map(*[f.lit(part) for pair in _SECONDS.items() for part in pair])
    seconds = f.aggregate(
        f.transform(
            parts,
            lambda part: (
                f.regexp_extract(part, "^[0-9.]+", 0).cast("double") * factor[f.regexp_extract(part, "[a-z]+$", 0)]
            ),
        ),
        f.lit(0.0),
        lambda so_far, part: so_far + part,
    )
    is_duration = f.trim(column).rlike(rf"^([0-9]+(\.[0-9]+)?({_UNITS}))+$")
    return f.when(column.isNull(), f.lit(None)).when(is_duration, seconds).otherwise(f.lit(-1.0))  # which is refused


def _headers(view: DataFrame, given: str | Mapping[str, str]) -> Column:
    if isinstance(given, str):
        column = f.expr(given)
        kind = _type(view, column)
        if not isinstance(kind, MapType) or not all(isinstance(k, StringType) for k in (kind.keyType, kind.valueType)):
            raise InvalidArgument(f"headers are MAP<STRING, STRING>, not {kind.simpleString().upper()}")
        return column
    pairs = [part for name, text in given.items() for part in (f.lit(name), f.expr(text).cast("string"))]
    column = f.map_filter(f.create_map(*pairs), lambda _, text: text.isNotNull())
    _type(view, column)
    return column


def _check_constant(view: DataFrame, name: str, column: Column, limits: Limits) -> None:
    """Raise if every row would be refused: a constant field is checked once, here."""
    alone = view.sparkSession.sql("SELECT 1")
    try:
        made = alone.select(column.alias(name))
    except AnalysisException:  # it depends on the row
        return
    if made._jdf.queryExecution().analyzed().projectList().apply(0).child().foldable():  # noqa: SLF001
        cause = made.select(_refusal([name], limits)).first()
        if cause is not None and cause[0] is not None:
            raise InvalidArgument(f"every row would be refused: {cause[0]}")


def _refusal(fields: Iterable[str], limits: Limits) -> Column:
    """Why the broker would refuse a message with these fields; NULL if it takes it."""

    def size(name: str, most: int) -> tuple[Column, Column]:
        long = f.octet_length(name)
        told = f.concat(f.lit(f"the {name} has "), long.cast("string"), f.lit(f" bytes; the limit is {most}"))
        return long > most, told

    causes: list[tuple[Column, Column]] = []
    if "value" in fields:
        causes += [(f.col("value").isNull(), f.lit("the value is NULL")), size("value", limits.value_bytes)]
    if "key" in fields:
        causes.append(size("key", limits.key_bytes))
    if "priority" in fields:
        told = f.concat(f.lit("the priority is "), f.col("priority").cast("string"), f.lit(f", not 0 to {LOWEST}"))
        causes.append((~f.col("priority").between(0, LOWEST), told))
    if "delay" in fields:
        fine = ~f.isnan("delay") & f.col("delay").between(0, limits.delay_s)
        causes.append((~fine, f.lit(f"the delay is not a duration of at most {limits.delay_s:g} s")))
    if "headers" in fields:
        texts = f.concat(f.map_keys("headers"), f.filter(f.map_values("headers"), lambda text: text.isNotNull()))
        total = f.aggregate(texts, f.lit(0), lambda so_far, text: so_far + f.octet_length(text))
        causes.append((~f.forall(texts, f.is_valid_utf8), f.lit("a header is not UTF-8 text")))
        causes.append((total > limits.headers_bytes, f.lit(f"the headers have over {limits.headers_bytes} bytes")))
    found = f.when(*causes[0])
    for condition, told in causes[1:]:
        found = found.when(condition, told)
    return found


# The console.


def on_console(view: DataFrame) -> DataFrame:
    """The rows as Spark prints them; a terminal gets a mark instead of each character that it would obey."""
    rows = plain(view)
    if sys.stdout is None or not sys.stdout.isatty():
        return rows
    return rows.select(*[_marked(field) for field in rows.schema])


def _marked(field: StructField) -> Column:
    column = f.col(quoted(field.name))
    if not isinstance(field.dataType, StringType | StructType | MapType | ArrayType):
        return column
    return f.regexp_replace(column.cast("string"), r"[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]", "\ufffd").alias(field.name)


# Tables.


def partitioned(view: DataFrame, sink: Sink) -> tuple[DataFrame, list[str]]:
    """The rows of a table, and the columns that its directories are named by."""
    rows, found = plain(view), []
    given = [sink.partition_by] if isinstance(sink.partition_by, str) else sink.partition_by or ()
    for text in given:
        if text in rows.columns:
            found.append(text)
            continue
        name = _alias(view, text)
        if name is None:
            if not isinstance(_type(view, f.expr(text)), DateType):
                raise InvalidArgument(f"give what {text} makes a name: `{text} AS name`")
            name = "date"
        if name in rows.columns:
            raise InvalidArgument(f"there is a column {name} already: name it otherwise, `{text} AS other`")
        view, rows = view.withColumn(name, f.expr(text)), rows.withColumn(name, f.expr(text))
        found.append(name)
    if len(found) == len(rows.columns):
        raise InvalidArgument("there is no column left beside those that it is partitioned by")
    return rows, found


def _alias(view: DataFrame, text: str) -> str | None:
    """The name that an expression gives to what it makes."""
    session = view.sparkSession._jsparkSession  # noqa: SLF001
    parsed = session.sessionState().sqlParser().parseExpression(text)
    return str(parsed.name()) if parsed.getClass().getSimpleName() == "Alias" else None


def _type(view: DataFrame, column: Column) -> DataType:
    """The type of an expression; raises what is wrong with it."""
    return view.select(column.alias("x")).schema[0].dataType
