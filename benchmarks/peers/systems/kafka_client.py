"""confluent-kafka, Kafka's client on librdkafka: it gathers messages that are on the way into requests itself."""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any

from benchmarks.load import batch, value_at
from benchmarks.peers.calls import call_for, take_for
from benchmarks.peers.plans import Consume, Plan, Publish, Refused, Timed
from benchmarks.peers.systems.system import GROUP

_TIMEOUT_S = 30.0


class ConfluentKafka:
    """A producer with callbacks, and a consumer that commits its position."""

    def __init__(self, address: str) -> None:
        self._common = {
            "bootstrap.servers": address,
            "enable.metrics.push": False,
            "socket.nagle.disable": True,
            "log_level": 0,
        }

    def can(self, plan: Plan) -> bool:
        return isinstance(plan, Consume) or (isinstance(plan, Publish) and not plan.soon)

    def publish(self, plan: Publish, queues: list[str], seconds: float) -> Timed:
        from confluent_kafka import Producer

        producer = Producer({**self._common, "acks": "all", "linger.ms": 0})
        deliveries = Deliveries()
        queue, size = queues[0], plan.batch

        def one_batch(number: int) -> None:
            for value in batch(number, size):
                producer.produce(queue, value, on_delivery=deliveries)
            deliveries.wait(producer, size)

        def one(number: int) -> None:
            producer.produce(queue, value_at(number), on_delivery=deliveries)
            deliveries.wait(producer, 1)

        def gathered(number: int) -> None:
            producer.produce(queue, value_at(number), on_delivery=deliveries)
            deliveries.under_way += 1
            while deliveries.under_way - deliveries.count >= plan.window:
                producer.poll(_TIMEOUT_S)
            producer.poll(0)

        if plan.window == 1:
            return call_for(seconds, size, one if size == 1 else one_batch)
        start_ns = perf_counter_ns()
        timed = call_for(seconds, size, gathered)
        producer.flush(_TIMEOUT_S)
        return Timed(timed.messages, (perf_counter_ns() - start_ns) / 1e9)

    def consume(self, plan: Consume, queue: str, count: int, seconds: float) -> Timed:
        from confluent_kafka import Consumer, TopicPartition

        options = {"group.id": GROUP, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        consumer = Consumer({**self._common, **options})
        try:
            (committed,) = consumer.committed([TopicPartition(queue, 0)], timeout=_TIMEOUT_S)
            consumer.assign([TopicPartition(queue, 0, max(0, committed.offset))])

            first = consumer.consume(1, timeout=_TIMEOUT_S)  # it has connected, and has fetched more

            def take(wanted: int) -> int:
                messages = first.copy()
                first.clear()
                if wanted > len(messages):
                    messages += consumer.consume(wanted - len(messages), timeout=_TIMEOUT_S)
                for message in messages:
                    if message.error() is not None:
                        raise Refused(str(message.error()))
                if messages:
                    consumer.commit(offsets=[_behind(messages[-1])], asynchronous=False)
                return len(messages)

            return take_for(seconds, plan.batch, count, take)
        finally:
            consumer.close()


class Deliveries:
    """Counts messages as they are acknowledged."""

    def __init__(self) -> None:
        self.count = 0
        self.under_way = 0

    def __call__(self, error: object, message: object) -> None:
        if error is not None:
            raise Refused(str(error))
        self.count += 1

    def wait(self, producer: Any, more: int) -> None:
        """Until so many more are acknowledged."""
        self.under_way += more
        while self.count < self.under_way:
            producer.poll(_TIMEOUT_S)


def _behind(message: Any) -> Any:
    from confluent_kafka import TopicPartition

    return TopicPartition(message.topic(), 0, message.offset() + 1)
