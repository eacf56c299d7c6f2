"""Reading through a server, page by page: nothing is left out, nothing comes twice, no page is too large."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.client import Client
from penstock.protocol.session import Read
from penstock.server import operations
from penstock.server.native import pages
from tests.server.harness import Running


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with Running(tmp_path, max_frame_bytes="1MiB", broker={"max_value_bytes": "256KiB"}) as running:
        yield running


@pytest.fixture
def client(server: Running) -> Iterator[Client]:
    with Client(server.address) as connected:
        yield connected


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize(("rows", "size_bytes"), [(1, 1 << 20), (7, 1 << 20), (20_000, 500), (20_000, 1)])
def test_L14_every_page_goes_on_where_the_one_before_ended(
    rows: int, size_bytes: int, settled: bool, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "_PAGE_ROWS", rows)
    monkeypatch.setattr(pages, "_PAGE_BYTES", size_bytes)
    client.create_topic("t", partitions=2)
    for number in range(6):
        client.publish_many("t", [penstock.Message(f"{number}.{n}", partition=n % 2) for n in range(20)])
        if settled and number in (1, 3):
            client.settle()
    expected = [str(penstock.MessageId("t", partition, offset)) for partition in (0, 1) for offset in range(60)]
    assert [str(message.id) for message in client.read("t")] == expected
    assert [str(message.id) for message in client.read("t", 1, offset=13)] == expected[73:]
    assert [str(message.id) for message in client.read("t", limit=61)] == expected[:61]
    found = [(part, offset) for batch in client.read_arrow("t") for part, offset in _places(batch)]
    assert found == [(partition, offset) for partition in (0, 1) for offset in range(60)]


def _places(batch: object) -> Iterator[tuple[int, int]]:
    columns = batch.to_pydict()  # type: ignore[attr-defined]
    return zip(columns["partition"], columns["offset"], strict=True)


def test_L14_every_event_comes_once_however_many_pages_it_takes(
    server: Running, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "_PAGE_ROWS", 10)
    client.publish_many("t", [f"{number}" for number in range(57)])  # so the first event has no number 0
    with client.consumer("t", "g") as consumer:
        for message in consumer.receive(57):
            message.ack()
    expected = list(server.broker.events("t"))
    assert len(expected) > 57
    assert list(client.events("t")) == expected


def test_events_that_speak_of_many_messages_come_in_pages_that_fit(
    server: Running, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "_PAGE_BYTES", 100_000)
    client.publish_many("t", [f"{number}" for number in range(60_000)])
    with client.consumer("t", "g", max_in_flight=60_000) as consumer:
        received = []
        while some := consumer.receive(20_000):
            received += some
        for start in range(8):  # each ack names thousands of messages that are not consecutive
            consumer.ack(received[start::8])
    expected = list(server.broker.events("t"))
    assert list(client.events("t")) == expected
    page = pages.read_page(server.broker, Read("t", 0, form="events"))
    assert 0 < page.count < len(expected)


def test_messages_of_all_sizes_are_read_and_received_within_the_frames_of_a_client(client: Client) -> None:
    large = {"headers": {"h": "x" * 60_000}, "key": "k" * 60_000}
    client.publish_many("t", [penstock.Message("small", **large) for _ in range(8)])  # type: ignore[arg-type]
    for _ in range(3):
        client.publish_many("t", [penstock.Message("small", **large) for _ in range(8)])  # type: ignore[arg-type]
    client.publish_many("t", [b"x" * 250_000] * 3)
    assert len(list(client.read("t"))) == 35
    assert sum(batch.num_rows for batch in client.read_arrow("t")) == 35
    client.settle()
    assert len(list(client.read("t"))) == 35
    assert sum(batch.num_rows for batch in client.read_arrow("t")) == 35


def test_arrow_of_a_batch_larger_than_a_frame_is_read_all_the_same(tmp_path: Path) -> None:
    with Running(tmp_path, max_frame_bytes="2MiB") as server, Client(server.address) as client:
        server.broker.publish_many("t", [b"x" * 10_000] * 1000)
        assert sum(batch.num_rows for batch in client.read_arrow("t")) == 1000
        assert len(list(client.read("t"))) == 1000


def test_dead_letters_come_in_pages_that_fit(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "LETTERS_BYTES", 300_000)
    client.publish_many("t", [b"x" * 100_000] * 3)
    for _ in range(3):
        client.publish_many("t", [b"x" * 100_000] * 6)
    with client.consumer("t", "g") as consumer:
        while received := consumer.receive():
            consumer.kill(received, "too large")
    letters = client.dead_letters("t")
    assert sorted(letter.origin.offset for letter in letters) == list(range(21))
    assert [letter.id for letter in client.dead_letters("t", limit=5)] == [letter.id for letter in letters[:5]]
    assert client.dead_letters("t", limit=3, filter=lambda letter: letter.origin.offset > 10)
    assert client.purge_dead_letters("t", filter=lambda letter: letter.origin.offset % 2 == 0) == 11
    assert client.redrive("t").redriven == 10


def test_an_answer_that_fits_no_frame_is_refused_with_what_to_do(client: Client) -> None:
    with pytest.raises(penstock.LimitExceeded, match="ask for less"):
        client.publish_many("t", [penstock.Message("x", delay=1000) for _ in range(50_000)])
        client.delayed("t")
    assert len(client.delayed("t", limit=10)) == 10


def test_reading_ends_where_the_topic_ended_when_it_began(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "_PAGE_ROWS", 1000)
    client.publish_many("t", [b"old"] * 3000)
    read = 0
    for message in client.read("t"):
        assert message.value == b"old"
        if read % 500 == 0:
            client.publish_many("t", [b"new"] * 1000)
        read += 1
    assert read == 3000
