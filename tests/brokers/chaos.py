"""Brokers on a real bucket, disturbed under clients that publish, consume, fail, redrive and cancel in every shard.

    python -m tests.brokers.chaos kill --minutes 5 --every 10

Each broker has a line of its own to the store. Whatever happens, the books of the clients have to be exact.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Self

from penstock.client import AsyncClient
from penstock.testing.line import Line
from penstock.testing.seaweed import BUCKET, Seaweed, free_port
from tests.brokers.harness import BrokerProcess, Brokers, until
from tests.crash.books import Books
from tests.crash.workload import Workload

BROKERS = 3
_TIMEOUT_S = 90.0  # of clients: longer than anything here takes
_PROGRESS_S = 60.0


class Cluster:
    """So many brokers, each with a line to the store that can be disturbed."""

    def __init__(self, store: Seaweed, place: str, logs: Path, count: int = BROKERS) -> None:
        self.store = store
        self._brokers = Brokers(f"s3://{BUCKET}/{place}", logs, store.environment)
        self._count, self._port = count, free_port()
        self._lines: list[Line] = []
        self.each: list[BrokerProcess] = []
        """Those that are to live."""
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._lines = [stack.enter_context(Line(self.store.port)) for _ in range(self._count)]
            stack.enter_context(self._brokers)
            self.each = [self._start(number) for number in range(self._count)]
            for broker in self.each:
                broker.wait_until_ready()
            self._brokers.wait_until_shared()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self, number: int) -> BrokerProcess:
        """Start one; the first is always reached at the same port, and the others wherever that is."""
        options = [] if number else ["--native-port", str(self._port)]
        return self._brokers.start({"AWS_ENDPOINT_URL": f"http://{self._lines[number].address}"}, *options)

    @property
    def addresses(self) -> str:
        """Where clients reach all of them."""
        return ",".join(broker.address for broker in self.each)

    @property
    def epochs(self) -> list[int]:
        """Of all shards, as the one knows who knows most: each grows when its shard gets an owner."""
        known = [[place.epoch for place in self._brokers.map(broker).shards] for broker in self.each]
        return list(map(max, zip(*known, strict=True)))

    def shards_of(self, number: int) -> list[int]:
        """The shards that one has."""
        broker = self.each[number]
        places = self._brokers.map(broker).shards
        return [shard for shard, place in enumerate(places) if place.process == broker.number]

    def wait_until_shared(self) -> None:
        """Return when each has its share."""
        self._brokers.wait_until_shared()

    # What happens to them.

    def kill(self, number: int) -> None:
        """One ends at once, and another one comes."""
        self.each[number].kill()
        self.each[number] = self._start(number)

    def kill_all(self) -> None:
        """All end at once, and others come."""
        for broker in self.each:
            broker.kill()
        self.each = [self._start(number) for number in range(self._count)]

    def restart(self, number: int) -> list[str]:
        """One is asked to end, and another one comes; what the first said of its shards meanwhile."""
        ended = self.each[number]
        before = len(ended.told("shard"))
        ended.stop()
        self.each[number] = self._start(number)
        self.each[number].wait_until_ready()
        return [line["message"] for line in ended.told("shard")[before:]]

    def pause(self, seconds: float, *numbers: int) -> None:
        """Some do nothing for a while."""
        for number in numbers:
            self.each[number].pause()
        time.sleep(seconds)
        for number in numbers:
            self.each[number].resume()

    def cut_off(self, number: int, seconds: float) -> None:
        """What one and the store say to one another does not arrive; later some of it does, as late as it is."""
        self._lines[number].fall_silent()
        time.sleep(seconds)
        self._lines[number].let_go()

    def lose_answers(self, share: float, seconds: float, chance: random.Random) -> None:
        """For a while the store does what it is asked, and some of whom it answers never hear of it."""
        for line in self._lines:
            line.loses = lambda request: request.startswith(b"PUT ") and chance.random() < share
        time.sleep(seconds)
        for line in self._lines:
            line.loses = lambda _: False

    def refuse(self, seconds: float, *numbers: int) -> None:
        """Some hear at once that they do not reach the store, for a while."""
        for number in numbers:
            self._lines[number].refusing = True
            self._lines[number].cut()
        time.sleep(seconds)
        for number in numbers:
            self._lines[number].refusing = False

    def delay(self, seconds: float) -> None:
        """From now on every request to the store takes longer."""
        for line in self._lines:
            line.delay_s = seconds

    def restart_store(self, seconds: float) -> None:
        """The store ends at once, and is back after a while."""
        self.store.kill()
        time.sleep(seconds)
        self.store.start()


@asynccontextmanager
async def under_load(cluster: Cluster, books: Books, pause_s: float = 0.02) -> AsyncIterator[Workload]:
    """Clients work meanwhile; then nothing is missing, nothing is there twice, and everything is accounted for."""
    async with AsyncClient(cluster.addresses, timeout=_TIMEOUT_S, batch_size=50) as client:
        workload = Workload(client, books, pause_s)
        async with workload.working():
            yield workload
        await workload.check_end()


def progress(books: Books) -> None:
    """Return when more was published and acked."""
    published, acked = len(books.published), len(books.acked)
    until(lambda: books.grew(published, acked), "progress", _PROGRESS_S)


# By hand.


def _disturbances(cluster: Cluster, chance: random.Random) -> dict[str, Callable[[], object]]:
    """What can be asked for; each is done once in a while, to one after the other."""

    def one() -> int:
        return chance.randrange(len(cluster.each))

    return {
        "kill": lambda: cluster.kill(one()),
        "all": cluster.kill_all,
        "pause": lambda: cluster.pause(10, one()),
        "freeze": lambda: cluster.pause(10, *range(BROKERS)),
        "cut": lambda: cluster.cut_off(one(), 20),
        "refuse": lambda: cluster.refuse(10, one()),
        "outage": lambda: cluster.refuse(10, *range(BROKERS)),
        "lose": lambda: cluster.lose_answers(0.2, 5, chance),
        "store": lambda: cluster.restart_store(5),
        "roll": lambda: cluster.restart(one()),
        "none": lambda: None,
    }


async def _run(cluster: Cluster, kinds: list[str], options: argparse.Namespace) -> None:
    chance, books = random.Random(options.seed), Books()
    possible = _disturbances(cluster, chance)
    cluster.delay(options.delay)
    since_s = time.monotonic()
    async with under_load(cluster, books, options.pause) as workload:
        while (now_s := time.monotonic()) < since_s + 60 * options.minutes:
            kind = chance.choice(kinds)
            _say(f"{now_s - since_s:5.0f} s  {kind:6}  {_count(books)}")
            await asyncio.to_thread(possible[kind])
            await workload.check()
            await asyncio.sleep(max(0.0, now_s + options.every - time.monotonic()))
        await asyncio.to_thread(progress, books)
        await workload.check()
    _say(f"done    {_count(books)}, epochs {await asyncio.to_thread(lambda: cluster.epochs)}")


def _count(books: Books) -> str:
    load = os.getloadavg()[0]
    return f"published {len(books.published):,}, acked {len(books.acked):,}, dead {len(books.dead):,}, load {load:.1f}"


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Disturb brokers for some minutes, and say whether the books are exact."""
    parser = argparse.ArgumentParser(prog="python -m tests.brokers.chaos", description=__doc__)
    parser.add_argument("kinds", nargs="+", help="such as kill or cut: see `_disturbances`")
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--every", type=float, default=10, help="seconds from one to the next")
    parser.add_argument("--pause", type=float, default=0.02, help="seconds between messages of a publisher")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds that each request to the store takes longer")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--logs", type=Path, help="where the logs of the brokers go")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, Seaweed(Path(directory)) as store:
        logs = options.logs or Path(directory)
        logs.mkdir(parents=True, exist_ok=True)
        with Cluster(store, "chaos", logs) as cluster:
            asyncio.run(_run(cluster, options.kinds, options))


if __name__ == "__main__":
    main()
