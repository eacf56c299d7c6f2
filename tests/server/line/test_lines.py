"""Every line and its reply, and what comes again when."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from penstock.server.line.consumers import GROUP, IN_FLIGHT_MAX
from tests.server.harness import until
from tests.server.line.harness import EMPTY, LineServer, Talk, all_of

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


def test_consume_all_gives_everything_that_is_ready_and_an_end(server: LineServer, talk: Talk) -> None:
    server.broker.create_topic("t")
    assert all_of(talk) == []
    talk.send("".join(f"PRODUCE t 0 {number}\n" for number in range(300)))
    assert {talk.hear() for _ in range(300)} == {"OK"}
    assert all_of(talk) == [f"{number} {number}" for number in range(300)]
    assert all_of(talk) == []
    assert talk.say("ACK t 0 299") == "ACK_OK"


def test_consuming_makes_no_topic(server: LineServer, talk: Talk) -> None:
    for line in ("CONSUME misspelt 0", "CONSUME misspelt 0 ALL"):
        assert talk.say(line) == "ERROR: there is no topic 'misspelt'"
    assert server.broker.topics() == []
    assert talk.say("PRODUCE misspelt 0 x") == "OK"
    assert talk.say("CONSUME misspelt 0") == "0 x"


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
    journal = server.broker.shard.journal
    before = journal.commits
    talk.send("PRODUCE t 0 x\n" * 5000)
    assert {talk.hear() for _ in range(5000)} == {"OK"}
    assert 0 < journal.commits - before < 100
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
    shard = server.broker.shard
    with shard.lock:
        members = shard.dispatcher.in_use.groups(shard.catalog.by_name["t"])[GROUP].members
    until(lambda: len(members) == 1, "the end of consumers whose connection is gone")
