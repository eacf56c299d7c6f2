"""What nobody should say, what is too much, who may do what, and the end of the server."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from pathlib import Path

import pytest

from penstock.model.errors import StorageFailed
from penstock.server.access.tokens import TokenFile
from penstock.server.line import connection as line_connection
from penstock.server.line.consumers import GROUP
from tests.server.certificates import Certificates
from tests.server.harness import until
from tests.server.line.harness import LineServer, Talk, all_of

# What nobody should say.


def test_what_cannot_be_understood_is_told_and_the_connection_goes_on(tmp_path: Path) -> None:
    with LineServer(tmp_path, max_line_bytes=300) as server, server.talk() as talk:
        for said, reply in [
            (
                b"PRODUCE t 0 " + b"x" * 1000,
                "ERROR: the line is longer than 300 B (max_line_bytes): it was ignored",
            ),
            (b"x" * 1_000_000, "ERROR: the line is longer than 300 B"),
            (b"PRODUCE gr\xfcn 0 x", "ERROR: the line is not UTF-8 (byte 0xfc): it was ignored"),
            (b'{"track": "t", "data": "\xff"}', "ERROR: the line is not UTF-8 (byte 0xff)"),
            (b'PRODUCE t 0 "first', "ERROR: a quote is opened at the start of the message and not closed on its line"),
            (b'second"', "ERROR: there is no command"),
            (b"\x1b[A", "ERROR: there is no command"),
            (b"PRODUCE t/x 0 x", "ERROR: 't/x' is not a topic name"),
            (b"CONSUME ../x 0", "ERROR: '../x' is not a topic name"),
            (b"ACK ../x 0 0", "ERROR: this connection does not hold"),
        ]:
            talk.send(said + b"\n")
            assert talk.hear().startswith(reply), said[:20]
            assert talk.say("PING") == "PONG"
        assert server.broker.topics() == []


def test_a_reply_never_has_a_newline_of_its_own(talk: Talk) -> None:
    for line in ("PRODUCE t\x85x 0 y", "CONSUME \u2028 0", "PRODUCE t\rx 0 y", "a\rb", "CONSUME t\x0bx 0", "x" * 5000):
        reply = talk.say(line)
        assert reply.startswith("ERROR: ") and len(reply.splitlines()) == 1 and len(reply) < 1100
        assert talk.say("PING") == "PONG"


def test_bodies_of_other_ports_do_not_break_the_lines(server: LineServer, talk: Talk) -> None:
    bodies = [b"two\nlines", b"\xff\xfe", b"", b'"\\n"', b"tail\r"]
    server.broker.publish_many("t", bodies)
    shown = [line.partition(" ")[2] for line in all_of(talk)]
    assert shown == ['"two\\nlines"', '"\\udcff\\udcfe"', "", '"\\"\\\\n\\""', '"tail\\r"']


def test_L2_bytes_that_are_not_utf_8_are_stored_as_they_are(server: LineServer, talk: Talk) -> None:
    values = [b"gr\xfcn", b"\xff\xfe\xfd", b"hel\xff\xf1lo", b"\xff\xfa\xff\xf0", bytes(range(11, 256)), b"\xff"]
    for value in values:
        talk.send(b"PRODUCE t 0 " + value + b"\n")
        assert talk.hear() == "OK"
    assert [message.value for message in server.broker.read("t")] == values
    shown = [line.partition(" ")[2] for line in all_of(talk)]
    assert [json.loads(body).encode(errors="surrogateescape") for body in shown] == values


@pytest.mark.parametrize("newline", [b"", b"\n"])
@pytest.mark.parametrize(
    "junk", [bytes.fromhex("16030100f8010000f40303"), b"\0" * 8, b"\x16\x03\x01\nPRODUCE t 0 x", b"\x05\x01\0"]
)
def test_R6_lines_behind_binary_junk_are_not_obeyed(
    server: LineServer, talk: Talk, junk: bytes, newline: bytes
) -> None:
    talk.send(b"PRODUCE before 0 x\n" + junk + newline)
    if newline:
        talk.send("PRODUCE t 0 x\n")
    assert talk.rest() == "OK\nERROR: this is no text (TLS is spoken elsewhere): the connection is closed\n"
    assert [topic.name for topic in server.broker.topics()] == ["before"]


def test_R6_http_in_lower_case_is_http(server: LineServer, talk: Talk) -> None:
    talk.send("post / http/1.1\r\nhost: 127.0.0.1:3000\r\n\r\nPRODUCE t 0 x\r\n")
    assert talk.rest() == "ERROR: this port speaks the text protocol and not HTTP: the connection is closed\n"
    assert server.broker.topics() == []


def test_a_browser_that_is_sent_here_does_nothing(server: LineServer, talk: Talk) -> None:
    talk.send("POST / HTTP/1.1\r\nHost: 127.0.0.1:3000\r\nContent-Type: text/plain\r\n\r\nPRODUCE t 0 x\r\n")
    said = talk.rest()
    assert said == "ERROR: this port speaks the text protocol and not HTTP: the connection is closed\n"
    assert server.broker.topics() == []


@pytest.mark.parametrize("at_once", [1, 2, 1000])
def test_what_telnet_negotiates_before_a_line_is_refused_however_it_is_cut(
    server: LineServer, talk: Talk, at_once: int
) -> None:
    data = b"\xff\xfd\x03\xff\xfb\x18\xff\xfa\x18\x00xterm\xff\xf0PRODUCE t 0 hello\r\n\xff\xf4\xff\xfd\x06PING\r\n"
    talk.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for place in range(0, len(data), at_once):
        talk.send(data[place : place + at_once])
    talk.socket.shutdown(socket.SHUT_WR)
    said = talk._heard.read()
    for answer in (b"\xff\xfc\x03\xff\xfe\x18", b"\xff\xfc\x06"):
        assert answer in said
        said = said.replace(answer, b"")
    assert said == b"OK\nPONG\n"
    assert [message.value for message in server.broker.read("t")] == [b"hello"]


def test_what_did_not_reach_the_disk_is_not_ok(server: LineServer, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    assert talk.say("PRODUCE t 0 x") == "OK"
    assert talk.say("CONSUME t 0") == "0 x"
    commits = server.running.server.services.commits
    monkeypatch.setattr(commits, "when_done", lambda _, on_done: on_done(StorageFailed("the disk failed")))
    assert talk.say("PRODUCE t 0 y") == "ERROR: the disk failed"
    assert talk.say("ACK t 0 0") == "ERROR: the disk failed"


def test_a_full_disk_is_told_line_by_line(tmp_path: Path) -> None:
    with LineServer(tmp_path, broker={"min_free_bytes": 1 << 49}) as server, server.talk() as talk:
        assert talk.say("PRODUCE t 0 x").startswith("ERROR: ")
        assert talk.say("PING") == "PONG"


def test_an_error_of_ours_is_logged_and_answered(
    server: LineServer, talk: Talk, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a secret of the house")

    monkeypatch.setattr(server.broker.shard, "publish_single", fail)
    assert talk.say("PRODUCE t 0 x") == "ERROR: the server could not do this; its log tells why"
    assert "a secret of the house" in caplog.text
    assert talk.say("PING") == "PONG"


# Limits.


def test_a_client_that_does_not_listen_is_not_served_further(server: LineServer, talk: Talk) -> None:
    server.broker.create_topic("t", visibility_timeout=600)
    server.broker.publish_many("t", [b"%d " % number + b"x" * 100_000 for number in range(400)])
    with server.talk() as deaf:
        deaf.send("CONSUME t 0\n" * 400)
        until(lambda: any(not other._writable for other in server.listener.connections), "a full buffer")
        assert talk.say("PING") == "PONG"
        assert server.broker.group("t", GROUP).leased < 200
        for number in range(400):
            assert deaf.hear().startswith(f"{number} {number} xxx")
    until(lambda: server.connections == 1)


def test_lines_that_wait_for_their_turn_are_bounded(server: LineServer) -> None:
    with server.talk() as talk:
        stop = threading.Event()

        def flood() -> None:
            while not stop.is_set():
                try:
                    talk.send("HELP\n" * 10_000)
                except OSError:
                    return

        flooding = threading.Thread(target=flood)
        flooding.start()
        (there,) = until(lambda: list(server.listener.connections))
        until(lambda: not there._writable and not there._reading, "the end of reading")
        assert len(there._replies) <= line_connection._UNANSWERED_MAX
        assert there._unread_bytes < 1 << 20
        stop.set()
        talk.socket.shutdown(socket.SHUT_RDWR)
        flooding.join()


def test_long_lines_of_many_connections_are_bounded_together(tmp_path: Path) -> None:
    limits = {"max_buffered_bytes": "300KiB", "max_frame_bytes": "64KiB"}
    with LineServer(tmp_path, **limits) as server, server.talk() as first, server.talk() as second:
        first.send("PRODUCE t 0 " + "x" * 200_000)
        until(lambda: server.listener.held_bytes > 200_000)
        second.send("PRODUCE t 0 " + "x" * 200_000)
        assert second.rest().startswith("ERROR: too many long lines are under way at once (max_buffered_bytes)")
        first.send("\n")
        assert first.hear() == "OK"
        until(lambda: server.listener.held_bytes == 0)


def test_connections_beyond_the_limit_are_refused_unless_somebody_was_silent_for_long(tmp_path: Path) -> None:
    with LineServer(tmp_path, max_connections=2) as server, server.talk() as first, server.talk() as second:
        assert first.say("PING") == second.say("PING") == "PONG"
        with server.talk() as third:
            assert third.rest() == "ERROR: there are 2 connections already (max_connections): try later\n"
        until(lambda: server.connections == 2)
        quiet = min(server.listener.connections, key=lambda connection: connection.heard_s)
        quiet.heard_s -= 1000
        with server.talk() as fourth:
            assert fourth.say("PING") == "PONG"
            assert first.rest() == "ERROR: nothing was heard for 90 s and others want to connect\n"
            assert second.say("PING") == "PONG"


def test_somebody_who_thinks_before_typing_stays_and_who_left_is_closed(tmp_path: Path) -> None:
    with LineServer(tmp_path, idle_timeout=0.2) as server, server.talk() as talk:
        assert talk.say("PING") == "PONG"
        (there,) = server.listener.connections
        there.heard_s -= 3  # far more than idle_timeout, less than 20 times as much
        server.running.call(server.listener.sweep)
        assert talk.say("PING") == "PONG"
        there.heard_s -= 100
        assert talk.rest() == "ERROR: nothing was heard for 4 s\n"


def test_a_rate_limit_refuses_lines_and_not_the_connection(tmp_path: Path) -> None:
    with LineServer(tmp_path, rate_limit=5) as server, server.talk() as talk:
        talk.send("PING\n" * 50 + "POST / HTTP/1.1\r\nPRODUCE t 0 x\n")
        heard = [talk.hear() for _ in range(50)]
        assert heard[:5] == ["PONG"] * 5
        assert "ERROR: more than 5 requests a second (rate_limit): try later" in heard
        assert talk.rest().startswith("ERROR: this port speaks the text protocol and not HTTP")
        with server.talk() as other:
            other.send("QUIT\n")
            assert other.rest() == "BYE\n"


# Who may do what.


def test_a_server_that_asks_for_tokens_does_little_before_auth(tmp_path: Path) -> None:
    secret = TokenFile(tmp_path).create("alex", ["publish", "consume"], ["orders"]).secret
    other = TokenFile(tmp_path).create("bo", ["publish"]).secret
    with LineServer(tmp_path, auth="tokens") as server, server.talk() as talk:
        for line in ("PRODUCE orders 0 x", "CONSUME orders 0", "ACK orders 0 0", '{"track": "orders", "data": 1}'):
            assert talk.say(line).startswith("ERROR: this server asks for a token: say AUTH <token> first")
        assert talk.say("PING") == "PONG"
        assert talk.say("AUTH wrong").startswith("ERROR: this is no token")
        assert talk.say(f"AUTH {secret[:-1]}~").startswith("ERROR: ")
        assert talk.say(f"auth {secret}") == "OK"
        assert talk.say(f"AUTH {other}").startswith("ERROR: a connection keeps the token that it began with")
        assert talk.say("PRODUCE orders 0 x") == "OK"
        assert talk.say("PRODUCE clicks 0 x").startswith("ERROR: alex may not use the topic 'clicks'")
        assert talk.say("CONSUME clicks 0").startswith("ERROR: alex may not use the topic 'clicks'")
        assert talk.say("CONSUME orders 0") == "0 x"
        with server.talk() as publisher:
            assert publisher.say(f"AUTH {other}") == "OK"
            assert publisher.say("PRODUCE orders 0 y") == "OK"
            assert publisher.say("CONSUME orders 0").startswith("ERROR: bo may not do this: it takes the scope consume")
            assert publisher.say("ACK orders 0 0").startswith("ERROR: bo may not do this")


def test_a_token_that_is_revoked_ends_its_connections(tmp_path: Path) -> None:
    secret = TokenFile(tmp_path).create("alex", ["publish"]).secret
    with LineServer(tmp_path, auth="tokens") as server, server.talk() as talk:
        assert talk.say(f"AUTH {secret}") == "OK"
        TokenFile(tmp_path).revoke("alex")
        server.running.call(server.running.server.services.access.read_again)
        server.running.call(server.listener.sweep)
        assert talk.rest() == "ERROR: the token alex was revoked\n"


def test_who_does_not_say_who_they_are_may_not_stay(tmp_path: Path) -> None:
    with LineServer(tmp_path, auth="tokens", idle_timeout=0.05) as server, server.talk() as talk:
        assert talk.rest() == "ERROR: nothing was heard for 0.05 s\n"


def test_lines_go_over_tls(tmp_path: Path, certificates: Certificates) -> None:
    cert, key = certificates.server, certificates.server_key
    context = ssl.create_default_context(cafile=str(certificates.ca))
    with LineServer(tmp_path / "data", tls_cert=str(cert), tls_key=str(key)) as server:
        with server.talk(wrap=lambda plain: context.wrap_socket(plain, server_hostname="127.0.0.1")) as talk:
            talk.send("PRODUCE t 0 secret\nCONSUME t 0\nACK t 0 0\nQUIT\n")
            assert talk.rest() == "OK\n0 secret\nACK_OK\nBYE\n"
        with server.talk(wrap=lambda plain: context.wrap_socket(plain, server_hostname="127.0.0.1")) as talk:
            assert talk.say("PING") == "PONG"
        until(lambda: not server.connections)


# The end of the server.


def test_a_server_that_stops_answers_what_is_under_way_and_says_why_it_closes(server: LineServer, talk: Talk) -> None:
    assert talk.say("PRODUCE t 0 x") == "OK"
    assert talk.say("CONSUME t 0") == "0 x"
    server.stop()
    assert talk.rest() == "ERROR: the server is stopping\n"
    with pytest.raises(OSError):
        server.talk()
    until(lambda: server.broker.group("t", GROUP).leased == 0, "leases given back")


def test_a_server_that_stops_does_not_wait_for_who_does_not_listen(server: LineServer) -> None:
    server.broker.publish_many("t", [b"x" * 1_000_000 for _ in range(30)])
    with server.talk() as deaf:
        deaf.send("CONSUME t 0 ALL\n")
        until(lambda: any(not other._writable for other in server.listener.connections), "a full buffer")
        server.grace_s = 0.1
        server.stop()
        assert server.connections == 0
    until(lambda: server.broker.group("t", GROUP).leased == 0, "leases given back")
