"""The judge is judged: a server that stalls, grows or fails others is found out."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.abuse import harness
from tests.abuse.harness import STALL_S, Target, Watch
from tests.server.harness import Raw, Running


def spin() -> None:
    """Take the processor for twice as long as a loop may stand still."""
    until_s = time.thread_time() + 2 * STALL_S
    while time.thread_time() < until_s:
        pass


@pytest.mark.parametrize(("work", "stalls"), [(spin, True), (lambda: None, False)], ids=["stalls", "does not"])
def test_a_server_that_works_on_its_loop_for_too_long_is_noticed(
    tmp_path: Path, work: Callable[[], None], stalls: bool
) -> None:
    with Running(tmp_path) as server, Raw(server.port) as raw:
        with Watch(os.getpid(), raw) as watch:
            server.call(work)
        assert (watch.longest_stall_s >= STALL_S) is stalls


def test_a_server_that_takes_more_memory_than_it_may_is_noticed(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "MEMORY_BYTES", 0)  # what is published below is more than nothing
    with pytest.raises(AssertionError, match="of memory"), target.unharmed(), Raw(target.port) as raw:
        for _ in range(8):
            raw.publish("t", *[bytes(1000)] * 5000)


def test_a_server_that_is_gone_is_noticed(target: Target) -> None:
    with Raw(target.port) as raw, pytest.raises(AssertionError, match="does not answer"), Watch(target.pid, raw):
        target.kill()
