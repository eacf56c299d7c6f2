"""The load of `make cluster`: a publisher and two consumers, who go on whatever happens to brokers."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Self

import penstock
from examples.cluster.books import Books
from penstock.model.placement import shard_of

SHARDS = 4
_PER_SHARD = 2
_GROUP = "workers"
_CONSUMERS = 2
_PAUSE_S = 0.02


def _names_of(shard: int) -> list[str]:
    names = [f"orders-{number}" for number in range(100)]
    return [name for name in names if shard_of(name, SHARDS) == shard][:_PER_SHARD]


TOPICS = {topic: shard for shard in range(SHARDS) for topic in _names_of(shard)}
"""Each with its shard."""


class Load:
    """Messages with numbers are published at a rate and consumed, until it is told to stop publishing."""

    def __init__(self, servers: str, rate: float, books: Books) -> None:
        self._servers, self._rate, self._books = servers, rate, books
        self._publishing, self._consuming = threading.Event(), threading.Event()
        self._problem: BaseException | None = None
        work: list[Callable[[penstock.Client], None]] = [self._publish, *[self._consume] * _CONSUMERS]
        self._threads = [threading.Thread(target=self._do, args=(one,), daemon=True) for one in work]

    def check(self) -> None:
        """Raise what has ended a thread."""
        if self._problem is not None:
            raise self._problem

    def stop_publishing(self) -> None:
        """Let what is under way be answered and consumed, and publish no more."""
        self._publishing.clear()

    def __enter__(self) -> Self:
        with penstock.connect(self._servers) as client:
            for topic in TOPICS:
                client.create_topic(topic)
                client.create_group(topic, _GROUP)
        self._publishing.set()
        self._consuming.set()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._publishing.clear()
        self._consuming.clear()
        for thread in self._threads:
            thread.join()

    def _do(self, work: Callable[[penstock.Client], None]) -> None:
        try:
            with penstock.connect(self._servers) as client:
                work(client)
        except BaseException as error:  # noqa: BLE001 - raised by check()
            self._problem = error

    def _publish(self, client: penstock.Client) -> None:
        topics, number, began_s = list(TOPICS), 0, time.monotonic()
        while self._publishing.is_set():
            while number < (time.monotonic() - began_s) * self._rate:
                topic = topics[number % len(topics)]
                self._books.publish(number, topic)
                report = client.publish_soon(topic, str(number))
                report.add_done_callback(partial(self._answered, number))
                number += 1
            time.sleep(_PAUSE_S)

    def _answered(self, number: int, report: Future[penstock.MessageId]) -> None:
        if report.exception() is None:
            self._books.acknowledge(number, report.result())
        else:
            self._books.fail(number)

    def _consume(self, client: penstock.Client) -> None:
        with client.consumer(list(TOPICS), _GROUP) as consumer:
            while self._consuming.is_set():
                messages = consumer.receive(100, wait=0.2)
                for message in messages:
                    self._books.receive(int(message.value), message.id)
                with contextlib.suppress(penstock.LeaseLost, penstock.ConnectionLost):  # then they come again
                    if messages:
                        consumer.ack(messages)
