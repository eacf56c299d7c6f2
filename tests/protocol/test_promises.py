"""What the page of the protocol promises to whoever writes a client, tried with bare frames."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.protocol.frames import ERROR, REPLY, Command
from tests.protocol.harness import Wire, decode, encode
from tests.server.harness import Running

LEASE_LOST, OVERLOADED, STALE, NO_CONSUMER = 9, 10, 12, 17


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    with Running(tmp_path) as server:
        yield server


@pytest.fixture
def wire(running: Running) -> Iterator[Wire]:
    with Wire(running.server.address) as connected:
        yield connected


def publish(wire: Wire, *values: bytes, topic: str = "t", **columns: Any) -> Any:
    names = [
        "producer",
        "sequence",
        "priority",
        "partition",
        "delay_us",
        "deliver_at_us",
        "expires_in_us",
        "dedupe_ids",
    ]
    defaults = {"sequence": 0, "priority": 128}
    more = [columns.get(name, defaults.get(name)) for name in names]
    return wire.ask(Command.PUBLISH, [topic, encode([None, list(values), None]), *more])


def subscribe(wire: Wire, **options: Any) -> int:
    return int(wire.ask(Command.SUBSCRIBE, {"topics": ["t"], "group": "g", **options})["consumer"])


def failure(wire: Wire, command: Command, body: object) -> tuple[int, str, Any]:
    correlation = wire.send(command, encode(body))
    answered, about, reply = wire.read()
    assert (answered, about) == (ERROR, correlation), (answered, about, reply)
    code, text, ids = decode(reply)
    return code, text, ids


def delivered(wire: Wire, consumer: int) -> Any:
    command, about, body = wire.read()
    assert (command, about) == (Command.DELIVER, consumer)
    return decode(body)


def test_replies_come_when_they_are_ready_and_not_in_order(wire: Wire) -> None:
    consumer = subscribe(wire)
    waiting = wire.send(Command.RECEIVE, encode([consumer, 10, 30.0]))
    assert wire.ask(Command.PING, "still here") == "still here"
    published = wire.send(Command.PUBLISH, encode(["t", encode([None, [b"x"], None])]))
    assert {wire.read()[:2], wire.read()[:2]} == {
        (Command.PUBLISH | REPLY, published),
        (Command.RECEIVE | REPLY, waiting),
    }


def test_what_is_published_by_a_connection_lies_in_the_order_of_its_requests(wire: Wire) -> None:
    bodies = [
        encode(["t", encode([None, [b"%d" % number] * (1 + number % 3 // 2), None]), *(["p", number] * (number % 2))])
        for number in range(200)
    ]
    for body in bodies:
        wire.send(Command.PUBLISH, body)
    for _ in bodies:
        assert wire.read()[0] == Command.PUBLISH | REPLY
    page = wire.ask(Command.READ, {"topic": "t", "partition": 0})
    values = [int(value) for rows in page[0] for value in decode(rows[4])[1]]
    assert values == sorted(values)
    assert (len(values), page[3], page[4]) == (266, None, 266)


def test_a_sequence_can_be_repeated_while_it_is_among_the_newest_1024(wire: Wire) -> None:
    assert publish(wire, b"a", b"b", producer="p", sequence=1) == [[[0, 0, 2]], None]
    for sequence in range(2, 4001):
        wire.send(Command.PUBLISH, encode(["t", encode([None, [b"x"], None]), "p", sequence]))
        if not sequence % 1000:
            for _ in range(1000 if sequence > 1000 else 999):
                assert wire.read()[0] == Command.PUBLISH | REPLY
    for sequence in (1, 1000):
        body = ["t", encode([None, [b"a", b"b"], None]), "p", sequence]
        assert failure(wire, Command.PUBLISH, body)[0] == STALE
    for sequence in (4000, 4000 - 1023, 3500):
        assert publish(wire, b"x", producer="p", sequence=sequence)[0] == [[0, sequence, 1]]
    code, text, _ = failure(wire, Command.PUBLISH, ["t", encode([None, [b"a", b"b"], None]), "p", 4000])
    assert (code, "other messages" in text) == (1, True)


def test_places_tell_where_each_message_is_when_runs_do_not(wire: Wire) -> None:
    wire.ask(Command.CALL, ["create_topic", {"name": "t", "partitions": 2}])
    runs, places = publish(wire, b"a", b"b", b"c", b"d", partition=[1, 0, 1, None])
    assert sum(count for _, _, count in runs) == 4
    assert places[:3] == [[1, 0], [0, 0], [1, 1]]
    assert publish(wire, b"a", b"b", partition=1)[1] is None


def test_what_a_lost_connection_held_comes_at_once_and_counts_as_no_failure(running: Running, wire: Wire) -> None:
    publish(wire, b"a", b"b")
    with Wire(running.server.address) as lost:
        (rows,) = lost.ask(Command.RECEIVE, [subscribe(lost), 10])[0]
        assert rows[11] == {}
    consumer = subscribe(wire)
    (again,) = wire.ask(Command.RECEIVE, [consumer, 10, 10.0])[0]
    assert again[11] == {0: [2, 0], 1: [2, 0]}
    old = [["t", 0, rows[9], [0, 2]]]
    code, _, ids = failure(wire, Command.ACK, [consumer, old])
    assert code == LEASE_LOST
    assert ids == [{"topic": "t", "partition": 0, "offset": offset} for offset in (0, 1)]
    assert failure(wire, Command.ACK, [consumer + 1, old])[0] == NO_CONSUMER
    assert wire.ask(Command.ACK, [consumer, [["t", 0, again[9], [0, 2]]]]) == []
    assert wire.ask(Command.ACK, [consumer, [["t", 0, again[9], [0, 2]]]]) == []  # again does no harm


def test_what_is_held_is_settled_although_the_rest_of_the_request_is_not(wire: Wire) -> None:
    publish(wire, b"a", b"b", b"c")
    consumer = subscribe(wire)
    (rows,) = wire.ask(Command.RECEIVE, [consumer, 2])[0]
    code, _, ids = failure(wire, Command.ACK, [consumer, [["t", 0, rows[9], [0, 3]]]])
    assert (code, [identity["offset"] for identity in ids]) == (LEASE_LOST, [2])
    assert wire.ask(Command.CALL, ["group", {"topic": "t", "group": "g"}])["acked"] == 2


def test_failed_released_and_killed_messages_go_their_ways(wire: Wire) -> None:
    publish(wire, b"a", b"b", b"c")
    consumer = subscribe(wire)
    (rows,) = wire.ask(Command.RECEIVE, [consumer, 3])[0]
    lease = rows[9]
    assert wire.ask(Command.FAIL, [consumer, [["t", 0, lease, [0, 1]]], "no milk", 0.0]) == []
    assert wire.ask(Command.RELEASE, [consumer, [["t", 0, lease, [1, 1]]]]) == []
    assert wire.ask(Command.KILL, [consumer, [["t", 0, lease, [2, 1]]], "no tea ever"]) == []
    (again,) = wire.ask(Command.RECEIVE, [consumer, 3, 10.0])[0]
    assert (again[2], again[11]) == (0, {0: [2, 1], 1: [2, 0]})
    assert wire.ask(Command.EXTEND, [consumer, [["t", 0, again[9], [0, 2]]], "", 120.0]) == []
    (letter,) = wire.ask(Command.CALL, ["dead_letters", {"topic": "t"}])
    assert (letter["cause"], letter["origin"]["offset"]) == ("no tea ever", 2)
    for command, body in (
        (Command.FAIL, [consumer, []]),
        (Command.KILL, [consumer, []]),
        (Command.EXTEND, [consumer, []]),
    ):
        assert failure(wire, command, body)[0] == 1  # a reason, a reason, a time


def test_no_more_is_pushed_than_the_window_until_some_is_taken(wire: Wire) -> None:
    publish(wire, *[b"x"] * 20)
    consumer = subscribe(wire)
    wire.send(Command.PUSH, encode([consumer, 5]))
    assert wire.read()[0] == Command.PUSH | REPLY
    first, ahead, error = delivered(wire, consumer)
    offsets = [offset for rows in first for offset in range(rows[2], rows[2] + len(decode(rows[4])[1]))]
    assert (offsets, ahead, error) == ([0, 1, 2, 3, 4], 5, None)
    assert wire.ask(Command.PING, None) is None  # nothing else came before it
    wire.send(Command.TAKEN, encode([consumer, [["t", 0, first[0][9], [0, 3]]]]), 0)
    second, _, _ = delivered(wire, consumer)
    assert [rows[2] for rows in second] == [5]
    assert len(decode(second[0][4])[1]) == 3
    assert wire.ask(Command.PUSH, [consumer, 0]) == []
    wire.send(Command.TAKEN, encode([consumer, [["t", 0, first[0][9], [3, 2]]]]), 0)
    assert wire.ask(Command.PING, None) is None


def test_one_at_a_time_is_pushed_while_there_are_several_priorities(wire: Wire) -> None:
    publish(wire, b"low", b"high", priority=bytes([200, 10]))
    consumer = subscribe(wire)
    wire.send(Command.PUSH, encode([consumer, 100]))
    assert wire.read()[0] == Command.PUSH | REPLY
    rows, ahead, _ = delivered(wire, consumer)
    assert ([decode(some[4])[1] for some in rows], ahead) == ([[b"high"]], 1)


def test_a_push_that_cannot_go_on_says_why(wire: Wire) -> None:
    consumer = subscribe(wire)
    wire.ask(Command.PUSH, [consumer, 5])
    wire.send(Command.CALL, encode(["delete_topic", {"name": "t"}]))
    frames = [wire.read(), wire.read()]
    (error,) = [decode(body)[2] for command, _, body in frames if command == Command.DELIVER]
    assert "deleted" in error[1]


def test_a_receive_ends_with_its_cancel_or_its_consumer(wire: Wire) -> None:
    consumer = subscribe(wire)
    first = wire.send(Command.RECEIVE, encode([consumer, 10, 60.0]))
    second = wire.send(Command.RECEIVE, encode([consumer, 10, 60.0]))
    wire.send(Command.CANCEL, encode([consumer, first]), 0)
    assert wire.read() == (Command.RECEIVE | REPLY, first, encode([[], 0, None]))
    last = wire.send(Command.UNSUBSCRIBE, encode([consumer]))
    assert wire.read() == (Command.RECEIVE | REPLY, second, encode([[], 0, None]))
    assert wire.read() == (Command.UNSUBSCRIBE | REPLY, last, encode([]))
    assert failure(wire, Command.HEARTBEAT, [consumer])[0] == NO_CONSUMER


def test_acked_when_handed_out_is_acked_for_good(running: Running, wire: Wire) -> None:
    publish(wire, b"a")
    with Wire(running.server.address) as other:
        consumer = subscribe(other, autoack=True)
        assert other.ask(Command.RECEIVE, [consumer, 10])[0]
    assert wire.ask(Command.RECEIVE, [subscribe(wire), 10])[0] == []


def test_pages_follow_each_other_without_a_gap(wire: Wire) -> None:
    for _ in range(7):
        publish(wire, *[b"x" * 300_000] * 5)
    offset: int | None = 0
    found: list[int] = []
    pages = 0
    while offset is not None:
        asked = {"topic": "t", "partition": 0, "offset": offset, "end": 33}
        rows, _, _, offset, count, end = wire.ask(Command.READ, asked)
        assert end == 35
        some = [first for run in rows for first in range(run[2], run[2] + len(decode(run[4])[1]))]
        assert len(some) == count
        found += some
        pages += 1
    assert found == list(range(33))
    assert pages > 2
    assert wire.ask(Command.READ, {"topic": "t", "partition": 0, "limit": 3})[3:] == [3, 3, 35]
    assert failure(wire, Command.READ, {"topic": "t", "partition": 0, "form": "events", "from_time_us": 1})[0] == 1


def test_a_silent_connection_is_told_goodbye_even_while_it_waits(tmp_path: Path) -> None:
    with Running(tmp_path, idle_timeout=0.2) as running, Wire(running.server.address) as wire:
        wire.send(Command.RECEIVE, encode([subscribe(wire), 1, 60.0]))
        command, about, body = wire.read()
        assert (command, about) == (Command.GOODBYE, 0)
        assert "idle_timeout" in decode(body)["reason"]


def test_one_connection_too_many_hears_so_before_it_says_anything(tmp_path: Path) -> None:
    with Running(tmp_path, max_connections=1) as running, Wire(running.server.address) as wire:
        with Wire(running.server.address, greet=False) as other:
            command, about, body = other.read()
            assert (command, about, decode(body)[0]) == (ERROR, 0, OVERLOADED)
        assert wire.ask(Command.PING, None) is None


def test_a_server_that_stops_says_goodbye_and_answers_what_is_under_way(tmp_path: Path) -> None:
    with Running(tmp_path, shutdown_grace=2) as running:
        wire = Wire(running.server.address)
        sent = [wire.send(Command.PUBLISH, encode(["t", encode([None, [b"x"], None])])) for _ in range(100)]
        assert wire.read()[0] == Command.PUBLISH | REPLY
    frames = [wire.read() for _ in range(100)]
    assert sorted(about for command, about, _ in frames if command == Command.PUBLISH | REPLY) == sent[1:]
    assert [about for command, about, _ in frames if command == Command.GOODBYE] == [0]
    with pytest.raises(EOFError):
        wire.read()
    wire.close()
