"""What clients see when a process ends, hangs or gives a shard away: how soon it is served again, and by whom."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import statistics
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from penstock.client import AsyncClient
from penstock.client.consumer import AsyncClientConsumer
from penstock.client.link import Link
from penstock.model.cluster_map import ClusterMap
from penstock.model.config import BrokerConfig
from penstock.model.errors import ConnectionLost, NotOwner
from penstock.model.processes import ClusterInfo
from penstock.protocol.frames import Command
from penstock.protocol.publishing import encode_publish
from tests.crash.workload import SHARDS, TOPICS, whole
from tests.server.harness import Child, run

pytestmark = pytest.mark.crash
PROMISED_S = 5.0


def serve(path: Path, processes: int) -> Child:
    return Child(path, "--shards", str(SHARDS), "--processes", str(processes))


# How soon.


async def round_trip_s(client: AsyncClient, consumer: AsyncClientConsumer, topic: str) -> float:
    """How long it takes from now until a message is published, and has come and is acked."""
    begun_s = time.monotonic()
    identity = await client.publish(topic, "two coffees")
    came = False
    while not came:
        messages = await consumer.receive(10, wait=30)
        await consumer.ack(messages)
        came = identity in {message.id for message in messages}
    return time.monotonic() - begun_s


async def outages_s(child: Child, number: signal.Signals, processes: list[int]) -> dict[str, list[float]]:
    """How long the shards of processes were not served when these ended, and the others meanwhile."""
    found: dict[str, list[float]] = {"its": [], "others": []}
    async with AsyncClient(child.address) as client, contextlib.AsyncExitStack() as stack:
        consumers = [await stack.enter_async_context(await client.consumer(topic, "g")) for topic in TOPICS]
        for process in processes:
            for consumer, topic in zip(consumers, TOPICS, strict=True):
                await round_trip_s(client, consumer, topic)  # everything is as it should be
            victim = (await whole(client)).processes[process]
            os.kill(victim.pid, number)
            asked = [round_trip_s(client, consumer, topic) for consumer, topic in zip(consumers, TOPICS, strict=True)]
            for shard, seconds in enumerate(await asyncio.gather(*asked)):
                found["its" if shard in victim.shards else "others"].append(seconds)
            while (await whole(client)).processes[process].pid == victim.pid:
                pass
    return found


def check(found: dict[str, list[float]]) -> None:
    for whose, seconds in found.items():
        print(f"{whose}: median {statistics.median(seconds):.2f} s, longest {max(seconds):.2f} s of {len(seconds)}")
    assert max(found["its"]) < PROMISED_S, "C15"


def test_C15_shards_of_a_killed_process_are_served_again_within_5_s(tmp_path: Path) -> None:
    async def work() -> None:
        each = list(range(SHARDS))
        check(await outages_s(child, signal.SIGKILL, [*each, *each, 0]))  # the third time, others get its shards

    with serve(tmp_path / "data", SHARDS) as child:
        run(work(), 90)


def test_C15_shards_of_a_process_that_hangs_are_served_again_within_5_s(tmp_path: Path) -> None:
    async def work() -> None:
        check(await outages_s(child, signal.SIGSTOP, [0, 1]))

    with serve(tmp_path / "data", 2) as child:
        run(work(), 90)


# By whom.


class Watcher:
    """A connection to the own port of one process, which is told when shards move."""

    def __init__(self, address: str) -> None:
        self.link = Link(f"127.0.0.1{address}", None, 10.0)
        self.link.on_map = self._note
        self.map: ClusterMap | None = None

    def _note(self, cluster_map: ClusterMap | None) -> None:
        if cluster_map is not None:
            self.map = cluster_map if self.map is None else self.map.updated(cluster_map)

    async def owns(self, topic: str) -> bool:
        """Whether the process does what is asked of a topic; if not, it names who does."""
        body, _ = encode_publish(topic, [b"two coffees"], BrokerConfig())
        try:
            await self.link.ask(Command.PUBLISH, body)
        except NotOwner as error:
            assert self.map is not None
            assert error.address == self.map.address_of(error.shard), "C19: it names the owner"
            return False
        return True


async def told_by_each(found: ClusterInfo) -> list[ClusterMap]:
    """The map in the welcome of every process, at its own port."""
    maps = []
    for process in found.processes:
        link = Link(f"127.0.0.1{process.address}", None, 10.0)
        await link.open()
        assert link.welcome.map is not None
        maps.append(link.welcome.map)
        await link.close()
    return maps


async def agreed(client: AsyncClient, watchers: list[Watcher]) -> ClusterInfo:
    """How all stands, when every process tells the same, and whoever watches one knows it."""
    until_s = time.monotonic() + 20
    while True:
        with contextlib.suppress(ConnectionLost):
            found = await whole(client)
            maps = [*await told_by_each(found), *(watcher.map for watcher in watchers)]
            places = [[(place.epoch, place.process) for place in one.shards] for one in maps if one is not None]
            if places == [[(shard.epoch, shard.process) for shard in found.shards]] * len(maps):
                assert all(
                    one.addresses == maps[0].addresses for one in maps if one is not None and maps[0] is not None
                )
                return found
        assert time.monotonic() < until_s, "C19: they do not come to agree"


async def check_owners(found: ClusterInfo, watchers: list[Watcher]) -> None:
    """One process does what is asked of a shard, and it is the one that all name."""
    for shard, topic in enumerate(TOPICS):
        owners = [number for number, watcher in enumerate(watchers) if await watcher.owns(topic)]
        assert owners == [found.shards[shard].process], "C19: one owner"


@pytest.mark.parametrize("processes", [2, 4])
def test_C19_all_processes_come_to_tell_one_map_after_kills_and_moves(processes: int, tmp_path: Path) -> None:
    async def work() -> None:
        async with AsyncClient(child.address) as client:
            found = await whole(client)
            watchers = [Watcher(process.address) for process in found.processes]
            for watcher in watchers:
                await watcher.link.open()

            async def after(change: Callable[[], Awaitable[object]]) -> ClusterInfo:
                before = await agreed(client, watchers)
                await change()
                found = await agreed(client, watchers)
                for old, new in zip(before.shards, found.shards, strict=True):
                    assert new.epoch >= old.epoch
                    assert new.epoch > old.epoch or new.process == old.process, "C19: another owner, another epoch"
                await check_owners(found, watchers)
                return found

            async def kill(number: int) -> None:
                victim = (await whole(client)).processes[number].pid
                os.kill(victim, signal.SIGKILL)
                while (await whole(client)).processes[number].pid == victim:
                    pass

            for turn in range(2 * processes):
                await after(partial(kill, turn % processes))
                await after(partial(client.move_shard, turn % SHARDS, (turn + 1) % processes))
            drained = await after(partial(client.drain_process, 0))
            assert drained.processes[0].shards == []
            await after(partial(kill, 1))
            balanced = await after(client.balance_shards)
            assert {len(process.shards) for process in balanced.processes} == {SHARDS // processes}
            for watcher in watchers:
                await watcher.link.close()

    with serve(tmp_path / "data", processes) as child:
        run(work(), 120)
