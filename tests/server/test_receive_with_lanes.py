"""Receiving in batches from a topic with several lanes."""

from __future__ import annotations

from pathlib import Path

from penstock import Message
from penstock.client import Client
from tests.server.harness import Running


def test_a_client_that_asks_for_messages_is_pushed_none_after_a_failure(tmp_path: Path) -> None:
    with Running(tmp_path) as server, Client(server.address) as client:
        client.create_topic("t", retry_backoff=60)
        client.publish_many("t", [Message("x", priority=64 if number % 5 == 0 else 128) for number in range(60)])
        with client.consumer("t", "g") as consumer:
            first, *others = consumer.receive(20, wait=10)
            first.fail("no milk")
            consumer.ack(others)
            assert len(consumer.receive(20, wait=10)) == 20
            assert client.group("t", "g").leased == 20
