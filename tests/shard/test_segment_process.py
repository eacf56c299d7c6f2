"""Settling in a process of its own: the same segments, and nothing is lost or held up when the process is."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.embedded.broker import Broker
from penstock.journal.layout import file_name
from penstock.testing import VirtualClock
from tests.server.harness import until
from tests.shard.harness import PATIENCE_S, Settling, problems, segments, settling, temporary_files
from tests.sharding import home_of

COMMAND = [sys.executable, "-m", "penstock.shard.upkeep.segment_process"]


# The same segments.


def live(broker: Broker, clock: VirtualClock) -> None:
    """A bit of everything that a segment may hold."""
    broker.create_topic("wide", partitions=3)
    for n in range(60):
        broker.publish(
            "mixed",
            f"{n}" * 50,
            key=f"k{n % 7}",
            headers={"n": str(n), "ü": "é"},
            priority=n,
            delay=n % 3 or None,
            expires_in=n % 5 + 1000 if n % 5 else None,
            dedupe_id=f"d{n}",
        )
        broker.publish_many("wide", [penstock.Message(f"{n}.{m}", key=f"{m}") for m in range(10)])
        clock.advance(1)
        if n == 30:
            broker.settle()
    broker.publish("alone", "")
    with broker.consumer("mixed", "g", name="worker") as consumer:
        for message in consumer.receive(20):
            message.ack() if message.offset % 3 else message.fail("cannot")
    broker.settle()


def test_L2_L13_the_process_makes_the_same_segments_as_the_broker_does(tmp_path: Path) -> None:
    found: list[Any] = []
    clock = VirtualClock()
    with settling(tmp_path / "there", clock, segment_max_bytes="4KiB") as there:
        live(there.broker, clock)
        found.append(everything(there.broker))
        assert there.child.poll() is None
    clock = VirtualClock()
    with penstock.open(tmp_path / "here", clock=clock, segment_max_bytes="4KiB", min_free_bytes=0) as here:
        live(here, clock)
        found.append(everything(here))
    assert found[0] == found[1]
    assert len(found[0][0]["mixed"]) == 60
    assert len(found[0][1]["mixed"]) > 3
    assert segments(tmp_path / "there") == segments(tmp_path / "here")
    assert len(segments(tmp_path / "there")) > 6
    assert problems(tmp_path / "there") == problems(tmp_path / "here") == []
    with penstock.open(tmp_path / "there", clock=clock) as again:
        assert everything(again) == found[0]


def everything(broker: Broker) -> tuple[dict[str, Any], ...]:
    """Every message, every event, and what is known of every segment."""
    names = [topic.name for topic in broker.topics()]
    logs = [log for topic in broker.shard.catalog.by_id.values() for log in topic.logs()]
    return (
        {name: list(broker.read(name)) for name in names},
        {name: list(broker.events(name)) for name in names},
        {f"{log.topic.name}/{log.table}/{log.partition}": log.segments for log in logs},
    )


def test_there_is_no_process_before_there_is_something_to_settle(tmp_path: Path) -> None:
    with settling(tmp_path) as one:
        one.publish("x")
        assert one.process._process is None
        one.broker.settle()
        assert one.child.pid


def test_modules_in_the_directory_where_a_server_is_started_are_not_those_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "msgspec.py").write_text("raise ImportError('this is not msgspec')")
    monkeypatch.chdir(tmp_path)
    with settling(tmp_path / "data") as one:
        one.publish("x")
        one.broker.settle()
        assert one.child.poll() is None
    assert caplog.text == ""


# The process dies.


def test_L1_a_process_that_was_killed_before_an_order_is_replaced_and_nothing_is_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with settling(tmp_path) as one:
        one.publish("a", "b")
        one.broker.settle()
        killed = one.child
        killed.kill()
        killed.wait()
        one.publish("c", "d")
        one.broker.settle()
        assert "the process that settles is gone" in caplog.text
        assert one.unsettled() == 0
        assert one.values() == ["a", "b", "c", "d"]
        caplog.clear()
        one.publish("e")
        one.broker.settle()
        assert one.child.pid != killed.pid
        assert one.child.poll() is None
        assert one.unsettled() == 0
        assert caplog.text == ""
        assert one.values() == ["a", "b", "c", "d", "e"]
    assert problems(tmp_path) == []
    assert temporary_files(tmp_path) == []


def test_L1_a_process_that_is_killed_in_the_middle_of_an_order_is_replaced_and_nothing_is_lost(tmp_path: Path) -> None:
    with settling(tmp_path) as one, ThreadPoolExecutor(1) as threads:
        one.publish("a", "b")
        one.broker.settle()
        killed = one.child
        with one.paused():
            one.publish("c", "d")
            one.publish("x", topic="other")
            underway = threads.submit(one.broker.settle)
            until(one.unread, "the order")
            half = f"{2:020d}.parquet.{one.broker.shard.epoch}.tmp"
            (tmp_path / "topics/t/messages/0" / half).write_bytes(b"PAR1" + bytes(100_000))  # as far as it had come
            assert one.values() == ["a", "b", "c", "d"]
            assert not underway.done()
            killed.kill()
            underway.result(PATIENCE_S)
        assert one.unsettled() == one.unsettled("other") == 0
        assert one.values() == ["a", "b", "c", "d"]
        one.publish("e")
        one.broker.settle()
        assert one.child.pid != killed.pid
        assert one.unsettled() == 0
    assert problems(tmp_path) == []
    assert temporary_files(tmp_path) == []
    with penstock.open(tmp_path) as again:
        assert [message.value for message in again.read("t")] == [b"a", b"b", b"c", b"d", b"e"]


def test_publishing_and_reading_go_on_while_the_process_is_at_work(tmp_path: Path) -> None:
    with settling(tmp_path) as one, ThreadPoolExecutor(1) as threads:
        one.publish("a")
        one.broker.settle()
        with one.paused():
            one.publish("b")
            underway = threads.submit(one.broker.settle)
            until(one.unread, "the order")
            one.publish("c")
            assert one.values() == ["a", "b", "c"]
            one.broker.delete_topic("t")
            one.publish("new")
        underway.result(PATIENCE_S)
        assert one.values() == ["new"]
        one.broker.settle()
        assert len(segments(tmp_path)) == 1
    assert problems(tmp_path) == []


# What the process cannot do.


def test_L9_a_damaged_block_stays_unsettled_and_is_told_and_nobody_waits_for_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with settling(tmp_path) as one:
        one.publish("the first", topic="healthy")
        one.broker.settle()
        before = one.child
        one.publish("the bad one", topic="rotten")
        sequence, end, _ = one.broker.shard.journal.position()
        with (tmp_path / file_name(sequence)).open("r+b") as journal:
            journal.seek(end - 1)
            (byte,) = journal.read(1)
            journal.seek(end - 1)
            journal.write(bytes([byte ^ 1]))
        one.publish("the second", topic="healthy")
        for _ in range(2):
            caplog.clear()
            one.broker.settle()
            assert f"rotten/0 cannot be settled: journal file {sequence} at byte" in caplog.text
            assert "a block does not match its checksum" in caplog.text
        assert one.child is before
        assert before.poll() is None
        assert (one.unsettled("rotten"), one.unsettled("healthy")) == (1, 0)
        assert one.values("healthy") == ["the first", "the second"]
        with pytest.raises(penstock.CorruptData):
            one.values("rotten")
    assert {Path(name).parts[1] for name in segments(tmp_path)} == {"healthy"}


def test_what_the_disk_refuses_the_process_is_an_error_with_its_number_and_is_tried_again(tmp_path: Path) -> None:
    with settling(tmp_path) as one:
        in_the_way = home_of(tmp_path, "blocked") / "topics/blocked/messages/0"
        one.publish("a", topic="fine")
        one.broker.settle()
        before = one.child
        in_the_way.parent.mkdir(parents=True)
        in_the_way.write_text("this is no directory")
        one.publish("b", topic="blocked")
        one.publish("c", topic="fine")
        for _ in range(2):
            with pytest.raises(OSError, match="Not a directory") as refused:
                one.broker.settle()
            assert refused.value.errno == errno.ENOTDIR
            assert str(in_the_way) in str(refused.value)
        assert one.values("blocked") == ["b"]
        in_the_way.unlink()
        one.broker.settle()
        assert one.child is before
        assert before.poll() is None
        assert one.unsettled("blocked") == one.unsettled("fine") == 0
        assert (one.values("blocked"), one.values("fine")) == (["b"], ["a", "c"])
    assert problems(tmp_path) == []
    assert temporary_files(tmp_path) == []


# How it ends.


def test_the_process_ignores_the_signals_that_are_meant_for_the_broker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with settling(tmp_path) as one:
        one.publish("a")
        one.broker.settle()
        before = one.child
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            before.send_signal(number)
            one.publish("b")
            one.broker.settle()
            assert one.child is before
            assert before.poll() is None, number
        assert one.unsettled() == 0
    assert caplog.text == ""


@pytest.mark.parametrize("said", [b"", b"\0\0", b"\0\0\0\x20half an order"])
def test_the_process_ends_when_its_input_ends(said: bytes, tmp_path: Path) -> None:
    ended = subprocess.run([*COMMAND, "owner"], cwd=tmp_path, input=said, capture_output=True, timeout=PATIENCE_S)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")


def test_R4_the_process_ends_with_the_broker(tmp_path: Path) -> None:
    with settling(tmp_path) as one:
        one.publish("a")
        one.broker.settle()
        child = one.child
        assert child.poll() is None
    assert child.returncode == -signal.SIGKILL
    assert child.stdin is not None
    assert child.stdin.closed


@pytest.mark.one_shard("settling tells that the broker is closed when it comes to the next shard")
def test_R4_a_broker_that_is_closed_in_the_middle_of_settling_leaves_no_process_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one = Settling(tmp_path)
    one.publish("a")
    one.broker.settle()
    child = one.child
    closing, close = threading.Event(), one.process.close

    def close_and_tell() -> None:
        closing.set()
        close()

    monkeypatch.setattr(one.process, "close", close_and_tell)
    with ThreadPoolExecutor(2) as threads:
        with one.paused():
            for topic in ("t", "u", "v"):
                one.publish("b", topic=topic)
            underway = threads.submit(one.broker.settle)
            until(one.unread, "the order")
            closed = threads.submit(one.broker.close)
            assert closing.wait(PATIENCE_S)
        underway.result(PATIENCE_S)
        closed.result(PATIENCE_S)
    assert child.returncode is not None
    assert one.process._process is None
    assert caplog.text == ""
    assert problems(tmp_path) == []
    with penstock.open(tmp_path) as again:
        assert [message.value for topic in ("t", "u", "v") for message in again.read(topic)] == [b"a", *[b"b"] * 3]
