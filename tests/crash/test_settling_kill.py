"""`kill -9` of a broker that settles in a process of its own: the process ends too, and is in nobody's way."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.client import Client
from tests.server.harness import Child, until
from tests.shard.harness import ending, problems, segments, settling, temporary_files
from tests.sharding import ROOT, command, home_of

BROKER = """
import sys, threading
from pathlib import Path
from tests.shard.harness import Settling
from tests.server.harness import pause, until

one = Settling(Path(sys.argv[1]))
one.publish("a", "b")
one.broker.settle()
if sys.argv[2] == "at work":
    pause(one.child.pid)
    one.publish("c", "d")
    threading.Thread(target=one.broker.settle, daemon=True).start()
    until(one.unread)
print(one.child.pid, one.broker.shards.of("t").epoch, flush=True)
sys.stdin.read()
"""


class Killed:
    """A broker in a process of its own, until it is killed."""

    def __init__(self, path: Path, how: str) -> None:
        program = command(BROKER, str(path), how)
        self._broker = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True)
        assert self._broker.stdout is not None
        self.segment_process, self.epoch = map(int, self._broker.stdout.readline().split())

    def kill(self) -> None:
        self._broker.kill()
        with self._broker:
            pass


@contextlib.contextmanager
def going_on(pid: int) -> Iterator[None]:
    """However the test ends, a process that was stopped does not stay."""
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def values(broker: penstock.Broker) -> list[bytes]:
    return [message.value for message in broker.read("t")]


@pytest.mark.crash
def test_R4_the_process_that_settles_ends_when_its_broker_is_killed(tmp_path: Path) -> None:
    broker = Killed(tmp_path, "idle")
    with ending(broker.segment_process):
        broker.kill()
    with penstock.open(tmp_path) as again:
        assert values(again) == [b"a", b"b"]
    assert problems(home_of(tmp_path, "t")) == []


@pytest.mark.crash
@pytest.mark.parametrize("settled", [False, True], ids=["before", "after"])
def test_L1_L2_what_the_process_of_a_killed_broker_still_does_disturbs_nobody_and_leaves_nothing(
    settled: bool, tmp_path: Path
) -> None:
    former = Killed(tmp_path, "at work")
    with going_on(former.segment_process):
        former.kill()
        with settling(tmp_path) as one:
            assert one.broker.shards.of("t").epoch == former.epoch + 1
            until(lambda: not one.broker.shards.of("t").untidy, "the tidying")
            if settled:  # and its journal file is gone
                one.broker.settle()
            with ending(former.segment_process):  # it wakes up when all is tidy
                os.kill(former.segment_process, signal.SIGCONT)
            assert temporary_files(tmp_path) == []
            one.publish("e")
            assert values(one.broker) == [b"a", b"b", b"c", b"d", b"e"]
            one.broker.settle()
            assert one.unsettled() == 0
            assert values(one.broker) == [b"a", b"b", b"c", b"d", b"e"]
            bases = (0, 2, 4) if settled else (0, 2)
            assert [Path(name).name for name in segments(tmp_path)] == [f"{base:020d}.parquet" for base in bases]
    assert problems(home_of(tmp_path, "t")) == []


@pytest.mark.crash
def test_L2_a_late_file_of_a_former_process_is_nobody_s_and_goes_with_the_tidying_after_the_next_crash(
    tmp_path: Path,
) -> None:
    former = Killed(tmp_path, "idle")
    late = home_of(tmp_path, "t") / f"topics/t/messages/0/{2:020d}.parquet.{former.epoch}.tmp"
    with ending(former.segment_process):
        former.kill()
    with settling(tmp_path) as one:
        until(lambda: not one.broker.shards.of("t").untidy, "the tidying")
        late.write_bytes(b"PAR1" + bytes(1000))  # killed in the middle of it
        one.publish("c")
        one.broker.settle()
        assert one.unsettled() == 0
        assert values(one.broker) == [b"a", b"b", b"c"]
    assert late.exists()
    assert problems(home_of(tmp_path, "t")) == []
    with penstock.open(tmp_path) as again:
        assert values(again) == [b"a", b"b", b"c"]
    crashed = Killed(tmp_path, "idle")
    with ending(crashed.segment_process):
        crashed.kill()
    with penstock.open(tmp_path) as again:
        until(lambda: not again.shards.of("t").untidy, "the tidying")
        assert temporary_files(tmp_path) == []
        assert values(again) == [b"a", b"b", b"c", b"a", b"b"]
    assert problems(home_of(tmp_path, "t")) == []


def segment_processes(parent: int) -> list[int]:
    """The processes that settle for this one."""
    found: list[int] = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            status = (process / "stat").read_text().rpartition(")")[2].split()
            command = (process / "cmdline").read_bytes()
            if int(status[1]) == parent and b"penstock.shard.upkeep.segment_process" in command:
                found.append(int(process.name))
    return found


@pytest.mark.crash
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_L1_R4_a_server_settles_in_another_process_which_ends_with_it(number: signal.Signals, tmp_path: Path) -> None:
    config, data = tmp_path / "server.yaml", tmp_path / "data"
    config.write_text("broker:\n  journal_file_bytes: 256KiB\n  segment_min_bytes: 64KiB\n")
    sent: list[bytes] = []
    with Child(data, "--config", str(config)) as child, Client(child.address) as client:
        assert segment_processes(child.pid) == []
        for n in range(4):
            batch = [b"%d.%d." % (n, m) + bytes(1000) for m in range(300)]
            client.publish_many("t", batch)
            sent += batch
        until(lambda: len(segments(data)) >= 1, "settling")
        (pid,) = segment_processes(child.pid)
        assert [message.value for message in client.read("t")] == sent
        with ending(pid):
            child.signal(number)
            child.wait()
        assert "the process that settles is gone" not in child.log()
    with penstock.open(data) as broker:
        assert [message.value for message in broker.read("t")] == sent
    assert problems(home_of(data, "t")) == []
