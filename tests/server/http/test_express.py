"""The express lane of small plain publishes: nobody can tell that a request went through it, but by its speed."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.server.http import express
from tests.server.harness import until
from tests.server.http.harness import HttpRunning


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpRunning]:
    with HttpRunning(tmp_path_factory.mktemp("data")) as running:
        yield running


def publish(topic: str, body: bytes, *headers: str, version: str = "1.1", path: str = "/v1") -> bytes:
    head = [f"POST {path}/topics/{topic}/publish HTTP/{version}", "Host: localhost", f"Content-Length: {len(body)}"]
    return "\r\n".join([*head, *headers, "", ""]).encode() + body


def said(value: str) -> bytes:
    return json.dumps({"value": value}).encode()


def answers(server: HttpRunning, sent: bytes, count: int) -> list[tuple[int, Any]]:
    """The statuses and bodies of so many replies to what is sent at once."""
    found: list[tuple[int, Any]] = []
    with socket.create_connection(("127.0.0.1", server.http_port), 20) as raw:
        raw.sendall(sent)
        reader = raw.makefile("rb")
        for _ in range(count):
            status = int(reader.readline().split()[1])
            length = 0
            while (line := reader.readline()) != b"\r\n":
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            found.append((status, json.loads(reader.read(length) or b"null")))
    return found


def values(server: HttpRunning, topic: str) -> list[bytes]:
    return [message.value for message in server.broker.read(topic)]


def test_a_plain_publish_takes_the_lane_and_others_do_not(server: HttpRunning, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []
    real = express.ExpressLane.publish

    def note(lane: express.ExpressLane, request: express.PlainPublish) -> None:
        taken.append(request.topic)
        real(lane, request)

    monkeypatch.setattr(express.ExpressLane, "publish", note)
    chunked = b"POST /v1/topics/d/publish HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunked += b"%x\r\n%b\r\n0\r\n\r\n" % (len(said("x")), said("x"))
    for sent in (
        publish("a", said("x")),
        publish("b", said("x"), path=""),
        publish("c", said("x"), "Origin: http://localhost"),
        chunked,
        publish("e", said("x" * 70_000)),
        publish("%66", said("x")),
        publish("g", said("x"), "Expect: 100-continue"),
    ):
        statuses = [status for status, _ in answers(server, sent, 2 if b"Expect" in sent else 1)]
        assert statuses[-1] == 200, sent[:200]
    assert taken == ["a", "b"]
    assert all(len(values(server, topic)) == 1 for topic in "abcdefg")


def test_replies_of_both_ways_are_the_same_but_for_the_place(server: HttpRunning) -> None:
    def reply(*headers: str) -> tuple[set[str], Any]:
        with socket.create_connection(("127.0.0.1", server.http_port), 20) as raw:
            raw.sendall(publish("same", said("x"), "Connection: close", *headers))
            head, _, body = b"".join(iter(lambda: raw.recv(65536), b"")).partition(b"\r\n\r\n")
        names = {line.split(":")[0].lower() for line in head.decode().split("\r\n")[1:]}
        return names, {name: value for name, value in json.loads(body).items() if name not in ("id", "offset")}

    express_reply, usual_reply = reply(), reply("Origin: http://localhost")
    assert express_reply == usual_reply


def test_pipelined_requests_of_both_ways_are_answered_in_their_order(server: HttpRunning) -> None:
    sent = b""
    for number in range(20):
        if number % 4 == 3:
            sent += b"GET /v1/whoami HTTP/1.1\r\nHost: localhost\r\n\r\n"
        else:
            special = ["Origin: http://localhost"] if number % 4 == 2 else []
            sent += publish("piped", said(str(number)), *special)
    found = answers(server, sent, 20)
    assert [status for status, _ in found] == [200] * 20
    assert ["name" in body for _, body in found] == [number % 4 == 3 for number in range(20)]
    published = [number for number in range(20) if number % 4 != 3]
    assert values(server, "piped") == [str(number).encode() for number in published]
    assert [body["offset"] for _, body in found if "offset" in body] == list(range(15))


def test_a_refused_publish_does_not_disturb_those_behind_it(server: HttpRunning) -> None:
    sent = publish("mixed", said("a")) + publish("mixed", b"{") + publish("bad topic".replace(" ", "!"), said("x"))
    found = answers(server, sent + publish("mixed", said("b")), 4)
    assert [status for status, _ in found] == [200, 400, 400, 200]
    assert values(server, "mixed") == [b"a", b"b"]


def test_a_body_that_comes_in_pieces_is_put_together(server: HttpRunning) -> None:
    whole = publish("pieces", said("x" * 500))
    with socket.create_connection(("127.0.0.1", server.http_port), 20) as raw:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, len(whole), 60):
            raw.sendall(whole[start : start + 60])
        assert raw.recv(65536).startswith(b"HTTP/1.1 200")
    assert values(server, "pieces") == [b"x" * 500]


def test_half_a_body_is_never_published(server: HttpRunning) -> None:
    raw_type = "Content-Type: application/octet-stream"
    with socket.create_connection(("127.0.0.1", server.http_port), 20) as raw:
        raw.sendall(publish("halves", b"whole", raw_type) + publish("halves", b"cut off", raw_type)[:-3])
        assert raw.recv(65536).startswith(b"HTTP/1.1 200")
    until(lambda: server.server.services.metrics.connections == 0, "it is gone", 20)
    assert values(server, "halves") == [b"whole"]


def test_connections_end_where_they_are_asked_to(server: HttpRunning) -> None:
    for sent in (publish("ends", said("x"), "Connection: close"), publish("ends", said("x"), version="1.0")):
        with socket.create_connection(("127.0.0.1", server.http_port), 20) as raw:
            raw.sendall(sent)
            reply = b"".join(iter(lambda: raw.recv(65536), b""))
        assert reply.startswith(b"HTTP/1.1 200") and re.search(rb"(?i)connection: close", reply)


def test_a_stop_answers_what_is_in_the_lane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with HttpRunning(tmp_path) as server:
        server.broker.create_topic("t")
        monkeypatch.setattr("penstock.server.commits._TURNS_MAX", 2000)  # commits take their time
        with socket.create_connection(("127.0.0.1", server.http_port), 20) as raw:
            raw.sendall(publish("t", said("last")))
            until(lambda: len(server.server.services.commits) > 0 or values(server, "t") == [b"last"], "it is taken")
            server.do(server.server._stop_listening(10))
            assert raw.recv(65536).startswith(b"HTTP/1.1 200")
        server.server.addresses.clear()  # it has stopped listening already
        assert values(server, "t") == [b"last"]
