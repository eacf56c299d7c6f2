"""Celery's Redis broker: what a task costs on its way in and out, with no worker's own work; a list for each queue."""

from __future__ import annotations

from collections.abc import Sequence
from queue import Empty
from typing import Any

from benchmarks.load import value_at
from benchmarks.peers.calls import call_for, take_for
from benchmarks.peers.plans import Consume, Plan, Publish, Timed
from benchmarks.peers.systems.redis import Redis, client_of
from benchmarks.peers.systems.system import Peer

_WAIT_S = 5
_TASK = "work"
_ROWS = ("client-alone", "client-receive-1")


class Celery:
    """`send_task`, and what a worker does with each message: get it, ack it."""

    def __init__(self, port: int) -> None:
        import celery

        self._app = celery.Celery("bench", broker=f"redis://127.0.0.1:{port}/0")
        self._app.conf.update(task_ignore_result=True, broker_connection_retry_on_startup=False)

    def can(self, plan: Plan) -> bool:
        return isinstance(plan, Consume | Publish) and plan.batch == 1

    def send(self, queue: str, number: int) -> object:
        """Publish one task."""
        return self._app.send_task(_TASK, (value_at(number).decode("latin-1"),), queue=queue)

    def publish(self, plan: Publish, queues: list[str], seconds: float) -> Timed:
        return call_for(seconds, 1, lambda number: self.send(queues[0], number))

    def consume(self, plan: Consume, queue: str, count: int, seconds: float) -> Timed:
        with self._app.connection_for_read() as connection, connection.SimpleQueue(queue) as messages:

            def take(_: int) -> int:
                try:
                    messages.get(timeout=_WAIT_S).ack()
                except Empty:
                    return 0
                return 1

            return take_for(seconds, 1, count, take)


class CeleryPeer(Peer):
    """A Redis that runs, as Celery uses it."""

    def __init__(self, pid: int, port: int) -> None:
        import celery

        self.pid = pid
        self._redis: Any = client_of(port)
        self._celery = Celery(port)
        self.version = f"Celery {celery.__version__}, Redis {self._redis.info('server')['redis_version']}"
        self.drivers = {"celery": self._celery}

    def fill(self, queue: str, batch: int, count: int, seconds: float) -> int:
        until_s, number = seconds, 0
        while number < count and until_s > 0:
            filled = call_for(min(until_s, 0.2), 1, lambda _: self._celery.send(queue, 0))
            number, until_s = number + filled.messages, until_s - filled.seconds
        return number

    def published(self, queues: Sequence[str]) -> int:
        return sum(self._redis.llen(queue) for queue in queues)

    def unacked(self, queue: str) -> int:
        return int(self._redis.llen(queue) + self._redis.hlen("unacked"))


class CeleryOnRedis(Redis):
    """The broker that most users of Celery have, made durable."""

    name, title, group = "celery", "Celery on Redis, AOF always", "celery"

    def missing(self) -> str | None:
        try:
            import celery  # noqa: F401
        except ImportError:
            return "celery is not installed"
        return super().missing()

    def takes(self, row: str) -> bool:
        return row in _ROWS

    def peer(self, pid: int, port: int) -> Peer:
        return CeleryPeer(pid, port)
