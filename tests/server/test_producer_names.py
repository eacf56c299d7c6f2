"""Who published a message: known on every port, and shown the same on every face."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.server.access.tokens import TokenFile
from tests.server.harness import run
from tests.server.http.harness import HttpRunning

TOPIC = "orders"


@pytest.fixture
def token(tmp_path: Path) -> str:
    return TokenFile(tmp_path).create("shop-token", ["admin"], ["*"], None).secret


@pytest.fixture
def server(tmp_path: Path, token: str) -> Iterator[HttpRunning]:
    with HttpRunning(tmp_path, auth="tokens", line_port=0) as running:
        yield running


def names(client: penstock.Client) -> list[str | None]:
    """Who published the messages of the topic, in order."""
    return [client.trace(message.id).lines[0].producer for message in client.read(TOPIC)]


def say(server: HttpRunning, *lines: str) -> bytes:
    with socket.create_connection(server.server.addresses["line"][:2]) as line:
        line.sendall("".join(f"{text}\r\n" for text in lines).encode())
        line.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: line.recv(4096), b""))


def post(server: HttpRunning, path: str, body: Any, token: str) -> None:
    reply = server.ask("POST", path, body, token=token)
    assert reply.status == 200, reply


def test_TR2_every_port_knows_who_publishes_by_the_token(server: HttpRunning, token: str) -> None:
    assert b"OK" in say(server, f"AUTH {token}", f"PRODUCE {TOPIC} 0 x", "QUIT")
    post(server, f"/v1/topics/{TOPIC}/publish", {"value": "x"}, token)
    post(server, f"/goqueue/v1/topics/{TOPIC}/publish", {"value": "AAEC"}, token)
    post(server, f"/v1/topics/{TOPIC}/messages", {"messages": [{"value": "x"}]}, token)
    post(server, f"/api/v1/queue/{TOPIC}/enqueue", b"x", token)
    with penstock.connect(server.address, token=token) as client:
        client.publish(TOPIC, "x")
        client.publish(TOPIC, "x", key="k", priority=1)
        client.publish_many(TOPIC, ["x", "x"])
        client.publish(TOPIC, "x", dedupe_id="1")
        assert names(client) == ["shop-token"] * 10


def test_TR2_a_producer_goes_before_the_name_of_the_client_and_that_before_the_token(
    server: HttpRunning, token: str
) -> None:
    batch = {"messages": [{"value": "x"}], "producer": "till-7", "sequence": 1}
    post(server, f"/v1/topics/{TOPIC}/messages", batch, token)
    with (
        penstock.connect(server.address, token=token, name="order-service") as client,
        penstock.connect(server.address, token=token) as other,
    ):
        for publisher in (client, other, client):
            publisher.publish(TOPIC, "x")
        client.publish_many(TOPIC, ["x"], producer="till-1", sequence=1)
        client.publish_many(TOPIC, ["x", "x"], producer="till-1", sequence=2)
        client.stage_many("a", TOPIC, ["x"])
        client.seal_stage("a")
        client.publish_staged(["a"], producer="nightly", sequence=1)
        client.publish(TOPIC, "x")
        shown = ["order-service", "shop-token", "order-service", "till-1", "till-1", "till-1", "nightly"]
        assert names(client) == ["till-7", *shown, "order-service"]


def test_TR2_many_clients_in_one_commit_keep_their_names(server: HttpRunning, token: str) -> None:
    async def publish() -> None:
        async with (
            penstock.aio.connect(server.address, token=token, name="one") as one,
            penstock.aio.connect(server.address, token=token, name="two") as two,
        ):
            clients = (("one", one), ("two", two))
            for _ in range(10):
                for report in [await client.publish_soon(TOPIC, name) for name, client in clients]:
                    await report
            for report in [await client.publish_soon(TOPIC, name) for name, client in clients * 9]:
                await report

    run(publish())
    with penstock.connect(server.address, token=token) as client:
        found = [message.value.decode() for message in client.read(TOPIC)]
        assert len(found) == 38 and set(found) == {"one", "two"}
        assert names(client) == found


def test_TR2_the_name_is_the_same_on_every_face_and_after_a_restart(tmp_path: Path) -> None:
    with HttpRunning(tmp_path) as server:
        with penstock.connect(server.address) as nobody:
            nobody.publish(TOPIC, "x")
        with penstock.connect(server.address, name="order-service") as client:
            identity = client.publish(TOPIC, "x")
            client.settle()
    with HttpRunning(tmp_path) as server:
        told = server.get(f"/v1/traces/{identity}")["lines"][0]
        assert (told["kind"], told["producer"]) == ("published", "order-service")
        assert server.get(f"/v1/traces/{TOPIC}/0/0")["lines"][0]["producer"] is None
        assert server.broker.trace(identity).lines[0].producer == "order-service"
        with penstock.connect(server.address) as client:
            assert client.trace(identity).lines[0].producer == "order-service"
        command = [sys.executable, "-m", "penstock.cli.main", "trace", str(identity), "--server", server.address]
        drawn = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert "by order-service" in drawn
        answer = subprocess.run([*command, "-o", "json"], capture_output=True, text=True, check=True).stdout
        assert json.loads(answer)["events"][0]["producer"] == "order-service"


@pytest.mark.parametrize("name", ["", "two words", "x" * 201, "\x1b[31m"])
def test_a_client_has_no_name_that_a_consumer_may_not_have(server: HttpRunning, name: str) -> None:
    with pytest.raises(penstock.InvalidArgument, match="is not the name of a client"):
        penstock.connect(server.address, name=name)
