"""What handlers do and raise, and what becomes of their messages."""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
import threading
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.worker import Discard, Release, Retry, Worker
from tests.worker.harness import at_work, causes, fill, group, run, until

Message = Any


@pytest.mark.parametrize("concurrency", [1, 7])
def test_plain_functions_are_called_in_threads_and_what_they_did_is_acked(tmp_path: Path, concurrency: int) -> None:
    fill(tmp_path, count=100)
    worker = Worker(directory=tmp_path)
    seen: list[bytes] = []
    threads: set[str] = set()

    @worker.subscribe("t", "g", concurrency=concurrency)
    def handle(message: Message) -> None:
        seen.append(message.value)
        threads.add(threading.current_thread().name)
        if len(seen) == 100:
            worker.stop()

    worker.run()
    assert sorted(map(int, seen)) == list(range(100))
    assert 1 <= len(threads) <= concurrency
    assert all(name.startswith("penstock-g-") for name in threads)
    assert (group(tmp_path).acked, group(tmp_path).lag) == (100, 0)


def test_coroutine_functions_run_on_the_loop_of_the_worker(tmp_path: Path) -> None:
    fill(tmp_path, count=100)
    worker = Worker(directory=tmp_path)
    seen: list[bytes] = []

    @worker.subscribe("t", "g", concurrency=10)
    async def handle(message: Message) -> None:
        assert threading.current_thread() is threading.main_thread()
        await asyncio.sleep(0)
        seen.append(message.value)
        if len(seen) == 100:
            worker.stop()

    worker.run()
    assert sorted(map(int, seen)) == list(range(100))
    assert group(tmp_path).acked == 100


def test_whatever_can_be_called_and_awaited_is_a_handler(tmp_path: Path) -> None:
    fill(tmp_path, "a")
    fill(tmp_path, "b")
    fill(tmp_path, "c")
    worker = Worker(directory=tmp_path)
    seen: dict[str, bool] = {}

    async def note(topic: str, message: Message) -> None:
        seen[topic] = threading.current_thread() is threading.main_thread()
        if len(seen) == 3:
            worker.stop()

    class Callable:
        async def __call__(self, message: Message) -> None:
            await note("b", message)

    worker.subscribe("a", "g")(functools.partial(note, "a"))
    worker.subscribe("b", "g")(Callable())

    @worker.subscribe("c", "g")
    def handle(message: Message) -> Awaitable[None]:
        return note("c", message)  # a coroutine, which must not be forgotten

    worker.run()
    assert seen == {"a": True, "b": True, "c": True}
    assert [group(tmp_path, topic).acked for topic in "abc"] == [1, 1, 1]


def test_one_handler_may_have_several_topics_and_one_topic_several_groups(tmp_path: Path) -> None:
    fill(tmp_path, "a", 3)
    fill(tmp_path, "b", 3)
    worker = Worker(directory=tmp_path)
    seen: list[tuple[str, str]] = []

    def note(name: str, message: Message) -> None:
        seen.append((name, message.topic))
        if len(seen) == 9:
            worker.stop()

    worker.subscribe(["a", "b"], "both")(functools.partial(note, "both"))
    worker.subscribe("a", "one")(functools.partial(note, "one"))
    worker.run()
    assert sorted(seen) == [("both", "a")] * 3 + [("both", "b")] * 3 + [("one", "a")] * 3


def test_a_message_that_fails_so_often_is_dead_lettered_with_the_last_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path, count=3, max_deliveries=100)
    worker = Worker(directory=tmp_path)
    tries: list[int] = []

    @worker.subscribe("t", "g", retries=3, backoff=0)
    def handle(message: Message) -> None:
        if message.value == b"1":
            tries.append(message.deliveries)
            if len(tries) == 3:
                worker.stop()
            raise ValueError(f"try {len(tries)}\nand more that nobody wants in a list")

    worker.run()
    assert tries == [1, 2, 3]
    assert causes(tmp_path) == [(b"1", "ValueError: try 3")]
    assert (group(tmp_path).acked, group(tmp_path).ready) == (1, 1), "it came again at its old place"
    failed = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.exc_info[0] if record.exc_info else None for record in failed] == [ValueError] * 3
    assert "t/0/1 failed: ValueError: try 1" in failed[0].message
    assert "t/0/1 goes to the dead letters: ValueError: try 3" in failed[2].message


def test_without_a_number_of_retries_the_topic_decides(tmp_path: Path) -> None:
    fill(tmp_path, count=1, max_deliveries=2, retry_backoff=0)
    worker = Worker(directory=tmp_path)
    tries: list[int] = []

    @worker.subscribe("t", "g")
    async def handle(message: Message) -> None:
        tries.append(message.deliveries)
        if len(tries) == 2:
            worker.stop()
        raise KeyError("x" * 1000)

    worker.run()
    assert tries == [1, 2]
    ((_, cause),) = causes(tmp_path)
    assert cause.startswith("KeyError: 'xxx")
    assert len(cause) <= 300


def test_what_had_failed_too_often_elsewhere_is_not_tried_again(tmp_path: Path) -> None:
    fill(tmp_path, count=2, max_deliveries=100)
    with penstock.open(tmp_path) as broker, broker.consumer("t", "g") as consumer:
        for _ in range(2):
            consumer.receive(1, wait=5)[0].fail("not here", delay=0)
    worker = Worker(directory=tmp_path)
    seen: list[bytes] = []

    @worker.subscribe("t", "g", retries=2)
    def handle(message: Message) -> None:
        seen.append(message.value)
        worker.stop()

    worker.run()
    assert seen == [b"1"]
    assert causes(tmp_path) == [(b"0", "it had failed 2 times when it came here")]


def test_the_backoff_of_a_subscription_doubles(tmp_path: Path) -> None:
    fill(tmp_path, count=1, max_deliveries=100)
    worker = Worker(directory=tmp_path)
    times: list[float] = []

    @worker.subscribe("t", "g", backoff="50ms")
    async def handle(message: Message) -> None:
        times.append(asyncio.get_running_loop().time())
        if len(times) < 4:
            raise ValueError("again")
        worker.stop()

    worker.run()
    first, second, third = (later - earlier for earlier, later in itertools.pairwise(times))
    assert first >= 0.04
    assert second >= 0.08
    assert third >= 0.16


def test_discard_kills_retry_delays_and_release_forgives(tmp_path: Path) -> None:
    fill(tmp_path, count=4, max_deliveries=3, retry_backoff="1h")
    worker = Worker(directory=tmp_path)
    seen: list[tuple[bytes, int, int]] = []

    @worker.subscribe("t", "g", concurrency=2)
    def handle(message: Message) -> None:
        seen.append((message.value, message.deliveries, message.failures))
        if len(seen) == 7:
            worker.stop()
        if message.value == b"0":
            raise Discard("it is nonsense")
        if message.value == b"1" and message.deliveries == 1:
            raise Retry(delay="10ms")
        if message.value == b"2" and message.deliveries == 1:
            raise Retry(delay=0, reason="busy") from ValueError("no")
        if message.value == b"3" and message.deliveries == 1:
            raise Release

    worker.run()
    assert sorted(seen) == [(b"0", 1, 0), (b"1", 1, 0), (b"1", 2, 1), (b"2", 1, 0), (b"2", 2, 1), *_twice(b"3")]
    assert causes(tmp_path) == [(b"0", "it is nonsense")]
    with penstock.open(tmp_path) as broker:
        causes_of = [[line.cause for line in broker.trace(f"t/0/{n}").lines if line.cause] for n in (1, 2)]
    assert causes_of == [["its handler asked for a retry"], ["busy"]]


def _twice(value: bytes) -> list[tuple[bytes, int, int]]:
    return [(value, 1, 0), (value, 2, 0)]


def test_a_retry_without_a_reason_has_that_of_its_cause_and_counts_as_a_failure(tmp_path: Path) -> None:
    fill(tmp_path, count=1, max_deliveries=100)
    worker = Worker(directory=tmp_path)
    tries: list[int] = []

    @worker.subscribe("t", "g", retries=2)
    async def handle(message: Message) -> None:
        tries.append(message.failures)
        if len(tries) == 2:
            worker.stop()
        raise Retry(delay=0) from ConnectionError("the shop is closed")

    worker.run()
    assert tries == [0, 1]
    assert causes(tmp_path) == [(b"0", "ConnectionError: the shop is closed")]


@pytest.mark.parametrize("error", [StopIteration("early"), SystemExit(3), asyncio.CancelledError()])
def test_no_error_of_a_handler_ends_the_worker(tmp_path: Path, error: BaseException) -> None:
    fill(tmp_path, "threads", 2, max_deliveries=1)
    fill(tmp_path, "tasks", 2, max_deliveries=1)
    worker = Worker(directory=tmp_path)
    seen: list[str] = []

    def note(message: Message) -> None:
        seen.append(message.topic)
        if len(seen) == 4:
            worker.stop()
        if message.value == b"0":
            raise error

    @worker.subscribe("tasks", "g")
    async def handle(message: Message) -> None:
        note(message)

    worker.subscribe("threads", "g")(note)
    worker.run()
    assert sorted(seen) == ["tasks"] * 2 + ["threads"] * 2
    assert len(causes(tmp_path, "tasks")) == len(causes(tmp_path, "threads")) == 1
    assert group(tmp_path, "tasks").acked == group(tmp_path, "threads").acked == 1


def test_a_coroutine_that_takes_too_long_is_cancelled_and_fails(tmp_path: Path) -> None:
    fill(tmp_path, count=2, max_deliveries=1)
    worker = Worker(directory=tmp_path)
    ended: list[str] = []

    @worker.subscribe("t", "g", timeout="50ms")
    async def handle(message: Message) -> None:
        if message.value == b"1":
            worker.stop()
            raise TimeoutError("of something else")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    worker.run()
    assert ended == ["cancelled"]
    assert causes(tmp_path) == [
        (b"0", "the handler took longer than 0.05 s"),
        (b"1", "TimeoutError: of something else"),
    ]


def test_a_thread_that_takes_too_long_fails_its_message_and_keeps_its_place(tmp_path: Path) -> None:
    fill(tmp_path, count=3, max_deliveries=1)
    worker = Worker(directory=tmp_path)
    go = threading.Event()
    seen: list[bytes] = []

    @worker.subscribe("t", "g", timeout="50ms")
    def handle(message: Message) -> None:
        seen.append(message.value)
        if message.value == b"0":
            go.wait()
        if message.value == b"2":
            worker.stop()

    async def main() -> None:
        async with at_work(worker) as broker:
            await until(lambda: seen)
            while not (await broker.group("t", "g")).dead:  # noqa: ASYNC110 - nobody is told
                await asyncio.sleep(0.01)
            assert seen == [b"0"], "nothing is taken for a thread that is busy"
            go.set()
            await until(lambda: len(seen) == 3)

    run(main())
    assert causes(tmp_path) == [(b"0", "the handler took longer than 0.05 s")]
    assert group(tmp_path).acked == 2


def test_a_handler_may_publish_with_the_broker_of_its_worker(tmp_path: Path) -> None:
    fill(tmp_path, count=3)
    worker = Worker(directory=tmp_path)
    seen: list[bytes] = []

    @worker.subscribe("t", "g")
    async def first(message: Message) -> None:
        await worker.broker.publish("next", message.value + b"!")

    @worker.subscribe("next", "g")
    async def second(message: Message) -> None:
        seen.append(message.value)
        if len(seen) == 3:
            worker.stop()

    worker.run()
    assert seen == [b"0!", b"1!", b"2!"]
    with pytest.raises(penstock.BrokerClosed):
        _ = worker.broker
