"""How many handlers run at once, in which order messages come to them, and how long they may keep them."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.worker import Worker, session
from tests.worker.harness import at_work, fill, group, run, until

Message = Any


class Crowd:
    """Counts who is inside, and lets nobody out before so many have met."""

    def __init__(self, size: int) -> None:
        self.most = 0
        self._inside = 0
        self._lock = threading.Lock()
        self._met = threading.Barrier(size)

    def enter(self) -> None:
        with self._lock:
            self._inside += 1
            self.most = max(self.most, self._inside)

    def meet(self) -> None:
        self._met.wait(30)

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1


def test_threads_run_at_once_and_no_more_than_wanted(tmp_path: Path) -> None:
    fill(tmp_path, count=24)
    worker = Worker(directory=tmp_path)
    crowd = Crowd(4)
    seen: list[bytes] = []

    @worker.subscribe("t", "g", concurrency=4)
    def handle(message: Message) -> None:
        crowd.enter()
        crowd.meet()  # which only four at once can
        seen.append(message.value)
        crowd.leave()
        if len(seen) == 24:
            worker.stop()

    worker.run()
    assert crowd.most == 4
    assert group(tmp_path).acked == 24


def test_tasks_run_at_once_and_no_more_than_wanted(tmp_path: Path) -> None:
    fill(tmp_path, count=50)
    worker = Worker(directory=tmp_path)
    inside: set[bytes] = set()
    full, seen, most = asyncio.Event(), [], 0

    @worker.subscribe("t", "g", concurrency=5)
    async def handle(message: Message) -> None:
        nonlocal most
        inside.add(message.value)
        most = max(most, len(inside))
        if len(inside) == 5:
            full.set()
        await full.wait()
        inside.discard(message.value)
        seen.append(message.value)
        if len(seen) == 50:
            worker.stop()

    worker.run()
    assert most == 5
    assert group(tmp_path).acked == 50


def test_a_slow_subscription_does_not_hold_up_another(tmp_path: Path) -> None:
    fill(tmp_path, "slow", 1)
    fill(tmp_path, "quick", 20)
    worker = Worker(directory=tmp_path)
    go = threading.Event()
    seen: list[bytes] = []

    @worker.subscribe("slow", "g")
    def wait(message: Message) -> None:
        assert go.wait(30)

    @worker.subscribe("quick", "g")
    def handle(message: Message) -> None:
        seen.append(message.value)
        if len(seen) == 20:
            go.set()
            worker.stop()

    worker.run()
    assert group(tmp_path, "slow").acked == 1


@pytest.mark.parametrize("concurrency", [1, 3])
def test_what_is_urgent_does_not_wait_behind_what_was_taken_before(tmp_path: Path, concurrency: int) -> None:
    fill(tmp_path, count=20)
    worker = Worker(directory=tmp_path)
    seen: list[bytes] = []
    go = asyncio.Event()

    @worker.subscribe("t", "g", concurrency=concurrency)
    async def handle(message: Message) -> None:
        seen.append(message.value)
        await go.wait()

    async def main() -> None:
        async with at_work(worker) as broker:
            await until(lambda: len(seen) == concurrency)
            assert (await broker.group("t", "g")).leased == concurrency, "nothing is held that nobody handles"
            await broker.publish("t", "urgent", priority="critical")
            go.set()
            await until(lambda: len(seen) == 21)

    run(main())
    assert seen[concurrency] == b"urgent"


@pytest.mark.parametrize("kind", ["thread", "task"])
def test_a_lease_is_kept_while_a_handler_runs(tmp_path: Path, kind: str) -> None:
    fill(tmp_path, count=3, visibility_timeout="1s")
    worker = Worker(directory=tmp_path)
    seen: list[int] = []
    go = threading.Event()

    def note(message: Message) -> None:
        seen.append(message.deliveries)

    if kind == "thread":

        @worker.subscribe("t", "g", concurrency=3)
        def handle(message: Message) -> None:
            note(message)
            assert go.wait(30)

    else:

        @worker.subscribe("t", "g", concurrency=3)
        async def handle_in_a_task(message: Message) -> None:
            note(message)
            await until(go.is_set)

    async def main() -> None:
        async with at_work(worker) as broker:
            await until(lambda: len(seen) == 3)
            await asyncio.sleep(2)  # twice as long as a lease lasts
            assert (await broker.group("t", "g")).leased == 3
            go.set()

    run(main())
    assert seen == [1, 1, 1]
    assert group(tmp_path).acked == 3
    with penstock.open(tmp_path) as broker:
        assert {line.kind for line in broker.trace("t/0/0").lines} >= {"delivered", "extended", "acked"}


def test_without_extensions_a_lease_runs_out_and_a_late_handler_only_leaves_a_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path, count=1)
    worker = Worker(directory=tmp_path)
    seen: list[int] = []
    go = asyncio.Event()

    @worker.subscribe("t", "g", concurrency=2, visibility_timeout="50ms", auto_extend=False)
    async def handle(message: Message) -> None:
        seen.append(message.deliveries)
        if len(seen) == 1:
            await go.wait()

    async def main() -> None:
        async with at_work(worker):
            await until(lambda: len(seen) == 2)
            go.set()

    run(main())
    assert seen == [1, 2]
    assert group(tmp_path).acked == 1
    assert "t/0/0 was not held any more when its handler ended" in caplog.text


def test_a_lease_that_is_lost_is_not_extended_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fill(tmp_path, count=1)
    worker = Worker(directory=tmp_path)
    seen: list[Message] = []
    go = asyncio.Event()

    @worker.subscribe("t", "g", visibility_timeout="60ms")
    async def handle(message: Message) -> None:
        seen.append(message)
        if len(seen) == 1:
            await message.release()  # as if somebody else had done so
            await go.wait()

    async def main() -> None:
        async with at_work(worker):
            await until(lambda: "is not held any more while its handler runs" in caplog.text)
            go.set()
            await until(lambda: len(seen) == 2)

    run(main())
    assert caplog.text.count("while its handler runs") == 1
    assert group(tmp_path).acked == 1


def test_an_assigned_consumer_is_heard_while_its_handlers_are_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_HEARTBEAT_S", 0.01)
    fill(tmp_path, count=2, partitions=2)
    worker = Worker(directory=tmp_path)
    seen: list[Message] = []
    go = asyncio.Event()

    @worker.subscribe("t", "g", mode="assigned", visibility_timeout="1h")
    async def handle(message: Message) -> None:
        seen.append(message)
        await go.wait()

    async def main() -> None:
        async with at_work(worker):
            await until(lambda: seen)
            consumer, beats = seen[0].lease.owner, 0

            async def heartbeat() -> None:
                nonlocal beats
                beats += 1

            monkeypatch.setattr(consumer, "heartbeat", heartbeat)
            await until(lambda: beats > 2)
            go.set()
            await until(lambda: len(seen) == 2)

    run(main())
    assert group(tmp_path).acked == 2
