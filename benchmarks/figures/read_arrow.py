"""Reading millions of messages: into Arrow and as Python objects, from segments and from the journal."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from time import perf_counter

import pyarrow as pa
import pyarrow.parquet as pq

import penstock
from benchmarks.bench import SETTLING_OFF, Bench
from benchmarks.load import BATCH, value_at
from benchmarks.publishers import pipelined
from benchmarks.rows import Row, Target, alone, compare
from benchmarks.verify import Wrong, check_count, check_topic
from penstock import Broker

_TARGET = Target("measured", ">=", 3_000_000)


def run(bench: Bench) -> list[Row]:
    batches, rounds = bench.size(3000, 30), range(bench.size(5, 1))
    count = batches * BATCH
    few = count // 3
    with bench.scratch() as path, penstock.open(path, **SETTLING_OFF) as broker:
        pipelined(broker, ["orders"], range(batches))
        check_topic(broker, "orders", count)
        journal = [_arrow(broker, count) for _ in rounds]
        journal_objects = [_objects(broker, few) for _ in rounds]
        broker.settle()
        check_count("messages settled", broker.shard.topic("orders").partitions[0].messages.settled_end, count)
        check_topic(broker, "orders", count)
        segments = sorted((path / "topics/orders/messages/0").glob("*.parquet"))
        _parquet(segments, count)  # the first call imports much
        settled = [(_arrow(broker, count), _parquet(segments, count)) for _ in rounds]
        settled_objects = [_objects(broker, few) for _ in rounds]
    baseline = "pyarrow.parquet.read_table"
    return [
        compare(f"read_arrow, {count:,} settled", "messages/s", settled, baseline, _TARGET),
        alone("read_arrow, the same from the journal", "messages/s", journal),
        alone(f"read (Python objects), {few:,} settled", "messages/s", settled_objects),
        alone("read (Python objects), the same from the journal", "messages/s", journal_objects),
    ]


def _arrow(broker: Broker, count: int) -> float:
    start = perf_counter()
    table = pa.Table.from_batches(broker.read_arrow("orders"))
    seconds = perf_counter() - start
    check_count("messages read into Arrow", len(table), count)
    return count / seconds


def _parquet(segments: list[Path], count: int) -> float:
    start = perf_counter()
    table = pa.concat_tables([pq.read_table(segment) for segment in segments])
    seconds = perf_counter() - start
    check_count("messages read from Parquet", len(table), count)
    return count / seconds


def _objects(broker: Broker, count: int) -> float:
    start = perf_counter()
    ((last, message),) = deque(enumerate(broker.read("orders", limit=count)), maxlen=1)
    seconds = perf_counter() - start
    check_count("messages read as objects", last + 1, count)
    if (message.offset, message.value) != (last, value_at(last)):
        raise Wrong(f"orders: the message at offset {last:,} is not the one that was published")
    return count / seconds
