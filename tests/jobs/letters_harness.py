"""Dead letters of many kinds, for the tests of the jobs that look at them."""

from __future__ import annotations

import json

import penstock
from tests.spark.harness import Served

CAUSES = (
    "timeout after {n} ms calling http://pay.example/{n}",
    "timeout after {n} ms while calling http://ship.example/x?y={n}",
    "no such customer 'c-{n}'",
    "division by zero",
)


def die(server: Served, topic: str, count: int, group: str = "workers", *, partitions: int = 2) -> None:
    """Publish messages, and have a group give them up, for one of four causes each."""
    client = server.client
    if topic not in {info.name for info in client.topics()}:
        client.create_topic(topic, partitions=partitions)
    client.publish_many(
        topic,
        [
            penstock.Message(
                json.dumps({"n": n, "customer": {"country": ("de", "fr", "it")[n % 3]}}) if n % 10 else f"not JSON {n}",
                key=f"k{n % 5}" if n % 4 else None,
                headers={"own": str(n)} if n % 2 else None,
                priority=n % 3,
            )
            for n in range(count)
        ],
    )
    kill(server, topic, group, count)


def kill(server: Served, topic: str, group: str, count: int) -> None:
    """Have a group give up the next messages of a topic."""
    with server.client.consumer(topic, group, max_in_flight=10_000) as consumer:
        left = count
        while left:
            for message in consumer.receive(max_messages=left, wait="10s"):
                n = message.offset * 2 + message.partition
                message.kill(CAUSES[n % 4].format(n=n * 37))
                left -= 1
