"""Data for the figures of jobs: files to load, a topic whose messages were consumed, a stream that goes on."""

from __future__ import annotations

import threading
from pathlib import Path
from time import perf_counter, sleep
from types import TracebackType
from typing import Self

import penstock
from benchmarks.load import BATCH, values
from benchmarks.sparks import TOPIC

_RECEIVED = 100


def write_csv(path: Path, rows: int) -> None:
    """A file of orders of about 100 bytes each."""
    with path.open("w") as file:
        file.write("id,customer,amount,placed_at,remark\n")
        for start in range(0, rows, 10_000):
            file.writelines(
                f"{n},customer-{n % 1000},{n % 10_000 / 100:.2f},2026-01-14T15:00:{n % 60:02d}Z,"
                f"{'a remark about the order ' * 2}{n % 77}\n"
                for n in range(start, min(rows, start + 10_000))
            )


def fill_consumed(path: Path, count: int) -> None:
    """A topic whose messages one group has received and acked, a hundred at a time, all settled."""
    every = values()
    with penstock.open(path) as broker:
        for number in range(count // BATCH):
            start = number * BATCH % (len(every) - BATCH + 1)
            broker.publish_many(TOPIC, every[start : start + BATCH])
            if number % 100 == 99 or number == count // BATCH - 1:
                _consume(broker)
        broker.settle()


def _consume(broker: penstock.Broker) -> None:
    with broker.consumer(TOPIC, "workers") as consumer:
        while messages := consumer.receive(_RECEIVED):
            consumer.ack(messages)


class Stream:
    """Publishes at a steady rate beside what is measured; use it in a `with` block."""

    def __init__(self, server: str, topic: str, rate: int) -> None:
        self._server, self._topic, self._rate = server, topic, rate
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.published = 0

    def _run(self) -> None:
        orders = [f'{{"id": {n}, "customer": "customer-{n % 100}", "amount": {n % 997}.5' for n in range(BATCH)]
        rows = [f'{order}, "note": "{"x" * (86 - len(order))}"}}' for order in orders]  # of 100 bytes
        with penstock.connect(self._server) as client:
            start_s = perf_counter()
            while not self._ending.is_set():
                client.publish_many(self._topic, rows)
                self.published += BATCH
                sleep(max(0.0, self.published / self._rate - (perf_counter() - start_s)))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._ending.set()
        self._thread.join()
