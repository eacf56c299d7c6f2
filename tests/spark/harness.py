"""What the tests of Spark's tables share: a server to read from, messages of all kinds, and rows to compare."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.datasource import Filter
from pyspark.sql.types import StringType, StructField, StructType, TimestampType

import penstock
from penstock.client import Client
from penstock.spark import connecting
from penstock.spark.batch import LogReader
from penstock.spark.slices import Slice
from penstock.spark.source import PenstockDataSource
from penstock.spark.tables import COLUMNS
from tests.server.harness import Running

Rows = list[tuple[Any, ...]]


def columns_of(names: str, table: str = "messages") -> StructType:
    """A schema of some columns of a table, in this order."""
    known = {**COLUMNS[table], "dedupe_id": StringType(), "expires_at": TimestampType()}
    return StructType([StructField(name, known[name]) for name in names.split()])


FULL = columns_of("topic partition offset timestamp key value headers priority deliver_at message_id")
"""Every column that is there by default."""
ALL = columns_of(" ".join([*FULL.fieldNames(), "dedupe_id", "expires_at"]))
"""Every column, in the order of `row_of`."""


class Served(Running):
    """A server in this process, with a client; `broker` is the one inside (to settle, to retain)."""

    client: Client

    def reader(self, spark: SparkSession, **options: Any) -> DataFrameReader:
        """`spark.read` for this server, which still wants `load()`."""
        return spark.read.format("penstock").options(servers=self.address, **options)

    def table(self, spark: SparkSession, **options: Any) -> DataFrame:
        """What the data source gives for some options."""
        return self.reader(spark, **options).load()

    def __exit__(self, *how: object) -> None:
        for place in [place for place in connecting._clients if place[0] == self.address]:
            connecting._clients.pop(place).close()  # of this process; those of Spark's workers go with them
        super().__exit__(*how)


def of_all_kinds(count: int, first: int = 0, *, delayed: bool = True) -> list[penstock.Message | bytes | str]:
    """Messages with and without everything that a message may have."""
    return [
        penstock.Message(
            f"value {n}" if n % 13 else "",
            key=f"key {n % 7}" if n % 2 else None,
            headers={"n": str(n), "é": ""} if n % 3 else None,
            priority=n % 256,
            delay=n + 60.000001 if n % 5 == 0 and delayed else None,
            dedupe_id=f"id {n}" if n % 4 else None,
            expires_in="30d" if n % 11 == 0 else None,
        )
        for n in range(first, first + count)
    ]


def row_of(message: penstock.StoredMessage) -> tuple[Any, ...]:
    """A message as `broker.read` gives it, as a row of `ALL`."""
    m = message
    place = (m.topic, m.partition, m.offset, m.timestamp_us)
    headers = None if m.headers is None else tuple(sorted(m.headers.items()))
    return (*place, m.key, m.value, headers, m.priority, m.deliver_at_us, str(m.id), m.dedupe_id, m.expires_at_us)


def stored(messages: Iterable[penstock.StoredMessage], columns: int = 12) -> Rows:
    """What rows are expected, in order; by default those of `ALL`, and of `FULL` with 10."""
    return sorted((row_of(message)[:columns] for message in messages), key=_nulls_first)


def rows_of(table: DataFrame | pa.Table) -> Rows:
    """Rows as they came, in order of their places; times as microseconds, exact on every machine."""
    found = table.toArrow() if isinstance(table, DataFrame) else table
    columns = []
    for field, column in zip(found.schema, found.columns, strict=True):
        if pa.types.is_timestamp(field.type):
            columns.append(column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist())
        elif pa.types.is_map(field.type):
            columns.append([None if pairs is None else tuple(sorted(pairs)) for pairs in column.to_pylist()])
        else:
            columns.append(column.to_pylist())
    return sorted(zip(*columns, strict=True), key=_nulls_first)


def _nulls_first(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple((value is not None, value) for value in row)


class Planned:
    """A batch read without Spark: planned now, and read as often as it is asked for."""

    def __init__(self, schema: StructType = FULL, filters: Iterable[Filter] = (), **options: Any) -> None:
        source = PenstockDataSource({"pushFilters": "true", **{name: str(value) for name, value in options.items()}})
        reader = source.reader(schema)
        assert isinstance(reader, LogReader)
        list(reader.pushFilters(list(filters)))
        self.slices = [*reader.partitions()]
        self._reader = pickle.dumps(reader)

    @property
    def count(self) -> int:
        """How many rows were planned."""
        return sum(span.count for part in self.slices if isinstance(part, Slice) for span in part.spans)

    def tables(self) -> list[pa.RecordBatch]:
        """What the tasks give, each in a process of its own as far as it can tell."""
        found = []
        for part in self.slices:
            reader = pickle.loads(self._reader)
            found += reader.read(pickle.loads(pickle.dumps(part)))
        return found

    def rows(self) -> Rows:
        batches = self.tables()
        return rows_of(pa.Table.from_batches(batches)) if batches else []

    def places(self) -> list[tuple[str, int, int]]:
        """Topic, partition, offset of every row of `FULL`."""
        return [(row[0], row[1], row[2]) for row in self.rows()]
