"""A shard on a bucket: publishing beside bare requests, taking it over, and how many requests it makes.

The store is SeaweedFS on this machine, which takes part of it. Bare requests alternate with what they are compared to.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from statistics import median, quantiles
from time import perf_counter

from benchmarks.bench import Bench
from benchmarks.bucket import BARE, bare_create, bare_creates, delayed, open_shard, opened, piece_sizes, place, store
from benchmarks.load import BATCH, value_at
from benchmarks.publishers import WINDOW, one_at_a_time, pipelined, singles_from_tasks
from benchmarks.rows import Row, Target, compare
from benchmarks.verify import check_topic, check_values
from penstock import Broker
from penstock.aio import AsyncBroker
from penstock.embedded.broker import lose_shard
from penstock.model.errors import NotOwner
from penstock.storage.counted import BucketMeter
from penstock.testing.seaweed import Seaweed

TASKS = 64
_DELAY_S = 0.045
_PIECES, _FILE_BATCHES = 256, 640
_NO_SETTLING = {"segment_min_bytes": "1GiB", "journal_files_max": 1000, "max_unsettled_bytes": "64GiB"}
_Pair = tuple[float, float]


def run(bench: Bench) -> list[Row]:
    with store(bench.place() / "store") as started:
        rounds = range(bench.size(5, 1))
        alone = [_alone(f"alone-{number}", bench.size(300, 30)) for number in rounds]
        singles = [_singles(f"singles-{number}", bench.size(20_000, 500)) for number in rounds]
        batches = [_batches(f"batches-{number}", bench.size(400, 20)) for number in rounds]
        takeovers = [_take_over(f"takeover-{number}", bench.size(_FILE_BATCHES, 20)) for number in rounds]
        busy, idle = _requests(bench.size(10, 1), bench.size(25, 0))
        p50, p99, bare = _far_away(started, bench.size(10, 1))
    return [
        compare("bucket: one publisher alone, no interval: p50", "s", alone, BARE, Target("ratio", "<=", 1.5)),
        compare(f"bucket: single messages, {TASKS} tasks, no interval", "messages/s", singles, BARE, _at_least(10_000)),
        compare(f"bucket: batches of 1000, {WINDOW} on the way", "messages/s", batches, BARE, _at_least(300_000)),
        compare(
            f"bucket: take over {_PIECES} pieces and 64 MiB",
            "s",
            takeovers,
            "reading the same objects",
            Target("measured", "<", 1.5),
        ),
        Row("bucket: objects put in a second, busy, every 100 ms", "", busy, targets=(Target("measured", "<=", 10.5),)),
        Row("bucket: objects put in a second, idle", "", idle, targets=(Target("measured", "<=", 0.0),)),
        _beside(f"bucket: acknowledged, every 100 ms, requests of {_DELAY_S * 1000:.0f} ms: p50", p50, bare, 0.110),
        _beside(f"bucket: acknowledged, every 100 ms, requests of {_DELAY_S * 1000:.0f} ms: p99", p99, bare, 0.200),
    ]


def _at_least(rate: float) -> Target:
    return Target("measured", ">=", rate)


def _beside(what: str, seconds: float, bare: float, most_s: float) -> Row:
    return Row(what, "s", seconds, bare, "bare create: p50", (Target("measured", "<=", most_s),))


def _alone(name: str, count: int) -> _Pair:
    """The p50 of one publisher that waits for each message, and of bare requests between them."""
    objects, bare = place(name), place(f"{name}-bare")
    seconds, bares = [], []
    with opened(objects, commit_interval=0, **_NO_SETTLING) as broker:
        for number in range(count):
            value = value_at(number)
            start = perf_counter()
            broker.publish("orders", value)
            seconds.append(perf_counter() - start)
            bares.append(bare_create(bare, 64 + 68 + len(value) + 30))
        check_values(broker, "orders", [value_at(number) for number in range(count)])
    return median(seconds), median(bares)


def _singles(name: str, count: int) -> _Pair:
    objects = place(name)
    with opened(objects, commit_interval=0, **_NO_SETTLING) as broker:
        seconds = singles_from_tasks(broker, ["orders"], range(count), TASKS)
        bare = bare_creates(place(f"{name}-bare"), piece_sizes(objects))
        check_values(broker, "orders", [value_at(number) for number in range(count)])
    return count / seconds, count / bare


def _batches(name: str, count: int) -> _Pair:
    objects = place(name)
    with opened(objects, commit_interval=0, **_NO_SETTLING) as broker:
        seconds = pipelined(broker, ["orders"], range(count))
        bare = bare_creates(place(f"{name}-bare"), piece_sizes(objects))
        check_topic(broker, "orders", count * BATCH)
    return count * BATCH / seconds, count * BATCH / bare


def _take_over(name: str, batches: int) -> _Pair:
    """Open a shard whose owner just ended, beside reading what there is to be read."""
    objects = place(name)
    dead = open_shard(objects, commit_interval=0, **_NO_SETTLING)
    one_at_a_time(dead, "orders", range(batches))
    dead.shard.journal.seal()
    count = _write_pieces(dead, batches * BATCH)
    while dead.shard.checkpoints.lags():  # the thread that keeps house makes bundles of what is complete
        time.sleep(0.01)
    lose_shard(dead, 0, NotOwner("it has ended"))
    names = objects.list("journal/")[-_PIECES:] + objects.list("bundles/")
    start = perf_counter()
    objects.get_many(names)
    bare = perf_counter() - start
    start = perf_counter()
    with open_shard(place(name), commit_interval=0, **_NO_SETTLING) as broker:
        seconds = perf_counter() - start
        check_topic(broker, "orders", count)
    dead.close()
    return seconds, bare


def _write_pieces(broker: Broker, count: int) -> int:
    """As many as a file has, one less than makes it complete; how many messages there are then."""
    for number in range(count, count + _PIECES - 3):
        broker.publish("orders", value_at(number))
    return count + _PIECES - 3


def _requests(busy_s: float, idle_s: float) -> _Pair:
    """How many objects a shard puts in a second, while something is always published, and when nothing is."""
    meter = BucketMeter()
    with opened(place("requests", meter)) as broker:
        ending = threading.Event()

        def publish() -> None:
            while not ending.is_set():
                broker.publish("orders", "value")

        publishers = [threading.Thread(target=publish) for _ in range(8)]
        for thread in publishers:
            thread.start()
        busy = _rate(meter, busy_s)
        ending.set()
        for thread in publishers:
            thread.join()
        time.sleep(idle_s)  # what is behind is done, and proven
        return busy, _rate(meter, max(1.0, idle_s))


def _rate(meter: BucketMeter, seconds: float) -> float:
    before, start = _puts(meter), perf_counter()
    time.sleep(seconds)
    return (_puts(meter) - before) / (perf_counter() - start)


def _puts(meter: BucketMeter) -> int:
    return sum(count for (operation, _), count in meter.requests.items() if operation in ("create", "put"))


def _far_away(started: Seaweed, seconds: float) -> tuple[float, float, float]:
    """The p50 and p99 of acknowledgements, and the p50 of bare requests, to a store that is far away."""
    with delayed(started, _DELAY_S):
        objects, bare = place("far"), place("far-bare")
        bares = [bare_create(bare, 1000) for _ in range(10)]
        with opened(objects) as broker:
            latencies = asyncio.run(_publish_now_and_then(broker, seconds))
        bares += [bare_create(bare, 1000) for _ in range(10)]
    return median(latencies), quantiles(latencies, n=100)[98], median(bares)


async def _publish_now_and_then(broker: Broker, seconds: float) -> list[float]:
    """Single messages at random times, 500 a second, none of which waits for another."""
    face, chance = await AsyncBroker(lambda: broker).__aenter__(), random.Random(1)
    latencies: list[float] = []

    async def publish(number: int) -> None:
        start = perf_counter()
        await face.publish("orders", value_at(number))
        latencies.append(perf_counter() - start)

    async with asyncio.TaskGroup() as tasks:
        for number in range(round(seconds * 500)):
            tasks.create_task(publish(number))
            await asyncio.sleep(chance.expovariate(500))
    return latencies
