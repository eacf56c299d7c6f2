"""The text port: every line and its reply, and what clients do that nobody should."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.client import Client
from penstock.model.errors import LimitExceeded, StorageFailed
from penstock.server.access.tokens import TokenFile
from penstock.server.line import connection as line_connection
from penstock.server.line.consumers import GROUP, IN_FLIGHT_MAX
from tests.server.certificates import Certificates
from tests.server.harness import PATIENCE_S, until
from tests.server.line_harness import LineServer, Talk

EMPTY = "No messages in queue"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LineServer]:
    with LineServer(tmp_path) as running:
        yield running


@pytest.fixture
def talk(server: LineServer) -> Iterator[Talk]:
    with server.talk() as connected:
        yield connected


def all_of(talk: Talk, topic: str = "t", partition: int = 0) -> list[str]:
    """The lines of CONSUME ALL before its last one, which must be right."""
    talk.send(f"CONSUME {topic} {partition} ALL\n")
    lines = []
    while not (line := talk.hear()).startswith("END"):
        lines.append(line)
    assert line == f"END {len(lines)}"
    return lines


# Every line and its reply.


def test_the_lines_of_the_original_have_the_replies_of_the_original(talk: Talk) -> None:
    assert talk.say("PRODUCE user-signups 0 new user: alex") == "OK"
    assert talk.say("CONSUME user-signups 0") == "0 new user: alex"
    assert talk.say("CONSUME user-signups 0") == EMPTY
    assert talk.say("ACK user-signups 0 0") == "ACK_OK"
    assert talk.say("ACK user-signups 0 99").startswith("ERROR: this connection does not hold the message 99")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("spelled", [str.upper, str.lower, str.title])
def test_commands_are_understood_in_any_case_and_with_both_ends_of_lines(talk: Talk, spelled: Any, end: str) -> None:
    talk.send(end.join([spelled("produce") + " T 0 Mixed", spelled("consume") + " T 0", ""]))
    talk.send(end.join([spelled("ack") + " T 0 0", spelled("consume") + " T 0 " + spelled("all"), ""]))
    talk.send(end.join([spelled("ping"), spelled("quit"), ""]))
    assert talk.rest() == "OK\n0 Mixed\nACK_OK\nEND 0\nPONG\nBYE\n"


def test_what_is_produced_is_in_the_log_as_it_was_said(server: LineServer, talk: Talk) -> None:
    for message in ("  spaces  ", '"quotes" and \\n', "grün ✓", "a\x00b"):
        assert talk.say(f"PRODUCE t 0 {message}") == "OK"
    assert [message.value.decode() for message in server.broker.read("t")] == [
        "  spaces  ",
        '"quotes" and \\n',
        "grün ✓",
        "a\x00b",
    ]


def test_a_json_line_publishes_what_it_tells(server: LineServer, talk: Talk) -> None:
    assert talk.say('{"priority": 9, "data": "text", "track": "t"}') == "OK"
    assert talk.say('{"priority": 1, "data": {"n": [1, null]}, "track": "t"}') == "OK"
    assert talk.say('{"data": "no priority", "track": "t"}') == "OK"
    assert talk.say('{"priority": 256, "data": 1, "track": "t"}').startswith("ERROR: 256 is not a priority")
    assert talk.say('{"priority": 1, "data": 1, "track": "no/topic"}').startswith("ERROR: 'no/topic' is not a topic")
    assert talk.say('{"priority": 1, "data": 1, "trakc": "t"}').startswith("ERROR: the JSON line cannot be read")
    assert talk.say('{"priority": 1,').startswith("ERROR: the JSON line cannot be read")
    stored = [(message.value, message.priority) for message in server.broker.read("t")]
    assert stored == [(b"text", 9), (b'{"n": [1, null]}', 1), (b"no priority", 128)]


def test_the_lowest_priority_number_comes_first_and_equals_in_their_order(talk: Talk) -> None:
    for priority, data in [(5, "c"), (0, "a"), (5, "d"), (255, "f"), (0, "b"), (128, "e")]:
        assert talk.say(json.dumps({"priority": priority, "data": data, "track": "t"})) == "OK"
    assert [talk.say("CONSUME t 0").split()[1] for _ in range(6)] == list("abcdef")


def test_consume_takes_from_its_partition_only_and_by_priority_there(server: LineServer, talk: Talk) -> None:
    server.broker.create_topic("t", partitions=3)
    for number in range(9):
        priority = "high" if number >= 6 else "normal"
        server.broker.publish("t", str(number), partition=number % 3, priority=priority)
    assert talk.say("CONSUME t 1") == "2 7"
    assert [line.split()[1] for line in all_of(talk, "t", 2)] == ["8", "2", "5"]
    assert [line.split()[1] for line in all_of(talk, "t", 1)] == ["1", "4"]
    assert talk.say("CONSUME t 1") == EMPTY
    assert talk.say("ACK t 0 0").startswith("ERROR: this connection does not hold")
    assert talk.say("ACK t 1 0") == "ACK_OK"
    assert [line.split()[1] for line in all_of(talk, "t", 0)] == ["6", "0", "3"]


def test_a_partition_that_is_not_there_is_refused_with_those_that_are(server: LineServer, talk: Talk) -> None:
    assert talk.say("PRODUCE new 3 x") == "ERROR: new has no partition 3: it has 0 to 0"
    assert [topic.name for topic in server.broker.topics()] == []
    server.broker.create_topic("t", partitions=4)
    assert talk.say("PRODUCE t 3 x") == "OK"
    assert talk.say("PRODUCE t 4 x") == "ERROR: t has no partition 4: it has 0 to 3"
    assert talk.say("CONSUME t 4") == "ERROR: t has no partition 4: it has 0 to 3"


def test_consume_all_gives_everything_that_is_ready_and_an_end(talk: Talk) -> None:
    assert all_of(talk) == []
    talk.send("".join(f"PRODUCE t 0 {number}\n" for number in range(300)))
    assert {talk.hear() for _ in range(300)} == {"OK"}
    assert all_of(talk) == [f"{number} {number}" for number in range(300)]
    assert all_of(talk) == []
    assert talk.say("ACK t 0 299") == "ACK_OK"


def test_a_connection_holds_so_many_messages_and_says_so_when_it_is_full(server: LineServer, talk: Talk) -> None:
    server.broker.publish_many("t", [str(number) for number in range(IN_FLIGHT_MAX + 5)])
    assert len(all_of(talk)) == IN_FLIGHT_MAX
    full = f"ERROR: this connection holds {IN_FLIGHT_MAX} messages of t: ACK some of them first"
    assert talk.say("CONSUME t 0") == full
    assert talk.say("CONSUME t 0 ALL") == full
    assert talk.say("ACK t 0 7") == "ACK_OK"
    assert talk.say("CONSUME t 0") == f"{IN_FLIGHT_MAX} {IN_FLIGHT_MAX}"
    with server.talk() as another:
        assert len(all_of(another)) == 4


def test_leases_that_are_over_make_room_again(server: LineServer, talk: Talk) -> None:
    server.broker.create_topic("t", visibility_timeout=0.05, max_deliveries=1000)
    server.broker.publish_many("t", [str(number) for number in range(IN_FLIGHT_MAX)])
    assert len(all_of(talk)) == IN_FLIGHT_MAX
    until(lambda: not talk.say("CONSUME t 0").startswith("ERROR"), "room")


def test_help_teaches_every_command_and_ping_is_answered(talk: Talk) -> None:
    talk.send("HELP\nPING\n")
    lines = [talk.hear()]
    while lines[-1] != "END":
        lines.append(talk.hear())
    taught = "\n".join(lines)
    for word in ("PRODUCE", "CONSUME", "ALL", "ACK", "AUTH", "PING", "QUIT", '"track"', "ERROR:"):
        assert word in taught
    assert talk.hear() == "PONG"


def test_quit_says_bye_and_closes_and_what_stands_behind_it_is_not_done(server: LineServer, talk: Talk) -> None:
    talk.send("PRODUCE t 0 x\nQUIT\nPRODUCE t 0 y\n")
    assert talk.rest() == "OK\nBYE\n"
    assert [message.value for message in server.broker.read("t")] == [b"x"]


# What comes again, and when.


def test_what_a_connection_held_comes_again_when_it_closes(server: LineServer, talk: Talk) -> None:
    with server.talk() as first:
        assert first.say("PRODUCE t 0 x") == "OK"
        assert first.say("CONSUME t 0") == "0 x"
        assert talk.say("CONSUME t 0") == EMPTY
    assert until(lambda: (said := talk.say("CONSUME t 0")) != EMPTY and said) == "0 x"
    assert talk.say("ACK t 0 0") == "ACK_OK"


def test_what_is_not_acked_comes_again_after_the_visibility_timeout(server: LineServer, talk: Talk) -> None:
    server.broker.create_topic("t", visibility_timeout=0.05)
    assert talk.say("PRODUCE t 0 x") == "OK"
    assert talk.say("CONSUME t 0") == "0 x"
    with server.talk() as other:
        assert until(lambda: (said := other.say("CONSUME t 0")) != EMPTY and said) == "0 x"
        assert talk.say("ACK t 0 0").startswith("ERROR: this connection does not hold the message 0 of t 0 (any more)")


def test_what_another_connection_holds_cannot_be_acked(server: LineServer, talk: Talk) -> None:
    assert talk.say("PRODUCE t 0 x") == "OK"
    assert talk.say("CONSUME t 0") == "0 x"
    with server.talk() as other:
        assert other.say("ACK t 0 0").startswith("ERROR: this connection does not hold")
        assert other.say("CONSUME t 0") == EMPTY
        assert other.say("ACK t 0 0").startswith("ERROR: this connection does not hold")
    assert talk.say("ACK t 0 0") == "ACK_OK"


def test_an_acked_message_stays_acked_after_a_restart(tmp_path: Path) -> None:
    with LineServer(tmp_path) as server, server.talk() as talk:
        talk.send("PRODUCE t 0 a\nPRODUCE t 0 b\nCONSUME t 0\nACK t 0 0\nQUIT\n")
        assert talk.rest() == "OK\nOK\n0 a\nACK_OK\nBYE\n"
    with LineServer(tmp_path) as server, server.talk() as talk:
        assert talk.say("CONSUME t 0") == "1 b"


def test_a_topic_that_was_deleted_and_made_anew_is_consumed_anew(server: LineServer, talk: Talk) -> None:
    assert talk.say("PRODUCE t 0 old") == "OK"
    assert talk.say("CONSUME t 0") == "0 old"
    server.broker.delete_topic("t")
    assert talk.say("ACK t 0 0").startswith("ERROR: ")
    server.broker.create_topic("t", partitions=2)
    server.broker.publish("t", "new", partition=1)
    assert talk.say("CONSUME t 1").endswith(" new")


def test_settled_messages_are_read_from_their_segments(server: LineServer, talk: Talk) -> None:
    server.broker.publish_many("t", [str(number) for number in range(50)])
    server.broker.settle()
    assert talk.say("CONSUME t 0") == "0 0"
    assert len(all_of(talk)) == 49


# Many lines, few lines, half lines.


def test_many_lines_in_one_packet_are_answered_in_their_order(talk: Talk) -> None:
    talk.send("PRODUCE t 0 a\nCONSUME t 0\nnonsense\nACK t 0 0\nPING\nCONSUME t 0\nPRODUCE t 0 b\nCONSUME t 0 ALL\n")
    heard = [talk.hear() for _ in range(9)]
    assert heard[2].startswith("ERROR: there is no command 'nonsense'")
    assert heard[:2] + heard[3:] == ["OK", "0 a", "ACK_OK", "PONG", EMPTY, "OK", "1 b", "END 1"]


def test_many_publishes_of_one_packet_share_their_commits(server: LineServer, talk: Talk) -> None:
    assert talk.say("PRODUCE t 0 first") == "OK"
    journal = server.broker.engine.journal
    commits: list[object] = []
    write = journal.flush

    def flush() -> None:
        commits.append(None)
        write()

    journal.flush = flush
    talk.send("PRODUCE t 0 x\n" * 5000)
    assert {talk.hear() for _ in range(5000)} == {"OK"}
    assert len(commits) < 100
    assert len(list(server.broker.read("t"))) == 5001


def test_connections_that_consume_at_once_share_the_messages(server: LineServer) -> None:
    server.broker.publish_many("t", [str(number) for number in range(200)])
    talks = [server.talk() for _ in range(4)]
    for talk in talks:
        talk.send("CONSUME t 0\n" * 60)
    heard = [[talk.hear() for _ in range(60)] for talk in talks]
    got = [line for lines in heard for line in lines if line != EMPTY]
    assert sorted(got) == sorted(f"{number} {number}" for number in range(200))
    for talk in talks:
        talk.close()


def test_a_line_may_come_byte_by_byte(talk: Talk) -> None:
    talk.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in b"PRODUCE t 0 slow\r\nCONSUME t 0\r\n":
        talk.send(bytes([byte]))
    assert [talk.hear(), talk.hear()] == ["OK", "0 slow"]


def test_blank_lines_are_passed_over(talk: Talk) -> None:
    assert talk.say("\n\r\n  \t\n\nPING") == "PONG"


def test_a_client_that_says_no_more_is_answered_and_let_go(server: LineServer, talk: Talk) -> None:
    talk.send("PRODUCE t 0 x\nCONSUME t 0 ALL\n")
    assert talk.end() == "OK\n0 x\nEND 1\n"
    until(lambda: not server.connections)


def test_half_a_line_is_not_obeyed(server: LineServer, talk: Talk) -> None:
    talk.send("PRODUCE t 0 pay 10\nPRODUCE t 0 pay 1")
    assert talk.end() == "OK\nERROR: the last line has no end (a newline), so it was ignored\n"
    assert [message.value for message in server.broker.read("t")] == [b"pay 10"]


def test_a_client_that_vanishes_in_the_middle_harms_nobody(server: LineServer, talk: Talk) -> None:
    assert talk.say("PRODUCE t 0 x") == "OK"
    for said in ("PROD", "PRODUCE t 0 ", "CONSUME t 0\n", "CONSUME other 0\n" * 50, "CONSUME t 0 ALL\nPRODUCE t"):
        with server.talk() as other:
            other.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
            other.send(said)
    until(lambda: server.connections == 1)
    assert until(lambda: (said := talk.say("CONSUME t 0")) != EMPTY and said) == "0 x"
    seats = server.broker.engine.catalog.by_name["t"].delivery.desks[GROUP].seats
    until(lambda: len(seats) == 1, "the end of consumers whose connection is gone")


# What nobody should say.


def test_what_cannot_be_understood_is_told_and_the_connection_goes_on(tmp_path: Path) -> None:
    with LineServer(tmp_path, max_line_bytes=300) as server, server.talk() as talk:
        for said, reply in [
            (
                b"PRODUCE t 0 " + b"x" * 1000,
                "ERROR: the line is longer than 300 B (max_line_bytes): it was ignored",
            ),
            (b"x" * 1_000_000, "ERROR: the line is longer than 300 B"),
            (b"PRODUCE t 0 gr\xfcn", "ERROR: the line is not UTF-8 (byte 0xfc at position 14): it was ignored"),
            (b"PRODUCE t 0 \xff\xfe\xfd", "ERROR: "),
            (b"PRODUCE t 0 \xff", "ERROR: the line is not UTF-8"),
            (b'PRODUCE t 0 "first', "ERROR: a quote is opened at the start of the message and not closed on its line"),
            (b'second"', "ERROR: there is no command"),
            (b"\x00\x00", "ERROR: there is no command"),
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


def test_a_browser_that_is_sent_here_does_nothing(server: LineServer, talk: Talk) -> None:
    talk.send("POST / HTTP/1.1\r\nHost: 127.0.0.1:3000\r\nContent-Type: text/plain\r\n\r\nPRODUCE t 0 x\r\n")
    said = talk.rest()
    assert said == "ERROR: this port speaks the text protocol and not HTTP: the connection is closed\n"
    assert server.broker.topics() == []


def test_what_telnet_negotiates_is_refused_and_not_part_of_any_line(server: LineServer, talk: Talk) -> None:
    talk.send(b"\xff\xfd\x03\xff\xfb\x18\xff\xfa\x18\x00xterm\xff\xf0PRODUCE t 0 hel\xff\xf1lo\r\n")
    assert talk.socket.recv(6, socket.MSG_WAITALL) == b"\xff\xfc\x03\xff\xfe\x18"
    assert talk.hear() == "OK"
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
    def fail(*_: object) -> None:
        raise RuntimeError("a secret of the house")

    monkeypatch.setattr(server.broker.engine, "publish", fail)
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


# The same broker behind every port.


def test_the_trace_of_a_message_is_the_same_as_from_the_native_port(server: LineServer, talk: Talk) -> None:
    assert talk.say("PRODUCE text 0 hello") == "OK"
    assert talk.say("CONSUME text 0") == "0 hello"
    assert talk.say("ACK text 0 0") == "ACK_OK"
    with Client(server.running.address) as client:
        client.publish("native", "hello", partition=0)
        with client.consumer("native", GROUP) as consumer:
            (message,) = consumer.receive(1, wait=PATIENCE_S)
            message.ack()

    def happened(topic: str) -> list[tuple[object, ...]]:
        trace = server.broker.trace(f"{topic}/0/0")
        return [(line.kind, line.group, line.attempt, line.cause) for line in trace.lines]

    assert happened("text") == happened("native")
    assert [kind for kind, *_ in happened("text")] == ["published", "delivered", "acked"]


def test_a_publish_that_is_too_large_or_too_much_is_refused_as_everywhere(tmp_path: Path) -> None:
    with LineServer(tmp_path, broker={"max_value_bytes": 10}) as server, server.talk() as talk:
        with Client(server.running.address) as client, pytest.raises(LimitExceeded) as refused:
            client.publish("t", "x" * 11)
        assert talk.say(f"PRODUCE t 0 {'x' * 11}") == f"ERROR: {refused.value}"
        server.broker.create_topic("full", max_backlog=1)
        assert talk.say("PRODUCE full 0 x") == "OK"
        assert talk.say("CONSUME full 0") == "0 x"
        assert talk.say("PRODUCE full 0 x").startswith("ERROR: ")


def test_requests_and_connections_are_counted(server: LineServer, talk: Talk) -> None:
    talk.send("PING\nPRODUCE t 0 x\nCONSUME t 0\nACK t 0 0\nACK t 0 0\nnonsense\n")
    for _ in range(6):
        talk.hear()
    meter = server.running.server.services.metrics.ports["line"]
    assert set(meter.requests) == {"ping", "produce", "consume", "ack", "invalid"}
    assert {name: count for name, count in meter.failures.items() if count} == {"ack": 1, "invalid": 1}
    assert meter.open == 1
    talk.close()
    until(lambda: meter.open == 0)


# With the programs that people have.


def program(name: str, package: str) -> str:
    found = shutil.which(name)
    assert found is not None, f"install {name} (Debian: {package})"
    return found


def test_nc_produces_consumes_and_quits(server: LineServer) -> None:
    said = "PRODUCE user-signups 0 new user: alex\nCONSUME user-signups 0\nACK user-signups 0 0\nQUIT\n"
    nc = [program("nc", "netcat-openbsd"), "127.0.0.1", str(server.port)]
    done = subprocess.run(nc, input=said, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout) == (0, "OK\n0 new user: alex\nACK_OK\nBYE\n")
    half = [nc[0], "-N", *nc[1:]]
    done = subprocess.run(half, input="PING\n", capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout) == (0, "PONG\n")


def test_telnet_produces_consumes_and_quits(server: LineServer) -> None:
    telnet = [program("telnet", "telnet"), "127.0.0.1", str(server.port)]
    with subprocess.Popen(telnet, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        heard = process.stdout
        until(lambda: heard.readline().startswith("Escape character"))
        for said, reply in [
            ("produce user-signups 0 new user: alex", "OK"),
            ("consume user-signups 0", "0 new user: alex"),
            ("ack user-signups 0 0", "ACK_OK"),
            ("quit", "BYE"),
        ]:
            process.stdin.write(said + "\n")
            process.stdin.flush()
            assert heard.readline().rstrip("\r\n") == reply
        process.wait(PATIENCE_S)
