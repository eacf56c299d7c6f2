"""Dead letters: messages that a pipeline cannot use, as the broker writes those that a group gave up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from penstock.model.names import DEAD_LETTERS
from penstock.spark.pipelines.spec import MESSAGE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_PREFIX = "penstock-"
_PART = "__part_"
_PARTS = ("key", "value", "topic", "partition", "offset", "timestamp", "headers", "priority")
_LINEAGE_BYTES = 4096
"""An upper bound for the headers that a letter has in addition to those of its message."""


def group_of(pipeline: str, part: str) -> str:
    """Under which name letters say who gave the message up: that of no group, so that a redrive publishes it again."""
    return f"{pipeline}:{part}"


def with_parts(view: DataFrame, *columns: Column) -> DataFrame:
    """These columns of a view, and the parts of its messages that a letter is made of, each as a column.

    As a struct they would be put together for every row, and not only for those that become letters.
    """
    return view.select(*[f.col(f"{MESSAGE}.{part}").alias(_PART + part) for part in _PARTS], *columns)


def letter(cause: Column, group: str, headers_max: int) -> dict[str, Column]:
    """The columns of the letter of the row's message, as a sink takes them; of rows `with_parts`."""
    return {
        "topic": f.concat(f.col(_PART + "topic"), f.lit(DEAD_LETTERS)),
        "key": f.col(_PART + "key"),
        "value": f.col(_PART + "value"),
        "headers": _headers(cause, group, headers_max),
        "priority": f.col(_PART + "priority").cast("int"),
    }


def _headers(cause: Column, group: str, headers_max: int) -> Column:
    """The headers of the message, if there is room for them, and where it comes from.

    They are made in a lambda, which Spark does not compile: as a part of the row's code, which every row goes through,
    they would make that so long that Java does not compile it either.
    """
    row = f.struct(*[f.col(_PART + part).alias(part) for part in _PARTS], cause.alias("cause"))
    return f.transform(f.array(row), lambda message: _with_lineage(message, group, headers_max))[0]


def _with_lineage(message: Column, group: str, headers_max: int) -> Column:
    own = f.coalesce(message["headers"], f.expr("map()").cast("map<string,string>"))
    own = f.map_filter(own, lambda name, _: ~f.startswith(name, f.lit(_PREFIX)))
    sizes = f.transform(f.map_entries(own), lambda pair: f.octet_length(pair["key"]) + f.octet_length(pair["value"]))
    total = f.aggregate(sizes, f.lit(0), lambda so_far, size: so_far + size)
    lineage = {
        "origin": f.concat_ws("/", *[message[part].cast("string") for part in ("topic", "partition", "offset")]),
        "group": f.lit(group),
        "cause": message["cause"],
        "consumer": f.lit(""),
        "deliveries": f.lit("1"),
        "failures": f.lit("1"),
        "died-at": f.unix_micros(f.current_timestamp()).cast("string"),
        "published-at": f.unix_micros(message["timestamp"]).cast("string"),
        "history": f.lit("[]"),
    }
    added = f.create_map(*[part for name, text in lineage.items() for part in (f.lit(_PREFIX + name), text)])
    return f.when(total <= headers_max - _LINEAGE_BYTES, f.map_concat(own, added)).otherwise(added)
