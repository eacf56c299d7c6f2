"""A random process is killed every few seconds, for a while, under clients that do everything and keep the books."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from pathlib import Path

import pytest

from penstock.client import AsyncClient
from tests.crash.books import Books
from tests.crash.workload import SHARDS, Workload, whole
from tests.server.harness import Child, run

KILLS = 8  # half a minute in all; some processes end three times, so that others get their shards


@pytest.mark.crash
def test_L1_Q2_Q7_Q8_T1_T4_C12_C13_C14_a_process_is_killed_every_few_seconds(tmp_path: Path) -> None:
    chance, books, ended = random.Random(41), Books(), Counter[int]()

    async def work() -> None:
        async with AsyncClient(child.address, batch_size=50) as client:
            workload = Workload(client, books, pause_s=0.02)
            async with workload.working():
                for _ in range(KILLS):
                    await asyncio.sleep(chance.uniform(2, 3))  # whatever stands open then
                    victim = chance.choice([one for one in (await whole(client)).processes if one.state == "up"])
                    os.kill(victim.pid, signal.SIGKILL)
                    ended[victim.number] += 1
                    await workload.check()
            await workload.check_end()

    with Child(tmp_path / "data", "--shards", str(SHARDS), "--processes", str(SHARDS)) as child:
        run(work(), 90)
    assert ended.total() == KILLS
    assert books.grew(800, 800)
    assert books.dead
    assert books.dead <= books.redrives_asked
