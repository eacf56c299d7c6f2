"""Single messages of many topics and connections that come together: each is published or refused for itself."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.model.message import IdRun
from penstock.protocol.failures import decode_failure
from penstock.protocol.frames import ERROR, REPLY, Command, frame
from penstock.protocol.publishing import decode_published
from penstock.protocol.session import encode
from penstock.server.native.connection import Connection
from penstock.storage.files import OpenFile
from tests.server.harness import Raw, Running

TOPICS = 300


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with Running(tmp_path) as running:
        yield running


def single(topic: str, value: bytes, sequence: int, producer: str = "p") -> bytes:
    """The body of a request with one message that has nothing but a value."""
    return encode([topic, encode((None, [value], None)), producer, sequence])


def send(client: Raw, bodies: list[bytes]) -> None:
    """Send requests in one piece, numbered from 1000."""
    client.socket.sendall(b"".join(frame(Command.PUBLISH, 1000 + n, body) for n, body in enumerate(bodies)))


def replies(client: Raw, count: int) -> dict[int, Any]:
    """By the number of the request: where its message is, or what is wrong."""
    found: dict[int, Any] = {}
    for _ in range(count):
        command, correlation, body = client.receive()
        assert correlation - 1000 not in found
        if command == ERROR:
            found[correlation - 1000] = decode_failure(body)
        else:
            assert command == Command.PUBLISH | REPLY
            (found[correlation - 1000],) = decode_published(body).runs
    return found


def values(server: Running, topic: str) -> list[bytes]:
    return [message.value for message in server.broker.read(topic)]


def test_replies_of_many_topics_go_out_together_and_tell_each_place(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: Counter[Connection] = Counter()
    answer_now = Connection.answer_now

    def counted(connection: Connection, replies: list[bytes]) -> None:
        writes[connection] += 1
        answer_now(connection, replies)

    for number in range(TOPICS):
        server.broker.create_topic(f"t-{number}")
    monkeypatch.setattr(Connection, "answer_now", counted)
    with Raw(server.port) as client:
        before = server.broker.shard.journal.commits
        for turn in range(3):
            bodies = [single(f"t-{n}", b"%d" % turn, turn * TOPICS + n) for n in range(TOPICS)]
            send(client, bodies)
            assert replies(client, TOPICS) == {n: IdRun(0, turn, 1) for n in range(TOPICS)}
        assert sum(writes.values()) <= server.broker.shard.journal.commits - before
    assert all(values(server, f"t-{n}") == [b"0", b"1", b"2"] for n in range(TOPICS))


def test_L3_messages_of_a_producer_keep_their_order_where_some_go_one_by_one(server: Running) -> None:
    server.broker.create_topic("old")
    with Raw(server.port) as client:
        send(client, [single("old", b"0", 1), single("new", b"0", 2)])
        assert replies(client, 2) == {0: IdRun(0, 0, 1), 1: IdRun(0, 0, 1)}
        bodies = [
            single("old", b"1", 3),
            single("newer", b"0", 4),  # is made by it
            single("old", b"2", 5),
            single("old", b"0", 1),  # was published before
            single("newer", b"1", 6),
            single("old", b"3", 7),
            single("old", b"3", 7),  # is on its way
        ]
        send(client, bodies)
        places = [found.base for _, found in sorted(replies(client, len(bodies)).items())]
        assert places == [1, 0, 2, 0, 1, 3, 3]
    assert values(server, "old") == [b"0", b"1", b"2", b"3"]
    assert (values(server, "new"), values(server, "newer")) == ([b"0"], [b"0", b"1"])


def test_L4_a_refused_message_is_told_to_its_client_and_the_others_are_published(server: Running) -> None:
    server.broker.create_topic("free")
    server.broker.create_topic("full", max_backlog=2)
    with Raw(server.port) as client, Raw(server.port) as other:
        send(other, [single("free", b"x", 1, "q")])
        bodies = [single("full" if n % 2 else "free", b"%d" % n, n) for n in range(8)] + [single("a/b", b"no", 9)]
        send(client, bodies)
        found = replies(client, len(bodies))
        refused = {number for number, reply in found.items() if isinstance(reply, Exception)}
        assert refused == {5, 7, 8}, "the backlog has room for two, and no topic has such a name"
        assert isinstance(replies(other, 1)[0], IdRun)
    assert values(server, "full") == [b"1", b"3"]
    assert [value for value in values(server, "free") if value != b"x"] == [b"0", b"2", b"4", b"6"]


def test_R5_a_commit_that_fails_is_told_to_everybody(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(10):
        server.broker.create_topic(f"t-{number}")

    def fail(_: OpenFile) -> None:
        raise OSError(errno.EIO, "the disk is broken")

    with Raw(server.port) as client, Raw(server.port) as other:
        monkeypatch.setattr(OpenFile, "sync", fail)
        send(client, [single(f"t-{n}", b"x", n) for n in range(10)])
        send(other, [single(f"t-{n}", b"x", n, "q") for n in range(10)])
        for whose in (client, other):
            told = replies(whose, 10)
            assert {type(error).__name__ for error in told.values()} == {"StorageFailed"}
        monkeypatch.undo()
    assert all(values(server, f"t-{n}") == [] for n in range(10))


def test_more_messages_than_are_published_at_once_are_all_answered(server: Running) -> None:
    server.broker.create_topic("t")
    with Raw(server.port) as client:
        send(client, [single("t", b"%d" % n, n) for n in range(2500)])
        found = replies(client, 2500)
        assert [found[n].base for n in range(2500)] == list(range(2500))
    assert values(server, "t") == [b"%d" % n for n in range(2500)]


@pytest.mark.parametrize(
    "body",
    [
        encode(["t", encode((None, [b"x"], None))]),
        encode(["t", encode((None, [b"x"], None)), None, 0]),
        encode(["t", encode((None, [b"x"], None)), "p" * 300, 1]),
        encode(["t", encode(([b"k"], [b"x"], None)), "p", 1]),
        encode(["t", encode((None, [b"x"], [{"a": "b"}])), "p", 1]),
        encode(["t", encode((None, [b"x"], None)), "p", 1, 128]),
    ],
)
def test_a_single_message_of_another_shape_goes_between_the_others(server: Running, body: bytes) -> None:
    with Raw(server.port) as client:
        send(client, [single("t", b"0", 1, "q"), body, single("t", b"2", 2, "q")])
        assert {number: found.base for number, found in replies(client, 3).items()} == {0: 0, 1: 1, 2: 2}
    assert values(server, "t") == [b"0", b"x", b"2"]
