"""Writing: tasks stage their rows, and the driver has exactly the tasks that count published, once.

A task may run twice, or its executor may die: each attempt has a stage of its own, which nobody sees. When all are
done, the driver names the stages that count. The broker publishes them once for each (query, epoch), whatever happens
to the driver or to itself meanwhile, and an epoch that comes again is known.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.client.sync import Client
from penstock.model.errors import ConnectionLost, InvalidArgument, Overloaded, PenstockError, RequestTimeout
from penstock.spark.connecting import connected, patiently, through_restarts
from penstock.spark.options import WriteOptions
from penstock.spark.packing import request_of, requests
from penstock.spark.rows import by_topic, check_columns, columns_of, messages_of

_log = logging.getLogger("penstock.spark")
_PATIENCE_S, _AGAIN_S = 300.0, 1.0
_QUERY_ID = "sql.streaming.queryId"


class Staged(WriterCommitMessage):
    """What a task did: its stage, and the query that it belongs to."""

    def __init__(self, stage: str, count: int, query: str | None) -> None:
        self.stage = stage
        self.count = count
        self.query = query


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame: all of it, or nothing; once for a producer and sequence, if they are given."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_columns(schema, options.topic)
        self._options = options
        self._job = f"spark-{uuid.uuid4().hex}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return stage(self._options, self._job, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        publish(self._options, self._options.producer or self._job, self._options.sequence, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        drop(self._options, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a query, each once."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_columns(schema, options.topic)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return stage(self._options, None, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        queries = {message.query for message in messages if isinstance(message, Staged)}
        if len(queries) > 1 or None in queries:
            raise InvalidArgument(f"micro-batch {batchId} does not know of which query it is")
        for query in queries:
            publish(self._options, f"spark-{query}", batchId, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        drop(self._options, messages)


def stage(options: WriteOptions, job: str | None, batches: Iterator[pa.RecordBatch]) -> Staged:
    """In a task: hand its rows to the broker, on disk and seen by nobody."""
    context = TaskContext.get()
    query = context.getLocalProperty(_QUERY_ID) if context is not None else None
    place = 0 if context is None else context.partitionId()
    name = f"{job or f'spark-{query}'}-{place}-{uuid.uuid4().hex}"
    client = connected(options.servers, options.secrets, patient=True)
    count = 0
    with dropped_on_failure(client, name):
        for batch in batches:
            for topic, rows in by_topic(batch, options.topic):
                count += _hand_in(client, name, topic, rows)
        if count:
            client.seal_stage(name)
    return Staged(name, count, query)


@contextlib.contextmanager
def dropped_on_failure(client: Client, stage: str) -> Iterator[None]:
    """In a task: drop its stage if the task fails, for the driver gets nothing to name the stage by."""
    try:
        yield
    except (ConnectionLost, RequestTimeout):  # nobody would hear it; the broker drops what nobody touches
        raise
    except BaseException:
        with contextlib.suppress(PenstockError):
            client.drop_staged([stage])
        raise


def _hand_in(client: Client, stage: str, topic: str, rows: pa.RecordBatch) -> int:
    columns = columns_of(rows, client.limits)
    if columns is None:
        return client.stage_many(stage, topic, messages_of(rows))
    return sum(client.stage_packed(stage, request_of(topic, some)) for some in requests(columns, client.limits))


def publish(options: WriteOptions, producer: str, sequence: int, done: Sequence[WriterCommitMessage | None]) -> None:
    """In the driver: publish what the tasks staged.

    Each shard publishes its part by itself. While a process of the server is replaced, others may have published
    theirs: it is tried again for a while, for what Spark does with an error is to drop the rest.
    """
    stages = _stages(done)
    client = connected(options.servers, options.secrets, patient=True)
    once = partial(client.publish_staged, stages, producer=producer, sequence=sequence)
    by_all = partial(through_restarts, once)
    patiently(by_all, Overloaded, _PATIENCE_S, _AGAIN_S)  # a large one waits until the broker has settled some of it


def drop(options: WriteOptions, done: Sequence[WriterCommitMessage | None]) -> None:
    """In the driver: nothing of it is to be published.

    It is called because something failed, and if it fails too, Spark tells nobody what that was. What cannot be dropped
    now is never published, and goes when nobody has touched it for a day.
    """
    stages = _stages(done)
    try:
        if stages:
            connected(options.servers, options.secrets).drop_staged(stages)
    except PenstockError as error:
        _log.warning("%d stages of a write that failed could not be dropped: %s", len(stages), error)


def _stages(done: Sequence[WriterCommitMessage | None]) -> list[str]:
    return [message.stage for message in done if isinstance(message, Staged) and message.count]
