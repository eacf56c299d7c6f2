"""This process among those of a server: which shards are where, and how the others are reached.

The others are processes of this machine, or servers on other machines (`peer_places.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from penstock.model.cluster_map import ClusterMap
from penstock.model.errors import InvalidArgument, NotOwner
from penstock.model.names import check_topic_name
from penstock.model.placement import parse_slice
from penstock.model.processes import ClusterInfo
from penstock.server.peer_places import Neighbours, Place


class Ask(Protocol):
    """A question to whoever decides where shards are."""

    def __call__(self, question: str, shard: int = -1, process: int = -1) -> Awaitable[ClusterInfo]: ...


class Membership:
    """What a process knows of the others; used on the event loop, and looked at by any thread."""

    def __init__(self, number: int, neighbours: Neighbours, cluster_map: ClusterMap) -> None:
        self.number = number
        """Of this process; others may have it after it, on one machine."""
        self.neighbours = neighbours
        self.broker_id = ""
        """The identity of the broker, once the shard is open that all have it from."""
        self.holds: Callable[[int], bool] = lambda _: True
        """Whether a shard that ought to be here is."""
        self.ask: Ask = _nobody
        """Ask the supervisor: what is shown, or to be done, and when it is done how all stands."""
        self.map = cluster_map
        self.on_changed: list[Callable[[], None]] = []
        """Called when shards have moved, with the map as it is now."""

    def owner_of(self, topic: str) -> int:
        """The number of the process that has a topic, or a slice of it; -1 while its shard is on its way."""
        name, number = parse_slice(topic)
        check_topic_name(topic if number is None else name)
        shard = self.map.shard_of(topic)
        process = self.map.shards[shard].process
        return process if process != self.number or self.holds(shard) else -1

    def is_elsewhere(self, topic: str) -> bool:
        """Whether requests about a topic are for another process."""
        return self.owner_of(topic) != self.number

    @property
    def others(self) -> list[int]:
        """The other processes."""
        return [number for number in self.map.addresses if number != self.number]

    def place_of(self, process: int) -> Place:
        """Where the ports of a process (`native`, `http`, `line`) are reached from the other processes."""
        return self.neighbours.place_of(process)

    def not_owner(self, shard: int) -> NotOwner:
        """What whoever asks for a shard hears that is not here."""
        place = self.map.shards[shard]
        if place.process == self.number:  # it was, and is on its way; who has it next is not known yet
            return NotOwner(f"shard {shard} is on its way to another process: nothing was done", shard, place.epoch)
        address = self.map.address_of(shard) or ""
        if not address:
            return NotOwner(f"shard {shard} is in no process now: nothing was done, try again", shard, place.epoch)
        told = (
            f"the topic is in shard {shard}, which another process of this server has, at {address}: nothing was done; "
            "clients that follow shards go there by themselves, older ones connect to that address"
        )
        return NotOwner(told, shard, place.epoch, address)

    def update(self, cluster_map: ClusterMap) -> None:
        """Shards have moved, or members have come or gone."""
        gone = self.map.addresses.keys() - cluster_map.addresses.keys()
        self.map = cluster_map
        for member in gone:
            self.neighbours.cut_off(member)
        for changed in list(self.on_changed):
            changed()


async def _nobody(question: str, shard: int = -1, process: int = -1) -> ClusterInfo:
    raise InvalidArgument("nobody decides here where shards are")
