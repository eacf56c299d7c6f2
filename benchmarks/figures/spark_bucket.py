"""Spark: topics of a bucket (SeaweedFS on loopback) with no server, beside Parquet read from the same files here."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.bench import Bench
from benchmarks.rows import Row, Target, alone, compare
from benchmarks.sparks import TOPIC, fill, fill_broker, quiet_session, stream_seconds, to_nowhere
from benchmarks.verify import check_count
from penstock.embedded.broker import Broker
from penstock.journal.bucket_storage import BucketStorage
from penstock.journal.chain import Chain
from penstock.model.config import BrokerConfig
from penstock.storage.buckets import open_objects
from penstock.storage.objects import ObjectStore
from penstock.testing.seaweed import BUCKET, Seaweed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SEVEN_TENTHS = Target("ratio", ">=", 0.7)
_NATIVE, _LOCAL = "spark.read.parquet on the same files, local", "the data source on a local directory"
_COLUMNS = ("partition", "offset", "timestamp", "key", "value", "headers", "priority", "deliver_at")
Reading = Callable[[], "DataFrame"]


def run(bench: Bench) -> list[Row]:
    count, rounds = bench.size(2_000_000, 20_000), range(bench.size(7, 1))
    with bench.scratch() as path, _bucket(path) as address:
        files = _fill(address, path / "files", count)
        fill(path / "local", count)
        with quiet_session() as spark:
            ours, local, native = _frames(spark, [address, str(path / "local")], files)
            for read in (ours, local, native):
                check_count("rows read by Spark", read().count(), count)
            rates = [tuple(count / to_nowhere(read()) for read in (ours, local, native)) for _ in rounds]
            places = [bench.place() for _ in rounds]
            copied = [(_whole(_copying(spark, address, place), count), _whole(native, count)) for place in places]
            again = [(_whole(_copying(spark, address, place), count), _whole(native, count)) for place in places]
            source = {"path": address, "subscribe": TOPIC}
            streamed = [count / stream_seconds(spark, source, bench.place(), count) for _ in rounds]
    what = f"Spark on a bucket: {count:,} settled, same columns"
    return [
        compare(f"{what}, copied first", "messages/s", copied, _NATIVE, _SEVEN_TENTHS),
        compare(f"{what}, copied before", "messages/s", again, _NATIVE, _SEVEN_TENTHS),
        compare(what, "messages/s", [(ours, native) for ours, _, native in rates], _NATIVE),
        compare(what, "messages/s", [(ours, local) for ours, local, _ in rates], _LOCAL, _SEVEN_TENTHS),
        alone(f"Spark on a bucket: stream, availableNow, {count:,}", "messages/s", streamed),
    ]


def _copying(spark: SparkSession, address: str, copies: Path) -> Reading:
    """The topic, whose segments are on the bucket only."""
    from penstock.spark import read_topic

    return lambda: read_topic(spark, TOPIC, path=address, copies=str(copies)).select(*_COLUMNS)


def _whole(read: Reading, count: int) -> float:
    """Messages a second, from the call to the last row."""
    start_s = time.perf_counter()
    to_nowhere(read())
    return count / (time.perf_counter() - start_s)


def _frames(spark: SparkSession, places: list[str], files: list[str]) -> list[Reading]:
    """The same columns of all: what a Python source is not asked for by a schema, it makes and sends."""
    native = spark.read.parquet(*files).select(*_COLUMNS)
    tables = [spark.read.format("penstock").options(path=place, subscribe=TOPIC) for place in places]
    return [
        *(table.schema(native.schema).load for table in tables),
        lambda: spark.read.parquet(*files).select(*_COLUMNS),
    ]


@contextmanager
def _bucket(path: Path) -> Iterator[str]:
    """The address of a place in a store that was started here, which this process and its children may use."""
    (path / "store").mkdir()
    before = os.environ.copy()
    with Seaweed(path / "store") as store:
        os.environ.update(store.environment)
        try:
            yield f"s3://{BUCKET}/figures"
        finally:
            os.environ.clear()
            os.environ.update(before)


def _fill(address: str, copies: Path, count: int) -> list[str]:
    """A topic on the bucket; its files, copied to here."""
    objects = open_objects(address)
    objects.put("penstock.json", b'{"version": 1, "shards": 1}')
    shard = objects.part("shards/0/")
    storage = BucketStorage(shard, Chain(0, os.urandom(16), "figures"), _pause, time.monotonic)
    with Broker(storage, BrokerConfig.parse({"min_free_bytes": 0, "commit_interval": 0})) as broker:
        fill_broker(broker, count)
    return [_copy(shard, name, copies / Path(name).name) for name in shard.list(f"topics/{TOPIC}/messages/")]


def _copy(objects: ObjectStore, name: str, place: Path) -> str:
    place.parent.mkdir(exist_ok=True)
    place.write_bytes(objects.get(name) or b"")
    return str(place)


def _pause(attempt: int) -> None:
    time.sleep(min(0.5, 0.01 * 2**attempt))
