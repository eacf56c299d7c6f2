"""Several processes beside one: what a message costs, requests that are forwarded, shards that move, and kills."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any, NamedTuple

import uvloop

from benchmarks.bench import SETTLING_OFF, Bench
from benchmarks.disturbances import PROCESSES as DISTURBED_PROCESSES
from benchmarks.disturbances import SHARDS as DISTURBED_SHARDS
from benchmarks.disturbances import disturb, fill
from benchmarks.kept_connections import KeptConnection, at_one_process, post, post_of
from benchmarks.load import BATCH
from benchmarks.processor import cores_apart, on_cores
from benchmarks.rows import Row, Target, alone, compare
from benchmarks.several import Work, consume, publish, server_of, topic_in
from benchmarks.verify import check_count
from penstock.bench.own import OwnServer
from penstock.bench.sending import Extent
from penstock.bench.topics import ends_of
from penstock.client.client import AsyncClient

PROCESSES = SHARDS = 4
_PUBLISHERS = 64
_WORKS = (f"batches of {BATCH}", f"single messages, {_PUBLISHERS} publishers", f"receive + ack, batches of {BATCH}")
_SINGLE = {"value": "x" * 100}
_ONE = "one process, one shard"
_CALM = "just before"
_SHARED = "load and server share all cores"
_Pairs = list[tuple[float, float]]


class _Request(NamedTuple):
    """What is published by HTTP."""

    name: str
    action: str
    body: dict[str, Any]
    messages: int
    connections: int


_REQUESTS = (
    _Request("one message a request, 64 connections", "publish", _SINGLE, 1, _PUBLISHERS),
    _Request(f"batches of {BATCH}, 8 connections", "messages", {"messages": [_SINGLE] * BATCH}, BATCH, 8),
)


def run(bench: Bench) -> list[Row]:
    return [*_costs(bench), *_forwarding(bench), *_disturbed(bench)]


def _costs(bench: Bench) -> list[Row]:
    """Processor time where the server has cores of its own, and messages a second where all share all cores."""
    same: list[_Pairs] = [[] for _ in _WORKS]
    in_proportion: list[_Pairs] = [[] for _ in _WORKS]
    rates: list[_Pairs] = [[] for _ in _WORKS]
    for turn in range(bench.size(5, 1)):
        for pinned in (True, False):
            works = {
                processes: _works(bench, processes, pinned=pinned)
                for processes in ((1, PROCESSES) if turn % 2 else (PROCESSES, 1))
            }
            several, more, one = works[PROCESSES][: len(_WORKS)], works[PROCESSES][len(_WORKS) :], works[1]
            for number, whole in enumerate(one):
                if pinned:
                    same[number].append((several[number].cost_s, whole.cost_s))
                    in_proportion[number].append((more[number].cost_s, whole.cost_s))
                else:
                    rates[number].append((several[number].rate, whole.rate))
    at_most, what = Target("ratio", "<=", 1.25), f"{PROCESSES} processes"
    costs = f"{what}, processor time of a message"
    return [
        *(compare(f"{costs}: {work}", "s", pairs, _ONE, at_most) for work, pairs in zip(_WORKS, same, strict=True)),
        *(
            compare(f"{costs}, {PROCESSES} times the load: {work}", "s", pairs, _ONE, at_most)
            for work, pairs in zip(_WORKS, in_proportion, strict=True)
        ),
        *(
            compare(f"{what}: {work}", "messages/s", pairs, _ONE, note=_SHARED)
            for work, pairs in zip(_WORKS, rates, strict=True)
        ),
    ]


def _works(bench: Bench, processes: int, *, pinned: bool) -> list[Work]:
    """What a server with a shard for each of its processes does of each kind of work; at last with more load."""
    load, others = cores_apart() if pinned else (None, None)
    with bench.scratch() as directory, contextlib.ExitStack() as stack:
        with _on(others):
            server = stack.enter_context(server_of(directory, processes, processes, **SETTLING_OFF))
        with _on(load):
            done = uvloop.run(_work(bench, server, 1))
            return done + uvloop.run(_work(bench, server, processes)) if pinned and processes > 1 else done


async def _work(bench: Bench, server: OwnServer, times: int) -> list[Work]:
    """Each kind of work, with so many times as many publishers and batches under way."""
    topics = [topic_in(shard, SHARDS, f"published-{times}") for shard in range(SHARDS)]
    drained = [topic_in(shard, SHARDS, f"drained-{times}") for shard in range(SHARDS)]
    to_all = partial(publish, server, topics)
    connections = times * _PUBLISHERS // SHARDS
    for batch in (BATCH, 1):  # so that everything is warm
        await to_all(Extent(bench.size(50, 1)), batch=batch, connections=2)
    seconds, batches = Extent(seconds=bench.size(15, 1) / 10), bench.size(125, 2)
    published = await to_all(seconds, batch=BATCH, connections=1, window=2 * times)
    singles = await to_all(seconds, batch=1, connections=connections)
    await publish(server, drained, Extent(batches), batch=BATCH, connections=1, window=2)
    received = await consume(server, drained, batches * BATCH, batch=BATCH, window=2 * times)
    return [published, singles, received]


def _on(cores: set[int] | None) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext() if cores is None else on_cores(cores)


def _forwarding(bench: Bench) -> list[Row]:
    """HTTP requests that come to another process than the one that has their topic."""
    rounds, seconds = bench.size(5, 1), bench.size(15, 1) / 10
    with bench.scratch() as directory, server_of(directory, SHARDS, PROCESSES, http=True, **SETTLING_OFF) as server:
        found = uvloop.run(_forwarded_and_direct(server, rounds, seconds))
    at_least = Target("ratio", ">=", 0.5)
    return [
        compare(f"HTTP, {request.name}, forwarded", "messages/s", pairs, "to the owner of the topic", at_least)
        for request, pairs in zip(_REQUESTS, found, strict=True)
    ]


async def _forwarded_and_direct(server: OwnServer, rounds: int, seconds: float) -> list[_Pairs]:
    found: list[_Pairs] = [[] for _ in _REQUESTS]
    async with AsyncClient(server.address) as client:
        processes = {process.pid: process for process in (await client.cluster()).processes}
        async with at_one_process(server.http_address, processes, _PUBLISHERS) as (pid, connections):
            here = set(processes[pid].shards)
            shards = {"forwarded": min(set(range(SHARDS)) - here), "direct": min(here)}
            for request in _REQUESTS:  # so that everything is warm
                for shard in shards.values():
                    await _post(client, connections[: request.connections], shard, request, 0.1)
            for turn in range(rounds):
                for request, pairs in zip(_REQUESTS, found, strict=True):
                    rates = {
                        way: await _post(client, connections[: request.connections], shards[way], request, seconds)
                        for way in (sorted(shards) if turn % 2 else sorted(shards, reverse=True))
                    }
                    pairs.append((rates["forwarded"], rates["direct"]))
    return found


async def _post(
    client: AsyncClient, connections: list[KeptConnection], shard: int, request: _Request, seconds: float
) -> float:
    """Messages a second to a topic in a shard."""
    topic = topic_in(shard, SHARDS, request.action)
    before = (await ends_of(client, [topic])).get(topic, 0)
    answered, seconds = await post(connections, post_of(f"/v1/topics/{topic}/{request.action}", request.body), seconds)
    after = (await ends_of(client, [topic]))[topic]
    check_count(f"messages in {topic}", after - before, answered * request.messages)
    return answered * request.messages / seconds


def _disturbed(bench: Bench) -> list[Row]:
    """What publishers notice of a shard that moves, and of a process that is killed."""
    unacked = bench.size(1_000_000, 9000)
    with bench.scratch() as directory:
        fill(directory / "data", unacked)
        with server_of(directory, DISTURBED_SHARDS, DISTURBED_PROCESSES) as server:
            moves, kills = uvloop.run(disturb(server.address, bench.size(5, 1), bench.size(10, 2) / 10))
    at_most = Target("ratio", "<=", 2.0)
    move, kill = (
        f"a shard with {unacked:,} unacked messages moves",
        f"kill -9 of one of {DISTURBED_PROCESSES} processes",
    )
    return [
        alone(f"{move}: longest wait of its publisher", "s", [max(moves.waits_s)], Target("measured", "<", 1.0)),
        compare(f"{move}: p99 of publishing to other shards", "s", moves.others_s, _CALM, at_most, note=_SHARED),
        alone(f"{kill}: until its shards answer", "s", kills.waits_s, Target("measured", "<=", 1.5)),
        compare(f"{kill}: p99 of publishing to other shards", "s", kills.others_s, _CALM, at_most, note=_SHARED),
    ]
