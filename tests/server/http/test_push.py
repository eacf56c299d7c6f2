"""Messages and figures as they come: Server-Sent Events and WebSockets."""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

import penstock
from penstock.server.access.tokens import TokenFile
from tests.server.harness import until
from tests.server.http.harness import HttpRunning


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpRunning]:
    with HttpRunning(tmp_path_factory.mktemp("data")) as running:
        yield running


class Events:
    """A stream of events, as a browser reads it."""

    def __init__(self, server: HttpRunning, path: str, **headers: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
        self._connection.request("GET", path, headers=headers)
        self.reply = self._connection.getresponse()

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        name = ""
        while line := self.reply.readline():
            field, _, value = line.decode().rstrip("\n").partition(": ")
            if field == "event":
                name = value
            elif field == "data":
                yield name, json.loads(value)

    def close(self) -> None:
        self.reply.close()
        self._connection.close()


@contextlib.contextmanager
def events(server: HttpRunning, path: str, **headers: str) -> Iterator[Events]:
    opened = Events(server, path, **headers)
    try:
        yield opened
    finally:
        opened.close()


def socket_to(server: HttpRunning, topic: str, query: str = "group=g", **options: Any) -> Any:
    return connect(f"ws://127.0.0.1:{server.http_port}/v1/topics/{topic}/ws?{query}", proxy=None, **options)


def heard(socket: ClientConnection) -> dict[str, Any]:
    found = json.loads(socket.recv(30))
    assert isinstance(found, dict)
    return found


def say(socket: ClientConnection, **frame: Any) -> None:
    socket.send(json.dumps(frame))


def test_a_stream_sends_as_many_as_there_are_credits_and_goes_on_when_they_are_settled(server: HttpRunning) -> None:
    server.broker.publish_many("streamed", [str(number) for number in range(5)])
    with events(server, "/v1/topics/streamed/stream?group=g&credits=2") as stream:
        assert stream.reply.getheader("content-type", "").startswith("text/event-stream")
        coming = iter(stream)
        first, second = next(coming), next(coming)
        assert (first[0], first[1]["value"], second[1]["value"]) == ("message", "0", "1")
        assert server.broker.group("streamed", "g").leased == 2
        server.post("/v1/messages/ack", {"receipt_handles": [first[1]["receipt_handle"], second[1]["receipt_handle"]]})
        assert [next(coming)[1]["value"] for _ in range(2)] == ["2", "3"]
    until(lambda: server.broker.group("streamed", "g").leased == 0, "it has left", 20)
    info = server.broker.group("streamed", "g")
    assert (info.acked, info.leased, info.ready) == (2, 0, 3)


def test_a_stream_hears_of_new_messages_at_once(server: HttpRunning) -> None:
    server.broker.create_topic("new")
    with events(server, "/v1/topics/new/stream?group=g") as stream:
        until(lambda: bool(server.broker.groups("new")) and server.waiters("new") == 1, "it waits")
        server.broker.publish("new", "now", key="k")
        name, message = next(iter(stream))
        assert (name, message["value"], message["key"], message["topic"]) == ("message", "now", "k", "new")


def test_live_figures_come_with_their_history_and_then_every_second(server: HttpRunning) -> None:
    with events(server, "/v1/live") as stream:
        coming = iter(stream)
        name, history = next(coming)
        assert name == "history" and isinstance(history["points"], list)
        server.broker.publish_many("live", ["x"] * 10)
        points = [next(coming) for _ in range(3)]
        assert {name for name, _ in points} == {"point"}
        assert sum(point["published"] for _, point in points) > 0
        assert points[0][1]["time"] < points[1][1]["time"]


def test_a_websocket_consumes_settles_and_is_given_credits(server: HttpRunning) -> None:
    server.broker.publish_many("socket", ["a", "b", "c", "d"])
    with socket_to(server, "socket", "group=g&credits=1") as socket:
        first = heard(socket)
        assert (first["type"], first["value"]) == ("message", "a")
        say(socket, type="ack", receipt_handle=first["receipt_handle"])
        told = [heard(socket), heard(socket)]
        assert {"type": "settled", "settled": 1, "lost": []} in told
        (second,) = [frame for frame in told if frame["type"] == "message"]
        say(socket, type="credits", credits=3)
        told = [heard(socket) for _ in range(3)]
        assert sorted(frame.get("value", "") for frame in told) == ["", "c", "d"]
        say(socket, type="nack", receipt_handle=second["receipt_handle"], reason="busy", delay=0)
        told = [heard(socket), heard(socket)]
        (again,) = [frame for frame in told if frame["type"] == "message"]
        assert (again["value"], again["failures"]) == ("b", 1)
        say(socket, type="reject", receipt_handle=again["receipt_handle"], reason="never")
        assert heard(socket) == {"type": "settled", "settled": 1, "lost": []}
        say(socket, type="ack", receipt_handle=again["receipt_handle"])
        assert heard(socket)["lost"] == [again["receipt_handle"]]
    until(lambda: server.broker.group("socket", "g").leased == 0, "it has left", 20)
    info = server.broker.group("socket", "g")
    assert (info.acked, info.dead, info.ready, info.leased) == (1, 1, 2, 0)


def test_frames_that_make_no_sense_are_told_and_the_connection_goes_on(server: HttpRunning) -> None:
    server.broker.create_topic("nonsense")
    with socket_to(server, "nonsense") as socket:
        for frame in (
            "",
            "{",
            "[]",
            '{"type": "burn"}',
            '{"type": "ack"}',
            '{"type": "credits", "credits": -1}',
            "x" * 999,
        ):
            socket.send(frame)
            told = heard(socket)
            assert (told["type"], told["status"]) == ("error", 400), frame
        say(socket, type="ping")
        assert heard(socket) == {"type": "pong"}


@pytest.mark.parametrize("query", ["", "group=a%20b", "group=g&credits=x", "group=g&credits=100001"])
def test_a_websocket_that_cannot_be_is_closed_with_why(server: HttpRunning, query: str) -> None:
    with socket_to(server, "nonsense", query) as socket, pytest.raises(ConnectionClosed) as closed:
        socket.recv(30)
    assert closed.value.rcvd is not None and closed.value.rcvd.code == 1008 and closed.value.rcvd.reason


def test_pages_of_others_cannot_open_a_websocket(server: HttpRunning) -> None:
    from websockets.exceptions import InvalidStatus

    with pytest.raises(InvalidStatus), socket_to(server, "nonsense", origin="https://evil.example"):
        pass


def test_stopping_ends_streams_and_sockets_and_gives_leases_back(tmp_path: Path) -> None:
    with contextlib.ExitStack() as clients:
        with HttpRunning(tmp_path) as server:
            server.broker.publish_many("t", ["a", "b"])
            stream = clients.enter_context(events(server, "/v1/topics/t/stream?group=streams"))
            assert next(iter(stream))[1]["value"] == "a"
            live = clients.enter_context(events(server, "/v1/live"))
            next(iter(live))
            socket = clients.enter_context(socket_to(server, "t", "group=sockets"))
            heard(socket)
        with pytest.raises(ConnectionClosed):
            while True:
                socket.recv(30)
    with penstock.open(tmp_path) as broker:
        assert [(info.ready, info.leased) for info in broker.groups("t")] == [(2, 0), (2, 0)]


def test_a_revoked_token_ends_what_it_opened(tmp_path: Path) -> None:
    with HttpRunning(tmp_path, auth="tokens") as server:
        tokens = TokenFile(tmp_path)
        made = tokens.create("reader", ["consume", "read"], ("*",))
        header = {"Authorization": f"Bearer {made.secret}"}
        with events(server, "/v1/live", **header) as live, socket_to(server, "t", additional_headers=header) as socket:
            coming = iter(live)
            next(coming)
            tokens.revoke("reader")
            for _ in coming:
                pass  # it ends
            with pytest.raises(ConnectionClosed):
                socket.recv(30)
