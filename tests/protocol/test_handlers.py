"""Whatever a client says, the server answers it once, serves the others, and has nothing to complain of in its log."""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from inspect import Parameter, signature
from typing import Any

import msgspec
import pytest

from penstock.protocol.frames import ERROR, HEADER, REPLY, Command
from penstock.protocol.session import decode_hello
from penstock.server.native.listener import NativeListener
from penstock.server.operations import HANDLERS
from penstock.server.server import Server
from tests.protocol.harness import Wire, decode, encode
from tests.server.harness import Running, until

INVALID, PROTOCOL = 1, 16
UNASKED = (Command.MOVED, Command.DELIVER, Command.GOODBYE)
SILENT = (Command.TAKEN, Command.CANCEL)  # have no reply, unless it is an error
REQUESTS = [command for command in Command if command not in UNASKED]
ONE = encode([None, [b"v"], None])
TWO = encode([[b"k", None], [b"v", b"w"], [{"a": "b"}, None]])
FIRST_LEASE = (1 << 32) + 1  # of a broker that was opened once

NASTY: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 5, 127, 2**31, 2**32, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1, -(2**63)),
    *(0.0, -0.0, 0.5, 1e-300, 1e300, 1e11, 9e11, math.inf, -math.inf, math.nan),
    *("", "t", "u", "g", "kim", "earliest", "latest", "assigned", "shared", "rows", "arrow", "events", "5m", "../.."),
    *("t/0/0", "t/0/1", "t/9/0", "t.dlq/0/0", "t/0/99999999999999999999999", "t.dlq", "x/y", "é\0", "a" * 300, "UTC"),
    *("* * * * *", "Europe/Berlin", "2026-01-01T00:00:00Z", "penstock.schedules"),
    *(b"", b"x", b"\xff" * 10, ONE, TWO),
    *(
        [],
        {},
        [0, 1],
        [0, 10_000_000],
        [2**62 - 1, 10_000_000],
        [[]],
        [None],
        ["t"],
        ["t", "u"],
        ["t", "t"],
        [[0, 0, 1]],
    ),
    *({"a": "b"}, {"0": [0, 1]}, {"a": 1, "b": [1, 2]}, {1: 2}, {"t": {}}, list(range(40))),
    msgspec.msgpack.Ext(5, b"xx"),
    *(datetime(2026, 1, 1, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)),
]
ARGUMENTS = {
    "topic": "t",
    "group": "g",
    "name": "s",
    "cron": "* * * * *",
    "value": "v",
    "identity": "t/0/0",
    "to": "g2",
    "time": 0.0,
    "start": "earliest",
    "partition": 0,
    "limit": 5,
    "delay": 5,
    "after": "t.dlq/0/0",
    "zone": "UTC",
    "ids": ["t.dlq/0/0"],
    "only": {"0": [0, 2]},
    "key": "k",
    "headers": {"a": "b"},
    "priority": 1,
    "dry_run": False,
    "positions": {0: 1, 1: 0},
    "stage": "s",
    "stages": ["s"],
    "staged": 0,
    "producer": "p",
    "sequence": 1,
}
OPTIONS = [
    "partitions",
    "retention_age",
    "retention_bytes",
    "max_backlog",
    "backlog_groups",
    "max_delay",
    "lanes",
    "lane_weights",
    "order",
]


class Nonsense:
    """Bodies that are nearly right, or not at all."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def body(self, right: object) -> bytes:
        """Something like what is right."""
        chance = self._random.random()
        if chance < 0.05:
            return self._random.randbytes(self._random.randrange(30))
        if chance < 0.1:
            return encode(self.value())
        value = right
        for _ in range(self._random.choice([0, 1, 1, 2])):
            value = self._changed(value)
        if isinstance(value, list) and value and self._random.random() < 0.05:
            value = value[: self._random.randrange(len(value))]
        body = bytearray(encode(value))
        chance, place = self._random.random(), self._random.randrange(len(body))
        if chance < 0.05:
            return bytes(body[:place])
        if chance < 0.12:
            body[place] = self._random.randrange(256)
        return bytes(body)

    def value(self, depth: int = 0) -> Any:
        """Anything."""
        chance = self._random.random()
        if depth < 3 and chance < 0.1:
            return [self.value(depth + 1) for _ in range(self._random.randrange(4))]
        if depth < 3 and chance < 0.17:
            return {self._random.choice(["a", "topic", 1, ""]): self.value(depth + 1) for _ in range(2)}
        return self._random.randrange(-(2**63), 2**64) if chance < 0.2 else self._random.choice(NASTY)

    def _changed(self, value: Any) -> Any:
        if isinstance(value, list) and value and self._random.random() < 0.85:
            place = self._random.randrange(len(value))
            return [self._changed(item) if at == place else item for at, item in enumerate(value)]
        if isinstance(value, dict) and value and self._random.random() < 0.95:
            chosen = self._random.choice(list(value))
            return {name: self._changed(item) if name == chosen else item for name, item in value.items()}
        if self._random.random() < 0.8:  # of the same kind, so that it gets further
            alike = [other for other in NASTY if type(other) is type(value)]
            return self._random.choice(alike or [None, 0, 1, 0.5, "kim", 2**62, -1])
        return self.value()

    # What is right.

    def right(self, command: Command) -> object:
        """A body that is fine, or would be if there were such a consumer or lease."""
        pick, consumer = self._random.choice, self._random.choice([1, 1, 2, 3])
        lease = FIRST_LEASE + self._random.randrange(40)
        held = [[pick("tu"), pick([0, 1]), lease, [self._random.randrange(8), pick([1, 2, 5])]]]
        bodies: dict[Command, list[object]] = {
            Command.HELLO: [{"versions": [1], "client": "x", "token": None}],
            Command.PING: [None, [1, 2]],
            Command.PUBLISH: [
                ["t", ONE],
                ["t", ONE, "p", 1],
                ["u", TWO, None, 0, b"\1\2", [0, None], [1, None], [None, 5], [1, None], ["x", None]],
                ["u", TWO, "p", 7, 64, None, 1000, None, 10**6, None],
            ],
            Command.SUBSCRIBE: [
                {
                    "topics": ["t"],
                    "group": "g",
                    "mode": "shared",
                    "max_in_flight": 10,
                    "start": "earliest",
                    "name": None,
                },
                {"topics": ["u"], "group": "h", "mode": "assigned", "visibility_timeout": 1.0, "session_timeout": 30.0},
            ],
            Command.UNSUBSCRIBE: [[77]],
            Command.RECEIVE: [[consumer, 10], [consumer, 10, 0.01, 1.0], [consumer, 3, 60.0, 0.5]],
            Command.CANCEL: [[consumer, 5]],
            Command.TAKEN: [[consumer, held]],
            Command.ACK: [[consumer, held]],
            Command.EXTEND: [[consumer, held, "", 3.0]],
            Command.RELEASE: [[consumer, held]],
            Command.FAIL: [[consumer, held, "why", 0.0], [consumer, held, "why"]],
            Command.KILL: [[consumer, held, "why"]],
            Command.HEARTBEAT: [[consumer]],
            Command.READ: [
                {"topic": "t", "partition": 0, "offset": 0, "end": None, "limit": 10, "form": form, "replay": False}
                for form in ("rows", "arrow", "events")
            ],
            Command.PUSH: [[consumer, 10], [consumer, 0]],
            Command.STAGE: [
                ["s", "w", self._random.randrange(5), ["t", ONE]],
                [pick("sx"), pick("vw"), 0, ["u", TWO, None, 0, b"\1\2", [0, None], [1, None], [None, 5]]],
            ],
            Command.CALL: [self._call(pick(sorted(HANDLERS)))],
        }
        return pick(bodies[command])

    def _call(self, operation: str) -> list[object]:
        arguments: dict[str, object] = {}
        for parameter in list(signature(HANDLERS[operation]).parameters.values())[1:]:
            if parameter.kind is Parameter.VAR_KEYWORD:
                arguments |= {name: self.value() for name in self._random.sample(OPTIONS, 2)}
            elif parameter.name != "rate" and (parameter.default is Parameter.empty or self._random.random() < 0.6):
                arguments[parameter.name] = ARGUMENTS.get(parameter.name)
        return [operation, arguments]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Running(tmp_path_factory.mktemp("handlers"), max_frame_bytes="1MiB") as running:
        with Wire(running.server.address) as wire:
            for topic in ("t", "u"):
                wire.ask(Command.CALL, ["create_topic", {"name": topic, "partitions": 2}])
                wire.ask(Command.PUBLISH, [topic, encode([None, [b"v"] * 50, None])])
        yield running.server


@pytest.fixture(autouse=True)
def nothing_unexpected(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.INFO):
        yield
    found = [record for record in caplog.records if record.levelno >= logging.ERROR or record.exc_info]
    assert not found, [record.exc_info or record.getMessage() for record in found]


def subscribe(wire: Wire) -> None:
    """Three consumers, with the numbers 1 to 3."""
    for group, mode in (("g", "shared"), ("h", "assigned"), ("k", "shared")):
        options = {"topics": ["t", "u"], "group": group, "mode": mode, "autoack": group == "k"}
        wire.ask(Command.SUBSCRIBE, options)


def all_idle(server: Server) -> bool:
    return all(connection.idle for connection in native_of(server).connections)


def native_of(server: Server) -> NativeListener:
    native = server._listeners["native"]
    assert isinstance(native, NativeListener)
    return native


def answers(wire: Wire, sent: dict[int, Command]) -> None:
    """Wait until everything is answered, once and in the right way."""
    for correlation, command in sent.items():
        if command == Command.RECEIVE:
            for consumer in range(1, 128):  # nonsense may have subscribed others, and named them
                wire.send(Command.CANCEL, encode([consumer, correlation]), 0)
    waiting = {correlation for correlation, command in sent.items() if command not in SILENT}
    while waiting:
        answered, correlation, body = wire.read()
        if answered in UNASKED:
            continue
        command = sent[correlation]
        assert answered == ERROR or (answered == command | REPLY and command not in SILENT)
        assert correlation in waiting or command in SILENT
        waiting.discard(correlation)
        if command != Command.PING:  # which gives back what it got, whatever that is
            reply = decode(body)
            assert answered != ERROR or reply[0] != 0, (command, reply)


def safe(command: Command, body: bytes) -> bool:
    """Whether the connection survives it: a HELLO of another version is the end of it."""
    if command != Command.HELLO:
        return True
    try:
        return 1 in decode_hello(body).versions
    except msgspec.MsgspecError:
        return True


@pytest.mark.parametrize("command", REQUESTS, ids=lambda command: command.name)
def test_nonsense_is_refused_and_the_connection_goes_on(server: Server, command: Command) -> None:
    nonsense = Nonsense(command.name)
    with Wire(server.address) as wire, Wire(server.address) as other:
        subscribe(wire)
        for turn in range(12 if command != Command.CALL else 40):
            sent: dict[int, Command] = {}
            for kind in [command] * 20 + [Command.RECEIVE, Command.PING]:
                right = nonsense.right(kind)
                body = nonsense.body(right) if kind == command else encode(right)
                if safe(kind, body):
                    sent[wire.send(kind, body)] = kind
            assert other.ask(Command.PING, turn) == turn
            answers(wire, sent)
        other.ask(Command.CALL, ["status", {}])
        until(lambda: all_idle(server))


@pytest.mark.parametrize("seed", range(3))
def test_everything_at_once_is_answered_all_the_same(server: Server, seed: int) -> None:
    nonsense = Nonsense(f"all {seed}")
    with Wire(server.address) as wire, Wire(server.address) as other:
        subscribe(wire)
        for turn in range(20):
            sent: dict[int, Command] = {}
            for command in [*REQUESTS, *REQUESTS]:
                body = nonsense.body(nonsense.right(command))
                if safe(command, body):
                    sent[wire.send(command, body)] = command
            assert other.ask(Command.PING, turn) == turn
            answers(wire, sent)
        until(lambda: all_idle(server))


def test_a_connection_that_goes_in_the_middle_of_nonsense_leaves_nothing_behind(server: Server) -> None:
    nonsense = Nonsense("gone")
    for _ in range(5):
        with Wire(server.address) as wire:
            subscribe(wire)
            for command in [command for command in REQUESTS * 3 if command != Command.CALL]:
                body = nonsense.body(nonsense.right(command))
                if safe(command, body):
                    wire.send(command, body)
    with Wire(server.address) as other:
        until(lambda: len(native_of(server).connections) == 1)
        until(lambda: not any(group["members"] for group in other.ask(Command.CALL, ["groups", {}])))
        assert all_idle(server)


def test_commands_that_are_not_known_are_refused(server: Server) -> None:
    with Wire(server.address) as wire:
        for command in range(256):
            if command not in REQUESTS:
                correlation = wire.send(command, b"\xc0")
                answered, about, body = wire.read()
                assert (answered, about, decode(body)[0]) == (ERROR, correlation, INVALID)


# What ends a connection.


def ends(wire: Wire, correlation: int, text: str) -> None:
    """The server says why, and closes the connection."""
    answered, about, body = wire.read()
    assert (answered, about, decode(body)[0]) == (ERROR, correlation, PROTOCOL)
    assert text in decode(body)[1]
    with pytest.raises(EOFError):
        wire.read()


@pytest.mark.parametrize("command", [command for command in REQUESTS if command != Command.HELLO])
def test_a_connection_that_does_not_begin_with_hello_is_closed(server: Server, command: Command) -> None:
    with Wire(server.address, greet=False) as wire:
        ends(wire, wire.send(command, b"\xc0"), "HELLO")


def test_a_client_of_another_version_is_told_so(server: Server) -> None:
    with Wire(server.address, greet=False) as wire:
        ends(wire, wire.send(Command.HELLO, encode({"versions": [2, 3]})), "version 1")
    with Wire(server.address, greet=False) as wire:
        assert wire.ask(Command.HELLO, {"versions": [3, 2, 1]})["version"] == 1
        assert wire.ask(Command.HELLO, {"versions": [1]})["version"] == 1  # once more does no harm


def test_a_frame_that_is_too_large_is_told_by_its_correlation(server: Server) -> None:
    with Wire(server.address) as wire, Wire(server.address) as other:
        wire.send_bytes(HEADER.pack(1, Command.PUBLISH, 4711, 1 << 30))
        ends(wire, 4711, "max_frame_bytes")
        other.ask(Command.PING, None)


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n", bytes(10), b"\xff" * 64])
def test_garbage_ends_its_connection_and_no_other(server: Server, garbage: bytes) -> None:
    with Wire(server.address, greet=False) as wire, Wire(server.address) as other:
        wire.send_bytes(garbage)
        ends(wire, 0, "native p")
        other.ask(Command.PING, None)


# What was found by the above, and must stay as it is.


def refused(wire: Wire, command: Command, body: bytes) -> str:
    """The text of the InvalidArgument that comes."""
    correlation = wire.send(command, body)
    answered, about, reply = wire.read()
    assert (answered, about) == (ERROR, correlation), (answered, about, reply)
    code, text, *_ = decode(reply)
    assert code == INVALID, text
    return str(text)


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        ("dead_letters", {"topic": "t", "limit": "x"}),
        ("dead_letters", {"topic": "t", "limit": -1}),
        ("dead_letters", {"topic": "t", "limit": math.nan}),
        ("redrive", {"topic": "t", "ids": 5}),
        ("purge_dead_letters", {"topic": "t", "ids": "t.dlq/0/0"}),
        ("replay", {"topic": "t", "to": "r", "order": 1}),
        ("replay", {"topic": "t", "to": "r", "only": {"0": [0]}}),
        ("replay", {"topic": "t", "to": "r", "only": {"x": [0, 1]}}),
        ("replay", {"topic": "t", "to": "r", "only": 5}),
        ("offset_at", {"topic": "t", "time": 0, "partition": None}),
        ("create_group", {"topic": ["t"], "group": "g"}),
        ("delete_topic", {"name": {}}),
        ("group", {"topic": "t", "group": ["g"]}),
        ("topics", {"self": 1}),
        ("no_such_thing", {}),
    ],
)
def test_wrong_arguments_of_operations_are_invalid_arguments(
    server: Server, operation: str, arguments: dict[str, object]
) -> None:
    with Wire(server.address) as wire:
        refused(wire, Command.CALL, encode([operation, arguments]))


@pytest.mark.parametrize("depth", [2000, 400_000])
def test_what_is_nested_too_deeply_is_refused(server: Server, depth: int) -> None:
    with Wire(server.address) as wire:
        refused(wire, Command.CALL, b"\x92\xa6topics\x81\xa1a" + b"\x91" * depth + b"\xc0")


def test_text_that_is_not_utf_8_is_refused(server: Server) -> None:
    with Wire(server.address) as wire:
        assert "UTF-8" in refused(wire, Command.CALL, b"\x92\xa2\xff\xff\x80")
        refused(wire, Command.PUBLISH, b"\x92\xa1t\xc4\x0b\x93\xc0\x91\xc4\x00\x91\x81\xa1\xff\xa1a")


def test_an_error_is_short_however_long_the_request_was(server: Server) -> None:
    with Wire(server.address) as wire:
        assert len(refused(wire, Command.CALL, encode(["trace", {"identity": "x" * 500_000}]))) < 20_000


def test_two_receives_do_not_wait_under_one_correlation(server: Server) -> None:
    with Wire(server.address) as wire:
        consumer = wire.ask(Command.SUBSCRIBE, {"topics": ["t"], "group": "late", "start": "latest"})["consumer"]
        wire.send(Command.RECEIVE, encode([consumer, 1, 60.0]), 99)
        wire.send(Command.RECEIVE, encode([consumer, 1, 60.0]), 99)
        answered, about, body = wire.read()
        assert (answered, about, decode(body)[0]) == (ERROR, 99, INVALID)
        wire.send(Command.CANCEL, encode([consumer, 99]))
        assert wire.read() == (Command.RECEIVE | REPLY, 99, encode([[], 0, None]))
    until(lambda: all_idle(server))


def test_a_request_that_names_endless_runs_is_answered_at_once(server: Server) -> None:
    with Wire(server.address) as wire:
        started_s = time.monotonic()
        only = {"0": [0, 10_000_000] * 1000}
        wire.ask(Command.CALL, ["replay", {"topic": "t", "to": "endless", "only": only}])
        assert time.monotonic() - started_s < 5


@pytest.mark.parametrize("fields", [4, 10], ids=["short", "long"])
def test_a_sequence_that_is_repeated_at_once_is_published_once(server: Server, fields: int) -> None:
    request = ["once", ONE, f"producer {fields}", 5, 128, None, None, None, None, None][:fields]
    with Wire(server.address) as wire:
        wire.ask(Command.CALL, ["create_topic", {"name": f"once{fields}"}])
        request[0] = f"once{fields}"
        body = encode(request)
        wire.send_bytes(
            b"".join(HEADER.pack(1, Command.PUBLISH, number, len(body)) + body for number in range(100, 120))
        )
        replies = [wire.read() for _ in range(20)]
        assert {command for command, _, _ in replies} == {Command.PUBLISH | REPLY}
        assert {number for _, number, _ in replies} == set(range(100, 120))
        assert [decode(reply)[0] for _, _, reply in replies] == [[[0, 0, 1]]] * 20
        (info,) = [info for info in wire.ask(Command.CALL, ["topics", {}]) if info["name"] == f"once{fields}"]
        assert info["partitions"][0]["end_offset"] == 1
