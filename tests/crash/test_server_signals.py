"""Signals to a server: it stops in order, at once if it must, and takes new defaults without stopping."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.client import Client
from penstock.model.letters import RedriveReport
from penstock.protocol.consuming import Receive
from penstock.protocol.frames import Command
from penstock.protocol.session import decode_goodbye, encode
from tests.server.harness import Child, Raw, until


@pytest.mark.crash
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_asked_to_stop_answers_gives_back_and_says_goodbye(
    number: signal.Signals, tmp_path: Path
) -> None:
    config = tmp_path / "server.yaml"
    config.write_text("server:\n  shutdown_grace: 10m\n")  # longer than anybody waits here
    with Child(tmp_path / "data", "--config", str(config)) as child, contextlib.ExitStack() as stack:
        client = stack.enter_context(Client(child.address))
        client.publish_many("t", [f"{n}" for n in range(5)])
        consumer = client.consumer("t", "g", visibility_timeout=600)
        held = consumer.receive(3)
        consumer.ack(held[:1])
        raw = stack.enter_context(Raw(child.port))
        raw.send(Command.RECEIVE, encode(Receive(raw.subscribe("empty"), 1, 600.0)))
        stopping = threading.Event()
        published: list[penstock.MessageId] = []

        def publish() -> None:
            while not stopping.is_set():
                published.append(client.publish("busy", "x"))

        def flood() -> None:
            under_way: deque[concurrent.futures.Future[penstock.MessageId]] = deque()
            while not stopping.is_set() or under_way:
                if not stopping.is_set():
                    under_way.append(client.publish_soon("busy", "x"))
                if len(under_way) > 5000 or stopping.is_set():
                    published.append(under_way.popleft().result())

        threads = stack.enter_context(concurrent.futures.ThreadPoolExecutor(4))
        publishing = [threads.submit(act) for act in (publish, publish, flood, flood)]
        until(lambda: len(published) > 2000)
        child.signal(number)
        command, _, body = raw.receive()
        assert (command, decode_goodbye(body).reason) == (Command.GOODBYE, "the server is stopping")
        assert child.wait() == 0, "those who go on asking do not keep it"
        assert '"message":"stopped"' in child.log()
        child.start()
        seen = len(published)
        until(lambda: len(published) > seen + 2000)
        stopping.set()
        for future in publishing:
            future.result(30)
        assert len(list(client.read("busy"))) == len(published) == len(set(published))
        assert client.status().recovery.torn_bytes == 0
        with pytest.raises(penstock.LeaseLost):
            consumer.ack(held[1:])
        again: list[Any] = []
        while len(again) < 4:
            again += consumer.receive(10, wait=10)
        assert [(message.offset, message.failures) for message in again] == [(1, 0), (2, 0), (3, 0), (4, 0)]
        lines = client.trace(held[1].id).lines
        assert [line.kind for line in lines][:3] == ["published", "delivered", "released"]


@pytest.mark.crash
def test_a_server_that_is_asked_to_stop_does_not_wait_for_what_takes_hours(tmp_path: Path) -> None:
    config = tmp_path / "server.yaml"
    config.write_text("server:\n  shutdown_grace: 300ms\n")
    with (
        concurrent.futures.ThreadPoolExecutor(1) as threads,
        Child(tmp_path / "data", "--config", str(config)) as child,
        Client(child.address) as client,
    ):
        client.publish_many("t", ["a", "b", "c"])
        with client.consumer("t", "g") as consumer:
            consumer.kill(consumer.receive(3), "for now")
        work = partial(client._client.call, "redrive", RedriveReport, topic="t", rate=0.001)
        redriving = threads.submit(lambda: client._loop.wait(work()))
        until(lambda: client.group("t", "g").dead == 2)
        child.signal(signal.SIGTERM)
        code = child.wait()
        assert isinstance(redriving.exception(30), penstock.PenstockError)
        assert code == 0
    with penstock.open(tmp_path / "data") as broker:
        assert len(broker.dead_letters("t")) == 2


@pytest.mark.crash
def test_somebody_who_does_not_want_to_wait_signals_again(tmp_path: Path) -> None:
    with Child(tmp_path / "data") as child, Raw(child.port) as raw:
        raw.socket.settimeout(0.3)
        with contextlib.suppress(TimeoutError):
            while True:  # replies that nobody reads keep it from stopping
                raw.send(Command.PING, bytes(500_000))
        child.signal(signal.SIGTERM)
        until(lambda: '"message":"stopping"' in child.log())
        while child.is_running:
            time.sleep(0.1)
            child.signal(signal.SIGTERM)
        assert child.wait() == 128 + signal.SIGTERM


@pytest.mark.crash
def test_SIGHUP_has_the_topic_defaults_read_again_and_a_broken_file_changes_nothing(tmp_path: Path) -> None:
    config = tmp_path / "server.yaml"
    config.write_text("topic_defaults:\n  partitions: 2\n  max_deliveries: 5\n")

    def messages(child: Child) -> list[str]:
        return [json.loads(line)["message"] for line in child.log().splitlines()]

    with Child(tmp_path / "data", "--config", str(config)) as child, Client(child.address) as client:
        client.publish("first", "x")
        config.write_text("topic_defaults:\n  partitions: 3\n  visibility_timeout: 7s\n")
        child.signal(signal.SIGHUP)
        until(lambda: any("topic defaults were read again" in line for line in messages(child)))
        assert any("partitions: 2 -> 3" in line for line in messages(child))
        client.publish("second", "x")
        wrong = [
            b"topic_defaults: [",
            b"topic_defaults:\n  partitionss: 4\n",
            b"\x00\xff",
            b"server:\n  native_port: x\n",
        ]
        for number, broken in enumerate([*wrong, None], 1):
            if broken is None:
                config.unlink()
            else:
                config.write_bytes(broken)
            child.signal(signal.SIGHUP)
            until(lambda n=number: sum("was not taken" in line for line in messages(child)) == n)  # type: ignore[misc]
        client.publish("third", "x")
        config.write_text("topic_defaults:\n  partitions: 3\n  visibility_timeout: 7s\n")
        child.signal(signal.SIGHUP)
        until(lambda: any("nothing changed" in line for line in messages(child)))
        found = {topic.name: topic.config for topic in client.topics()}
        assert (found["first"].partitions, found["first"].max_deliveries) == (2, 5)
        for name in ("second", "third"):
            assert (found[name].partitions, found[name].visibility_timeout, found[name].max_deliveries) == (3, 7.0, 3)
        assert client.ping() < 10


@pytest.mark.crash
def test_a_port_or_directory_that_is_taken_is_an_error_at_once(tmp_path: Path) -> None:
    with Child(tmp_path / "data") as child:
        tried = [
            subprocess.Popen(
                [*(sys.executable, "-m", "penstock.cli.main", "serve", str(path)), "--native-port", str(port)],
                stderr=subprocess.PIPE,
                text=True,
            )
            for path, port in ((tmp_path / "other", child.port), (tmp_path / "data", 0))
        ]
        for process in tried:
            _, told = process.communicate(timeout=30)
            assert process.returncode == 3, told
            assert "Traceback" not in told
        with Client(child.address) as client:
            assert client.ping() < 10
