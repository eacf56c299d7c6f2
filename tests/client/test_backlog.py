"""Publishing to a topic with a backlog limit: what a client or a server gathered is taken message by message."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.client import AsyncClient, Client
from tests.server.harness import PATIENCE_S, Running, run


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with Running(tmp_path) as running:
        yield running


def values(server: Running) -> list[int]:
    return [int(message.value) for message in server.broker.read("t")]


def test_what_a_client_gathered_gets_through_a_small_backlog_in_order(server: Running) -> None:
    server.broker.create_topic("t", max_backlog=100)
    received: list[int] = []

    def consume() -> None:
        with server.broker.consumer("t", "g") as consumer:
            while len(received) < 1000 and (messages := consumer.receive(7, wait=PATIENCE_S)):
                received.extend(int(message.value) for message in messages)
                consumer.ack(messages)

    with Client(server.address) as client:
        reports = [client.publish_soon("t", f"{number}") for number in range(1000)]
        consuming = threading.Thread(target=consume)
        consuming.start()
        client.flush()
        consuming.join()
        assert [report.result().offset for report in reports] == list(range(1000))
    assert received == values(server) == list(range(1000))


def test_where_nobody_consumes_what_fits_gets_through_and_the_rest_is_told(server: Running) -> None:
    server.broker.create_topic("t", max_backlog=100)
    with Client(server.address, timeout=0.5) as client:
        reports = [client.publish_soon("t", f"{number}") for number in range(1000)]
        client.flush()
        told = [type(report.exception()) for report in reports]
        assert told == [type(None)] * 100 + [penstock.Overloaded] * 900
    assert values(server) == list(range(100))


def test_closing_tells_those_who_wait_for_room(server: Running) -> None:
    server.broker.create_topic("t", max_backlog=2)

    async def main() -> None:
        client = await AsyncClient(server.address).__aenter__()
        reports = [await client.publish_soon("t", f"{number}") for number in range(5)]
        done, _ = await asyncio.wait(reports[:2], timeout=PATIENCE_S)
        assert len(done) == 2
        client._timeout_s = 0.01
        await client.close()
        for report in reports[2:]:
            with pytest.raises(penstock.BrokerClosed):
                await report

    run(main())


def test_a_batch_of_the_caller_is_refused_for_good_where_it_never_fits(server: Running) -> None:
    server.broker.create_topic("t", max_backlog=100)
    with Client(server.address) as client:
        with pytest.raises(penstock.LimitExceeded, match="never takes 1000 messages at once"):
            client.publish_many("t", ["x"] * 1000)
        assert len(client.publish_many("t", ["x"] * 100)) == 100


def test_single_messages_that_a_server_gathered_are_taken_as_far_as_they_fit(server: Running) -> None:
    server.broker.create_topic("t", max_backlog=10)

    async def main() -> None:
        async with AsyncClient(server.address, batch_size=1) as client:
            publishing = [client.publish("t", f"{number}") for number in range(50)]
            told = await asyncio.gather(*publishing, return_exceptions=True)
        assert [isinstance(outcome, penstock.Overloaded) for outcome in told] == [False] * 10 + [True] * 40

    run(main())
    assert values(server) == list(range(10))
