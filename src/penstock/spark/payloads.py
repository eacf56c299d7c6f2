"""Values that are JSON, as columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from penstock.model.errors import InvalidArgument

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SAMPLE_ROWS = 1000


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
