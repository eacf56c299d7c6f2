"""The lines: what is varied, and the work of one point, inside the process that holds the broker.

Every publish is synced, in batches of which some are on the way, and settling goes on as it always does.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter, process_time

from benchmarks.consumers import drain
from benchmarks.load import BATCH, batch, value_at
from benchmarks.publishers import pipelined
from benchmarks.verify import check_count, count_of
from penstock import Broker, Message

SMALL_BATCH = 100
_TOGETHER = 10  # batches of producers that one sync commits
_DELAYS_S = (3600, 6 * 86400)

Times = dict[str, float]
"""The seconds of each message, by what was done to it."""


class Work:
    """What one point does: its parts are timed, by the clock and by the processor time of all threads."""

    def __init__(self) -> None:
        self.messages = 0
        self.times: Times = {}
        self.processor: Times = {}

    @contextmanager
    def timed(self, what: str, messages: int) -> Iterator[None]:
        """Do a part with so many messages in all."""
        start_s, start_cpu_s = perf_counter(), process_time()
        yield
        self.times[what] = self.times.get(what, 0.0) + (perf_counter() - start_s) / messages
        self.processor[what] = self.processor.get(what, 0.0) + (process_time() - start_cpu_s) / messages


@dataclass(frozen=True, slots=True)
class Line:
    """Something of which there may be few or many."""

    of: str
    sizes: tuple[int, ...]
    do: Callable[[Work, Broker, int, int], None]
    """Does the work of a point: with this size, and with so many messages where the size is not their number."""
    messages: int
    quick_sizes: tuple[int, ...]


def _messages(work: Work, broker: Broker, size: int, _: int) -> None:
    """Publish so many, then receive and ack all."""
    with work.timed("publish", size):
        pipelined(broker, ["orders"], range(size // BATCH))
    check_count("messages", count_of(broker), size)
    with work.timed("receive + ack", size):
        drain(broker, "orders", "g", size)
    work.messages = size


def _topics(work: Work, broker: Broker, size: int, messages: int) -> None:
    """Publish to so many topics in turn, all of which were used before; then to one beside them."""
    names = [f"topic-{number}" for number in range(size)]
    pipelined(broker, names, range(size), SMALL_BATCH)
    batches = range(messages // SMALL_BATCH)
    with work.timed("publish, in turn", messages):
        pipelined(broker, names, batches, SMALL_BATCH)
    with work.timed("publish to one beside them", messages):
        pipelined(broker, ["beside"], batches, SMALL_BATCH)
    work.messages = size * SMALL_BATCH + 2 * messages
    check_count("messages", count_of(broker), work.messages)


def _groups(work: Work, broker: Broker, size: int, messages: int) -> None:
    """Publish beside so many groups that have consumed before, then let each receive and ack everything."""
    names = [f"group-{number}" for number in range(size)]
    broker.publish_many("orders", batch(0))
    for name in names:
        drain(broker, "orders", name, BATCH)
    with work.timed("publish", messages):
        pipelined(broker, ["orders"], range(messages // BATCH))
    for name in names:
        with broker.consumer("orders", name) as consumer, work.timed("receive + ack, in a group", messages * size):
            for _ in range(messages // BATCH):
                consumer.ack(consumer.receive(BATCH, wait=5))
        check_count(f"messages left to {name}", broker.group("orders", name).lag, 0)
    work.messages = messages


def _producers(work: Work, broker: Broker, size: int, messages: int) -> None:
    """Publish by so many producers in turn, each with its name and its numbers, in small batches."""
    publish, flush = broker.shard.publish_many, broker.shard.flush
    for number in range(size):
        publish("orders", [value_at(number)], f"producer-{number}", 0)
        if number % BATCH == BATCH - 1:
            flush()
    flush()
    with work.timed("publish", messages):
        for number in range(messages // SMALL_BATCH):
            publish("orders", batch(number, SMALL_BATCH), f"producer-{number % size}", 1 + number // size)
            if number % _TOGETHER == _TOGETHER - 1:
                flush()
        flush()
    work.messages = size + messages
    check_count("messages", count_of(broker), work.messages)


def _delays(work: Work, broker: Broker, size: int, _: int) -> None:
    """Publish so many messages that are due in days, while a consumer waits for them."""
    chance = random.Random(3)
    with broker.consumer("orders", "g"):
        for number in range(size // BATCH):
            messages = [Message(value, delay=chance.uniform(*_DELAYS_S)) for value in batch(number)]
            with work.timed("publish", size):
                broker.publish_many("orders", messages)
        check_count("delayed messages", broker.group("orders", "g").delayed, size)
    work.messages = size


LINES = {
    "messages": Line("messages", (10**4, 10**5, 10**6, 10**7, 10**8), _messages, 0, (1000, 2000)),
    "topics": Line("used topics", (1, 10, 100, 1000, 3000, 10_000), _topics, 1_000_000, (1, 20)),
    "groups": Line("groups", (1, 2, 4, 8, 16, 32, 64), _groups, 200_000, (1, 2)),
    "producers": Line("producers", (1, 10, 100, 1000, 10_000, 100_000), _producers, 1_000_000, (1, 20)),
    "delays": Line("delayed messages", (10**3, 10**4, 10**5, 10**6), _delays, 0, (1000, 2000)),
}
"""All lines, by name."""
