"""A driver of its own, which kills itself or its workers in the worst moments; run by `test_kills`.

It is run as a script, so what is defined here goes to the workers by value.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.spark import session
from penstock.spark.options import write_options
from penstock.spark.source import PenstockDataSource
from penstock.spark.writing import BatchWriter, StreamWriter

KILLED_EPOCH = 1


class Crashing(StreamWriter):
    """Kills the driver, its JVM first, before or after an epoch is published."""

    when = ""
    victims: tuple[int, ...] = ()

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        if batchId == KILLED_EPOCH and self.when == "before":
            self._kill()
        super().commit(messages, batchId)
        if batchId == KILLED_EPOCH and self.when == "after":
            self._kill()

    def _kill(self) -> None:
        for victim in (*self.victims, os.getpid()):
            os.kill(victim, signal.SIGKILL)


class Dying(BatchWriter):
    """The second attempt of every task dies when it has staged a part."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        def some() -> Iterator[pa.RecordBatch]:
            for number, batch in enumerate(iterator):
                if number == 5 and attempt() == 1:
                    os.kill(os.getpid(), signal.SIGKILL)
                yield batch

        return super().write(some())


def attempt() -> int:
    """How often this task was tried before."""
    context = TaskContext.get()
    assert context is not None
    return int(context.attemptNumber())


class CrashingSource(PenstockDataSource):
    """The data source, with writers that do not live long."""

    @classmethod
    def name(cls) -> str:
        return "crashing"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return Dying(write_options(self.options, streaming=False), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return Crashing(write_options(self.options, streaming=True), schema)


def main(address: str, checkpoint: str, when: str) -> None:
    """Write a frame of which tasks fail and die, then copy a topic until the driver is killed."""
    from tests.spark.conftest import QUICK

    settings = {**QUICK, "spark.sql.execution.arrow.maxRecordsPerBatch": "50"}
    spark = session("driver", master="local[2,3]", settings=settings)
    spark.sparkContext.setLogLevel("OFF")
    Crashing.when = when
    assert spark._jvm is not None
    Crashing.victims = (spark._jvm.java.lang.ProcessHandle.current().pid(), os.getpid())
    spark.dataSource.register(CrashingSource)  # with what was just set
    numbers = spark.range(0, 1000, numPartitions=2).selectExpr("CAST(id AS STRING) AS value")
    if when == "before":

        def fail_at_first(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for number, batch in enumerate(batches):
                if number == 5 and attempt() == 0:
                    raise RuntimeError("the first attempt fails")
                yield batch

        failing = numbers.mapInArrow(fail_at_first, "value STRING")
        failing.write.format("crashing").mode("append").options(servers=address, topic="numbers").save()
    print("the stream begins", flush=True)
    stream = (
        spark.readStream.format("penstock")
        .options(servers=address, subscribe="source", startingOffsets="earliest", maxMessagesPerTrigger="40")
        .load()
        .select("value")
    )
    query = (
        stream.writeStream.format("crashing")
        .options(servers=address, topic=f"target-{when}", checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    main(*sys.argv[1:])
