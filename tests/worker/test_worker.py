"""The life of a worker: its options, its hooks, what it survives and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import penstock.aio
from penstock.aio import AsyncConsumer
from penstock.worker import Worker, running, session
from tests.worker.harness import at_work, fill, group, run, until

Message = Any


def nothing(message: Message) -> None: ...


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"topics": "no/topic"}, "not a topic name"),
        ({"topics": []}, "not a topic or a list"),
        ({"topics": ["a", "a"]}, "list of different topics"),
        ({"group": "no group"}, "not the name of a group"),
        ({"concurrency": 0}, "whole number from 1"),
        ({"retries": 0}, "whole number from 1"),
        ({"backoff": "soon"}, "not a duration"),
        ({"visibility_timeout": 0}, "shorter than 0.001 s"),
        ({"mode": "mine"}, "not one of shared, assigned"),
        ({"start": "now"}, "not a point in time"),
        ({"auto_extend": 1}, "not True or False"),
        ({"timeout": -1}, "not a duration"),
    ],
)
def test_options_are_checked_at_once(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(penstock.InvalidArgument, match=problem):
        Worker().subscribe(**{"topics": "t", "group": "g", **options})(nothing)


def test_a_generator_is_no_handler_for_nothing_of_it_would_run() -> None:
    def generate(message: Message) -> Any:
        yield message

    with pytest.raises(penstock.InvalidArgument, match="is not a handler"):
        Worker().subscribe("t", "g")(generate)


def test_a_worker_needs_one_place_and_something_to_do(tmp_path: Path) -> None:
    with pytest.raises(penstock.InvalidArgument, match="not both"):
        Worker("localhost:9000", directory=tmp_path)
    with pytest.raises(penstock.InvalidArgument, match="nothing to do"):
        Worker(directory=tmp_path).run()


@pytest.mark.parametrize(
    ("given", "environment", "expected"),
    [
        ({}, {}, ("127.0.0.1:9000", None)),
        ({}, {"PENSTOCK_TLS": "1", "PENSTOCK_CA": "ca"}, ("127.0.0.1:9000", None, True, "ca")),
        ({"ca": "mine"}, {"PENSTOCK_TLS": "1", "PENSTOCK_CA": "ca"}, ("127.0.0.1:9000", None, False, "mine")),
        ({}, {"PENSTOCK_SERVER": "queue:1", "PENSTOCK_TOKEN": "t"}, ("queue:1", "t")),
        ({"server": "mine:2", "token": "m"}, {"PENSTOCK_SERVER": "queue:1", "PENSTOCK_TOKEN": "t"}, ("mine:2", "m")),
    ],
)
def test_the_server_is_looked_up_when_it_runs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, Any],
    environment: dict[str, str],
    expected: tuple[object, ...],
) -> None:
    fill(tmp_path)
    asked: list[tuple[object, ...]] = []

    def connect(server: str, *, token: str | None, tls: bool, ca: str | None, **_: Any) -> penstock.aio.AsyncBroker:
        asked.append((server, token, tls, ca) if tls or ca else (server, token))
        return penstock.aio.open(tmp_path)

    monkeypatch.setattr(penstock.aio, "connect", connect, raising=False)
    worker = Worker(**given)
    worker.subscribe("t", "g")(lambda message: worker.stop())
    for name in ("PENSTOCK_SERVER", "PENSTOCK_TOKEN", "PENSTOCK_TLS", "PENSTOCK_CA", "PENSTOCK_CERT", "PENSTOCK_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    worker.run()
    assert asked == [expected]


def test_a_new_group_may_start_late(tmp_path: Path) -> None:
    fill(tmp_path, count=5)
    now = datetime.now(UTC)
    with penstock.open(tmp_path) as broker:
        broker.publish("t", "new")
    worker = Worker(directory=tmp_path)
    seen: list[bytes] = []

    @worker.subscribe("t", "g", start=now)
    def handle(message: Message) -> None:
        seen.append(message.value)
        worker.stop()

    worker.run()
    assert seen == [b"new"]


def test_hooks_run_before_the_first_message_and_after_the_last(tmp_path: Path) -> None:
    fill(tmp_path)
    worker = Worker(directory=tmp_path)
    order: list[str] = []

    @worker.on_start
    def first() -> None:
        order.append("first")

    @worker.on_start
    async def second() -> None:
        await asyncio.sleep(0)
        order.append("second")

    @worker.on_stop
    async def last() -> None:
        await asyncio.sleep(0)
        order.append("last")

    @worker.on_stop
    def broken() -> None:
        order.append("broken")
        raise ValueError("this is logged")

    @worker.subscribe("t", "g")
    async def handle(message: Message) -> None:
        worker.stop()
        await asyncio.sleep(0.01)
        order.append("handled")

    worker.run()
    assert order == ["first", "second", "handled", "broken", "last"]


def test_a_hook_that_fails_at_the_start_ends_the_worker(tmp_path: Path) -> None:
    fill(tmp_path)
    worker = Worker(directory=tmp_path)
    worker.subscribe("t", "g")(nothing)

    @worker.on_start
    def broken() -> None:
        raise ConnectionError("no database")

    @worker.on_stop
    def close() -> None:
        pytest.fail("what was not opened is not closed")

    with pytest.raises(ConnectionError, match="no database"):
        worker.run()
    with penstock.open(tmp_path) as broker:
        assert broker.groups() == []


def test_a_worker_runs_once_at_a_time_and_again_afterwards(tmp_path: Path) -> None:
    fill(tmp_path, count=2)
    worker = Worker(directory=tmp_path)
    seen: list[bytes] = []

    @worker.subscribe("t", "g")
    async def handle(message: Message) -> None:
        if not seen:
            with pytest.raises(penstock.InvalidArgument, match="runs already"):
                await worker.serve()
        seen.append(message.value)
        worker.stop()

    worker.stop()  # it does not run: nothing happens
    worker.run()
    worker.run()
    assert seen == [b"0", b"1"]


def test_it_runs_in_any_thread_and_leaves_signals_alone_there(tmp_path: Path) -> None:
    fill(tmp_path)
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    worker = Worker(directory=tmp_path)

    @worker.subscribe("t", "g")
    def handle(message: Message) -> None:
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
        worker.stop()

    thread = threading.Thread(target=worker.run)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    assert group(tmp_path).acked == 1


def test_signal_handlers_are_put_back(tmp_path: Path) -> None:
    fill(tmp_path)
    worker = Worker(directory=tmp_path)
    worker.subscribe("t", "g")(lambda message: worker.stop())
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    worker.run()
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_stopping_waits_for_handlers_and_takes_nothing_more(tmp_path: Path) -> None:
    fill(tmp_path, count=10)
    worker = Worker(directory=tmp_path)
    seen: list[bytes] = []

    @worker.subscribe("t", "g", concurrency=3)
    async def handle(message: Message) -> None:
        seen.append(message.value)
        worker.stop()
        await asyncio.sleep(0.05)

    worker.run()
    assert sorted(seen) == [b"0", b"1", b"2"]
    info = group(tmp_path)
    assert (info.acked, info.ready, info.lag) == (3, 7, 7)


def test_after_the_grace_tasks_are_cancelled_threads_left_and_all_is_given_back(tmp_path: Path) -> None:
    fill(tmp_path, "tasks")
    fill(tmp_path, "threads")
    worker = Worker(directory=tmp_path)
    go, begun = threading.Event(), threading.Barrier(2)
    cancelled: list[bytes] = []

    @worker.subscribe("tasks", "g")
    async def wait(message: Message) -> None:
        await asyncio.to_thread(begun.wait)
        worker.stop()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(message.value)
            raise

    @worker.subscribe("threads", "g")
    def hang(message: Message) -> None:
        begun.wait()
        go.wait()

    worker.run(grace="50ms")
    go.set()
    assert cancelled == [b"0"]
    for topic in ("tasks", "threads"):
        with penstock.open(tmp_path) as broker:
            assert broker.group(topic, "g").ready == 1
            kinds = [line.kind for line in broker.trace(f"{topic}/0/0").lines]
            assert kinds == ["published", "delivered", "released"]


def test_a_handler_that_will_not_be_cancelled_does_not_keep_its_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_CANCEL_S", 0.05)
    fill(tmp_path)
    worker = Worker(directory=tmp_path)
    go = asyncio.Event()

    @worker.subscribe("t", "g")
    async def handle(message: Message) -> None:
        worker.stop()
        while not go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await go.wait()

    async def main() -> None:
        await worker.serve(grace=0)
        go.set()

    run(main())
    assert group(tmp_path).ready == 1


def test_whoever_cancels_it_stops_it_at_once(tmp_path: Path) -> None:
    fill(tmp_path, count=5)
    worker = Worker(directory=tmp_path)
    begun = asyncio.Event()
    closed: list[str] = []
    worker.on_stop(lambda: closed.append("closed"))

    @worker.subscribe("t", "g", concurrency=2)
    async def handle(message: Message) -> None:
        begun.set()
        await asyncio.Event().wait()

    async def main() -> None:
        serving = asyncio.create_task(worker.serve())
        await begun.wait()
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving

    run(main())
    assert closed == ["closed"]
    info = group(tmp_path)
    assert (info.ready, info.acked) == (5, 0)


def test_a_consumer_that_fails_is_replaced_and_what_it_had_in_hand_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(running, "_PAUSE_S", 0.02)
    fill(tmp_path, "a", 2)
    fill(tmp_path, "b", 1)
    worker = Worker(directory=tmp_path)
    seen: list[tuple[str, bytes, int]] = []
    go = asyncio.Event()

    @worker.subscribe(["a", "b"], "g", concurrency=4)
    async def handle(message: Message) -> None:
        seen.append((message.topic, message.value, message.deliveries))
        if message.topic == "a":
            await go.wait()

    async def main() -> None:
        async with at_work(worker) as broker:
            await until(lambda: len(seen) == 3)
            await broker.delete_topic("b")
            await until(lambda: "TopicNotFound" in caplog.text)
            await broker.publish("a", "new")
            await until(lambda: len(seen) == 4)
            go.set()

    run(main())
    assert "a+b for g: TopicNotFound: " in caplog.text
    assert sorted(seen) == [("a", b"0", 1), ("a", b"1", 1), ("a", b"new", 1), ("b", b"0", 1)]
    assert (group(tmp_path, "a").acked, group(tmp_path, "a").lag) == (3, 0)


def test_an_error_that_lasts_is_tried_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(running, "_PAUSE_S", 0.01)
    fill(tmp_path)
    worker = Worker(directory=tmp_path)
    seen: list[bytes] = []
    others: list[AsyncConsumer] = []

    @worker.on_start
    async def occupy() -> None:
        others.append(await worker.broker.consumer("t", "g"))

    @worker.subscribe("t", "g", mode="assigned")
    async def handle(message: Message) -> None:
        seen.append(message.value)

    async def main() -> None:
        async with at_work(worker):
            await until(lambda: caplog.text.count("GroupInUse") >= 3)
            await others[0].close()
            await until(lambda: seen)

    run(main())
    assert seen == [b"0"]


def test_an_ack_that_the_disk_refuses_is_logged_and_the_worker_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path, count=2)
    worker = Worker(directory=tmp_path)
    seen: list[bytes] = []
    ack = AsyncConsumer.ack

    async def refuse_once(self: AsyncConsumer, messages: Any) -> None:
        monkeypatch.setattr(AsyncConsumer, "ack", ack)
        raise penstock.DiskFull("no room")

    monkeypatch.setattr(AsyncConsumer, "ack", refuse_once)

    @worker.subscribe("t", "g", visibility_timeout="100ms")
    def handle(message: Message) -> None:
        seen.append(message.value)
        if len(seen) == 3:
            worker.stop()

    worker.run()
    assert sorted(seen) == [b"0", b"0", b"1"]
    assert "t/0/0 could not be finished" in caplog.text
    assert group(tmp_path).acked == 2
