"""A server killed with SIGKILL while it is published to by HTTP and by lines of text."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import penstock
from tests.server.harness import Child, free_port, until

pytestmark = pytest.mark.crash
ENOUGH = 60


def singles(port: int) -> Iterator[list[str]]:
    """Publishes one message a request; yields what was acknowledged."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    with contextlib.closing(connection):
        for number in range(1_000_000):
            connection.request("POST", "/v1/topics/singles/publish", json.dumps({"value": str(number)}))
            reply = connection.getresponse()
            reply.read()
            assert reply.status == 200
            yield [str(number)]


def batches(port: int) -> Iterator[list[str]]:
    """Publishes ten messages a request."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    with contextlib.closing(connection):
        for number in range(1_000_000):
            values = [f"{number}.{place}" for place in range(10)]
            body = {"messages": [{"value": value} for value in values]}
            connection.request("POST", "/v1/topics/batches/messages", json.dumps(body))
            reply = connection.getresponse()
            reply.read()
            assert reply.status == 200
            yield values


def lines(port: int) -> Iterator[list[str]]:
    """Publishes a line at a time."""
    with socket.create_connection(("127.0.0.1", port), 20) as talk, talk.makefile("rwb") as file:
        for number in range(1_000_000):
            file.write(f"PRODUCE lines 0 {number}\n".encode())
            file.flush()
            if file.readline() != b"OK\n":
                return
            yield [str(number)]


def test_L1_what_any_port_acknowledged_is_there_after_a_kill(tmp_path: Path) -> None:
    http_port, line_port = free_port(), free_port()
    publishers: dict[str, tuple[Callable[[int], Iterator[list[str]]], int]] = {
        "singles": (singles, http_port),
        "batches": (batches, http_port),
        "lines": (lines, line_port),
    }
    acknowledged: dict[str, list[str]] = {topic: [] for topic in publishers}

    def run(topic: str) -> None:
        publish, port = publishers[topic]
        with contextlib.suppress(OSError, http.client.HTTPException):  # the server is gone
            for values in publish(port):
                acknowledged[topic] += values

    with Child(tmp_path / "data", "--http-port", str(http_port), "--line-port", str(line_port)) as server:
        threads = [threading.Thread(target=run, args=(topic,)) for topic in publishers]
        for thread in threads:
            thread.start()
        until(lambda: all(len(values) >= ENOUGH for values in acknowledged.values()), "some were acknowledged", 60)
        server.kill()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
        server.start()
        with penstock.connect(server.address) as client:
            for topic, values in acknowledged.items():
                there = [message.value.decode() for message in client.read(topic)]
                assert there[: len(values)] == values, topic
                assert len(there) - len(values) <= 10  # what was under way may be there, once
                assert len(set(there)) == len(there)
