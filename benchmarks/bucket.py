"""A bucket on a real store on this machine: brokers on it, and bare requests beside them."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

from penstock import Broker
from penstock.journal.bucket_storage import BucketStorage
from penstock.journal.chain import Chain
from penstock.model.config import BrokerConfig
from penstock.storage.buckets import open_objects
from penstock.storage.counted import BucketMeter, CountedObjects
from penstock.storage.objects import ObjectStore, Outcome
from penstock.testing.seaweed import BUCKET, Seaweed

BARE = "bare create of the same bytes"


@contextmanager
def store(directory: Path) -> Iterator[Seaweed]:
    """A store that runs, which this process may use."""
    directory.mkdir()
    with Seaweed(directory) as started, variables(started.environment):
        yield started


@contextmanager
def delayed(started: Seaweed, delay_s: float) -> Iterator[None]:
    """Every request to the store takes so much longer."""
    command = [sys.executable, "-m", "benchmarks.delaying_proxy", "--to", f"{started.port}", "--delay", f"{delay_s}"]
    proxy = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert proxy.stdin is not None and proxy.stdout is not None
    try:
        port = int(proxy.stdout.readline())
        with variables({**started.environment, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}):
            yield
    finally:
        proxy.stdin.close()
        proxy.wait()
        proxy.stdout.close()


@contextmanager
def variables(values: dict[str, str]) -> Iterator[None]:
    """These variables of the environment, while it is entered."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def place(name: str, meter: BucketMeter | None = None) -> ObjectStore:
    """A place of its own in the bucket."""
    return CountedObjects(open_objects(f"s3://{BUCKET}/{name}"), meter or BucketMeter())


def _pause(attempt: int) -> None:
    time.sleep(min(1.0, 0.02 * 2.0**attempt))


def open_shard(objects: ObjectStore, **options: Any) -> Broker:
    """A broker of one shard, as a process that was never there before."""
    chain = Chain(0, secrets.token_bytes(16), "127.0.0.1:9000")
    return Broker(BucketStorage(objects, chain, _pause, time.monotonic), BrokerConfig.parse(options))


def bare_create(objects: ObjectStore, size_bytes: int) -> float:
    """The seconds of one request."""
    data, name = os.urandom(size_bytes), f"bare/{secrets.token_hex(8)}"
    start = perf_counter()
    outcome = objects.create(name, data)
    seconds = perf_counter() - start
    assert outcome == Outcome.DONE
    return seconds


def bare_creates(objects: ObjectStore, sizes: Sequence[int]) -> float:
    """The seconds of requests, one after the other."""
    return sum(bare_create(objects, size_bytes) for size_bytes in sizes)


def piece_sizes(objects: ObjectStore) -> list[int]:
    """Of all pieces that are there, but the first few, which made the topic."""
    names = objects.list("journal/")[4:]
    return [len(data) for data in objects.get_many(names) if data is not None]


@contextlib.contextmanager
def opened(objects: ObjectStore, **options: Any) -> Iterator[Broker]:
    """The same, closed in the end, with a topic."""
    with open_shard(objects, **options) as broker:
        broker.create_topic("orders")
        yield broker
