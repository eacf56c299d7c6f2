"""The processes of a server, as operations see them: shown and changed by asking the supervisor."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime, timedelta

from penstock.cluster.shards import Shards
from penstock.model.errors import InvalidArgument, Overloaded
from penstock.model.options import whole
from penstock.model.processes import ClusterInfo, ProcessInfo, ShardInfo
from penstock.server.membership import Membership
from penstock.server.metrics.metrics import Metrics
from penstock.server.metrics.process import cpu_seconds, resident_bytes

_PATIENCE_S = 60.0
_number = whole(0, (1 << 53) - 1)  # members are numbered without end


class Processes:
    """The operations on processes; each is called in a thread, and waits until what it asks for is done."""

    def __init__(
        self, membership: Membership | None, shards: Shards, metrics: Metrics, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._membership, self._shards, self._metrics, self._loop = membership, shards, metrics, loop

    def cluster(self) -> ClusterInfo:
        """All processes and shards, and the last moves."""
        return self._alone() if self._membership is None else self._ask("show")

    def move_shard(self, shard: int, process: int) -> ClusterInfo:
        """Have a shard move to a process."""
        return self._ask("move", _number(shard), _number(process))

    def drain_process(self, process: int) -> ClusterInfo:
        """Have all shards leave a process."""
        return self._ask("drain", process=_number(process))

    def balance_shards(self) -> ClusterInfo:
        """Have all processes share the shards."""
        return self._ask("balance")

    def _ask(self, question: str, shard: int = -1, process: int = -1) -> ClusterInfo:
        if self._membership is None:
            raise InvalidArgument("this server is one process: start it with --processes to have several")
        ask = self._membership.ask

        async def asking() -> ClusterInfo:
            return await asyncio.wait_for(ask(question, shard, process), _PATIENCE_S)

        try:
            return asyncio.run_coroutine_threadsafe(asking(), self._loop).result()
        except TimeoutError:
            raise Overloaded(f"it was not done within {_PATIENCE_S:.0f} s; `cluster` shows how far it is") from None

    def _alone(self) -> ClusterInfo:
        """One process that has everything."""
        clock, numbers = self._shards.clock, self._shards.numbers
        process = ProcessInfo(
            number=0,
            pid=os.getpid(),
            state="up",
            address="",
            shards=numbers,
            since=datetime.now(UTC) - timedelta(seconds=clock.monotonic_s() - self._shards.opened_s),
            restarts=0,
            resident_bytes=resident_bytes(),
            cpu_seconds=cpu_seconds(),
            connections=self._metrics.connections,
        )
        shards = [
            ShardInfo(number=number, process=0, epoch=shard.epoch, state="open")
            for number, shard in zip(numbers, self._shards, strict=True)
        ]
        return ClusterInfo(processes=[process], shards=shards, moves=[])
