"""Members of a cluster on virtual time, with the chains of their shards on a bucket in memory."""

from __future__ import annotations

import random
from collections.abc import Callable

from penstock.cluster.claiming import Claim, Claiming, Give
from penstock.cluster.members import BEAT_S, LOOK_S, Heartbeat
from penstock.cluster.registry import Registry
from penstock.journal.chain import Chain, Conversation, Fenced, T
from penstock.journal.conversing import carry_out
from penstock.storage.objects import StoreUnavailable
from penstock.testing.objects import FaultyObjects

STEP_S = 0.05


class VirtualMember:
    """One member; `is_running` is false while it is stopped, and `is_dead` once it was killed."""

    def __init__(self, cluster: VirtualCluster, name: str) -> None:
        self.cluster, self.name = cluster, name
        self.incarnation = cluster.random.randbytes(16)
        self.objects = cluster.objects.part("")
        self.registry = Registry(cluster.reached_by(self), lambda: cluster.now_s)
        self.members = self.registry.join(self.incarnation.hex(), lambda _: None)
        self.claiming = Claiming(cluster.shards, self.members, cluster.balance_after_s)
        self.chains: dict[int, Chain] = {}
        self.given: dict[int, tuple[int, int]] = {}
        self.claimed: dict[int, Chain] = {}
        self.open_s: dict[int, float] = {}
        self.is_running, self.is_dead, self.is_cut, self.is_draining = True, False, False, False
        self.beat = 0
        self.next_beat_s = self.next_look_s = cluster.now_s

    @property
    def number(self) -> int:
        return self.members.number

    def delivers(self, shard: int) -> bool:
        """Whether it would hand out messages of a shard now."""
        return self.is_running and not self.is_dead and shard in self.chains and self.registry.tenure.holds(shard)

    def step(self) -> None:
        now_s = self.cluster.now_s
        if now_s >= self.next_beat_s:
            self.next_beat_s = now_s + BEAT_S
            self.say()
        self.open_claimed()
        self.prove_lapsed()
        if now_s >= self.next_look_s:
            self.next_look_s = now_s + LOOK_S
            found = self.registry.look(self.members.wanted)
            if found is not None:
                self.members.looked(found, now_s)
                self.let_go_lost()
                self.act(now_s)

    def act(self, now_s: float) -> None:
        for action in self.claiming.decide(now_s):
            match action:
                case Claim(shard, dead_epoch):
                    self.claim(shard, dead_epoch)
                case Give(shard, to):
                    self.give(shard, to)

    def say(self) -> None:
        self.beat += 1
        heartbeat = Heartbeat(
            number=self.number,
            incarnation=self.incarnation.hex(),
            beat=self.beat,
            address=f"{self.name}:9000",
            shards={shard: chain.epoch for shard, chain in (*self.chains.items(), *self.claimed.items())},
            given=self.given,
            draining=self.is_draining,
            steady=self.claiming.is_steady,
        )
        self.members.own(heartbeat)
        self.registry.send(heartbeat)

    def claim(self, shard: int, dead_epoch: int) -> None:
        if shard in self.chains or shard in self.claimed:
            return
        chain = Chain(shard, self.incarnation, self.name)
        try:
            self.talk(shard, chain.claim(dead_epoch))
        except Fenced as fenced:
            self.note(shard, fenced)
        except StoreUnavailable:
            self.claiming.failed(shard, self.cluster.now_s)
        else:
            self.cluster.note_owner(shard, chain.epoch, self)
            self.claimed[shard] = chain
            self.registry.tenure.trust(shard, self.cluster.now_s)
            self.open_s[shard] = self.cluster.now_s + self.cluster.open_s
            self.next_beat_s = self.cluster.now_s

    def open_claimed(self) -> None:
        for shard, chain in list(self.claimed.items()):
            if self.open_s[shard] <= self.cluster.now_s:
                del self.claimed[shard]
                self.given.pop(shard, None)
                self.chains[shard] = chain

    def prove_lapsed(self) -> None:
        for shard, sent_s in dict(self.registry.tenure.lapsed).items():
            chain = self.chains.get(shard) or self.claimed.get(shard)
            if chain is None:
                continue
            try:
                self.talk(shard, chain.append(0, 0, b""))
            except Fenced as fenced:
                self.chains.pop(shard, None)
                self.claimed.pop(shard, None)
                self.note(shard, fenced)
            except StoreUnavailable:
                continue
            else:
                self.registry.tenure.trust(shard, sent_s)

    def note(self, shard: int, fenced: Fenced) -> None:
        self.claiming.heard(shard, fenced.seal.next_epoch, fenced.seal.incarnation.hex())

    def let_go_lost(self) -> None:
        for shard in self.claiming.lost():
            self.chains.pop(shard, None)
            self.claimed.pop(shard, None)

    def give(self, shard: int, to: int) -> None:
        chain = self.chains.get(shard)
        target = self.members.living.get(to)
        if chain is None or target is None:
            return
        try:
            self.talk(shard, chain.hand_over(bytes.fromhex(target.incarnation), target.address))
        except Fenced as fenced:
            self.note(shard, fenced)
        except StoreUnavailable:
            return
        else:
            self.cluster.moves += 1
            self.given[shard] = (chain.epoch + 1, to)
        del self.chains[shard]
        self.next_beat_s = self.cluster.now_s

    def talk(self, shard: int, conversation: Conversation[T]) -> None:
        def give_up(attempt: int) -> None:
            if attempt > 3:
                raise StoreUnavailable("the bucket does not answer")

        carry_out(conversation, self.cluster.reached_by(self).part(f"shards/{shard}/"), give_up)


class _Reached(FaultyObjects):
    """The bucket as one member reaches it."""

    def __init__(self, member: VirtualMember) -> None:
        super().__init__(often=0)
        self._member = member
        shared = member.cluster.objects
        self.objects, self.random, self.often, self.is_calm = shared.objects, shared.random, shared.often, False

    def _begin(self) -> None:
        self._member.cluster.requests += 1
        self.cut_off = self._member.is_cut or self._member.cluster.is_down
        self.often = self._member.cluster.often
        super()._begin()

    def part(self, prefix: str) -> _Reached:
        part = _Reached(self._member)
        part.prefix = self.prefix + prefix
        part._late = self._late
        return part


class VirtualCluster:
    """All of them, and what must hold at every moment."""

    def __init__(self, shards: int, seed: int = 0, often: float = 0.0, balance_after_s: float = 5.0) -> None:
        self.shards, self.often, self.balance_after_s = shards, often, balance_after_s
        self.random = random.Random(seed)
        self.objects = FaultyObjects(seed, often)
        self.now_s = 1000.0
        self.is_down = False
        self.open_s = 0.1
        """How long it takes to open a shard once it is claimed."""
        self.moves = self.requests = 0
        self.members: list[VirtualMember] = []
        self.owners: dict[tuple[int, int], VirtualMember] = {}

    def reached_by(self, member: VirtualMember) -> _Reached:
        return _Reached(member)

    def start(self, count: int = 1) -> None:
        for _ in range(count):
            member = VirtualMember.__new__(VirtualMember)
            member.is_cut = False
            VirtualMember.__init__(member, self, f"m{len(self.members)}")
            member.next_beat_s += self.random.random() * BEAT_S
            member.next_look_s += self.random.random() * LOOK_S
            self.members.append(member)

    @property
    def alive(self) -> list[VirtualMember]:
        return [member for member in self.members if not member.is_dead]

    def note_owner(self, shard: int, epoch: int, member: VirtualMember) -> None:
        there = self.owners.setdefault((shard, epoch), member)
        assert there is member, f"C1: epoch {epoch} of shard {shard} has two owners"

    def step(self) -> None:
        self.now_s += STEP_S
        running = [member for member in self.alive if member.is_running]
        self.random.shuffle(running)
        for member in running:
            member.step()
        for shard in range(self.shards):
            delivering = [member.name for member in self.alive if member.delivers(shard)]
            assert len(delivering) <= 1, f"C9: shard {shard} is handed out by {delivering}"

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP_S)):
            self.step()

    def run_until(self, is_so: Callable[[], bool], at_most_s: float) -> float:
        """How long it took; fails if it never came."""
        since_s = self.now_s
        while not is_so():
            assert self.now_s - since_s < at_most_s, f"not within {at_most_s} s"
            self.step()
        return self.now_s - since_s

    def is_served(self) -> bool:
        """Whether somebody has each shard."""
        held = [shard for member in self.alive for shard in member.chains if member.delivers(shard)]
        return sorted(held) == list(range(self.shards))

    def is_even(self) -> bool:
        """Whether all share the shards."""
        counts = [len(member.chains) for member in self.alive]
        return self.is_served() and max(counts) - min(counts) <= 1

    def agree(self) -> bool:
        """Whether all know the same of every shard."""
        maps = [member.claiming.map() for member in self.alive if member.is_running]
        return all(each.shards == maps[0].shards for each in maps)
