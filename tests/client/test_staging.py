"""Staged publishing through a server: lost replies, lost servers, kills in the middle; each message is there once."""

from __future__ import annotations

import asyncio
import concurrent.futures
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
import penstock.aio
from penstock.client import Client
from penstock.model.clock import SystemClock
from penstock.model.config import BrokerConfig
from penstock.protocol.frames import Command
from penstock.protocol.publishing import decode_staged, encode_publish, encode_stage
from penstock.shard.recovery import recover
from penstock.storage.read_only import ReadOnlyStorage
from penstock.testing.line import Line
from tests.client.awaited import error_of
from tests.client.faces import FACES, face_of
from tests.server.harness import Child, Raw, Running, run, until
from tests.sharding import home_of


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with Running(tmp_path) as running:
        yield running


@pytest.fixture
def line(server: Running) -> Iterator[Line]:
    with Line(server.port) as between:
        yield between


def stored(face: Any, topic: str = "t") -> list[bytes]:
    return [message.value for message in face.read(topic)]


@pytest.mark.parametrize("kind", FACES)
def test_S5_every_face_publishes_an_epoch_once(kind: str, tmp_path: Path) -> None:
    with face_of(kind, tmp_path) as face:
        for attempt in ("first", "second"):
            for task in ("1", "2"):
                name = f"{attempt}-{task}"
                assert face.stage_many(name, "t", [penstock.Message(task, key="k", priority=9), task]) == 2
                assert face.stage_many(name, "u", (b"%d" % number for number in range(3))) == 3
                assert face.seal_stage(name) == face.seal_stage(name) == 5
            assert face.publish_staged([f"{attempt}-1", f"{attempt}-2"], producer="q", sequence=4) == 10
        assert stored(face) == [b"1", b"1", b"2", b"2"]
        assert [message.priority for message in face.read("t")] == [9, 128, 9, 128]
        assert stored(face, "u") == [b"0", b"1", b"2"] * 2
        face.stage_many("gone", "t", ["x"])
        face.drop_staged(("gone", "never-there"))
        assert face.publish_staged([], producer="q", sequence=3) == 0


def test_every_face_refuses_the_same_with_the_same_words(tmp_path: Path) -> None:
    told: list[list[str]] = []
    for kind in FACES:
        with face_of(kind, tmp_path / kind, broker={"max_value_bytes": 100}) as face:
            face.stage_many("open", "t", ["x"])
            face.stage_many("sealed", "t", ["x"])
            face.seal_stage("sealed")
            acts: list[Callable[[], Any]] = [
                lambda face=face: face.stage_many("a/b", "t", ["x"]),  # type: ignore[misc]
                lambda face=face: face.stage_many("a", "a/b", ["x"]),  # type: ignore[misc]
                lambda face=face: face.stage_many("a", "t", "text"),  # type: ignore[misc]
                lambda face=face: face.stage_many("a", "t", [7]),  # type: ignore[misc]
                lambda face=face: face.stage_many("a", "t", ["x", "y" * 101]),  # type: ignore[misc]
                lambda face=face: face.stage_many("a", "t", ["y" * 101]),  # type: ignore[misc]
                lambda face=face: face.stage_many("a", "t", [penstock.Message("x", partition=3)]),  # type: ignore[misc]
                lambda face=face: face.stage_many("sealed", "t", ["x"]),  # type: ignore[misc]
                lambda face=face: face.seal_stage(""),  # type: ignore[misc]
                lambda face=face: face.publish_staged(["open"], producer="q", sequence=1),  # type: ignore[misc]
                lambda face=face: face.publish_staged(["none"], producer="q", sequence=1),  # type: ignore[misc]
                lambda face=face: face.publish_staged(["sealed"], producer="", sequence=1),  # type: ignore[misc]
                lambda face=face: face.publish_staged(["sealed"], producer="q", sequence=-1),  # type: ignore[misc]
                lambda face=face: face.publish_staged("sealed", producer="q", sequence=1),  # type: ignore[misc]
                lambda face=face: face.drop_staged(["a", "a"]),  # type: ignore[misc]
            ]
            told.append([error_of(act) for act in acts])
            assert face.publish_staged(["sealed"], producer="q", sequence=1) == 1
    assert told[0] == told[1] == told[2]
    assert not [text for text in told[0] if text.startswith("nothing was wrong")]


def test_asyncio_has_the_same_on_a_directory(tmp_path: Path) -> None:
    async def main() -> None:
        async with penstock.aio.open(tmp_path) as broker:
            names = [f"{number}" for number in range(10)]
            await asyncio.gather(*(broker.stage_many(name, "t", [name]) for name in names))
            assert sum(await asyncio.gather(*(broker.seal_stage(name) for name in names))) == 10
            await broker.drop_staged(names[5:])
            assert await broker.publish_staged(names[:5], producer="q", sequence=1) == 5
            assert [message.value async for message in broker.read("t")] == [b"0", b"1", b"2", b"3", b"4"]

    run(main())


def test_a_batch_that_is_larger_than_a_request_is_sent_in_several(tmp_path: Path) -> None:
    limits = {"max_batch_bytes": "1MiB", "max_value_bytes": "1MiB"}
    with Running(tmp_path, broker=limits) as server, Client(server.address) as client:
        values = [f"{number}".ljust(random.Random(number).randrange(1, 40_000)) for number in range(300)]
        assert client.stage_many("a", "t", values) == 300
        assert client.stage_many("a", "t", [penstock.Message("x" * ((1 << 20) - 1), key="k")]) == 1
        assert client.stage_many("a", "t", [b""] * 100_001) == 100_001
        assert client.seal_stage("a") == 100_302
        assert client.publish_staged(["a"], producer="q", sequence=1) == 100_302
        assert [value.decode() for value in stored(client)[:300]] == values
        with pytest.raises(penstock.LimitExceeded, match="max_value_bytes"):
            client.stage_many("b", "t", [*values, "x" * ((1 << 20) + 1)])
        assert client.seal_stage("b") == 0, "nothing of it was sent"


def test_a_STAGE_whose_reply_was_lost_is_repeated_and_is_there_once(server: Running, line: Line) -> None:
    with Client(line.address) as client, concurrent.futures.ThreadPoolExecutor(4) as threads:
        for number in range(5):
            line.hold_back()
            staging = threads.submit(client.stage_many, "a", "t", [f"{number}.{n}" for n in range(3)])
            line.held_back.wait(30)
            line.cut()
            assert staging.result(30) == 3
        line.hold_back()
        sealing = threads.submit(client.seal_stage, "a")
        line.held_back.wait(30)
        line.cut()
        assert sealing.result(30) == 15
        line.hold_back()
        publishing = threads.submit(client.publish_staged, ["a"], producer="q", sequence=1)
        line.held_back.wait(30)
        line.cut()
        assert publishing.result(30) == 15
        assert stored(client) == [b"%d.%d" % (number, n) for number in range(5) for n in range(3)]


def test_a_stage_lost_with_the_server_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    with Child(tmp_path / "data") as server, Client(server.address) as client, Client(server.address) as other:
        client.stage_many("a", "t", ["1"])
        client.stage_many("b", "t", ["1"])
        client.stage_many("dropped", "t", ["1"])
        server.kill()
        server.start()
        other.drop_staged(["dropped"])
        acts: list[Callable[[], object]] = [
            lambda: client.stage_many("a", "t", ["2"]),
            lambda: client.seal_stage("a"),
            lambda: client.seal_stage("b"),
            lambda: client.seal_stage("dropped"),
        ]
        if len(client.cluster().shards) == 1:  # else another shard may have it: sealing all of them tells
            acts.append(lambda: client.stage_many("dropped", "t", ["2"]))
        for act in acts:
            with pytest.raises(penstock.StageNotFound, match="under another name"):
                act()
        client.drop_staged(["a"])
        assert client.stage_many("a", "t", ["1"]) == client.seal_stage("a") == 1


def test_a_stage_of_which_a_request_has_an_unknown_fate_is_given_up(server: Running, line: Line) -> None:
    with Client(line.address, timeout="300ms") as client:
        client.stage_many("a", "t", ["1"])
        line.hold_back()
        with pytest.raises(penstock.RequestTimeout):
            client.stage_many("a", "t", ["2"])
        line.cut()
        with pytest.raises(penstock.StageNotFound, match="it is not known what became of a part of it"):
            client.stage_many("a", "t", ["3"])
        with pytest.raises(penstock.StageNotFound, match="it is not known what became of a part of it"):
            client.seal_stage("a")


def test_a_stage_is_given_up_if_ctrl_c_comes_before_a_reply_was_counted(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: bytes) -> None:
        raise KeyboardInterrupt

    with Client(server.address) as client:
        client.stage_many("s", "t", ["1"])
        with monkeypatch.context() as interrupted, pytest.raises(KeyboardInterrupt):
            interrupted.setattr("penstock.client.sync_staging.decode_staged", interrupt)
            client.stage_many("s", "t", ["2"])
        for use in (lambda: client.stage_many("s", "t", ["3"]), lambda: client.seal_stage("s")):
            assert "the stage 's' is lost" in error_of(use)


def test_a_refused_batch_can_be_staged_again_and_half_a_batch_gives_the_stage_up(tmp_path: Path) -> None:
    with Running(tmp_path, broker={"max_batch_bytes": "1MiB"}) as server, Client(server.address) as client:
        stages, real = server.broker.shard.stages, server.broker.shard.stages.stage_intake
        refused = iter([True, False, False, True])

        def stage_intake(*arguments: Any, **named: Any) -> int:
            if next(refused, False):
                raise penstock.DiskFull("no room")
            return real(*arguments, **named)

        stages.stage_intake = stage_intake  # type: ignore[method-assign]
        with pytest.raises(penstock.DiskFull):
            client.stage_many("a", "t", ["1"])
        assert client.stage_many("a", "t", ["2"]) == 1
        with pytest.raises(penstock.DiskFull):
            client.stage_many("a", "t", ["x" * 700_000] * 2)
        with pytest.raises(penstock.StageNotFound):
            client.seal_stage("a")


def test_writers_of_one_stage_are_told_apart(server: Running) -> None:
    with Client(server.address) as one, Client(server.address) as other:
        for client in (one, other, one, other):
            assert client.stage_many("a", "t", ["x"]) == 1
        assert one.seal_stage("a") == other.seal_stage("a") == 4
    with Raw(server.port) as raw:
        batch = encode_publish("t", ["x", "y"], BrokerConfig())[0]

        def stage(number: int, writer: str = "w") -> int:
            return decode_staged(raw.ask(Command.STAGE, encode_stage("raw", writer, number, batch))).messages

        assert [stage(number) for number in (0, 0, 1, 0, 1, 2)] == [2] * 6
        if len(server.broker.shards) == 1:  # else another shard may have the one between: sealing all of them tells
            with pytest.raises(penstock.StageNotFound):
                stage(4)
        for number, writer in ((-1, "w"), (0, ""), (0, "x" * 65)):
            with pytest.raises(penstock.InvalidArgument):
                stage(number, writer)
        named = encode_publish("t", ["x"], BrokerConfig(), "p", 1)[0]
        with pytest.raises(penstock.InvalidArgument, match="when it is published"):
            raw.ask(Command.STAGE, encode_stage("raw", "w", 3, named))
        assert server.broker.seal_stage("raw") == 6


TASK = """
import sys, penstock
address, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with penstock.connect(address) as client:
    for number in range(0, count, 500):
        client.stage_many(name, "t", [f"{name}.{n}".ljust(200) for n in range(number, number + 500)])
    assert client.seal_stage(name) == count
"""


def published(client: Client) -> int:
    """How many messages readers can see."""
    return sum(part.end_offset for topic in client.topics() for part in topic.partitions)


def until_more_than(messages: int, client: Client) -> None:
    until(lambda: published(client) > messages)


def is_unfinished(path: Path) -> bool:
    """Whether a directory that nobody has open has part of an epoch."""
    state = recover(ReadOnlyStorage(path), BrokerConfig(), SystemClock())
    for file in state.files.values():
        file.handle.close()
    return any(record.next_file is not None for record in state.state.staged.values())


@pytest.mark.crash
def test_S5_a_server_killed_in_the_middle_of_an_epoch_has_it_once(tmp_path: Path) -> None:
    """The server dies while it publishes what tasks have staged, and the driver repeats with other attempts."""
    config = tmp_path / "penstock.yaml"
    config.write_text("broker:\n  max_unwritten_bytes: 128KiB\n  min_free_bytes: 0\n")
    chance = random.Random(3)
    in_the_middle = 0
    with (
        Child(tmp_path / "data", "--config", str(config)) as server,
        Client(server.address, timeout="60s") as client,
        concurrent.futures.ThreadPoolExecutor(1) as threads,
    ):
        expected: Counter[str] = Counter()
        for epoch in range(5):
            names = [f"{epoch}-{attempt}-{task}" for attempt in "ab" for task in "12"]
            tasks = [subprocess.Popen([sys.executable, "-c", TASK, server.address, name, "20000"]) for name in names]
            assert [task.wait(60) for task in tasks] == [0] * 4
            driver = threads.submit(client.publish_staged, names[:2], producer="query", sequence=epoch)
            until_more_than(epoch * 40_000, client)
            time.sleep(chance.choice((0, 0, 0.03)))
            server.kill()
            in_the_middle += is_unfinished(home_of(tmp_path / "data", "t"))
            server.start()
            with Client(server.address, timeout="60s") as again:
                again.publish_staged(names[2:], producer="query", sequence=epoch)
                again.drop_staged(names)
            assert driver.result(60) == 40_000
            found = Counter(message.value.decode().split(".")[0] for message in client.read("t"))
            chosen = names[:2] if names[0] in found else names[2:]
            expected.update(dict.fromkeys(chosen, 20_000))
            assert found == expected, epoch
        assert in_the_middle
        assert until(lambda: not list((home_of(tmp_path / "data", "t") / "staging").iterdir()))
