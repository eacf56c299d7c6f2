"""Kafka: a topic with one partition for each queue; flushed at every message, or left to the system (its default).

A consumer keeps a position and commits it, which stands for an ack of everything before.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from benchmarks.peers.plans import Consume, Publish
from benchmarks.peers.processes import free_port, running
from benchmarks.peers.systems.kafka_client import ConfluentKafka
from benchmarks.peers.systems.kafka_wire import KafkaWire
from benchmarks.peers.systems.system import GROUP, RAW, Peer, RawPeer, System

JARS = "KAFKA_JARS"
"""The variable of the environment that names the directory of its jars."""
_TIMEOUT_S = 60
_WARM_S = 1.5
_MEMORY = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
log.dirs={directory}/data
num.partitions=1
auto.create.topics.enable=false
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
{more}
"""


class KafkaPeer(RawPeer):
    """A broker that runs."""

    def __init__(self, pid: int, port: int, version: str) -> None:
        from confluent_kafka import Consumer
        from confluent_kafka.admin import AdminClient

        address = f"127.0.0.1:{port}"
        super().__init__(pid, version, KafkaWire(port), **{"confluent-kafka": ConfluentKafka(address)})
        common = {"bootstrap.servers": address, "enable.metrics.push": False, "log_level": 0}
        self._admin = AdminClient(common)
        self._consumer = Consumer({**common, "group.id": GROUP, "enable.auto.commit": False})

    def make(self, queues: Sequence[str]) -> None:
        from confluent_kafka.admin import NewTopic

        topics = [NewTopic(queue, num_partitions=1, replication_factor=1) for queue in queues]
        for made in self._admin.create_topics(topics, request_timeout=_TIMEOUT_S).values():
            made.result()
        for queue in queues:
            self._wait_for(queue)

    def _wait_for(self, queue: str) -> None:
        """Until the broker has made the partition, and a place for the positions of groups."""
        from confluent_kafka import KafkaException

        until = monotonic() + _TIMEOUT_S
        while True:
            try:
                self.unacked(queue)
            except KafkaException:
                if monotonic() > until:
                    raise
                sleep(0.05)
            else:
                return

    def published(self, queues: Sequence[str]) -> int:
        return sum(self._ends(queue)[1] for queue in queues)

    def unacked(self, queue: str) -> int:
        (committed,) = self._consumer.committed([_partition(queue)], timeout=_TIMEOUT_S)
        return int(self._ends(queue)[1] - max(0, committed.offset))

    def _ends(self, queue: str) -> tuple[int, int]:
        first, end = self._consumer.get_watermark_offsets(_partition(queue), timeout=_TIMEOUT_S)
        return int(first), int(end)

    def warm_up(self) -> None:
        """Let Java compile what is measured."""
        self.make(["warm"])
        raw = self.drivers[RAW]
        published = 0
        for plan in (Publish(window=16), Publish(batch=100, window=4), Publish(batch=1000, window=4)):
            published += raw.publish(plan, ["warm"], _WARM_S).messages
        raw.consume(Consume(1), "warm", published, 2 * _WARM_S)

    def close(self) -> None:
        """Let its clients go."""
        self._consumer.close()


def _partition(queue: str) -> Any:
    from confluent_kafka import TopicPartition

    return TopicPartition(queue, 0)


class Kafka(System):
    """Flushed after every message."""

    name, title, group, durable = "kafka", "Kafka, flush 1", "kafka", True
    settings = "KRaft, one node, log.flush.interval.messages=1, acks=all"
    flush = "log.flush.interval.messages=1"

    def takes(self, row: str) -> bool:
        return row != "queues"  # a thousand topics take it minutes to make

    def missing(self) -> str | None:
        if not _jars():
            return f"{JARS} names no directory with its jars: `make bench-peers` fetches them, or use --kafka"
        return None if shutil.which("java") else "java is not installed"

    @contextlib.contextmanager
    def start(self, directory: Path) -> Iterator[Peer]:
        port, controller = free_port(), free_port()
        config = directory / "server.properties"
        config.write_text(_PROPERTIES.format(port=port, controller=controller, directory=directory, more=self.flush))
        jars = _jars()
        java = ["java", "-cp", os.pathsep.join(map(str, jars))]
        identity = str(uuid.uuid4().hex[:22])
        form = [*java, "kafka.tools.StorageTool", "format", "-t", identity, "-c", str(config)]
        subprocess.run(form, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=directory)
        command = [*java, *_MEMORY, "-Djava.awt.headless=true", "kafka.Kafka", str(config)]
        (core,) = (jar.stem for jar in jars if jar.name.startswith("kafka_"))
        with running(command, directory, port) as process:
            peer = KafkaPeer(process.pid, port, f"Kafka {core.rpartition('-')[2]}")
            try:
                peer.warm_up()
                yield peer
            finally:
                peer.close()


class KafkaDefault(Kafka):
    """As it is by default: the system writes it to disk when it likes."""

    name, title, durable, flush = "kafka-default", "Kafka, default", False, ""
    settings = "KRaft, one node, acks=all (flushed when the system likes)"


def _jars() -> list[Path]:
    """The jars in the directory, or in its `libs`, as in an unpacked Kafka."""
    directory = Path(os.environ.get(JARS, ""))
    if not os.environ.get(JARS) or not directory.is_dir():
        return []
    found = sorted(directory.glob("*.jar")) or sorted((directory / "libs").glob("*.jar"))
    return found if any(jar.name.startswith("kafka_") for jar in found) else []
