"""Processes that end, one by one: each is replaced by one that serves, also where it has no shard."""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path

import pytest

from penstock.client import Client
from penstock.model.placement import shard_of
from penstock.model.processes import ClusterInfo
from penstock.protocol.frames import REPLY, Command
from penstock.protocol.session import Call, Read, encode
from tests.cluster.test_processes import cluster, serve, whole
from tests.patience import until
from tests.server.harness import Child, Raw

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


def test_a_process_that_stops_hears_what_its_requests_wait_for(tmp_path: Path) -> None:
    with serve(tmp_path / "data") as child:
        victim = cluster(child).processes[0]
        with Raw(int(victim.address[1:])) as raw:
            child.pause()  # the supervisor, which is asked how the processes stand
            asked = raw.send(Command.CALL, encode(Call("cluster")))
            raw.ask(Command.PING, b"\xc0")
            os.kill(victim.pid, signal.SIGTERM)
            assert raw.receive()[0] == Command.GOODBYE
            child.signal(signal.SIGCONT)
            assert raw.receive()[:2] == (Command.CALL | REPLY, asked)
        until(lambda: "process 0 ended with code 0" in child.log(), "it stops in order")
        assert "said nothing" not in child.log()
        until(lambda: whole(child), "all shards are open")


def test_a_process_that_takes_its_time_to_stop_is_not_taken_for_one_that_hangs(tmp_path: Path) -> None:
    with Child(tmp_path / "data", "--shards", "2", "--processes", "2", shutdown_grace="5s") as child:
        with Client(child.address) as client:
            client.publish_many("t", ["x" * 100_000] * 100)
        found = cluster(child)
        owner = found.processes[found.shards[shard_of("t", 2)].process]
        with Raw(int(owner.address[1:])) as raw:
            for _ in range(100):  # more than the buffers between have room for, and nobody reads it
                raw.send(Command.READ, encode(Read("t", 0)))
            until(lambda: select.select([raw.socket], [], [], 0)[0], "the first reply")
            child.signal(signal.SIGTERM)
            assert child.wait() == 0
        assert "said nothing" not in child.log()
