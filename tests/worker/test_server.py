"""Workers of a server: the same as of a directory, and a server that goes away and comes back ends none."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.server.config import ServerConfig
from penstock.server.server import Server
from penstock.worker import Discard, Release, Worker
from tests.worker.harness import causes, fill, group, run, until

Message = Any


def server_on(path: Path, port: int = 0) -> Server:
    return Server(
        ServerConfig.parse({"data_dir": str(path), "native_port": port, "http_port": "off", "line_port": "off"})
    )


def test_a_server_is_worked_for_as_a_directory_is(tmp_path: Path) -> None:
    fill(tmp_path, count=50, retry_backoff=0, visibility_timeout="1s")
    seen: list[tuple[int, int]] = []
    go = asyncio.Event()

    async def main() -> None:
        async with server_on(tmp_path) as server:
            worker = Worker("{}:{}".format(*server.address))

            @worker.subscribe("t", "g", concurrency=8, retries=2)
            async def handle(message: Message) -> None:
                seen.append((message.offset, message.deliveries))
                if len(seen) == 53:
                    worker.stop()
                match message.offset:
                    case 0:
                        await go.wait()
                    case 1:
                        raise ValueError("no")
                    case 2:
                        raise Discard("never")
                    case 3 if message.deliveries == 1:
                        raise Release

            serving = asyncio.create_task(worker.serve())
            await until(lambda: len(seen) == 52)
            await asyncio.sleep(1.3)  # longer than the lease of the first one lasts
            await worker.broker.publish("t", "the last")
            await until(lambda: len(seen) == 53)
            go.set()
            await serving

    run(main())
    assert sorted(seen) == sorted([*((offset, 1) for offset in range(51)), (1, 2), (3, 2)])
    assert causes(tmp_path) == [(b"2", "never"), (b"1", "ValueError: no")]
    assert (group(tmp_path).acked, group(tmp_path).lag) == (49, 0)


def test_a_server_may_go_away_and_come_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fill(tmp_path, count=20)
    seen: list[tuple[int, int]] = []
    go = asyncio.Event()

    async def main() -> None:
        async with server_on(tmp_path) as server:
            worker = Worker("{}:{}".format(*server.address))

            @worker.subscribe("t", "g", concurrency=3)
            async def handle(message: Message) -> None:
                seen.append((message.offset, message.deliveries))
                await go.wait()

            serving = asyncio.create_task(worker.serve())
            await until(lambda: len(seen) == 3)
        async with server_on(tmp_path, server.address[1]):
            go.set()  # what was in hand is not held any more, and comes again
            await until(lambda: len(seen) == 23)
            worker.stop()
            await serving

    run(main())
    assert {offset for offset, _ in seen} == set(range(20))
    assert caplog.text.count("was not held any more when its handler ended") == 3
    assert (group(tmp_path).acked, group(tmp_path).lag) == (20, 0)


def test_a_server_that_is_not_there_is_an_error_at_the_start() -> None:
    worker = Worker("127.0.0.1:1")
    worker.subscribe("t", "g")(print)
    with pytest.raises(penstock.PenstockError, match=r"127\.0\.0\.1:1"):
        worker.run()
