"""What clients send that mean harm, are broken, or vanish: bytes that nobody should send, and how they are taken."""

from __future__ import annotations

import json
import logging
import select
import socket
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from penstock.model.intake import check_messages
from penstock.server.access.tokens import TokenFile
from penstock.server.http.routes.pages import _content
from tests.server.harness import PATIENCE_S, until
from tests.server.http.harness import HttpRunning

_HOST = b"Host: localhost\r\n"
_ALIVE = b"GET /livez HTTP/1.1\r\n" + _HOST + b"\r\n"
_LAST = b"GET /livez HTTP/1.1\r\n" + _HOST + b"Connection: close\r\n\r\n"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpRunning]:
    """A server that asks for tokens."""
    with HttpRunning(tmp_path_factory.mktemp("guarded"), auth="tokens") as running:
        yield running


def line_to(server: HttpRunning) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.http_port), PATIENCE_S)


def heard(line: socket.socket) -> bytes:
    """Everything until the server hangs up."""
    found = bytearray()
    try:
        while some := line.recv(1 << 16):
            found += some
    except ConnectionError:
        pass
    return bytes(found)


def said(server: HttpRunning, *parts: bytes) -> bytes:
    """What a server answers to just these bytes, until it hangs up."""
    with line_to(server) as line:
        for part in parts:
            line.sendall(part)
        return heard(line)


def statuses(replies: bytes) -> list[int]:
    return [int(part[:3]) for part in replies.split(b"HTTP/1.1 ")[1:]]


def post(path: str, *headers: bytes) -> bytes:
    return b"POST %b HTTP/1.1\r\n" % path.encode() + _HOST + b"".join(header + b"\r\n" for header in headers) + b"\r\n"


def connections(server: HttpRunning) -> int:
    return int(server.server.services.metrics.connections)


def test_a_body_that_ends_in_the_middle_is_not_published(server: HttpRunning, topic: str) -> None:
    raw = b"Content-Type: application/octet-stream"
    for path in (f"/v1/topics/{topic}/publish", f"/v1/topics/{topic}/publish/", f"/api/v1/queue/{topic}/enqueue"):
        for length in (b"Content-Length: 100", b"Transfer-Encoding: chunked"):
            with line_to(server) as line:
                line.sendall(post(path, raw, length) + b"5\r\nhello\r\n")
    until(lambda: connections(server) == 0, "they are gone")
    until(lambda: server.tasks() == 0, "nobody works for them")
    assert not any(known.name == topic for known in server.broker.topics())


def test_a_client_that_goes_in_the_middle_is_no_failure_of_the_server(
    server: HttpRunning, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    for path in ("/v1/topics", f"/v1/topics/{topic}/publish", f"/api/v1/queue/{topic}/enqueue"):
        with line_to(server) as line:
            line.sendall(post(path, b"Content-Type: application/json", b"Content-Length: 10") + b"{")
    until(lambda: connections(server) == 0 and server.tasks() == 0, "they are gone")
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"OPTIONS * HTTP/1.1\r\n" + _HOST + b"Connection: close\r\n\r\n", 404),
        (b"GET /livez HTTP/1.1\r\nHost: [::1\r\nConnection: close\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nConnection: close\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\n" + _HOST + b"Host: evil.example\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\n" + _HOST + b"host: localhost\r\n\r\n", 400),
        (b"GET /livez HTTP/1.0\r\n" + _HOST + _HOST + b"\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nHost: local host\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nHost: localhost/x\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nHost: localhost:80:80\r\n\r\n", 400),
        (b"GET /livez\r\n\r\n", 400),
        (b"GET /livez HTTP/0.9\r\n" + _HOST + b"\r\n", 400),
        (b"GET /livez HTTP/2.0\r\n" + _HOST + b"\r\n", 400),
        (b"GET /livez RTSP/1.0\r\n" + _HOST + b"\r\n", 400),
        (b"GET  /livez HTTP/1.1\r\n" + _HOST + b"\r\n", 400),
        (b"GET /livez  HTTP/1.1\r\n" + _HOST + b"\r\n", 400),
        (b"GET  /livez HTTP/1.1\r\n" + _HOST + b"X: GET /livez HTTP/1.1\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n", 400),
        (post("/v1/topics/t/publish", b"Origin: http://[::1", b"Connection: close", b"Content-Length: 2") + b"{}", 403),
        (b"CONNECT other:443 HTTP/1.1\r\n" + _HOST + b"\r\n", 400),
        (b"GET http://other.example HTTP/1.1\r\n" + _HOST + b"\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Odd: a\x00b\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nHost: localhost\r\nno colon\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\n" + _HOST + b"X : spaced\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\n" + _HOST + b"\r\n", 400),
    ],
)
def test_nonsense_is_refused_in_the_shape_of_all_errors(server: HttpRunning, request_bytes: bytes, status: int) -> None:
    reply = said(server, request_bytes)
    head, _, body = reply.partition(b"\r\n\r\n")
    assert statuses(reply) == [status]
    assert b"content-type: application/json" in head.lower()
    assert json.loads(body)["status"] == status


@pytest.mark.parametrize(
    "headers",
    [
        (b"Content-Length: 5", b"Transfer-Encoding: chunked"),
        (b"Transfer-Encoding: chunked", b"Content-Length: 5"),
        (b"Content-Length: 5", b"Content-Length: 6"),
        (b"Content-Length: 0x5",),
        (b"Content-Length: -1",),
        (b"Transfer-Encoding: xchunked",),
        (b"Transfer-Encoding: chunked, identity",),
    ],
)
def test_a_body_whose_length_is_in_doubt_is_refused(
    server: HttpRunning, topic: str, headers: tuple[bytes, ...]
) -> None:
    reply = said(server, post(f"/v1/topics/{topic}/publish", *headers) + b'0\r\n\r\n{"value": "smuggled"}' + _ALIVE)
    assert statuses(reply)[:1] == [400] and len(statuses(reply)) == 1
    assert not any(known.name == topic for known in server.broker.topics())


def test_a_head_that_does_not_end_is_refused(server: HttpRunning) -> None:
    endless = b"GET /livez HTTP/1.1\r\n" + _HOST + b"X: "
    chunked = post("/v1/login", b"Transfer-Encoding: chunked", b"Content-Type: application/json")
    for start, more in (
        (endless, b"y" * 1000),
        (b"GET /livez HTTP/1.1\r\n" + _HOST, b"X: y\r\n" * 100),
        (b"GET /", b"x" * 1000),
        (chunked + b'2\r\n{}\r\n0\r\nX: "', b"y" * 1000),
        (chunked + b"2;", b"y" * 1000),
    ):
        with line_to(server) as line:
            line.sendall(start)
            try:
                for _ in range(1000):
                    line.sendall(more)
            except ConnectionError:
                continue
            answer = heard(line)
        assert statuses(answer) in ([431], [400], []), start
    until(lambda: connections(server) == 0, "nobody is kept")


def test_a_wish_for_http_2_is_passed_over_with_the_body_that_comes_with_it(server: HttpRunning, topic: str) -> None:
    wish = (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABkAAQBAAAAAAIAAAAA")
    first = post(f"/v1/topics/{topic}/publish", *wish, b"Content-Length: 14") + b'{"value": "a"}'
    raw = post(f"/v1/topics/{topic}/publish", *wish, b"Content-Type: application/octet-stream", b"Content-Length: 1")
    assert statuses(said(server, first, raw, b"b", b"GET /livez HTTP/1.1\r\n", _LAST[21:])) == [200, 200, 200]
    assert [message.value for message in server.broker.read(topic)] == [b"a", b"b"]


def test_a_head_is_taken_however_it_arrives(server: HttpRunning) -> None:
    old = b"GET /livez HTTP/1.0\r\n\r\n"
    assert statuses(said(server, *(_LAST[place : place + 1] for place in range(len(_LAST))))) == [200]
    assert (
        statuses(said(server, b"\r\n" + _ALIVE, b"\r\n" + _ALIVE[:9], _ALIVE[9:] + _ALIVE[:30], _ALIVE[30:] + old))
        == [200] * 4
    )
    chunked = post("/v1/login", b"Transfer-Encoding: chunked") + b"2\r\n{}\r\n0\r\nX: y\r\nZ: z\r\n\r\n"
    for at in range(len(chunked) - 30, len(chunked) + 1):  # the login is refused, and what comes behind it is not
        with line_to(server) as line:
            line.sendall(chunked[:at])
            until(lambda: connections(server) >= 1, "it is there")
            line.sendall(chunked[at:] + _LAST)
            assert statuses(heard(line)) == [400, 200], at
    split = (b"GET ", b" /livez HTTP/1.1\r\n", _HOST, b"\r\n")
    assert statuses(said(server, _ALIVE, *split)) == [200, 400]
    assert statuses(said(server, _ALIVE + b"".join(split))) == [200, 400]


@pytest.mark.parametrize(
    "garbage", [b"\x16\x03\x01\x00", b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n"]
)
@pytest.mark.parametrize("path", ["publish", "publish/"])
def test_what_was_stored_is_acknowledged_whatever_comes_behind_it(
    server: HttpRunning, topic: str, path: str, garbage: bytes
) -> None:
    publish = (
        post(f"/v1/topics/{topic}/{path}", b"Content-Type: application/json", b"Content-Length: 14") + b'{"value": "a"}'
    )
    replies = statuses(said(server, publish * 3 + garbage + publish))
    assert replies == [200, 200, 200, 400]
    assert len(list(server.broker.read(topic))) == 3


def test_many_wishes_for_another_protocol_in_one_go_are_refused(
    server: HttpRunning, caplog: pytest.LogCaptureFixture
) -> None:
    wish = b"GET /livez HTTP/1.1\r\n" + _HOST + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    assert statuses(said(server, wish * 5 + _LAST)) == [200] * 6
    assert statuses(said(server, wish * 600))[-1] == 400
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    until(lambda: connections(server) == 0, "nobody is kept")


def test_requests_in_one_go_are_answered_in_order(server: HttpRunning) -> None:
    bad = post("/v1/topics/t/publish", b"Origin: http://evil.example", b"Content-Length: 100000") + b"x" * 100_000
    reply = said(server, _ALIVE * 20 + bad + _ALIVE * 20 + _LAST)
    assert statuses(reply) == [200] * 20 + [403] + [200] * 21


def test_a_body_that_was_asked_for_and_refused_is_not_waited_for(guarded: HttpRunning) -> None:
    expecting = post("/v1/topics/t/publish", b"Expect: 100-continue", b"Content-Length: 1000")
    assert statuses(said(guarded, expecting)) == [401]


def test_a_body_is_asked_for_where_that_is_expected(server: HttpRunning, topic: str) -> None:
    with line_to(server) as line:
        line.sendall(post(f"/v1/topics/{topic}/publish", b"Expect: 100-continue", b"Content-Length: 14"))
        assert line.recv(1000).startswith(b"HTTP/1.1 100")
        line.sendall(b'{"value": "a"}')
        assert line.recv(10_000).startswith(b"HTTP/1.1 200")


def test_whoever_has_no_token_sends_little(guarded: HttpRunning) -> None:
    body = {"token": "x" * 100_000}
    assert guarded.refused("POST", "/v1/login", body)[0] == 413
    assert (
        statuses(said(guarded, post("/v1/login", b"Transfer-Encoding: chunked"), b"20000\r\n" + b"x" * 0x20000))[0]
        == 413
    )


def test_all_bodies_together_are_limited(tmp_path: Path) -> None:
    with HttpRunning(tmp_path, max_buffered_bytes=200_000, max_frame_bytes=65_536) as server:
        lines = [line_to(server) for _ in range(3)]
        for line in lines:
            line.sendall(post("/v1/topics/t/publish", b"Content-Length: 100000") + b" " * 90_000)
        ready, _, _ = select.select(lines, [], [], PATIENCE_S)
        assert [line.recv(1000)[9:12] for line in ready] == [b"429"]
        for line in lines:
            line.close()
        until(lambda: connections(server) == 0 and server.tasks() == 0, "they are gone")
        held: Any = server.server._listeners["http"]
        assert held._front._intake.held_bytes == 0
        assert server.ask("POST", "/v1/topics/t/publish", {"value": "x" * 50_000}).status == 200


def test_paths_that_are_written_oddly_lead_nowhere_else(guarded: HttpRunning) -> None:
    for path in (
        "//v1/topics",
        "/v1//topics",
        "/v1/./topics",
        "/docs/../v1/topics",
        "/docs/%2e%2e/metrics",
        "/docs%2f..%2fmetrics",
        "/ui/../../metrics",
        "/ui/%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        "/ui//etc/passwd",
        "/ui/__init__.py",
        "/%76%31/topics",
        "/livez/../metrics",
        "/v1/login/../topics",
        "/v1/topics;/livez",
        "/metrics/",
        "/METRICS",
    ):
        assert guarded.refused("GET", path)[0] in (401, 404), path


def test_files_that_are_not_there_are_not_remembered(server: HttpRunning) -> None:
    for name in ("a%00b", "%00", "js/app.js%00.css", "js", "", ".", "..", "x" * 300, "%2e%2e/penstock/version.py"):
        assert server.refused("GET", f"/ui/{name}")[0] == 404, name
    before = _content.cache_info().currsize
    for number in range(200):
        assert server.refused("GET", f"/ui/{number}.js")[0] == 404
    assert _content.cache_info().currsize == before
    assert server.ask("GET", "/ui/js/app.js").status == 200


def test_long_addresses_are_refused_before_the_framework_remembers_them(server: HttpRunning) -> None:
    for path in (f"/v1/topics/{'x' * 3000}", f"/v1/topics?search={'x' * 9000}", "/v1/topics?" + "&".join("a" * 101)):
        assert server.refused("GET", path)[0] == 400
    assert server.ask("GET", "/v1/topics?" + "&".join(f"p{number}=1" for number in range(100))).status == 200


@pytest.mark.parametrize("body", [b'{"token": "\xff"}', b"\xff\xfe", b"[" * 100_000, b'{"a":' * 12_000, b"{", b""])
def test_what_is_no_json_is_refused_without_a_failure(
    server: HttpRunning, guarded: HttpRunning, topic: str, caplog: pytest.LogCaptureFixture, body: bytes
) -> None:
    admin = TokenFile(guarded._config.data_dir).create(f"admin-{topic}", ["admin"]).secret
    for path in (
        "/v1/login",
        "/v1/topics",
        "/v1/messages/ack",
        f"/v1/topics/{topic}/publish",
        f"/v1/groups/{topic}/join",
    ):
        for asked in (server, guarded):
            status, _ = asked.refused("POST", path, body, token=admin)
            assert status in (400, 413), path
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_of_two_tokens_none_counts_more_than_it_is(guarded: HttpRunning) -> None:
    request = b"GET /v1/whoami HTTP/1.1\r\n" + _HOST + b"Connection: close\r\n"
    assert statuses(said(guarded, request + b"Authorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n")) == [401]
    assert statuses(said(guarded, request + b"Cookie: penstock_token=a\r\nCookie: x=y\r\n\r\n")) == [401]


def test_pages_of_others_take_no_messages_away(server: HttpRunning, topic: str) -> None:
    server.broker.publish(topic, "precious")
    paths = (
        f"/v1/topics/{topic}/next?autoack=true",
        f"/v1/topics/{topic}/receive?group=g",
        f"/v1/topics/{topic}/stream?group=g",
        f"/api/v1/queue/{topic}/dequeue",
        "/v1/topics",
    )
    for path in paths:  # an image of another page; a page of another port of this machine; a script
        for sent in ({"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "http://evil"}):
            assert server.refused("GET", path, headers=sent)[0] == 403, (path, sent)
    assert not server.broker.groups(topic)
    for path in ("/", "/docs", "/livez"):  # a link on another page
        assert server.ask("GET", path, headers={"Sec-Fetch-Site": "cross-site"}).status == 200
    own = {"Sec-Fetch-Site": "same-origin", "Origin": server.url}
    assert server.ask("GET", f"/v1/topics/{topic}/next", headers=own).status == 200
    typed = {"Sec-Fetch-Site": "none"}
    assert server.ask("GET", "/v1/topics", headers=typed).status == 200


def test_a_form_of_another_page_publishes_nothing(server: HttpRunning, topic: str) -> None:
    body = b'{"value": "forged"}'
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        for sent in ({"Origin": "null"}, {"Origin": "http://evil"}, {"Sec-Fetch-Site": "cross-site"}):
            path = f"/v1/topics/{topic}/publish"
            assert server.refused("POST", path, body, headers={"Content-Type": kind, **sent})[0] == 403
    assert not any(known.name == topic for known in server.broker.topics())


def test_what_fails_in_the_server_is_told_in_the_shape_of_all_errors_and_logged_once(
    server: HttpRunning, topic: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(server.broker.shard, "publish_single", fail)
    monkeypatch.setattr("penstock.server.http.routes.topics.list_topics", fail)
    monkeypatch.setattr(server.server.services.live, "latest", fail)
    for method, path, body in (
        ("POST", f"/v1/topics/{topic}/publish", {"value": "x"}),
        ("POST", f"/v1/topics/{topic}/publish/", {"value": "x"}),
        ("GET", "/v1/topics", None),
        ("GET", "/v1/overview", None),
    ):
        caplog.clear()
        status, text = server.refused(method, path, body)
        assert (status, "ZeroDivision" in text) == (500, False)
        errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
        assert [bool(record.exc_info) for record in errors] == [True], (path, errors)


def test_connections_that_are_reset_at_any_time_leave_nothing_behind(server: HttpRunning, topic: str) -> None:
    server.broker.create_topic(topic)
    publish = post(f"/v1/topics/{topic}/publish", b"Content-Length: 14") + b'{"value": "a"}'
    upgrade = (
        b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    for request in (
        b"",
        publish[:20],
        publish[:-3],
        publish,
        publish * 30,
        b"GET /v1/topics/%b/receive?group=g&wait=20 HTTP/1.1\r\n" % topic.encode() + _HOST + b"\r\n",
        b"GET /v1/topics/%b/stream?group=s HTTP/1.1\r\n" % topic.encode() + _HOST + b"\r\n",
        b"GET /v1/topics/%b/ws?group=w HTTP/1.1\r\n" % topic.encode() + _HOST + upgrade,
        b"GET /v1/live HTTP/1.1\r\n" + _HOST + b"\r\n",
        b"GET /metrics HTTP/1.1\r\n" + _HOST + b"\r\n",
    ):
        for wait_for_reply in (False, True):
            line = line_to(server)
            line.sendall(request)
            if wait_for_reply and b"\r\n\r\n" in request and b"receive" not in request and publish[:-3] != request:
                line.recv(10)
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            line.close()
    until(lambda: connections(server) == 0, "all are counted out")
    until(lambda: server.tasks() == 0, "nobody works for them")
    http: Any = server.server._listeners["http"]
    until(lambda: all(member.shared for member in http.members._by_id.values()), "no member is left")
    for info in server.broker.groups(topic):
        assert info.leased <= 1 or info.name == "g"


def test_R1_only_so_many_requests_are_kept_that_were_sent_ahead(server: HttpRunning, topic: str) -> None:
    http: Any = server.server._listeners["http"]
    request = b"GET /livez HTTP/1.1\r\n" + _HOST + b"\r\n"
    with line_to(server) as line:
        until(lambda: len(http.state.connections) == 1)
        (connection,) = http.state.connections

        def arrive() -> tuple[int, int]:
            connection.data_received(request * 300)
            fits = len(connection.pipeline)
            connection.data_received(request * 5000)
            return fits, len(connection.pipeline)

        assert server.call(arrive) == (299, 1000)
        replies = statuses(heard(line))
    assert replies == [200] * 1001 + [400]


def test_R1_nothing_is_read_while_requests_wait_that_were_sent_ahead(server: HttpRunning, topic: str) -> None:
    http: Any = server.server._listeners["http"]
    request = b"GET /livez HTTP/1.1\r\n" + _HOST + b"X: " + b"x" * 1000 + b"\r\n\r\n"
    read_while_waiting: list[int] = []
    with line_to(server) as line:
        until(lambda: len(http.state.connections) == 1)
        (connection,) = http.state.connections
        read = connection.data_received

        def noted(data: bytes) -> None:
            read_while_waiting.append(len(connection.pipeline))
            read(data)

        server.call(lambda: setattr(connection, "data_received", noted))
        count = 2000
        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(line.sendall, request * (count - 1) + request[:-2] + b"Connection: close\r\n\r\n")
            replies = statuses(heard(line))
            sending.result()
    assert set(read_while_waiting) == {0}
    assert replies == [200] * count


def test_stopping_answers_what_is_under_way_and_refuses_the_rest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with HttpRunning(tmp_path, shutdown_grace=0.5) as server:
        http: Any = server.server._listeners["http"]
        server.broker.create_topic("t")
        waiting = line_to(server)
        waiting.sendall(b"GET /v1/topics/t/receive?group=g&wait=50 HTTP/1.1\r\n" + _HOST + b"\r\n" + _ALIVE)
        until(lambda: server.broker.groups("t"), "it is there")
        until(lambda: server.waiters() == 1, "it waits")
        half = line_to(server)
        half.sendall(post("/v1/topics/t/publish", b"Content-Length: 14") + b'{"value":')
        until(lambda: len(http.state.connections) == 2, "both are there")
    with waiting, half:
        assert statuses(heard(waiting))[:1] == [200]
        assert statuses(heard(half)) in ([], [503])
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_large_batches_are_read_beside_the_event_loop(
    server: HttpRunning, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_by: list[bool] = []

    def checked(*arguments: Any) -> Any:
        read_by.append(threading.current_thread() is server._thread)
        return check_messages(*arguments)

    monkeypatch.setattr("penstock.server.http.publishing.check_messages", checked)
    for count in (10, 20_000):
        reply = server.post(f"/v1/topics/{topic}/messages", {"messages": [{"value": "x" * 20}] * count})
        assert reply["published"] == count and reply["results"][-1]["offset"] == count - 1 + (10 if count > 10 else 0)
    assert read_by == [True, False]
    broken = b'{"messages": [' + b'{"value": "x"},' * 30_000
    assert server.refused("POST", f"/v1/topics/{topic}/messages", broken)[0] == 400
    assert sum(1 for _ in server.broker.read(topic)) == 20_010
