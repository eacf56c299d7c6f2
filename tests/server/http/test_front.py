"""What every HTTP request passes first: who, from where, how large, how often."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.server.access.principal import Scope
from penstock.server.access.tokens import TokenFile
from tests.server.certificates import make_certificates
from tests.server.harness import until
from tests.server.http.harness import HttpRunning


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpRunning]:
    with HttpRunning(tmp_path_factory.mktemp("data"), cors_origins="https://app.example") as running:
        yield running


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpRunning]:
    """A server that asks for tokens."""
    with HttpRunning(tmp_path_factory.mktemp("guarded"), auth="tokens") as running:
        yield running


def token(server: HttpRunning, *scopes: Scope, topics: tuple[str, ...] = ("*",), **options: Any) -> str:
    made = TokenFile(server._config.data_dir).create(
        f"t{len(TokenFile(server._config.data_dir).read())}", [str(scope) for scope in scopes], topics, **options
    )
    return made.secret


def test_every_reply_has_the_headers_that_protect(server: HttpRunning) -> None:
    for path in ("/", "/livez", "/v1/topics", "/nothing", "/docs", "/v1/topics/t/publish"):
        headers = server.ask("GET", path).headers
        assert headers["x-content-type-options"] == "nosniff", path
        assert headers["x-frame-options"] == "DENY"
        assert "default-src 'self'" in headers["content-security-policy"]
        assert headers["referrer-policy"] == "no-referrer"
        assert "server" not in headers


def test_other_origins_are_refused_unless_they_are_allowed(server: HttpRunning) -> None:
    publish = ("POST", "/v1/topics/cors/publish", {"value": "x"})
    assert server.refused(*publish, headers={"Origin": "https://evil.example"})[0] == 403
    assert server.refused(*publish, headers={"Origin": "null"})[0] == 403
    own = server.ask(*publish, headers={"Origin": server.url})
    assert own.status == 200 and "access-control-allow-origin" not in own.headers
    other = server.ask(*publish, headers={"Origin": "https://app.example"})
    assert (other.status, other.headers["access-control-allow-origin"]) == (200, "https://app.example")
    ask = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
    before = server.ask("OPTIONS", "/v1/topics/cors/publish", headers=ask)
    assert before.status == 204 and "POST" in before.headers["access-control-allow-methods"]
    before = server.ask("OPTIONS", "/v1/topics/cors/publish", headers={**ask, "Origin": "https://evil.example"})
    assert "access-control-allow-origin" not in before.headers
    assert [message.value for message in server.broker.read("cors")] == [b"x", b"x"]


def test_a_name_that_somebody_else_could_point_here_is_not_answered(server: HttpRunning) -> None:
    assert server.refused("GET", "/v1/topics", headers={"Host": "evil.example:8080"})[0] == 403
    for host in ("localhost:8080", "127.0.0.1", "[::1]:80", "my.localhost"):
        assert server.ask("GET", "/v1/whoami", headers={"Host": host}).status == 200


@pytest.mark.parametrize(
    "given",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /v1/topics/t/publish HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/topics/t/publish HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"POST /v1/topics/t/publish HTTP/1.1\r\nHost: [::\r\nOrigin: http://[\r\nContent-Length: 2\r\n\r\n{}",
        b"GET /v1/topics/%ff%fe HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET http:// HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET * HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"BREW / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 5000 + b"\r\n",
    ],
)
def test_whatever_is_sent_the_server_goes_on(server: HttpRunning, given: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.http_port), 20) as raw:
        raw.sendall(given)
        raw.shutdown(socket.SHUT_WR)
        while raw.recv(65536):
            pass
    assert server.ask("GET", "/livez").status == 200


def test_half_a_request_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    with HttpRunning(tmp_path, idle_timeout=0.2) as server:
        for half in (b"", b"POST /v1/topics/t/publish HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{"):
            with socket.create_connection(("127.0.0.1", server.http_port), 20) as raw:
                raw.sendall(half)
                assert raw.recv(1000) in (b"",) or half
        until(lambda: server.server.services.metrics.connections == 0, "they are closed", 20)


def test_connections_beyond_the_limit_are_refused(tmp_path: Path) -> None:
    with HttpRunning(tmp_path, max_connections=1) as server:
        with socket.create_connection(("127.0.0.1", server.http_port), 20) as first:
            first.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert first.recv(1000).startswith(b"HTTP/1.1 200")
            with socket.create_connection(("127.0.0.1", server.http_port), 20) as second:
                assert second.recv(1000).startswith(b"HTTP/1.1 503")
        until(lambda: server.server.services.metrics.connections == 0, "they are gone", 20)
        assert server.ask("GET", "/livez").status == 200


def test_who_asks_too_often_is_told_when_to_come_again(tmp_path: Path) -> None:
    with HttpRunning(tmp_path, rate_limit=3) as server:
        replies = [server.ask("POST", "/v1/topics/t/publish", {"value": "x"}) for _ in range(20)]
        statuses = [reply.status for reply in replies]
        assert statuses[:3] == [200, 200, 200] and 429 in statuses
        refused = next(reply for reply in replies if reply.status == 429)
        assert int(refused.headers["retry-after"]) >= 1
        assert len(list(server.broker.read("t"))) == statuses.count(200)


def test_without_a_token_only_health_and_the_pages_are_shown(guarded: HttpRunning) -> None:
    for path in ("/livez", "/readyz", "/healthz", "/health", "/version", "/", "/docs", "/docs/openapi.json"):
        assert guarded.ask("GET", path).status == 200, path
    for path in ("/v1/topics", "/metrics", "/status", "/v1/whoami", "/v1/live", "/api/v1/queue/q/dequeue", "/topics"):
        reply = guarded.ask("GET", path)
        assert (reply.status, reply.headers["www-authenticate"][:6]) == (401, "Bearer"), path
    assert guarded.refused("POST", "/v1/topics/t/publish", {"value": "x"})[0] == 401
    for wrong in ("", "pst_aaaa_bbbb", "nonsense", "ä"):
        assert guarded.refused("GET", "/v1/topics", headers={"Authorization": f"Bearer {wrong}"})[0] == 401


def test_a_token_is_for_its_scopes_and_topics(guarded: HttpRunning) -> None:
    publish = token(guarded, Scope.PUBLISH, topics=("orders.*",))
    body = {"value": "x"}
    assert guarded.ask("POST", "/v1/topics/orders.new/publish", body, token=publish).status == 200
    assert guarded.refused("POST", "/v1/topics/other/publish", body, token=publish)[0] == 403
    many = {"messages": [body]}
    assert guarded.refused("POST", "/v1/topics/other/messages", many, token=publish)[0] == 403
    assert guarded.refused("GET", "/v1/topics/orders.new/receive?group=g", token=publish)[0] == 403
    consume = token(guarded, Scope.CONSUME, topics=("orders.*",))
    (message,) = guarded.ask("GET", "/v1/topics/orders.new/receive?group=g", token=consume).json["messages"]
    ack = {"receipt_handle": message["receipt_handle"]}
    assert guarded.refused("POST", "/v1/messages/ack", ack, token=publish)[0] == 403
    assert guarded.ask("POST", "/v1/messages/ack", ack, token=consume).status == 200
    assert guarded.refused("POST", "/v1/topics", {"name": "orders.made"}, token=consume)[0] == 403
    who = guarded.ask("GET", "/v1/whoami", token=consume).json
    assert (who["scopes"], who["topics"], who["auth"]) == (["consume"], ["orders.*"], "tokens")


def test_a_browser_logs_in_with_a_token_and_out(guarded: HttpRunning) -> None:
    secret = token(guarded, Scope.READ)
    assert guarded.refused("POST", "/v1/login", {"token": "pst_wrong"})[0] == 401
    reply = guarded.ask("POST", "/v1/login", {"token": secret})
    cookie = reply.headers["set-cookie"]
    assert "HttpOnly" in cookie and "samesite=strict" in cookie.lower()
    sent = {"Cookie": cookie.split(";")[0]}
    assert guarded.ask("GET", "/v1/topics", headers=sent).status == 200
    assert guarded.refused("GET", "/v1/topics", headers={"Cookie": "penstock_token="})[0] == 401
    out = guarded.ask("POST", "/v1/logout", {}, headers=sent)
    assert out.status == 204 and "max-age=0" in out.headers["set-cookie"].lower()


def test_a_revoked_token_ends_at_once(guarded: HttpRunning) -> None:
    secret = token(guarded, Scope.READ)
    assert guarded.ask("GET", "/v1/topics", token=secret).status == 200
    tokens = TokenFile(guarded._config.data_dir)
    tokens.revoke(secret.split("_")[1])
    until(lambda: guarded.ask("GET", "/v1/topics", token=secret).status == 401, "it is not valid any more", 20)


def test_tls_is_spoken_when_there_is_a_certificate(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    with HttpRunning(tmp_path / "data", tls_cert=str(made.server), tls_key=str(made.server_key)) as server:
        context = ssl.create_default_context(cafile=str(made.ca))
        connection = http.client.HTTPSConnection("localhost", server.http_port, context=context, timeout=20)
        connection.request("POST", "/v1/topics/t/publish", json.dumps({"value": "x"}))
        reply = connection.getresponse()
        assert reply.status == 200 and reply.getheader("strict-transport-security")
        connection.close()
        with socket.create_connection(("127.0.0.1", server.http_port), 20) as plain:
            plain.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert not plain.recv(1000).startswith(b"HTTP/1.1 200")


def told(address: tuple[str, int], request: bytes, context: ssl.SSLContext) -> bytes:
    """What a port answers by TLS; nothing where it hangs up."""
    try:
        with socket.create_connection(address, 20) as raw, context.wrap_socket(raw, server_hostname="localhost") as own:
            own.sendall(request)
            return own.recv(100)
    except (ssl.SSLError, ConnectionError):
        return b""


def test_every_port_asks_for_a_certificate_where_clients_need_one(tmp_path: Path) -> None:
    made = make_certificates(tmp_path / "certificates")
    options = {"tls_cert": str(made.server), "tls_key": str(made.server_key), "tls_client_ca": str(made.ca)}
    known, unknown, stranger = (ssl.create_default_context(cafile=str(made.ca)) for _ in range(3))
    known.load_cert_chain(made.client, made.client_key)
    stranger.load_cert_chain(made.stranger, made.stranger_key)
    with HttpRunning(tmp_path / "data", line_port=0, **options) as server:
        asked = {"http": b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n", "line": b"PING\n"}
        for name, request in asked.items():
            address = server.server.addresses[name]
            assert told(address, request, known).startswith((b"HTTP/1.1 200", b"PONG")), name
            assert told(address, request, unknown) == told(address, request, stranger) == b"", name
        with penstock.connect(server.address, ca=made.ca, cert=made.client, key=made.client_key) as client:
            client.publish("t", "x")
        with pytest.raises(penstock.ConnectionLost):
            penstock.connect(server.address, ca=made.ca)


def test_curl_publishes_and_consumes(server: HttpRunning) -> None:
    def curl(*arguments: str) -> Any:
        done = subprocess.run(["curl", "-sS", "--fail-with-body", *arguments], capture_output=True, check=True)
        return json.loads(done.stdout)

    assert curl(f"{server.url}/v1/topics/curl/publish", "-d", '{"value": "hello"}')["offset"] == 0
    assert curl(f"{server.url}/v1/topics/curl/next?autoack=true")["value"] == "hello"
    with penstock.connect(server.address) as client:
        assert client.group("curl", "next").acked == 1
