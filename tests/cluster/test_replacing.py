"""Processes that end, one by one: each is replaced by one that serves, also where it has no shard."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from penstock.client import Client
from penstock.model.processes import ClusterInfo
from tests.cluster.test_processes import cluster, serve
from tests.patience import until
from tests.server.harness import Child

pytestmark = pytest.mark.crash


def is_up_again(child: Child, before: ClusterInfo, number: int) -> bool:
    process = cluster(child).processes[number]
    return process.pid != before.processes[number].pid and process.state in ("up", "draining")


def test_a_process_without_shards_is_replaced_by_one_that_serves(tmp_path: Path) -> None:
    with serve(tmp_path / "data") as child, Client(child.address) as client:
        before = client.drain_process(0)
        assert before.processes[0].shards == []
        os.kill(before.processes[0].pid, signal.SIGKILL)
        until(lambda: is_up_again(child, before, 0), "it serves again")
        with Client(f"127.0.0.1{before.processes[0].address}") as own:
            own.publish("t", "two coffees")
            assert [message.value for message in own.read("t")] == [b"two coffees"]
