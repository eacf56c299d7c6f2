"""Loops over the calls of a client library, for as long as a row lasts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter_ns

from benchmarks.peers.plans import Refused, Timed
from penstock.bench.histogram import Histogram


def call_for(seconds: float, messages: int, publish: Callable[[int], object]) -> Timed:
    """Call with 0, 1, 2, …, each call publishing so many messages and waiting for them."""
    latency, number = Histogram(), 0
    before_ns = start_ns = perf_counter_ns()
    until_ns = start_ns + round(seconds * 1e9)
    while before_ns < until_ns:
        publish(number)
        number += 1
        now_ns = perf_counter_ns()
        latency.record(now_ns - before_ns)
        before_ns = now_ns
    return Timed(number * messages, (before_ns - start_ns) / 1e9, latency)


async def call_from_tasks(
    seconds: float, messages: int, tasks: int, publish: Callable[[int], Awaitable[object]]
) -> Timed:
    """The same from many tasks, each with one call under way."""
    latency, number = Histogram(), 0
    start_ns = perf_counter_ns()
    until_ns = start_ns + round(seconds * 1e9)

    async def work() -> None:
        nonlocal number
        before_ns = perf_counter_ns()
        while before_ns < until_ns:
            mine, number = number, number + 1
            await publish(mine)
            now_ns = perf_counter_ns()
            latency.record(now_ns - before_ns)
            before_ns = now_ns

    await asyncio.gather(*(work() for _ in range(tasks)))
    return Timed(number * messages, (perf_counter_ns() - start_ns) / 1e9, latency)


def take_for(seconds: float, batch: int, count: int, take: Callable[[int], int]) -> Timed:
    """Call with how many messages are wanted, until they have all come; each call receives and acks some."""
    latency, taken = Histogram(), 0
    before_ns = start_ns = perf_counter_ns()
    until_ns = start_ns + round(seconds * 1e9)
    while before_ns < until_ns and taken < count:
        found = take(min(batch, count - taken))
        if not found:
            raise Refused(f"{taken:,} messages came of {count:,}, and then none")
        taken += found
        now_ns = perf_counter_ns()
        latency.record(now_ns - before_ns)
        before_ns = now_ns
    return Timed(taken, (before_ns - start_ns) / 1e9, latency)


async def take_in_turn(seconds: float, batch: int, count: int, take: Callable[[int], Awaitable[int]]) -> Timed:
    """The same, awaited."""
    latency, taken = Histogram(), 0
    before_ns = start_ns = perf_counter_ns()
    until_ns = start_ns + round(seconds * 1e9)
    while before_ns < until_ns and taken < count:
        found = await take(min(batch, count - taken))
        if not found:
            raise Refused(f"{taken:,} messages came of {count:,}, and then none")
        taken += found
        now_ns = perf_counter_ns()
        latency.record(now_ns - before_ns)
        before_ns = now_ns
    return Timed(taken, (before_ns - start_ns) / 1e9, latency)
