"""HTTP: single messages over 64 connections, batches of 1000, what the lane is worth, and what a dashboard costs."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import penstock
from benchmarks import wrk
from benchmarks.bench import Bench
from benchmarks.dashboard import watched_share
from benchmarks.rows import Row, Target, alone, compare
from penstock.bench.own import OwnServer

_SINGLE = {"value": "x" * 100}
_BATCH = {"messages": [_SINGLE] * 1000}
_CONNECTIONS = 64
_BATCH_CONNECTIONS = 8
_BESIDE_THE_LANE = "%62eside"  # an escaped path has the request go the usual way


def run(bench: Bench) -> list[Row]:
    seconds = bench.size(5, 1)
    singles: list[tuple[float, float]] = []
    lanes: list[tuple[float, float]] = []
    batches: list[tuple[float, float]] = []
    for _ in range(bench.size(5, 1)):
        with bench.scratch() as directory, OwnServer(directory / "data", http=True) as server, _bare() as bare:
            singles.append(
                (
                    _publish(server, "singles", "publish", _SINGLE, 1, _CONNECTIONS, seconds),
                    wrk.post(bare, _SINGLE, connections=_CONNECTIONS, seconds=seconds).requests_per_s,
                )
            )
            lanes.append(
                (
                    _publish(server, "singles", "publish", _SINGLE, 1, _CONNECTIONS, seconds),
                    _publish(server, _BESIDE_THE_LANE, "publish", _SINGLE, 1, _CONNECTIONS, seconds),
                )
            )
            batches.append(
                (
                    _publish(server, "batches", "messages", _BATCH, 1000, _BATCH_CONNECTIONS, seconds),
                    1000 * wrk.post(bare, _BATCH, connections=_BATCH_CONNECTIONS, seconds=seconds).requests_per_s,
                )
            )
    topics = bench.size(5000, 50)
    share = [watched_share(bench.place(), topics, bench.size(20, 1)) for _ in range(bench.size(3, 1))]
    beside = "uvicorn that reads the JSON and does nothing"
    return [
        compare(
            f"HTTP, one message a request, {_CONNECTIONS} connections, durable",
            "messages/s",
            singles,
            beside,
            Target("measured", ">=", 8000),
        ),
        compare(
            "HTTP, one message a request, in the express lane",
            "messages/s",
            lanes,
            "the same through ASGI",
            Target("ratio", ">=", 1.2),
        ),
        compare(
            f"HTTP, batches of 1000, {_BATCH_CONNECTIONS} connections, durable",
            "messages/s",
            batches,
            beside,
            Target("measured", ">=", 300_000),
        ),
        alone(
            f"an open dashboard beside {topics:,} topics",
            "of a core",
            share,
            Target("measured", "<", 0.02),
            note="processor time of the server while a dashboard is open, less that of the same time without one",
        ),
    ]


def _publish(
    server: OwnServer, topic: str, action: str, body: object, messages: int, connections: int, seconds: float
) -> float:
    """Messages a second; what was published is what was answered, but for the requests that the end cut off."""
    before = _published(server, topic)
    load = wrk.post(
        f"http://{server.http_address}/v1/topics/{topic}/{action}", body, connections=connections, seconds=seconds
    )
    published = _published(server, topic) - before
    if not load.requests * messages <= published <= (load.requests + connections) * messages:
        raise RuntimeError(f"{load.requests} requests of {messages} were answered, {published} messages are there")
    return load.requests_per_s * messages


def _published(server: OwnServer, topic: str) -> int:
    with penstock.connect(server.address) as client:
        found = [info for info in client.topics() if info.name == unquote(topic)]
    return sum(partition.end_offset for info in found for partition in info.partitions)


@contextlib.contextmanager
def _bare() -> Iterator[str]:
    """The address of a server that does nothing."""
    command = [sys.executable, "-m", "benchmarks.bare_http"]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/"
        finally:
            process.terminate()
