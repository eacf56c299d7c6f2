"""Brokers on a real bucket are killed, stopped, cut off and restarted under load; the books of clients are exact."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.cluster.members import SILENCE_S
from penstock.testing.seaweed import Seaweed
from tests.brokers.chaos import BROKERS, Cluster, progress, under_load
from tests.crash.books import Books
from tests.crash.workload import Workload
from tests.server.harness import run

pytestmark = pytest.mark.crash
_LONG_S = SILENCE_S + 2.5  # so that others take over, also where all of this shares two cores
_PATIENCE_S = 200


@pytest.fixture
def cluster(store: Seaweed, tmp_path: Path) -> Iterator[Cluster]:
    """Brokers of a place of its own."""
    with Cluster(store, tmp_path.name, tmp_path) as found:
        yield found


def disturb(cluster: Cluster, books: Books, *happenings: Callable[[], object]) -> None:
    """Have these happen one after the other, and work go on after each; in the end all is there that clients know."""

    async def happen(workload: Workload) -> None:
        await asyncio.to_thread(progress, books)
        for happening in happenings:
            await asyncio.to_thread(happening)
            await asyncio.to_thread(progress, books)
            await workload.check()

    async def work() -> None:
        async with under_load(cluster, books) as workload:
            await happen(workload)

    run(work(), _PATIENCE_S)


def test_L1_Q2_Q7_C2_C12_C13_C14_C18_brokers_are_killed_stopped_and_restarted_and_the_books_are_exact(
    cluster: Cluster,
) -> None:
    before = cluster.epochs

    def restart_all() -> None:
        for number in range(BROKERS):
            cluster.wait_until_shared()
            had = cluster.shards_of(number)
            said = cluster.restart(number)
            given = [shard for shard in had if any(line.startswith(f"shard {shard} goes to broker") for line in said)]
            assert given == had, "nobody has to wait for silence"

    books = Books()
    disturb(cluster, books, lambda: cluster.kill(0), lambda: cluster.pause(_LONG_S, 1), restart_all)
    assert books.dead
    assert sum(cluster.epochs) > sum(before), "shards were taken over"


def test_L1_Q2_C2_C3_C8_C12_C13_C14_C16_brokers_and_the_store_hear_little_of_one_another_and_the_books_are_exact(
    cluster: Cluster,
) -> None:
    def be_without_store() -> None:
        cluster.wait_until_shared()
        before = cluster.epochs
        cluster.refuse(SILENCE_S + 1, *range(BROKERS))
        progress(books)
        assert cluster.epochs == before, "C16: an outage moves nothing"

    def cut_one_off() -> None:
        before, cut = cluster.epochs, cluster.shards_of(0)
        cluster.cut_off(0, _LONG_S)
        after = cluster.epochs
        assert all(after[shard] > before[shard] for shard in cut), "others have them, and it writes no more"

    books = Books()
    disturb(cluster, books, be_without_store, cut_one_off, lambda: cluster.lose_answers(0.2, 3, random.Random(7)))
