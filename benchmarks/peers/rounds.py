"""Every row on every system, round after round: each figure is verified, and the order is reversed every other round.

All servers of a round run at once and are idle but for the one that is measured, so that the figures of a row are
seconds apart. Between two figures the disk is synced: nobody pays for what another one left to be written.
"""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import sleep
from typing import Any

from benchmarks.disk import bare_commits
from benchmarks.load import value_at
from benchmarks.peers import processor
from benchmarks.peers.catalogue import Row
from benchmarks.peers.plans import Consume, Driver, Publish, Refused, Timed, TooSlow
from benchmarks.peers.raw import Raw
from benchmarks.peers.systems.system import OURS, RAW, Peer, System
from benchmarks.verify import Wrong, check_count
from penstock.bench.histogram import Histogram

_WARM = 0.15
"""How much of a measurement is done before it, as a part of its time."""
_FILL_S = 2.0
_DRAIN_S = 15.0
_PAUSE_S = 0.05
_WHY_MAX = 200
_STEADY = 4
"""A steady rate is kept up for so many times the seconds of another row."""

Measured = tuple[Timed, float, float]
"""What came of it, and the processor time of the server and of the generator."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is done."""

    rounds: int
    seconds: float
    """Of each figure."""
    part: float
    """Of the messages that are there to be consumed."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measurement of one row on one system, in one way."""

    row: str
    system: str
    way: str
    messages: int
    seconds: float
    p50_s: float | None
    p99_s: float | None
    server_s: float
    """Processor time of the server."""
    generator_s: float

    def as_json(self) -> dict[str, Any]:
        """The figure as it is kept."""
        return asdict(self)


class Measuring:
    """The peers of a round, and names for their queues."""

    def __init__(self, effort: Effort) -> None:
        self._effort = effort
        self._names = 0

    def measure(self, row: Row, system: System, peer: Peer, way: str) -> Figure:
        """One figure, verified; raises TooSlow if a steady rate is too much."""
        driver, plan = peer.drivers[way], row.plan
        self._names += 1
        queues = [f"{row.name}-{self._names:03}-{n:04}" for n in range(plan.queues if isinstance(plan, Publish) else 1)]
        peer.make(queues)
        label = f"{row.title}, {system.title}, {way}"
        if isinstance(plan, Publish):
            warmed = driver.publish(plan, queues, self._effort.seconds * _WARM).messages
            timed, server_s, generator_s = _timed(peer, lambda: driver.publish(plan, queues, self._effort.seconds))
            check_count(f"{label}: published", peer.published(queues), warmed + timed.messages)
        elif isinstance(plan, Consume):
            timed, server_s, generator_s = self._consume(label, peer, driver, plan, queues[0])
        else:
            assert isinstance(driver, Raw)
            seconds = _STEADY * self._effort.seconds
            timed, server_s, generator_s = _timed(peer, lambda: driver.steady(plan, queues[0], seconds))
            check_count(f"{label}: left unacked", peer.unacked(queues[0]), 0)
        latency = timed.latency
        return Figure(
            row.name,
            system.name,
            way,
            timed.messages,
            timed.seconds,
            None if latency is None else latency.percentile(50) / 1e9,
            None if latency is None else latency.percentile(99) / 1e9,
            server_s,
            generator_s,
        )

    def _consume(self, label: str, peer: Peer, driver: Driver, plan: Consume, queue: str) -> Measured:
        wanted = max(20, round(plan.count * self._effort.part) // plan.batch) * plan.batch
        filled = peer.fill(queue, plan.batch, wanted, _FILL_S)
        check_count(f"{label}: published", peer.published([queue]), filled)
        seconds = _DRAIN_S if plan.ahead else self._effort.seconds
        few = max(1, filled // plan.batch // 20) * plan.batch
        warmed = driver.consume(plan, queue, few, seconds * _WARM).messages
        found = _timed(peer, lambda: driver.consume(plan, queue, filled - warmed, seconds))
        check_count(f"{label}: left unacked", peer.unacked(queue), filled - warmed - found[0].messages)
        return found


def _timed(peer: Peer, run: Callable[[], Timed]) -> Measured:
    """Run, with the processor time of the server and of this process."""
    _settle_disk()
    gc.collect()
    gc.freeze()
    server_s, generator_s = processor.of_server(peer.pid), processor.of_this_process()
    try:
        timed = run()
    finally:
        gc.unfreeze()
    return timed, processor.of_server(peer.pid) - server_s, processor.of_this_process() - generator_s


def _settle_disk() -> None:
    os.sync()
    sleep(_PAUSE_S)


class Round:
    """The servers of a round, each on an empty directory."""

    def __init__(self, systems: Sequence[System], directory: Path) -> None:
        self._systems = systems
        self._directory = directory

    def __enter__(self) -> dict[str, Peer]:
        with contextlib.ExitStack() as stack:
            peers = {}
            for system in self._systems:
                directory = self._directory / system.name
                directory.mkdir()
                peers[system.name] = stack.enter_context(system.start(directory))
            self._stack = stack.pop_all()
        return peers

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def ways_of(row: Row, system: System, peer: Peer) -> list[str]:
    """How a row is driven: by plain sockets, or by all clients."""
    if not system.takes(row.name):
        return []
    ways = [way for way in peer.drivers if (way == RAW) != row.by_client]
    return [way for way in ways if peer.drivers[way].can(row.plan)]


def bare(directory: Path, effort: Effort) -> Figure:
    """The floor: one message after the other, written and synced, with no server."""
    count = max(50, round(2000 * effort.seconds))
    latency = Histogram()
    data = b"".join(value_at(number) for number in range(count))
    _settle_disk()
    for seconds in bare_commits(directory / "bare", data, count):
        latency.record(round(seconds * 1e9))
    total_s = latency.sum_ns / 1e9
    p50_s, p99_s = latency.percentile(50) / 1e9, latency.percentile(99) / 1e9
    return Figure("alone", "bare", "write + fdatasync", count, total_s, p50_s, p99_s, 0.0, 0.0)


def run(
    systems: Sequence[System],
    rows: Sequence[Row],
    effort: Effort,
    directory: Path,
    versions: dict[str, str],
    left_out: list[str],
) -> Iterator[tuple[int, Row | None, Figure]]:
    """All figures, as they are measured; the versions of the systems are noted, and what a peer failed to do."""
    for number in range(effort.rounds):
        place = directory / f"round-{number}"
        place.mkdir()
        order = systems if number % 2 == 0 else systems[::-1]
        measuring = Measuring(effort)
        with Round(systems, place) as peers:
            versions.update({name: peer.version for name, peer in peers.items()})
            yield number, None, bare(place, effort)
            for row in rows:
                for system in order:
                    peer = peers[system.name]
                    for way in ways_of(row, system, peer):
                        figure = measured(measuring, row, system, peer, way, left_out)
                        if figure is not None:
                            yield number, row, figure


def measured(
    measuring: Measuring, row: Row, system: System, peer: Peer, way: str, left_out: list[str]
) -> Figure | None:
    """A figure; None if a peer could not do it."""
    try:
        return measuring.measure(row, system, peer, way)
    except TooSlow:
        return None
    except (Refused, Wrong) as error:
        if system.group == OURS:
            raise
        why = " ".join(str(error).split())[:_WHY_MAX]
        left_out.append(f"{row.title}, {system.title}, {way}, is left out once: {why}")
        return None
