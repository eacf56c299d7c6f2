"""Processes of a server are killed, stopped and drained under clients that do everything, and keep the books."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from penstock.client import AsyncClient
from tests.crash.books import Books
from tests.crash.workload import SHARDS, Workload, whole
from tests.server.harness import Child, run, soon

pytestmark = pytest.mark.crash
PROCESSES = 2
Disturb = Callable[[Workload], Awaitable[None]]


def serve(path: Path) -> Child:
    return Child(path, "--shards", str(SHARDS), "--processes", str(PROCESSES))


async def under(child: Child, books: Books, disturb: Disturb) -> None:
    """Work in every shard while something happens; then everything is accounted for."""
    async with AsyncClient(child.address, batch_size=50) as client:
        workload = Workload(client, books)
        async with workload.working():
            await disturb(workload)
        await workload.check_end()
    assert books.dead, "some died"
    assert books.dead <= books.redrives_asked
    assert set(books.cancelled.values()) >= {True}


async def progress(books: Books) -> None:
    await soon(partial(books.grew, len(books.published), len(books.acked)), "progress")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_L1_Q2_Q7_Q8_T1_T4_C12_C13_C14_processes_end_and_the_books_are_exact(
    number: signal.Signals, tmp_path: Path
) -> None:
    books = Books()

    async def end_some(workload: Workload) -> None:
        for turn in range(4):
            await progress(books)
            before = (await whole(workload.client)).processes[turn % PROCESSES]
            os.kill(before.pid, number)
            while (await whole(workload.client)).processes[turn % PROCESSES].pid == before.pid:
                pass
            await workload.check()

    with serve(tmp_path / "data") as child:
        run(under(child, books, end_some), 120)
    assert len(books.published) > 500


def test_L1_Q2_Q7_Q8_T1_T4_C10_C12_C13_C14_shards_move_and_the_books_are_exact(tmp_path: Path) -> None:
    chance, books = random.Random(9), Books()

    async def move_some(workload: Workload) -> None:
        client = workload.client
        for _ in range(8):
            shard = chance.randrange(SHARDS)
            await client.move_shard(shard, 1 - (await whole(client)).shards[shard].process)
            await workload.check()
        await client.drain_process(0)
        await workload.check()
        await client.balance_shards()
        await workload.check()

    with serve(tmp_path / "data") as child:
        run(under(child, books, move_some), 120)
    assert len(books.published) > 200


def test_C15_a_process_that_was_stopped_is_killed_and_everything_goes_on(tmp_path: Path) -> None:
    books = Books()

    async def stop_one(workload: Workload) -> None:
        await progress(books)
        victim = (await whole(workload.client)).processes[0]
        os.kill(victim.pid, signal.SIGSTOP)
        await soon(lambda: "said nothing" in child.log(), "it was noticed")
        await progress(books)
        await workload.check()

    with serve(tmp_path / "data") as child:
        run(under(child, books, stop_one), 120)
