"""`penstock bench`: every command measures and verifies; what is lost, late or broken is noticed."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.bench import topics as bench_topics
from penstock.bench.bare import Bare
from penstock.bench.figures import Figure, Mismatch, RunFailed
from penstock.bench.histogram import RELATIVE_ERROR, Histogram
from penstock.bench.latency import Schedule, latency
from penstock.bench.own import OwnServer
from penstock.bench.place import Place, Target
from penstock.bench.publishing import Publishing, publish
from penstock.bench.sending import Extent, Requests, Sender, StampedRequests, encode, stamp_of
from penstock.client import AsyncClient, Client
from penstock.model.batch import decode_payload
from penstock.protocol.frames import REPLY, Command, FrameReader, frame
from penstock.protocol.publishing import decode_publish
from tests.cli.harness import PENSTOCK, on_server
from tests.cli.harness import Command as CommandLine
from tests.patience import until

PERCENTS = (50, 90, 99, 99.9, 100)
TINY = {
    "publish": ("--batch", 10, "--window", 2, "--seconds", 0.05),
    "consume": ("--batch", 50, "--count", 500),
    "latency": ("--rate", 2000, "--batch", 5, "--seconds", 0.2),
    "queues": ("--queues", 20, "--batch", 5, "--rounds", 2),
}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """The command line on a server that was there before."""
    with on_server(tmp_path_factory.mktemp("server") / "data") as command:
        yield command


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Place]:
    """Where figures have servers of their own."""
    with Place(None, directory=tmp_path) as place:
        yield place


def measured(command: CommandLine, *arguments: object) -> list[dict[str, Any]]:
    """The figures of a command that must succeed."""
    answer = json.loads(command.ok("bench", *arguments, "-o", "json"))
    assert answer["conditions"]["sync"] == "always"
    assert len(answer["conditions"]["load_after"]) == 3
    figures: list[dict[str, Any]] = answer["figures"]
    for figure in figures:
        taken = figure["latency"]
        assert 0 < taken["p50_s"] <= taken["p90_s"] <= taken["p99_s"] <= taken["p999_s"] <= taken["max_s"]
        assert figure["messages_per_s"] == pytest.approx(figure["messages"] / figure["seconds"])
        assert figure["beside"]["ratio"] > 0
        assert all(f"{figure['messages']:,}" in text for text in figure["verified"])
    return figures


# The commands.


@pytest.mark.parametrize("name", TINY)
def test_each_command_measures_and_verifies(bench: CommandLine, name: str) -> None:
    figures = measured(bench, name, *TINY[name])
    assert len(figures) == (2 if name == "queues" else 1)
    assert [figure["messages"] for figure in figures] == {
        "publish": [figures[0]["latency"]["count"] * 10],
        "consume": [500],
        "latency": [400],
        "queues": [200, 200],
    }[name]
    assert bench.ok("topic", "list") == "there are no topics\n"  # what a run made goes with it


def test_the_table_tells_everything_that_is_needed_to_judge_it(bench: CommandLine) -> None:
    text = bench.ok("bench", "publish", "--batch", 1, "--connections", 1, "--window", 1, "--count", 50)
    rows = {line.split("  ")[0]: line for line in text.splitlines()}
    assert text.startswith("publish, one message a request, one connection, one at a time\n")
    assert {"messages/s", "MB/s", "verified", "sync", "load average", "server", "disk"} <= set(rows)
    assert {"p50", "p90", "p99", "p99.9", "max"} <= set(text.split())
    assert "acknowledged, and there by the end offsets: 50" in rows["verified"]
    assert "always: acknowledged means on disk" in rows["sync"]
    assert re.search(
        r"bare: a loopback round trip .*\n +[\d,]+ messages/s, p50 .* ms\n +\d+\.\d\d × its time \(p50\)", text
    )


def test_all_shows_the_standard_figures(bench: CommandLine) -> None:
    lines = bench.ok("bench", "all", "--quick").splitlines()
    assert [line.split("  ")[0] for line in lines[1:8]] == [
        "publish, batches of 1,000, 8 under way",
        "publish, batches of 100, 32 under way",
        "publish, one message a request, 64 connections",
        "publish, one message a request, one connection, 256 under way",
        "publish, one message at a time, one connection",
        "receive + ack, batches of 1,000",
        "end to end at 50,000/s, batches of 10",
    ]
    assert "× its time (p50): bare" in lines[5]
    assert any(line.startswith("verified: ") for line in lines)


def test_a_topic_that_was_there_keeps_what_was_published(bench: CommandLine) -> None:
    with bench.open() as broker:
        broker.create_topic("orders", partitions=3)
        broker.publish("orders", "before")
    (figure,) = measured(bench, "publish", "--topic", "orders", "--batch", 7, "--count", 50)
    assert figure["messages"] == 56  # whole batches
    with bench.open() as broker:
        (topic,) = broker.topics()
        assert sum(part.end_offset for part in topic.partitions) == 57
        broker.delete_topic("orders")


def test_a_rate_is_kept(bench: CommandLine) -> None:
    (figure,) = measured(bench, "publish", "--batch", 10, "--rate", 1000, "--seconds", 0.5)
    assert figure["messages"] == 500
    assert figure["messages_per_s"] == pytest.approx(1000, rel=0.3)
    assert figure["beside"]["of_times"]


def test_a_server_of_its_own_is_started_and_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = CommandLine({"PENSTOCK_SERVER": "127.0.0.1:1"}, lambda: None)  # where nobody is
    answer = json.loads(
        command.ok("bench", "publish", "--own-server", "--count", 10, "--batch", 1, "--dir", tmp_path, "-o", "json")
    )
    assert answer["conditions"]["own_server"]
    assert answer["conditions"]["directory"] == str(tmp_path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(answer["conditions"]["server"].split(":"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_ended_takes_its_server_with_it(tmp_path: Path, number: int) -> None:
    command = CommandLine({}, lambda: None)
    child = command.start("bench", "latency", "--seconds", 60, "--own-server", "--dir", tmp_path)
    while not list(tmp_path.glob("*/data-1/journal/*")):
        assert child.poll() is None
        time.sleep(0.05)
    child.send_signal(number)
    _, errors = child.communicate(timeout=60)
    assert (child.returncode, errors) == (130, b"")
    assert list(tmp_path.iterdir()) == []
    assert str(tmp_path) not in subprocess.run(["ps", "ax", "-o", "args"], capture_output=True, text=True).stdout


def test_help_teaches_with_examples() -> None:
    command = CommandLine({}, lambda: None)
    for name in ("", *TINY, "all"):
        text = command.ok("bench", *([name] if name else []), "--help")
        assert f"penstock bench {name or 'all'}" in " ".join(text.split()), name


# What is wrong is noticed.


def test_wrong_usage_is_told_before_anything_is_started(bench: CommandLine, tmp_path: Path) -> None:
    refused = bench.refused
    assert "--seconds and --count" in refused("bench", "publish", "--seconds", 1, "--count", 1, code=2)
    assert "--own-server" in refused("bench", "publish", "--own-server", "--server", "a:1", code=2)
    assert "no Penstock server answers" in refused("bench", "publish", "--server", "127.0.0.1:1", code=3)
    (tmp_path / "journal").mkdir()
    assert "holds the data of a broker" in refused("bench", "consume", "--dir", tmp_path, code=2)


@pytest.mark.parametrize("name", TINY)
def test_a_count_that_differs_fails_the_run(bench: CommandLine, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ends_of = bench_topics.ends_of
    calls: list[int] = []

    async def one_less(client: AsyncClient, names: list[str]) -> dict[str, int]:
        calls.append(1)
        ends = await ends_of(client, names)
        return {topic: end - (1 if len(calls) % 2 == 0 else 0) for topic, end in ends.items()}

    monkeypatch.setattr("penstock.bench.topics.ends_of", one_less)
    assert re.search(r"end offsets?: [\d,]+ instead of [\d,]+ \(hint", bench.refused("bench", name, *TINY[name]))
    assert bench.ok("topic", "list") == "there are no topics\n"


def test_a_server_that_drops_what_it_acknowledges_is_found_out(bench: CommandLine) -> None:
    with Dropping(bench.environment["PENSTOCK_SERVER"], every=20) as proxy:
        arguments = ("--server", proxy.address, "--batch", 3, "--count", 300)
        told = bench.refused("bench", "publish", *arguments)
        assert proxy.dropped
        assert re.search(r"end offsets: \d+ instead of 300", told)


def test_a_group_that_acked_less_fails_the_run(bench: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    settle = "penstock.client.remote.RemoteConsumer.finish"
    acks: list[object] = []

    async def forget(self: object, command: Command, messages: object, *more: object, **others: object) -> None:
        acks.append(messages)

    monkeypatch.setattr(settle, forget)
    monkeypatch.setattr("penstock.bench.standard._warm_up", lambda target: asyncio.sleep(0))
    told = bench.refused("bench", "consume", "--batch", 100, "--count", 300)
    assert "left to the group: 300 instead of 0" in told
    assert len(acks) == 3


def test_a_server_that_ends_in_the_middle_fails_the_run(here: Place) -> None:
    async def run(target: Target) -> Figure:
        asyncio.get_running_loop().call_later(0.2, os.kill, own_server(here), signal.SIGKILL)
        return await publish(target, Publishing(batch=10, seconds=60))

    with pytest.raises(RunFailed, match="the server ended with -9"):
        here.measure(run)


def kill_once_published(own: OwnServer) -> None:
    """Kill a server as soon as it has more messages than warming up leaves in a topic."""
    with Client(own.address) as client:
        until(lambda: any(part.end_offset > 300_000 for topic in client.topics() for part in topic.partitions))
    own.process.kill()


def test_a_server_that_goes_away_is_told_in_one_line(bench: CommandLine, tmp_path: Path) -> None:
    with OwnServer(tmp_path / "data") as own:
        ending = threading.Thread(target=kill_once_published, args=(own,))
        ending.start()
        told = bench.refused("bench", "publish", "--seconds", 60, "--server", own.address)
        ending.join()
    assert "was lost before the reply to PUBLISH came" in told


def test_a_server_that_cannot_start_says_why(here: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_BROKER_SYNC", "sometimes")
    with pytest.raises(Exception, match="the server could not start: 1 problems in the configuration"):
        here.measure(lambda target: publish(target, Publishing(count=1)))


def test_messages_that_do_not_come_fail_the_run(here: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.bench.latency.WAIT_S", 0.3)
    monkeypatch.setattr("penstock.bench.latency.Schedule.requests", property(lambda plan: 3))
    publish_less = Sender.run

    async def run(self: Sender, extent: Extent, per_second: float | None = None) -> Any:
        return await publish_less(self, Extent(2), per_second)

    monkeypatch.setattr(Sender, "run", run)
    with pytest.raises(Mismatch, match="20 messages came of 30, and then none"):
        here.measure(lambda target: latency(target, Schedule(rate=1000, batch=10)))


# Latency.


def test_a_stall_counts_for_every_message_that_was_due_in_it(here: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server stands still for a third of the time: nearly nothing is sent meanwhile, and yet the p90 tells it."""
    sent_ns: list[int] = []
    parts = StampedRequests.parts

    def noted(self: StampedRequests, number: int, due_ns: int) -> tuple[bytes, bytes]:
        sent_ns.append(time.perf_counter_ns())
        return parts(self, number, due_ns)

    monkeypatch.setattr(StampedRequests, "parts", noted)
    stalled: list[int] = []

    def stop(number: int) -> None:
        os.kill(own_server(here), number)
        stalled.append(time.perf_counter_ns())

    async def run(target: Target) -> Figure:
        loop = asyncio.get_running_loop()
        loop.call_later(0.4, stop, signal.SIGSTOP)
        loop.call_later(0.9, stop, signal.SIGCONT)
        return await latency(target, Schedule(rate=2000, batch=10, window=4, seconds=1.5))

    figure = here.measure(run)
    assert len([moment for moment in sent_ns if stalled[0] < moment < stalled[1]]) <= 6
    assert figure.messages == 3000
    assert figure.latency.p50_s < 0.25
    assert figure.latency.p90_s > 0.25
    assert figure.latency.max_s >= 0.45


def test_publishing_by_a_schedule_counts_from_when_it_was_due(here: Place) -> None:
    async def run(target: Target) -> Figure:
        loop = asyncio.get_running_loop()
        loop.call_later(0.2, os.kill, own_server(here), signal.SIGSTOP)
        loop.call_later(0.6, os.kill, own_server(here), signal.SIGCONT)
        return await publish(target, Publishing(batch=1, window=2, rate=500, seconds=1))

    figure = here.measure(run)
    assert figure.messages == figure.latency.count == 500
    assert figure.latency.p90_s > 0.2  # of two requests in 500, if it were counted from when they were sent


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=300))
def test_percentiles_are_never_too_small_and_hardly_too_large(durations_ns: list[int]) -> None:
    histogram = Histogram()
    for ns in durations_ns:
        histogram.record(ns)
    ordered = sorted(durations_ns)
    for percent in PERCENTS:
        rank = max(1, -int(-len(ordered) * percent // 100))
        exact = ordered[min(rank, len(ordered)) - 1]
        assert exact <= histogram.percentile(percent) <= exact * (1 + RELATIVE_ERROR)
    assert histogram.percentile(100) == ordered[-1]


@given(st.lists(st.tuples(st.integers(0, 10**10), st.integers(1, 50)), max_size=50))
def test_a_duration_counts_as_often_as_it_is_said_to(recorded: list[tuple[int, int]]) -> None:
    together, one_by_one = Histogram(), Histogram()
    for ns, times in recorded:
        together.record(ns, times)
        for _ in range(times):
            one_by_one.record(ns)
    assert one_by_one.latency() == together.latency()
    assert one_by_one.count == sum(times for _, times in recorded)


# The load and the baseline.


def test_requests_are_what_the_protocol_says() -> None:
    requests = Requests(["a", "b"], batch=3, size=20)
    seen = set()
    for number in range(4):
        body = b"".join((*requests.parts(number, 0), encode("producer"), encode(number)))
        request = decode_publish(body)
        assert (request.topic, request.producer, request.sequence) == ("ab"[number % 2], "producer", number)
        keys, values, headers = decode_payload(request.payload)
        assert (keys, headers, [len(value) for value in values]) == (None, None, [20] * 3)
        seen.update(values)
    assert len(seen) == 12


def test_stamped_requests_carry_when_they_were_due() -> None:
    requests = StampedRequests("a", batch=2, size=8)
    request = decode_publish(b"".join((*requests.parts(7, 123_456_789), encode(None), encode(0))))
    assert [stamp_of(value) for value in decode_payload(request.payload)[1]] == [123_456_789] * 2


def test_the_bare_round_trip_writes_every_request(tmp_path: Path) -> None:
    with Bare(tmp_path) as bare:
        trips = bare.trips(150, 20)
        trips.run(0.05)
        trips.run(0)
        trips.close()
        assert trips.histogram.count > 1
        assert trips.per_second > 0
    (path,) = tmp_path.iterdir()
    assert path.stat().st_size == 4096 + 150 * trips.histogram.count


def test_the_command_is_imported_without_the_load() -> None:
    code = "import sys, penstock.cli.bench; print([name for name in sys.modules if name.startswith('penstock.b')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
    assert Path(PENSTOCK).exists()


def own_server(place: Place) -> int:
    assert place._own is not None
    return place._own.process.pid


class Dropping:
    """Stands between a client and a server, and answers some publishes itself, which the server never sees."""

    def __init__(self, server: str, every: int) -> None:
        host, port = server.split(":")
        self._server = (host, int(port))
        self._every = every
        self._publishes = 0
        self.dropped = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._server)
            lock = threading.Lock()
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=self._forward, args=(source, target, lock), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket, lock: threading.Lock) -> None:
        reader = FrameReader(1 << 30)
        try:
            while count := source.recv_into(reader.room()):
                for command, correlation, body in reader.received(count):
                    with lock:
                        if command == Command.PUBLISH and self._is_dropped():
                            reply = encode((((0, 0, 3),),))
                            source.sendall(frame(Command.PUBLISH | REPLY, correlation, reply))
                        else:
                            target.sendall(frame(command, correlation, bytes(body)))
        except OSError:
            pass
        finally:
            for end in (source, target):
                end.close()

    def _is_dropped(self) -> bool:
        self._publishes += 1
        if self._publishes <= 150 or self._publishes % self._every:  # the first ones are for warming up
            return False
        self.dropped += 1
        return True
