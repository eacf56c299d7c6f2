"""pika, RabbitMQ's client: its blocking connection, and the one with callbacks where many messages are under way."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from time import perf_counter_ns
from typing import Any

from benchmarks.load import value_at
from benchmarks.peers.calls import call_for, take_for
from benchmarks.peers.plans import Consume, Plan, Publish, Refused, Timed
from benchmarks.peers.raw import values_of

_WAIT_S = 5.0
_ENDLESS = 1 << 62


class Pika:
    """A confirm for every message. It has no batches: so many messages, all confirmed, are one here."""

    def __init__(self, port: int) -> None:
        self._port = port

    def can(self, plan: Plan) -> bool:
        if isinstance(plan, Publish):
            return plan.connections == plan.queues == 1 and not plan.soon
        return isinstance(plan, Consume)

    def publish(self, plan: Publish, queues: list[str], seconds: float) -> Timed:
        if plan.batch * plan.window > 1:
            return self.publish_some(plan, queues[0], _ENDLESS, seconds)
        with blocking(self._port) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            options = _persistent()
            return call_for(
                seconds,
                1,
                lambda number: channel.basic_publish("", queues[0], value_at(number), options),
            )

    def publish_some(self, plan: Publish, queue: str, count: int, seconds: float) -> Timed:
        """Publish with a window until so many are confirmed, or the time is over."""
        publisher = Publisher(self._port, plan, queue, count, seconds)
        publisher.run()
        return Timed(publisher.confirmed, publisher.seconds)

    def consume(self, plan: Consume, queue: str, count: int, seconds: float) -> Timed:
        with blocking(self._port) as connection:
            channel = connection.channel()
            channel.basic_qos(prefetch_count=min(60_000, plan.batch * max(1, plan.ahead)))
            messages = channel.consume(queue, inactivity_timeout=_WAIT_S)

            def take(wanted: int) -> int:
                tag = 0
                for number in range(wanted):
                    method, _, _ = next(messages)
                    if method is None:
                        return number
                    tag = method.delivery_tag
                channel.basic_ack(tag, multiple=True)
                return wanted

            timed = take_for(seconds, plan.batch, count, take)
            channel.cancel()
            return timed


class Publisher:
    """Publishes as confirms come in, or batch by batch."""

    def __init__(self, port: int, plan: Publish, queue: str, count: int, seconds: float) -> None:
        import pika

        self.confirmed = 0
        self.seconds = 0.0
        self._plan = plan
        self._queue = queue
        self._count = count
        self._wanted_ns = round(seconds * 1e9)
        self._values = values_of(plan.size)
        self._sent = self._highest = 0
        self._options = _persistent()
        self._failure: str | None = None
        parameters = pika.ConnectionParameters("127.0.0.1", port)
        self._connection = pika.SelectConnection(parameters, on_open_callback=self._opened)

    def run(self) -> None:
        """Until everything that was sent is confirmed."""
        self._connection.ioloop.start()
        if self._failure is not None:
            raise Refused(self._failure)

    def _opened(self, connection: Any) -> None:
        connection.channel(on_open_callback=self._channel_opened)

    def _channel_opened(self, channel: Any) -> None:
        self._channel = channel
        channel.confirm_delivery(self._answered)
        self._start_ns = perf_counter_ns()
        self._send()

    def _send(self) -> None:
        """Fill the window; a window of one batch is filled when all of the last one is confirmed."""
        room = self._plan.batch * self._plan.window - (self._sent - self.confirmed)
        now_ns = perf_counter_ns()
        if now_ns - self._start_ns >= self._wanted_ns or self._sent >= self._count:
            if self.confirmed == self._sent:
                self.seconds = (now_ns - self._start_ns) / 1e9
                self._connection.close()
                self._connection.ioloop.stop()
            return
        if room < self._plan.batch:
            return
        whole = min(room // self._plan.batch * self._plan.batch, self._count - self._sent)
        for _ in range(whole):
            value = self._values[self._sent % len(self._values)]
            self._channel.basic_publish("", self._queue, value, self._options)
            self._sent += 1

    def _answered(self, frame: Any) -> None:
        method = frame.method
        if method.NAME != "Basic.Ack":
            self._failure = f"{method.NAME} instead of a confirm"
            self._connection.ioloop.stop()
            return
        if method.multiple:
            self.confirmed += method.delivery_tag - self._highest
        else:
            self.confirmed += 1
        self._highest = max(self._highest, method.delivery_tag)
        self._send()


@contextlib.contextmanager
def blocking(port: int) -> Iterator[Any]:
    """A connection of plain calls."""
    import pika

    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
    try:
        yield connection
    finally:
        connection.close()


def declare(channel: Any, queue: str) -> int:
    """Make sure of a queue; how many messages are ready in it."""
    made = channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum"})
    return int(made.method.message_count)


def _persistent() -> Any:
    import pika

    return pika.BasicProperties(delivery_mode=2)
