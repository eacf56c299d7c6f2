"""All rows and all systems, by the names that the command line knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from benchmarks.load import VALUE_BYTES
from benchmarks.peers.plans import Consume, Plan, Publish, Steady
from benchmarks.peers.systems.beanstalkd import Beanstalkd, BeanstalkdDefault
from benchmarks.peers.systems.celery import CeleryOnRedis
from benchmarks.peers.systems.kafka import Kafka, KafkaDefault
from benchmarks.peers.systems.nats import Nats, NatsDefault
from benchmarks.peers.systems.penstock import Penstock, UsedPenstock
from benchmarks.peers.systems.rabbitmq import RabbitMQ
from benchmarks.peers.systems.redis import Redis, RedisEverySecond
from benchmarks.peers.systems.system import System

Figure = Literal["messages/s", "MB/s", "latency"]


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table: what is done, by plain sockets or by clients, and what is shown of it."""

    name: str
    title: str
    plan: Plan
    by_client: bool = False
    figure: Figure = "messages/s"

    @property
    def size(self) -> int:
        """Of a value, in bytes."""
        return self.plan.size if isinstance(self.plan, Publish) else VALUE_BYTES


_DRAINED = 2_000_000

ROWS = (
    Row("alone", "publish, one at a time", Publish()),
    Row("connections", "publish, 64 connections, one at a time each", Publish(connections=64)),
    Row("window-256", "publish, window of 256", Publish(window=256)),
    Row("window-1000", "publish, window of 1,000", Publish(window=1000)),
    Row("batches-100", "publish, batches of 100, 32 under way", Publish(batch=100, window=32)),
    Row("batches-1000", "publish, batches of 1,000, 8 under way", Publish(batch=1000, window=8)),
    Row("queues", "publish, 1,000 queues in turn, window of 256", Publish(window=256, queues=1000)),
    Row("values-10k", "publish, values of 10 KiB, batches of 100", Publish(100, 4, size=10240), figure="MB/s"),
    Row("receive-1", "receive + ack, one at a time", Consume(1, count=20_000)),
    Row("receive-100", "receive + ack, by 100", Consume(100, count=300_000)),
    Row("receive-1000", "receive + ack, by 1,000", Consume(1000, count=1_000_000)),
    Row("drain", "drain 2 million, by 1,000, 4 under way", Consume(1000, ahead=4, count=_DRAINED)),
    Row("steady", "end to end at 5,000/s", Steady(5000), figure="latency"),
    Row("client-alone", "publish, one at a time", Publish(), by_client=True),
    Row("client-window", "publish, 256 under way", Publish(window=256), by_client=True),
    Row("client-soon", "publish, not waiting for replies", Publish(soon=True), by_client=True),
    Row("client-100", "publish, batches of 100, one at a time", Publish(batch=100), by_client=True),
    Row("client-1000", "publish, batches of 1,000, one at a time", Publish(batch=1000), by_client=True),
    Row("client-receive-1", "receive + ack, one at a time", Consume(1, count=20_000), by_client=True),
    Row("client-receive-100", "receive + ack, by 100", Consume(100, count=300_000), by_client=True),
    Row("client-receive-1000", "receive + ack, by 1,000", Consume(1000, count=500_000), by_client=True),
)
BY_NAME = {row.name: row for row in ROWS}

SYSTEMS: tuple[System, ...] = (
    Penstock(),
    UsedPenstock(),
    Redis(),
    RedisEverySecond(),
    Beanstalkd(),
    BeanstalkdDefault(),
    Nats(),
    NatsDefault(),
    Kafka(),
    KafkaDefault(),
    RabbitMQ(),
    CeleryOnRedis(),
)
