"""The data source `penstock`: topics as tables of Spark, read and written, in batches and in streams."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from penstock.model.errors import InvalidArgument
from penstock.spark.options import TABLES, read_options, write_options
from penstock.spark.tables import LOGS, check_schema, schema_of


class PenstockDataSource(DataSource):
    """`spark.read.format("penstock")` and its three sisters."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> StructType:
        table = str(self.options.get("table", "messages")).lower()
        if table not in TABLES:
            raise InvalidArgument(f"the option table: {table!r} is none of {', '.join(TABLES)}")
        return schema_of(table)

    def reader(self, schema: StructType) -> DataSourceReader:
        from penstock.spark.batch import ListReader, LogReader

        options = read_options(self.options, streaming=False)
        check_schema(options.table, schema)
        return LogReader(options, schema) if options.table in LOGS else ListReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from penstock.spark.streaming import StreamReader

        options = read_options(self.options, streaming=True)
        check_schema(options.table, schema)
        return StreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from penstock.spark.writing import BatchWriter

        if overwrite:
            raise InvalidArgument("a topic is a log: it takes more (mode append), it is not overwritten")
        return BatchWriter(write_options(self.options, streaming=False), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from penstock.spark.writing import StreamWriter

        if overwrite:
            raise InvalidArgument("a topic is a log: it takes more (output mode append or update), not all anew")
        return StreamWriter(write_options(self.options, streaming=True), schema)
