"""Batch reads: a table as it is when the query is planned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from penstock.spark.filters import Wanted, wanted_of
from penstock.spark.finding import origin_of
from penstock.spark.listed import listed_rows
from penstock.spark.options import ReadOptions
from penstock.spark.planning import Plan, slices
from penstock.spark.slices import Slice, read_span
from penstock.spark.tables import Shaper


class LogReader(DataSourceReader):
    """Reads messages or events: exactly those between the positions that the options name."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._wanted = Wanted()
        # Spark keeps what was planned for the filters of one query, and reads just that for other queries (or other
        # branches of the same one) on the same DataFrame or view: rows would be missing. So it has to be asked for.
        if options.push_filters:
            # Spark fails every read of a class that overrides `pushFilters` while pushdown is off, its default. It
            # looks at the function behind the method: this one is Spark's own, and what is called is ours.
            self.pushFilters = _Pushing(self._push)  # type: ignore[method-assign]

    def _push(self, filters: Sequence[Filter]) -> Iterable[Filter]:
        self._wanted = wanted_of(self._options.table, filters)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        plan = Plan(origin_of(self._options), self._options)
        start = plan.resolve(self._options.start, "startingOffsets")
        end = plan.resolve(self._options.end, "endingOffsets")
        return slices(plan.spans(start, end, self._wanted), self._options.min_partitions) or [Slice(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Slice)
        return read_slice(self._options, partition, self._schema, self._wanted)


class _Pushing:
    """A call of ours behind the looks of Spark's own method."""

    def __init__(self, push: Callable[[Sequence[Filter]], Iterable[Filter]]) -> None:
        self._push = push
        self.__func__ = DataSourceReader.pushFilters

    def __call__(self, filters: Sequence[Filter]) -> Iterable[Filter]:
        return self._push(filters)


def read_slice(options: ReadOptions, part: Slice, schema: StructType, wanted: Wanted) -> Iterator[pa.RecordBatch]:
    """What a task hands to Spark."""
    shaper = Shaper(schema)
    for span in part.spans:
        for batch in read_span(options, span, shaper.stored, wanted):
            yield shaper.shape(batch, span.topic, span.partition)


class ListReader(DataSourceReader):
    """Reads dead letters or groups: lists that the broker gives, in one task."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return Shaper(self._schema).rows(listed_rows(self._options))
