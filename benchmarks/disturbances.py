"""Shards that move and processes that are killed, under steady publishers: what each of them notices."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import penstock
from benchmarks.load import BATCH, batch
from benchmarks.several import topic_in
from benchmarks.steady import Steady, p99_s, steady
from benchmarks.verify import check_count
from penstock.bench.topics import ends_of
from penstock.client.client import AsyncClient
from penstock.model.processes import ClusterInfo

SHARDS, PROCESSES = 8, 4
_TOPICS = [topic_in(shard, SHARDS) for shard in range(SHARDS)]
_GROUP = "behind"
_ACKED_EVERY = 10  # so that the state of the group is not a single number
_IN_FLIGHT_MAX = 1_000_000  # of a consumer
_MOVED = 0
_MOVES = 4  # in a round


@dataclass
class Noticed:
    """What publishers noticed in some rounds."""

    waits_s: list[float] = field(default_factory=list)
    """Of those that publish to a shard that was away: how long."""
    others_s: list[tuple[float, float]] = field(default_factory=list)
    """Of those that publish to other shards: the p99 meanwhile, and that of a calm time just before."""


def fill(directory: Path, unacked: int) -> None:
    """A data directory with a shard in which a group has so many messages still to ack."""
    count = unacked * _ACKED_EVERY // (_ACKED_EVERY - 1)
    topic = _TOPICS[_MOVED]
    with penstock.open(directory, shards=SHARDS) as broker:
        for number in range(count // BATCH):
            broker.publish_many(topic, batch(number))
        with broker.consumer(topic, _GROUP, max_in_flight=min(count, _IN_FLIGHT_MAX)) as consumer:
            while messages := consumer.receive(BATCH):
                consumer.ack([message for message in messages if message.offset % _ACKED_EVERY == 0])


class Disturbances:
    """Moves shards of a server and kills its processes, while publishers of every shard are at work."""

    def __init__(self, client: AsyncClient, publishers: list[Steady], calm_s: float) -> None:
        self._client = client
        self._publishers = publishers
        self._calm_s = calm_s

    async def move(self, noticed: Noticed) -> None:
        """Move the full shard from process to process."""
        calm = await self._calm()
        moves: list[tuple[float, float]] = []
        found = await self._client.cluster()
        for _ in range(_MOVES):
            since_s = perf_counter()
            found = await self._client.move_shard(_MOVED, (found.shards[_MOVED].process + 1) % PROCESSES)
            moves.append((since_s, perf_counter()))
            await self._all_answered(moves[-1][1])
            noticed.waits_s.append(max(self._publishers[_MOVED].during(moves[-1:])))
        others = self._others({_MOVED})
        noticed.others_s.append((p99_s(others, moves), p99_s(others, [calm])))

    async def kill(self, process: int, noticed: Noticed) -> None:
        """Kill a process, and wait until its shards answer again."""
        calm = await self._calm()
        victim = (await self._client.cluster()).processes[process]
        since_s = perf_counter()
        os.kill(victim.pid, signal.SIGKILL)
        until_s = max([await self._publishers[shard].answer_after(since_s) for shard in victim.shards])
        await self._all_answered(until_s)
        noticed.waits_s.append(until_s - since_s)
        others = self._others(victim.shards)
        noticed.others_s.append((p99_s(others, [(since_s, until_s)]), p99_s(others, [calm])))

    async def _calm(self) -> tuple[float, float]:
        """A time in which nothing happens, once all is as it ought to be."""
        while not _is_whole(await self._client.cluster()):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        since_s = perf_counter()
        await asyncio.sleep(self._calm_s)
        return since_s, perf_counter()

    async def _all_answered(self, moment_s: float) -> None:
        """Wait until everything has come that was under way at a moment."""
        for publisher in self._publishers:
            await publisher.answer_after(moment_s)

    def _others(self, shards: Collection[int]) -> list[Steady]:
        return [publisher for shard, publisher in enumerate(self._publishers) if shard not in shards]


async def disturb(address: str, rounds: int, calm_s: float) -> tuple[Noticed, Noticed]:
    """What was noticed of moves, and of kills; checks that nothing is lost, and nothing there twice."""
    moves, kills = Noticed(), Noticed()
    logging.getLogger("penstock.client").setLevel(logging.ERROR)  # connections will be lost
    async with AsyncClient(address) as client:
        before = await ends_of(client, _TOPICS)
        unacked = (await client.group(_TOPICS[_MOVED], _GROUP)).lag
        async with steady(address, _TOPICS) as publishers:
            disturbances = Disturbances(client, publishers, calm_s)
            for number in range(rounds):
                await disturbances.move(moves)
                await disturbances.kill(number % PROCESSES, kills)
        after = await ends_of(client, _TOPICS)
        for publisher in publishers:
            topic = publisher.topic
            check_count(f"messages in {topic}", after[topic] - before.get(topic, 0), len(publisher.trips))
        lag = (await client.group(_TOPICS[_MOVED], _GROUP)).lag
        check_count("messages left to the group", lag, unacked + len(publishers[_MOVED].trips))
    return moves, kills


def _is_whole(found: ClusterInfo) -> bool:
    return all(shard.state == "open" for shard in found.shards)
