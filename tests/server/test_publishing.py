"""What a server refuses is never read, and what it takes is the same on every path."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.client import Client
from penstock.model.config import BrokerConfig
from penstock.protocol.frames import Command
from penstock.protocol.publishing import encode_publish
from penstock.protocol.session import encode
from penstock.server import server as servers
from penstock.testing import FaultyStorage
from tests.server.harness import Raw, Running, until


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with Running(tmp_path, broker={"max_value_bytes": "10KiB", "max_batch_bytes": "100KiB"}) as running:
        yield running


@pytest.fixture
def client(server: Running) -> Iterator[Client]:
    with Client(server.address) as connected:
        yield connected


# L4: refused is never read.


def test_L4_nothing_of_what_is_refused_is_ever_read(server: Running, client: Client) -> None:
    client.create_topic("t", partitions=2)
    refused: list[dict[str, Any]] = [
        {"value": bytes(10_241)},
        {"value": "x", "key": bytes(70_000)},
        {"value": "x", "headers": {"h": "x" * 70_000}},
        {"value": "x", "priority": 300},
        {"value": "x", "partition": 2},
        {"value": "x", "partition": -1},
        {"value": "x", "delay": "30d"},
        {"value": "x", "dedupe_id": ""},
    ]
    for options in refused:
        with pytest.raises(penstock.InvalidArgument):
            client.publish("t", **options)
        with pytest.raises(penstock.InvalidArgument):
            client.publish_many("t", [penstock.Message("good"), penstock.Message(**options), penstock.Message("good")])
    with pytest.raises(penstock.LimitExceeded):
        client.publish_many("t", [bytes(9_000)] * 12)
    assert list(client.read("t")) == []
    assert client.publish("t", "after", partition=0).offset == 0


def test_L4_a_foreign_client_that_checks_nothing_is_refused_all_the_same(server: Running) -> None:
    generous = BrokerConfig.parse({"max_value_bytes": "1GiB", "max_key_bytes": "1GiB", "max_headers_bytes": "1GiB"})
    payload = b"\x93\xc0\x91\xc4\x01x\xc0"
    two = b"\x93\xc0\x92\xc4\x01x\xc4\x01y\xc0"
    refused: list[bytes] = [
        encode_publish("t", [bytes(10_241)], generous)[0],
        encode_publish("t", ["ok", bytes(10_241)], generous)[0],
        encode_publish("t", [penstock.Message("x", key=bytes(70_000))], generous)[0],
        encode_publish("t", [penstock.Message("x", headers={"h": "x" * 70_000})] * 2, generous)[0],
        encode_publish("t", [bytes(9_000)] * 12, generous)[0],
        encode(["t", payload, None, 0, 256]),
        encode(["t", payload, None, 0, -1]),
        encode(["t", two, None, 0, b"\x01"]),
        encode(["t", payload, None, 0, 128, 1]),
        encode(["t", two, None, 0, 128, [0]]),
        encode(["t", two, None, 0, 128, [0, 5]]),
        encode(["t", payload, None, 0, 128, None, -5]),
        encode(["t", payload, None, 0, 128, None, 5, 5]),
        encode(["t", payload, None, 0, 128, None, 1 << 60]),
        encode(["t", payload, None, 0, 128, None, None, None, 0]),
        encode(["t", two, None, 0, 128, None, None, None, None, ["a"]]),
        encode(["t", payload, None, 0, 128, None, None, None, None, [""]]),
        encode(["t", payload, "p", 0, 128, None, None, None, None, ["a"]]),
        encode(["t", payload, "", 0]),
        encode(["t", payload, "p", -1]),
        encode(["t", two, "p" * 2000, 1]),
        encode(["no topic", payload]),
        encode(["no topic", two]),
        encode(["", payload]),
        encode(["t/../u", payload]),
        encode(["t", b"\x93\x91\xc0\x92\xc4\x01x\xc4\x01y\xc0"]),
        encode(["t", b"\x93\xc0\x91\xa1x\xc0"]),
        encode(["t", b"\x93\xc0\x91\xc4\x01x\x91\x81\xa1a\x01"]),
        encode(["t", b""]),
    ]
    server.broker.create_topic("t")
    with Raw(server.port) as raw:
        for body in refused:
            with pytest.raises(penstock.InvalidArgument):
                raw.ask(Command.PUBLISH, body)
        raw.ask(Command.PUBLISH, encode(["t", b"\x93\xc0\x90\xc0"]))  # no messages at all
        raw.ask(Command.PUBLISH, encode(["t", payload]))
    assert [message.value for message in server.broker.read("t")] == [b"x"]
    assert [topic.name for topic in server.broker.topics()] == ["t"]


def test_L4_R1_a_topic_with_a_backlog_refuses_and_takes_again(server: Running, client: Client) -> None:
    client.create_topic("t", max_backlog=5)
    with client.consumer("t", "g") as consumer:
        for number in range(5):
            client.publish("t", f"{number}")
        for _ in range(3):
            with pytest.raises(penstock.Overloaded, match="max_backlog"):
                client.publish("t", "refused")
            with pytest.raises(penstock.Overloaded, match="max_backlog"):
                client.publish_many("t", ["refused", "refused"])
        consumer.ack(consumer.receive(5))
        client.publish("t", "5")
    assert [message.value for message in client.read("t")] == [b"%d" % number for number in range(6)]


def test_L4_R3_a_full_disk_refuses_and_nothing_refused_is_read_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = FaultyStorage(seed=7)
    monkeypatch.setattr(servers, "FileStorage", lambda *_: storage)
    with Running(tmp_path, shards=1) as server, Client(server.address) as client:
        client.publish_many("t", [f"{n}" for n in range(10)])
        consumer = client.consumer("t", "g")
        received = consumer.receive(3)
        storage.fail("write", errno.ENOSPC, always=True, name_contains="journal")
        for _ in range(3):
            with pytest.raises(penstock.DiskFull, match="nothing of this was written"):
                client.publish("t", "refused")
            with pytest.raises(penstock.DiskFull):
                client.publish_many("t", ["refused"] * 3)
            with pytest.raises(penstock.DiskFull):
                client.create_topic("refused")
            with pytest.raises(penstock.DiskFull, match="nothing of this was written; try again when there is room"):
                client.consumer("t", "refused")
        reports = [client.publish_soon("t", "refused") for _ in range(50)]
        client.flush()
        assert {type(report.exception()) for report in reports} == {penstock.DiskFull}
        assert len(list(client.read("t"))) == 10
        storage.heal()
        assert client.publish("t", "10").offset == 10
        while len(received) < 11:
            received += until(lambda: consumer.receive(100, wait=5))
        consumer.ack(received)
    survivor = storage.crash()
    with penstock.open(storage=survivor, min_free_bytes=0) as broker:
        assert [message.value for message in broker.read("t")] == [b"%d" % n for n in range(11)]


def test_R3_a_loop_with_autoack_goes_on_after_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = FaultyStorage(seed=7)
    monkeypatch.setattr(servers, "FileStorage", lambda *_: storage)
    with Running(tmp_path, shards=1) as server, Client(server.address) as client:
        client.publish_many("t", ["a", "b", "c"])
        with client.consumer("t", "g", autoack=True) as consumer:
            messages = iter(consumer)
            seen = [next(messages).value]
            storage.fail("write", errno.ENOSPC, always=True, name_contains="journal")
            with pytest.raises(penstock.DiskFull):
                while True:
                    seen.append(next(messages).value)
            storage.heal()
            until(lambda: client.publish("t", "d"))
            messages = iter(consumer)
            while len(seen) < 4:
                seen.append(next(messages).value)
            assert seen == [b"a", b"b", b"c", b"d"]


def test_R5_a_failed_sync_is_told_to_everybody_and_reading_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = FaultyStorage(seed=7)
    monkeypatch.setattr(servers, "FileStorage", lambda *_: storage)
    with Running(tmp_path, shards=1) as server, Client(server.address) as client:
        client.publish("t", "x")
        consumer = client.consumer("t", "g")
        (message,) = consumer.receive(1)
        storage.fail("sync", errno.EIO, name_contains="journal")
        with pytest.raises(penstock.StorageFailed, match="may or may not be there"):
            client.publish("t", "?")
        for act in (
            lambda: client.publish("t", "y"),
            lambda: client.publish_many("t", ["y"]),
            message.ack,
            lambda: consumer.receive(1),
            lambda: next(iter(consumer)),
            lambda: client.create_topic("u"),
        ):
            with pytest.raises(penstock.StorageFailed):
                act()
        assert [message.value for message in client.read("t")] == [b"x"]
        assert client.status().frozen is not None


# L7: the same dedupe id, the same place.


def test_L7_the_same_dedupe_id_gives_the_same_offset_on_every_path(server: Running, client: Client) -> None:
    client.create_topic("t", partitions=3)
    first = client.publish("t", "1", dedupe_id="a", key="k")
    assert client.publish("t", "2", dedupe_id="a") == first
    assert server.broker.publish("t", "3", dedupe_id="a") == first
    assert client.publish_many("t", [penstock.Message("4", dedupe_id="a")] * 2) == [first, first]
    with Client(server.address) as other:
        assert other.publish("t", "5", dedupe_id="a") == first
        reports = [other.publish_soon("t", f"{n}", dedupe_id="b") for n in range(20)]
        other.flush()
        assert len({report.result() for report in reports}) == 1
    assert len(list(client.read("t"))) == 2


def test_L7_a_producer_may_repeat_its_sequences_through_any_connection(server: Running, client: Client) -> None:
    client.create_topic("t", partitions=3)
    messages = [penstock.Message(f"{n}", key=f"{n}") for n in range(9)]
    first = client.publish_many("t", messages, producer="p", sequence=1)
    with Client(server.address) as other:
        assert other.publish_many("t", messages, producer="p", sequence=1) == first
    assert server.broker.publish_many("t", messages, producer="p", sequence=1) == first
    assert client.publish_many("t", ["x"], producer="p", sequence=2) == client.publish_many(
        "t", ["x"], producer="p", sequence=2
    )
    with pytest.raises(penstock.InvalidArgument, match="was published with other messages"):
        client.publish_many("t", messages[:4], producer="p", sequence=1)
    assert len(list(client.read("t"))) == 10


# TR2: the same on every path.


def test_TR2_messages_leave_the_same_fields_and_trace_on_every_path(server: Running, client: Client) -> None:
    shapes: list[dict[str, Any]] = [
        {"value": "plain"},
        {"value": b"\x00\xff", "key": b"\x01", "headers": {"a": "b", "traceparent": "00-1-2-01"}, "priority": "high"},
        {"value": "", "key": "", "headers": {}, "priority": 7},
        {"value": "later", "delay": 1000},
        {"value": "then", "deliver_at": "2030-01-01T00:00:00Z", "expires_in": "9000d"},
        {"value": "past", "deliver_at": 1.0},
        {"value": "now", "delay": 0},
        {"value": "known", "dedupe_id": "d"},
    ]
    broker = server.broker
    paths: dict[str, Callable[[str, dict[str, Any]], penstock.MessageId]] = {
        "embedded": lambda topic, shape: broker.publish(topic, **shape),
        "embedded batch": lambda topic, shape: broker.publish_many(topic, [penstock.Message(**shape)])[0],
        "client": lambda topic, shape: client.publish(topic, **shape),
        "client batch": lambda topic, shape: client.publish_many(topic, [penstock.Message(**shape)])[0],
        "client soon": lambda topic, shape: client.publish_soon(topic, **shape).result(30),
        "client merged": lambda topic, shape: merged(client, topic, shape),
        "client larger batch": lambda topic, shape: client.publish_many(
            topic, [penstock.Message(**shape), penstock.Message(**{**shape, "dedupe_id": None})]
        )[0],
    }
    told: dict[str, list[Any]] = {}
    for number, (path, publish) in enumerate(paths.items()):
        topic = f"t{number}"
        broker.create_topic(topic, max_delay="20000d")
        with client.consumer(topic, "g", name="c") as consumer:
            ids = [publish(topic, shape) for shape in shapes]
            wanted = {identity.offset for identity in ids}
            while received := consumer.receive(100):
                consumer.ack(received)
            stored = [message for message in client.read(topic) if message.offset in wanted]
            told[path] = [
                (
                    message.value,
                    message.key,
                    message.headers,
                    message.priority,
                    message.dedupe_id,
                    None if message.deliver_at_us is None else _after(message.deliver_at_us, message.timestamp_us),
                    None if message.expires_at_us is None else _after(message.expires_at_us, message.timestamp_us),
                    [(line.kind, line.group, line.consumer, line.attempt, line.cause) for line in trace],
                )
                for message in stored
                for trace in [client.trace(message.id).lines]
            ]
            assert [message.id for message in broker.read(topic)] == [message.id for message in client.read(topic)]
    for path, found in told.items():
        assert found == told["embedded"], path


def _after(time_us: int, timestamp_us: int) -> int:
    """Where a time was counted from now, how long that is; to the minute."""
    return round((time_us - timestamp_us) / 60_000_000)


def merged(client: Client, topic: str, shape: dict[str, Any]) -> penstock.MessageId:
    """Publish it in one request with another one."""
    report = client.publish_soon(topic, **shape)
    client.publish_soon(topic, **{**shape, "dedupe_id": "other"} if "dedupe_id" in shape else shape)
    client.flush()
    return report.result()
