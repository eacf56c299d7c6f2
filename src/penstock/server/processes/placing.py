"""Who is to have which shard, and what to do next for it: decided here and nowhere else, from what is reported.

Every shard has a *home*, the process that ought to have it. Whatever happens changes what is known, and then `orders`
says what to do: a shard that nobody has is opened at its home, and one that is somewhere else leaves for it. One shard
moves at a time. A shard is ordered to be opened only when it is certain that nobody has it: its process has said that
it let go, or has ended.

A process that ends is replaced, and its successor gets its shards: the shortest way back. Only where that fails again
and again do others get them; they are dealt again when it has been up for a while.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from penstock.cluster.assigning import assign
from penstock.model.cluster_map import ClusterMap, ShardPlace
from penstock.model.errors import InvalidArgument
from penstock.model.processes import Move, ShardInfo, ShardState
from penstock.server.processes.orders import Release, Take

_MOVES_KEPT = 50
_OPEN_AGAIN_S = 1.0  # after it could not be opened
STABLE_S = 60.0
"""How long a process that ended again and again has to be up before it gets shards again."""
NOBODY = -1


@dataclass(slots=True)
class _Placed:
    """What is known of one shard."""

    home: int
    state: ShardState = "closed"
    process: int = NOBODY
    """That has it, is opening it, or is letting it go."""
    epoch: int = 0
    problem: str | None = None
    not_before_s: float = 0.0
    left: tuple[int, float] | None = None
    """The process that it has left, and when, while it is on its way."""


@dataclass(slots=True)
class Placing:
    """The shards of a server, and the processes that may have them."""

    shards: list[_Placed]
    up: set[int] = field(default_factory=set)
    draining: set[int] = field(default_factory=set)
    """Those that are to have no shards."""
    failing: dict[int, float] = field(default_factory=dict)
    """Those that ended again and again, with the time of their last start: others get shards first."""
    moves: deque[Move] = field(default_factory=lambda: deque(maxlen=_MOVES_KEPT))

    @classmethod
    def of(cls, shards: int, processes: Iterable[int]) -> Placing:
        """Shards dealt to processes that are about to start."""
        return cls([_Placed(home) for home in _dealt(shards, processes, {}).values()])

    # What is reported.

    def started(self, process: int, now_s: float) -> None:
        """A process can take shards."""
        self.up.add(process)
        if process in self.failing:
            self.failing[process] = now_s

    def ended(self, process: int) -> None:
        """A process has ended, whatever it was doing: nothing is open there any more."""
        self.up.discard(process)
        for placed in self.shards:
            if placed.process == process:
                placed.state, placed.process = "closed", NOBODY

    def opened(self, process: int, shard: int, epoch: int, now_s: float, wall_s: float) -> None:
        """A process has a shard."""
        placed = self.shards[shard]
        assert placed.process == process, "C19: one owner a shard"
        assert epoch > placed.epoch, "a shard that is opened again has a greater epoch"
        placed.state, placed.epoch, placed.problem = "open", epoch, None
        if placed.left is not None:
            origin, since_s = placed.left
            placed.left = None
            at = datetime.fromtimestamp(wall_s, UTC)
            self.moves.append(Move(shard=shard, origin=origin, target=process, at=at, seconds=now_s - since_s))

    def not_opened(self, process: int, shard: int, problem: str, now_s: float) -> None:
        """A process could not open a shard; it is tried again."""
        placed = self.shards[shard]
        if placed.process == process:
            placed.state, placed.process = "closed", NOBODY
            placed.problem, placed.not_before_s = problem, now_s + _OPEN_AGAIN_S

    def released(self, process: int, shard: int, now_s: float) -> None:
        """A process has let a shard go."""
        placed = self.shards[shard]
        assert placed.process == process
        placed.state, placed.process, placed.left = "closed", NOBODY, (process, now_s)

    # What is wanted.

    def move(self, shard: int, process: int) -> None:
        """Have a shard move to a process."""
        if not 0 <= shard < len(self.shards):
            raise InvalidArgument(f"there is no shard {shard}: they are 0 to {len(self.shards) - 1}")
        self._check(process)
        if process in self.draining:
            raise InvalidArgument(f"process {process} is being drained: `penstock cluster balance` lets it have shards")
        self.shards[shard].home = process

    def drain(self, process: int) -> None:
        """Have all shards leave a process, for others; it gets none until they are balanced."""
        self._check(process)
        if not self.up - self.draining - {process}:
            raise InvalidArgument(f"process {process} is the only one that can have shards now")
        self.draining.add(process)
        self._deal()

    def balance(self) -> None:
        """Have all processes that are up share the shards."""
        self.draining.clear()
        self.failing.clear()
        self._deal()

    def give_up(self, process: int) -> None:
        """A process ends again and again: others get its shards, if there are any, until it is stable."""
        if self.up - self.draining - {process}:
            self.failing[process] = math.inf
            self._deal()

    def _trust_again(self, now_s: float) -> None:
        """Deal shards to those, too, that have been up for long enough."""
        stable = [each for each, since_s in self.failing.items() if each in self.up and now_s - since_s >= STABLE_S]
        for process in stable:
            del self.failing[process]
        if stable:
            self._deal()

    def _check(self, process: int) -> None:
        if process not in self.up:
            raise InvalidArgument(f"there is no process {process} that is up: {', '.join(map(str, sorted(self.up)))}")

    def _deal(self) -> None:
        homes = {shard: placed.home for shard, placed in enumerate(self.shards)}
        able = self.up - self.draining
        for shard, home in _dealt(len(self.shards), able - self.failing.keys() or able, homes).items():
            self.shards[shard].home = home

    # What to do.

    def orders(self, now_s: float, drain_s: float) -> list[tuple[int, Take | Release]]:
        """What to tell which process now; it counts as told."""
        self._trust_again(now_s)
        found: list[tuple[int, Take | Release]] = []
        for shard, placed in enumerate(self.shards):
            if placed.state == "closed" and placed.home in self.up and placed.not_before_s <= now_s:
                placed.state, placed.process = "opening", placed.home
                found.append((placed.home, Take(shard)))
        if any(placed.state in ("moving", "opening") for placed in self.shards):
            return found
        for shard, placed in enumerate(self.shards):
            if placed.state == "open" and placed.process != placed.home and placed.home in self.up:
                placed.state = "moving"
                found.append((placed.process, Release(shard, drain_s)))
                break
        return found

    @property
    def is_complete(self) -> bool:
        """Whether every shard is open."""
        return all(placed.state == "open" for placed in self.shards)

    def is_at_home(self, shard: int = NOBODY) -> bool:
        """Whether a shard is where it ought to be; without one, whether all are."""
        wanted = self.shards if shard == NOBODY else [self.shards[shard]]
        return all(placed.state == "open" and placed.process == placed.home for placed in wanted)

    def map(self, addresses: dict[int, str]) -> ClusterMap:
        """Where the shards are; one that is on its way is nowhere."""
        places = [
            ShardPlace(placed.epoch, placed.process if placed.state in ("open", "moving") else NOBODY)
            for placed in self.shards
        ]
        return ClusterMap(places, addresses)

    def infos(self) -> list[ShardInfo]:
        """The shards, as they are shown."""
        return [
            ShardInfo(
                number=number,
                process=placed.process,
                epoch=placed.epoch,
                state=placed.state,
                problem=placed.problem,
            )
            for number, placed in enumerate(self.shards)
        ]


def _dealt(shards: int, processes: Iterable[int], homes: dict[int, int]) -> dict[int, int]:
    names = {f"{process:04}": process for process in processes}
    known = {shard: f"{home:04}" for shard, home in homes.items()}
    return {shard: names[name] for shard, name in assign(shards, names, known).items()}
