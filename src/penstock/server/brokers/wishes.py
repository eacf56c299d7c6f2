"""What people ask of the brokers on a bucket: to see them all, and to have shards elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

from penstock.cluster.claiming import NOBODY
from penstock.cluster.members import Heartbeat
from penstock.model.cluster_map import ShardPlace
from penstock.model.errors import InvalidArgument
from penstock.model.processes import ClusterInfo, ProcessInfo, ProcessState, ShardInfo, ShardState
from penstock.server.brokers.member import BrokerMember
from penstock.server.peers import Peers

_LOOK_S = 0.05
_MOVES_SHOWN = 50


class Wishes:
    """Answers questions at one broker, for all of them."""

    def __init__(self, member: BrokerMember, peers: Peers) -> None:
        self._member, self._peers = member, peers

    async def ask(self, question: str, shard: int = -1, process: int = -1) -> ClusterInfo:
        """Do what is wished; how all stands when it is done."""
        match question:
            case "move":
                return await self._move(shard, process)
            case "drain":
                return await self._drain(process)
            case "balance":
                self._member.balance()
                await self._until(self._is_even)
        return self.info()

    async def _move(self, shard: int, process: int) -> ClusterInfo:
        places = self._shards
        if not 0 <= shard < len(places):
            raise InvalidArgument(f"there is no shard {shard}: they are 0 to {len(places) - 1}")
        target, owner = self._known(process), places[shard].process
        if not target.is_able:
            raise InvalidArgument(f"broker {process} is being drained: `penstock cluster balance` lets it have shards")
        if owner == process:
            return self.info()
        if owner == self._member.number:
            self._member.claiming.move(shard, process)
        else:
            await self._peers.ask(owner, "move_shard", {"shard": shard, "process": process}, ClusterInfo)
        await self._until(lambda: self._open[shard] == process)
        return self.info()

    async def _drain(self, process: int) -> ClusterInfo:
        self._known(process)
        if not any(each.is_able for number, each in self._living.items() if number != process):
            raise InvalidArgument(f"broker {process} is the only one that can have shards now")
        if process == self._member.number:
            self._member.drain()
        else:
            await self._peers.ask(process, "drain_process", {"process": process}, ClusterInfo)
        await self._until(lambda: not {process, NOBODY} & set(self._open))
        return self.info()

    @property
    def _shards(self) -> list[ShardPlace]:
        return self._member.claiming.map().shards

    @property
    def _open(self) -> list[int]:
        """Where each shard is open; NOBODY while it is on its way."""
        held = {number: each.shards for number, each in self._living.items()}
        return [
            place.process if shard in held.get(place.process, {}) else NOBODY
            for shard, place in enumerate(self._shards)
        ]

    @property
    def _living(self) -> dict[int, Heartbeat]:
        return self._member.members.living

    def _known(self, process: int) -> Heartbeat:
        found = self._living.get(process)
        if found is None or not found.address:
            up = ", ".join(str(number) for number, each in sorted(self._living.items()) if each.address)
            raise InvalidArgument(f"there is no broker {process} that is up: {up}")
        return found

    def _is_even(self) -> bool:
        """Whether all have heard of the wish, and share the shards."""
        if any(each.balances < self._member.balances for each in self._living.values()):
            return False
        able = [number for number, each in self._living.items() if each.is_able]
        counts = [self._open.count(number) for number in able]
        return sum(counts) == len(self._shards) and max(counts) - min(counts) <= 1

    async def _until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():  # noqa: ASYNC110 - whoever asked waits as long as it wants to
            await asyncio.sleep(_LOOK_S)

    # As it is shown.

    def info(self) -> ClusterInfo:
        """All brokers and shards."""
        cluster_map = self._member.claiming.map()
        held = {number: each.shards for number, each in self._living.items()}
        shards = [
            ShardInfo(
                number=number,
                process=place.process,
                epoch=place.epoch,
                state="open"
                if number in held.get(place.process, {})
                else "opening"
                if place.process >= 0
                else "closed",
            )
            for number, place in enumerate(cluster_map.shards)
        ]
        moves = sorted((move for each in self._living.values() for move in each.moves), key=lambda move: move.at)
        brokers = [self._broker(each) for _, each in sorted(self._living.items())]
        return ClusterInfo(processes=brokers, shards=shards, moves=moves[-_MOVES_SHOWN:])

    def _state(self, shard: int, process: int) -> ShardState:
        if process not in self._living:
            return "closed"
        return "open" if shard in self._living[process].shards else "opening"

    def _broker(self, each: Heartbeat) -> ProcessInfo:
        state: ProcessState = "draining" if each.draining else "up" if each.address else "starting"
        return ProcessInfo(
            number=each.number,
            pid=each.pid,
            state=state,
            address=each.address,
            shards=sorted(each.shards),
            since=each.since or datetime.now(UTC),
            restarts=0,
            resident_bytes=each.resident_bytes,
            cpu_seconds=each.cpu_seconds,
            connections=each.connections,
        )
