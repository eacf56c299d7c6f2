"""What the native port refuses: who has no token, and what a token is not for."""

from __future__ import annotations

import logging
import re
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.api.operations import OPERATIONS
from penstock.client import AsyncClient, Client
from penstock.model.config import BrokerConfig
from penstock.model.errors import (
    ConnectionLost,
    Forbidden,
    PenstockError,
    ScheduleNotFound,
    StageNotFound,
    Unauthenticated,
)
from penstock.model.tokens import NewToken, TokenInfo
from penstock.protocol.failures import decode_failure
from penstock.protocol.frames import ERROR, HEADER, VERSION, Command, ProtocolError, frame
from penstock.protocol.publishing import encode_publish
from penstock.protocol.session import Call, Hello, Read, encode
from penstock.server.access.starting import StartRefused, is_loopback
from penstock.server.access.tokens import TokenFile
from penstock.server.config import ServerConfig
from penstock.server.operations import HANDLERS
from penstock.server.server import Server
from penstock.testing.line import Line
from tests.server.harness import Raw, Running, run, until

ALL = ("admin", "publish", "consume", "read")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with Running(tmp_path, auth="tokens") as running:
        yield running


@pytest.fixture
def quick(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections are looked after more often."""
    server.server.services.deadlines.look_s = 0.02
    monkeypatch.setattr("penstock.server.access.access._LOOK_S", 0.0)


@pytest.fixture
def tokens(tmp_path: Path) -> TokenFile:
    return TokenFile(tmp_path)


Connect = Callable[..., Client]


@pytest.fixture
def connect(server: Running, tokens: TokenFile) -> Iterator[Connect]:
    """Connects with a new token of these scopes, for these topics."""
    clients: list[Client] = []

    def start(*scopes: str, topics: tuple[str, ...] = ("*",), name: str | None = None) -> Client:
        made = tokens.create(name or f"token-{len(clients)}", scopes, topics)
        clients.append(Client(server.address, token=made.secret))
        return clients[-1]

    yield start
    for client in clients:
        client.close()


# Who is let in.


@pytest.mark.parametrize("token", [None, "", "pst_x", f"pst_{'0' * 12}_{'A' * 43}", "x" * 10_000])
def test_without_a_valid_token_the_connection_is_refused_and_closed(server: Running, token: str | None) -> None:
    with Raw(server.port, hello=False) as raw:
        with pytest.raises(Unauthenticated):
            raw.ask(Command.HELLO, encode(Hello([VERSION], "a test", token)))
        assert raw.ended()
    with pytest.raises(Unauthenticated):
        Client(server.address, token=token)
    until(lambda: not server.connections, "the end of the connections")


def test_what_comes_behind_a_refused_hello_is_not_done(server: Running) -> None:
    body, _ = encode_publish("t", ["x"], BrokerConfig())
    with Raw(server.port, hello=False) as raw:
        hello = frame(Command.HELLO, 1, encode(Hello([VERSION])))
        raw.socket.sendall(hello + frame(Command.PUBLISH, 2, body) + hello + frame(Command.PING, 3, b"\xc0"))
        command, correlation, reply = raw.receive()
        assert (command, correlation) == (ERROR, 1)
        assert isinstance(decode_failure(reply), Unauthenticated)
        with pytest.raises(EOFError):
            raw.receive()
    assert server.broker.topics() == []


def test_a_secret_is_in_no_log(
    server: Running, tokens: TokenFile, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = tokens.create("a", ["read"]).secret
    tokens.revoke("a")
    with pytest.raises(Unauthenticated) as refused:
        Client(server.address, token=secret)
    assert secret not in str(refused.value)
    assert "a client was refused" in caplog.text
    assert secret not in caplog.text


def test_every_command_but_hello_needs_one_before(server: Running) -> None:
    for command in Command:
        if command is not Command.HELLO:
            with Raw(server.port, hello=False) as raw:
                with pytest.raises(ProtocolError):
                    raw.ask(command, b"\xc0")
                assert raw.ended()


def test_a_connection_keeps_the_token_that_it_began_with(server: Running, tokens: TokenFile) -> None:
    first, second = tokens.create("a", ["read"]).secret, tokens.create("b", ["admin"]).secret
    with Raw(server.port, hello=False) as raw:
        for _ in range(2):
            raw.ask(Command.HELLO, encode(Hello([VERSION], "", first)))
        with pytest.raises(Unauthenticated, match="keeps the token"):
            raw.ask(Command.HELLO, encode(Hello([VERSION], "", second)))
        assert raw.ended()


def test_a_client_that_does_not_say_who_it_is_does_not_stay(tmp_path: Path) -> None:
    with (
        Running(tmp_path, auth="tokens", login_timeout=0.05) as server,
        Raw(server.port, hello=False) as silent,
        Raw(server.port, hello=False) as slow,
    ):
        slow.socket.sendall(frame(Command.HELLO, 1, encode(Hello([VERSION])))[:-1])
        assert silent.ended()
        assert slow.ended()


def test_before_anybody_is_known_a_frame_is_small(server: Running, connect: Connect) -> None:
    with Raw(server.port, hello=False) as raw:
        raw.socket.sendall(HEADER.pack(VERSION, Command.HELLO, 1, 17 << 10))
        with pytest.raises(ProtocolError, match="too large; the limit is 16 KiB"):
            raise decode_failure(raw.receive()[2])
        assert raw.ended()
    connect("publish").publish("t", b"x" * 100_000)  # later ones may be larger


def test_a_large_frame_may_follow_hello_at_once(server: Running, tokens: TokenFile) -> None:
    secret = tokens.create("a", ["publish"]).secret
    body, _ = encode_publish("t", [b"x" * 1_000_000], BrokerConfig())
    with Raw(server.port, hello=False) as raw:
        raw.socket.sendall(
            frame(Command.HELLO, 1, encode(Hello([VERSION], "", secret))) + frame(Command.PUBLISH, 2, body)
        )
        assert [raw.receive()[:2] for _ in range(2)] == [(0x81, 1), (0x83, 2)]


# Tokens that end while they are used.


@pytest.mark.parametrize("end", ["revoked", "expired", "damaged"])
def test_a_token_that_ends_closes_its_connections_and_no_others(
    server: Running, tokens: TokenFile, connect: Connect, quick: None, end: str
) -> None:
    stays = connect("admin") if end != "damaged" else None
    made = tokens.create("gone", ALL, expires_in="1h")
    with Raw(server.port, hello=False) as raw:
        raw.ask(Command.HELLO, encode(Hello([VERSION], "", made.secret)))
        raw.publish("t", "x")
        if end == "revoked":
            tokens.revoke("gone")
        elif end == "expired":
            server.server.services.access._now_s = lambda: 1e12
        else:
            tokens.path.write_bytes(b"{")
        command, correlation, body = raw.receive()
        assert (command, correlation) == (ERROR, 0)
        assert isinstance(decode_failure(body), Unauthenticated)
        assert raw.ended()
    if stays is not None:
        assert stays.ping() >= 0


def test_what_a_revoked_consumer_held_goes_to_others(
    server: Running, tokens: TokenFile, connect: Connect, quick: None
) -> None:
    other = connect("consume", "publish")
    other.publish("t", "x")
    gone = connect("consume", name="gone").consumer("t", "g")
    assert len(gone.receive(wait=10)) == 1
    tokens.revoke("gone")
    with other.consumer("t", "g") as consumer:
        (message,) = consumer.receive(wait=20)
        message.ack()


def test_a_client_whose_token_was_revoked_gives_up_and_tells_everybody_who_waits(
    server: Running, tokens: TokenFile, connect: Connect, quick: None
) -> None:
    client = connect(*ALL, name="gone")
    client.publish("t", "x")
    looping = client.consumer("t", "loop")
    waiting = client.consumer("t", "wait")
    messages = iter(looping)
    next(messages).ack()
    waiting.receive()[0].ack()
    told: list[BaseException] = []

    def tell(work: Callable[[], object]) -> None:
        try:
            work()
        except PenstockError as error:
            told.append(error)

    threads = [
        threading.Thread(target=tell, args=(lambda: next(messages),)),
        threading.Thread(target=tell, args=(lambda: waiting.receive(wait=60),)),
    ]
    for thread in threads:
        thread.start()
    until(lambda: server.waiters("t", "wait") == 1)
    tokens.revoke("gone")
    for thread in threads:
        thread.join(30)
    assert [type(error) for error in told] == [Unauthenticated, Unauthenticated]
    for work in (
        lambda: client.publish("t", "y"),
        lambda: client.publish_many("t", ["y"]),
        lambda: client.publish_soon("t", "y").result(30),
        client.topics,
        client.ping,
        lambda: list(client.read("t")),
        lambda: client.consumer("t", "g"),
    ):
        with pytest.raises(Unauthenticated):
            work()
    until(lambda: not server.connections)
    assert client._client.link._reconnecting is not None
    assert client._client.link._reconnecting.done()


def test_a_publish_that_was_under_way_is_told_that_its_fate_is_not_known(
    server: Running, tokens: TokenFile, quick: None
) -> None:
    made = tokens.create("gone", ALL)
    with Line(server.port) as line, Client(line.address, token=made.secret) as client:
        line.hold_back()
        report = client.publish_soon("t", "x")
        assert line.held_back.wait(30)
        tokens.revoke("gone")
        line.cut()
        with pytest.raises(Unauthenticated, match="it is not known what was done"):
            report.result(30)


# What a token is for.

CALLS: dict[str, dict[str, Any]] = {
    "topics": {},
    "layout": {"topic": "t"},
    "create_topic": {"name": "t"},
    "configure_topic": {"name": "t"},
    "delete_topic": {"name": "t"},
    "settle": {},
    "retain": {},
    "trim": {"topic": "t", "before": {}},
    "status": {},
    "create_group": {"topic": "t", "group": "g"},
    "groups": {"topic": "t"},
    "group": {"topic": "t", "group": "g"},
    "seek_group": {"topic": "t", "group": "g", "to": 0},
    "pause_group": {"topic": "t", "group": "g"},
    "resume_group": {"topic": "t", "group": "g"},
    "reset_group": {"topic": "t", "group": "g"},
    "checkpoint_group": {"topic": "t", "group": "g", "positions": {}},
    "delete_group": {"topic": "t", "group": "g"},
    "delayed": {"topic": "t"},
    "cancel_delayed": {"identity": "t/0/0"},
    "reschedule_delayed": {"identity": "t/0/0", "delay": 1},
    "schedule": {"name": "s", "cron": "* * * * *", "topic": "t", "value": "x"},
    "schedules": {},
    "pause_schedule": {"name": "s"},
    "resume_schedule": {"name": "s"},
    "remove_schedule": {"name": "s"},
    "dead_letters": {"topic": "t"},
    "dead_letter": {"identity": "t.dlq/0/0"},
    "redrive": {"topic": "t"},
    "purge_dead_letters": {"topic": "t"},
    "replay": {"topic": "t", "to": "g"},
    "trace": {"identity": "t/0/0"},
    "offset_at": {"topic": "t", "time": 0},
    "seal_stage": {"stage": "s"},
    "publish_staged": {"stages": ["another"], "producer": "p", "sequence": 1},
    "staged_sequence": {"producer": "p"},
    "drop_staged": {"stages": ["s"]},
    "report_pipeline": {"report": {"name": "p", "state": "running", "queries": [{"name": "q", "reads": ["t"]}]}},
    "pipelines": {},
    "cluster": {},
    "move_shard": {"shard": 0, "process": 0},
    "drain_process": {"process": 0},
    "balance_shards": {},
    "create_token": {"name": "n", "scopes": ["admin"]},
    "tokens": {},
    "revoke_token": {"token": "n"},
}
"""Arguments of each operation."""
PUBLIC = {"topics", "groups", "schedules", "status", "pipelines"}
"""Listings: whoever is for some topics sees a part of them."""
NAMED = {"publish_staged", "pause_schedule", "resume_schedule", "remove_schedule"}
"""What is found by a name that is of no topic."""


def greeted(server: Running, tokens: TokenFile, name: str, *arguments: Any) -> Raw:
    raw = Raw(server.port, hello=False)
    raw.ask(Command.HELLO, encode(Hello([VERSION], "", tokens.create(name, *arguments).secret)))
    return raw


def test_every_operation_is_known_here() -> None:
    assert set(CALLS) == set(HANDLERS)


def test_every_operation_is_in_the_documentation_with_its_scope_and_what_it_is_about() -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/secure-a-server.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| ([\w ]+) \|$", page, re.MULTILINE)
    assert sorted(rows) == sorted((name, OPERATIONS[name].scope, OPERATIONS[name].about) for name in HANDLERS)


def test_every_operation_takes_its_scope_and_nothing_less(server: Running, tokens: TokenFile) -> None:
    for scope in ALL:
        with greeted(server, tokens, scope, [scope]) as raw:
            for name, arguments in CALLS.items():
                error: PenstockError | None = None
                try:
                    raw.ask(Command.CALL, encode(Call(name, arguments)))
                except PenstockError as told:
                    error = told
                allowed = scope in ("admin", OPERATIONS[name].scope)
                assert isinstance(error, Forbidden) is not allowed, (scope, name, error)


def test_every_operation_is_refused_for_the_topics_of_others(server: Running, tokens: TokenFile) -> None:
    with greeted(server, tokens, "limited", ALL, ["mine.*"]) as raw:
        for name, arguments in CALLS.items():
            if name in PUBLIC and not arguments:
                assert raw.ask(Command.CALL, encode(Call(name, arguments))) is not None
                continue
            if name in ("seal_stage", "staged_sequence", "drop_staged"):
                raw.ask(Command.CALL, encode(Call(name, arguments)))  # it has none of this name, which is no error
                continue
            with pytest.raises((StageNotFound, ScheduleNotFound) if name in NAMED else Forbidden):
                raw.ask(Command.CALL, encode(Call(name, arguments)))


def test_publishing_takes_the_scope_and_the_topic(connect: Connect) -> None:
    client = connect("publish", topics=("orders.*", "x"))
    client.publish("orders.eu", "1")
    client.publish_many("x", ["1", "2"])
    client.stage_many("s", "x", ["3"])
    for topic in ("orders", "y", "orders.eu.dlq"):
        for work in (
            lambda topic=topic: client.publish(topic, "1"),
            lambda topic=topic: client.publish_many(topic, ["1", "2"]),
            lambda topic=topic: client.publish_many(topic, [penstock.Message("1", priority=1)]),
            lambda topic=topic: client.stage_many("s", topic, ["1"]),
        ):
            with pytest.raises(Forbidden):
                work()
    reader = connect("read", "consume")
    refusals: list[Callable[[], object]] = [
        lambda: reader.publish("x", "1"),
        lambda: reader.stage_many("s", "x", ["1"]),
    ]
    for refused in refusals:
        with pytest.raises(Forbidden, match="it takes the scope publish, and it has consume, read"):
            refused()
    assert {topic.name for topic in reader.topics()} == {"orders.eu", "x"}


def test_consuming_takes_the_scope_and_every_topic(connect: Connect) -> None:
    connect("admin").publish_many("mine", ["1"])
    connect("admin").publish_many("yours", ["1"])
    client = connect("consume", topics=("mine",))
    with client.consumer("mine", "g") as consumer:
        consumer.receive()[0].kill("it is bad")
    for topics in ("yours", ["mine", "yours"]):
        with pytest.raises(Forbidden, match="may not use the topic 'yours'"):
            client.consumer(topics, "g")
    with pytest.raises(Forbidden, match="it takes the scope consume"):
        connect("publish", "read").consumer("mine", "g")
    with client.consumer("mine.dlq", "g") as consumer:
        assert len(consumer.receive()) == 1


def test_reading_takes_the_scope_and_the_topic(server: Running, tokens: TokenFile, connect: Connect) -> None:
    connect("admin").publish("yours", "1")
    with greeted(server, tokens, "mine", ["read"], ["mine"]) as raw:
        for form in ("rows", "arrow", "events"):
            with pytest.raises(Forbidden):
                raw.ask(Command.READ, encode(Read("yours", 0, form=form)))
    with pytest.raises(Forbidden):
        list(connect("publish", "consume").read("yours", 0))


def test_listings_show_what_is_ones_own(connect: Connect) -> None:
    admin = connect("admin")
    for topic in ("mine", "yours"):
        admin.publish(topic, "1")
        admin.create_group(topic, "g")
        admin.schedule(f"{topic}-daily", "0 0 * * *", topic, "x")
    client = connect("read", topics=("mine",))
    assert [topic.name for topic in client.topics()] == ["mine"]
    assert [group.topic for group in client.groups()] == ["mine"]
    assert [schedule.name for schedule in client.schedules()] == ["mine-daily"]
    assert client.status().broker_id == admin.status().broker_id


def test_a_schedule_is_changed_by_those_who_may_publish_to_its_topic(connect: Connect) -> None:
    admin, client = connect("admin"), connect("publish", topics=("mine",))
    admin.schedule("theirs", "0 0 * * *", "yours", "x")
    client.schedule("own", "0 0 * * *", "mine", "x")
    client.pause_schedule("own")
    client.resume_schedule("own")
    for work in (
        lambda: client.pause_schedule("theirs"),
        lambda: client.resume_schedule("theirs"),
        lambda: client.remove_schedule("theirs"),
        lambda: client.schedule("theirs", "0 0 * * *", "mine", "instead"),
        lambda: client.schedule("new", "0 0 * * *", "yours", "x"),
    ):
        with pytest.raises(Forbidden):
            work()
    client.remove_schedule("own")
    assert [schedule.topic for schedule in admin.schedules()] == ["yours"]
    reader = connect("read", "consume")
    with pytest.raises(Forbidden):
        reader.remove_schedule("theirs")


def test_a_redrive_elsewhere_takes_the_other_topic_too(connect: Connect) -> None:
    client = connect(*ALL, topics=("mine",))
    client.publish("mine", "1")
    with client.consumer("mine", "g") as consumer:
        consumer.receive()[0].kill("it is bad")
    with pytest.raises(Forbidden, match="'yours'"):
        client.redrive("mine", to="yours")
    assert client.redrive("mine").redriven == 1


def test_stages_of_limited_tokens_are_their_own(connect: Connect) -> None:
    mine, yours, all_of_it = (
        connect("publish", topics=("mine",), name="mine"),
        connect("publish", topics=("yours",), name="yours"),
        connect("publish", "read"),
    )
    for client, topic in ((mine, "mine"), (yours, "yours"), (all_of_it, "yours")):
        client.stage_many("s", topic, [topic])
        client.seal_stage("s")
    mine.drop_staged(["s"])  # its own, and nobody else's
    with pytest.raises(StageNotFound):
        mine.publish_staged(["s"], producer="p", sequence=9)
    mine.stage_many("again", "mine", ["x"])
    mine.seal_stage("again")
    # Nor does the sequence of its producer make that of others look old.
    assert mine.publish_staged(["again"], producer="p", sequence=1_000_000) == 1
    assert yours.publish_staged(["s"], producer="p", sequence=1) == 1
    assert all_of_it.publish_staged(["s"], producer="p", sequence=1) == 1
    assert yours.publish_staged(["s"], producer="p", sequence=1) == 1  # once
    assert len(list(all_of_it.read("yours"))) == 2
    for name in ("yours.s", "../s", ["s"]):
        with pytest.raises(PenstockError):
            mine.publish_staged([name], producer="q", sequence=1)  # type: ignore[list-item]


def test_a_path_on_the_servers_machine_takes_an_admin_of_everything(connect: Connect, tmp_path: Path) -> None:
    client = connect("admin", topics=("mine",))
    client.create_topic("mine")
    for work in (client.create_topic, client.configure_topic):
        with pytest.raises(Forbidden, match="it is about all topics"):
            work("mine", archive=str(tmp_path / "archive"))
    connect("admin").configure_topic("mine", archive=str(tmp_path / "archive"))


# Tokens by the server.


def test_an_admin_makes_lists_and_revokes_tokens(server: Running, connect: Connect, quick: None) -> None:
    admin = connect("admin", name="admin")

    async def main() -> None:
        async with AsyncClient(server.address, token=secret) as client:
            made = await client.call(
                "create_token", NewToken, name="new", scopes=["read"], topics=["a", "b.*"], expires_in="1h"
            )
            async with AsyncClient(server.address, token=made.secret) as new:
                assert await new.topics() == []
            listed = await client.call("tokens", list[TokenInfo])
            assert {token.name for token in listed} == {"admin", "root", "new"}
            assert made.token in listed
            gone = await client.call("revoke_token", TokenInfo, token="new")
            assert gone == made.token
            with pytest.raises(Unauthenticated):
                await AsyncClient(server.address, token=made.secret).__aenter__()

    secret = TokenFile(server.server.config.data_dir).create("root", ["admin"]).secret
    run(main())
    assert admin.ping() >= 0


def test_an_admin_of_some_topics_makes_no_tokens(server: Running, tokens: TokenFile) -> None:
    with greeted(server, tokens, "limited", ["admin"], ["mine"]) as raw:
        for name in ("create_token", "tokens", "revoke_token"):
            with pytest.raises(Forbidden, match="it is about all topics"):
                raw.ask(Command.CALL, encode(Call(name, CALLS[name])))


def test_a_server_that_asks_for_no_token_lets_nobody_make_one(tmp_path: Path) -> None:
    with Running(tmp_path) as server, Raw(server.port) as raw:
        for name in ("create_token", "tokens", "revoke_token"):
            with pytest.raises(Forbidden, match="use `penstock token` with --dir"):
                raw.ask(Command.CALL, encode(Call(name, CALLS[name])))
    assert not (tmp_path / "tokens.json").exists()


# Where a server may listen.


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost", "LOCALHOST"])
def test_loopback_is_only_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "10.0.0.1", "fe80::1", "::ffff:10.0.0.1", "queue.example", "localhost.example", "127.1"]
)
def test_a_host_that_others_reach_is_refused_without_auth_before_anything_is_done(tmp_path: Path, host: str) -> None:
    config = ServerConfig.parse({"data_dir": str(tmp_path / "data"), "host": host, "native_port": 0})

    async def main() -> None:
        with pytest.raises(StartRefused, match=f"host {re.escape(host)} can be reached from other machines") as refused:
            await Server(config).start()
        assert "--insecure" in refused.value.hint

    run(main())
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("options", [{"auth": "tokens"}, {"insecure": True}])
def test_with_tokens_or_at_ones_own_risk_it_starts_and_warns_of_what_is_not_encrypted(
    tmp_path: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # A machine of the tests need not listen to its network: the name means loopback here.
    def resolve(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with Running(tmp_path, host="queue.example", **options) as server:
        assert server.server.address[0] == "127.0.0.1"
    assert "is not encrypted" in caplog.text


def test_nobody_answers_is_not_a_refusal(tmp_path: Path) -> None:
    with pytest.raises(ConnectionLost), socket.create_server(("127.0.0.1", 0)) as silent:
        Client(f"127.0.0.1:{silent.getsockname()[1]}", timeout=0.05)
