"""Clients of brokers on a bucket: whoever of these is killed or stopped, a client with all addresses hears no error."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import penstock
from penstock.client import Client
from penstock.client.sync_consumer import ClientConsumer
from penstock.model.errors import LeaseLost
from tests.brokers.harness import BrokerProcess, Brokers

_TIMEOUT = "60s"


class Publisher:
    """Publishes to a topic, one message after the other, in a thread of its own."""

    def __init__(self, client: Client, topic: str) -> None:
        self._client, self._topic = client, topic
        self.offsets: list[int] = []
        self.longest_s = 0.0
        self.error: BaseException | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                since_s = time.monotonic()
                self.offsets.append(self._client.publish(self._topic, str(len(self.offsets))).offset)
                self.longest_s = max(self.longest_s, time.monotonic() - since_s)
        except BaseException as error:  # noqa: BLE001 - the test tells of it
            self.error = error

    def wait_for_more(self, count: int) -> None:
        """Return when so many more were published."""
        wanted = len(self.offsets) + count
        while len(self.offsets) < wanted:
            assert self.error is None, self.error
            time.sleep(0.01)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        assert self.error is None, self.error


@contextmanager
def publishing(addresses: str, topics: list[str]) -> Iterator[list[Publisher]]:
    """A client that publishes to all of the topics at once; at the end each message is there once, in order."""
    with penstock.connect(addresses, timeout=_TIMEOUT) as client:
        publishers = [Publisher(client, topic) for topic in topics]
        try:
            yield publishers
        finally:
            for publisher in publishers:
                publisher.stop()
        for topic, publisher in zip(topics, publishers, strict=True):
            stored = [message.value.decode() for message in client.read(topic)]
            assert stored == [str(n) for n in range(len(publisher.offsets))]
            assert publisher.offsets == list(range(len(publisher.offsets)))


def receive_all(consumer: ClientConsumer, acked: Counter[bytes], expected: int) -> None:
    """Receive and ack until so many were acked."""
    while acked.total() < expected:
        found, lost = consumer.receive(10, wait=5), set()
        try:
            consumer.ack(found)
        except LeaseLost as error:
            lost = set(error.ids)  # these come again
        acked.update(message.value for message in found if message.id not in lost)


def published_by_http(broker: BrokerProcess, topic: str) -> str:
    """The id of a message that is published through a broker."""
    address = f"http://{broker.http}/v1/topics/{topic}/publish"
    with urllib.request.urlopen(urllib.request.Request(address, b'{"value": "x"}')) as reply:
        return str(json.load(reply)["id"])


def test_C12_C13_C15_nobody_hears_an_error_when_a_broker_is_killed(brokers: Brokers) -> None:
    first, second, third = started = brokers.start_all(3)
    addresses = ",".join(broker.address for broker in started)
    topics = [brokers.topic_of(broker) for broker in started]
    work, by_http = brokers.topic_of(first, "work"), brokers.topic_of(first, "http")
    acked: Counter[bytes] = Counter()
    with publishing(addresses, topics) as publishers, penstock.connect(addresses, timeout=_TIMEOUT) as client:
        client.publish_many(work, [str(n) for n in range(40)])
        assert published_by_http(second, by_http) == f"{by_http}/0/0"
        with client.consumer(work, "g") as consumer:
            receive_all(consumer, acked, 20)
            for publisher in publishers:
                publisher.wait_for_more(3)
            first.kill()
            assert published_by_http(second, by_http) == f"{by_http}/0/1", "it has waited for who takes over"
            receive_all(consumer, acked, 40)
        assert (len(acked), max(acked.values()), client.group(work, "g").lag) == (40, 1, 0)
        for publisher in publishers:
            publisher.wait_for_more(3)
        assert {info.name for info in client.topics()} == {*topics, work, by_http}
        assert client.link.address in (second.address, third.address)


def test_C12_C13_nobody_hears_an_error_when_a_broker_is_silent_and_comes_back(brokers: Brokers) -> None:
    first, second = started = brokers.start_all(2)
    addresses = ",".join(broker.address for broker in started)
    topics = [brokers.topic_of(broker) for broker in started]
    with publishing(addresses, topics) as publishers, penstock.connect(addresses, timeout=_TIMEOUT) as client:
        for publisher in publishers:
            publisher.wait_for_more(3)
        assert client.link.address == first.address
        first.pause()
        assert {info.name for info in client.topics()} == set(topics)
        assert client.link.address == second.address
        for publisher in publishers:
            publisher.wait_for_more(3)
        first.resume()
        for publisher in publishers:
            publisher.wait_for_more(3)
