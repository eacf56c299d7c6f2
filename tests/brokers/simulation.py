"""Brokers on a bucket that fails, on virtual time: production's members, claims, chains, journals, shards and delivery.

Each broker is an actor that says that it lives, looks at the others, claims and gives shards, and meanwhile publishes,
consumes and acks whatever lives with it. They are killed, stopped, cut off and restarted. At the end all is well again,
and what was acknowledged has to be there.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Sequence

from penstock.cluster.claiming import Claim, Claiming, Give
from penstock.cluster.members import BEAT_S, LOOK_S, Heartbeat
from penstock.cluster.publishing import publish
from penstock.cluster.registry import Registry
from penstock.cluster.shards import Shards
from penstock.embedded.consumer import Consumer
from penstock.journal.bucket_storage import BucketStorage
from penstock.journal.chain import Chain, Fenced
from penstock.model.config import BrokerConfig
from penstock.model.errors import NotOwner, PenstockError
from penstock.model.message import Message
from penstock.segments.window import Window
from penstock.shard.reading.log_reader import LogReader
from penstock.testing import FaultyObjects
from tests.brokers.reached import Reached
from tests.brokers.schedule import Actor, Killed, Schedule

SHARDS, TOPICS, GROUP = 3, ("a", "b", "c", "d", "e"), "g"
_CONFIG = {"min_free_bytes": 0, "settle_after": 3600, "commit_interval": 0.0, "cache_bytes": 0, "sync": "always"}


class _Clock:
    """Virtual time of one broker, whose clock is wrong by some seconds."""

    def __init__(self, schedule: Schedule, skew_s: float, seed: int) -> None:
        self._schedule, self._skew_s, self._random = schedule, skew_s, random.Random(seed)

    def wall_us(self) -> int:
        return int((self._schedule.now_s + self._skew_s) * 1_000_000)

    def monotonic_s(self) -> float:
        return self._schedule.now_s

    def sleep_s(self, seconds: float) -> None:
        self._schedule.sleep(seconds)

    def random_bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)


class _Places:
    """The whole bucket, as far as shards ask for it."""

    path, remote = None, True

    def close(self) -> None:
        """Nobody owns it."""


class Node:
    """One broker."""

    actor: Actor

    def __init__(self, world: World, number: int) -> None:
        self._world, self.name = world, f"n{number}"
        self.is_cut_off = self.is_leaving = False
        self._schedule, self._random = world.schedule, random.Random(world.schedule.random.random())
        self.incarnation = self._random.randbytes(16)
        self._store = Reached(world.schedule, self, world.objects)
        self._registry = Registry(self._store, lambda: self._schedule.now_s)
        clock = _Clock(self._schedule, self._random.uniform(-2, 2), number)
        storages = [self._storage(shard, clock) for shard in range(SHARDS)]
        config = BrokerConfig.parse(_CONFIG)
        self.shards = Shards(_Places(), storages, config, clock)  # type: ignore[arg-type]
        self.shards.tenure = self._registry.tenure.holds
        self._given: dict[int, tuple[int, int]] = {}
        self._consumers: dict[tuple[str, int], Consumer] = {}
        self._beats = 0

    @property
    def is_cut(self) -> bool:
        """Whether it does not reach the bucket."""
        return self.is_cut_off or self._world.is_down

    def _storage(self, shard: int, clock: _Clock) -> BucketStorage:
        chain = Chain(shard, self.incarnation, self.name)
        return BucketStorage(self._store.part(f"shards/{shard}/"), chain, self._pause, clock.monotonic_s, 0.0)

    def _place(self, shard: int) -> BucketStorage:
        place = self.shards.place(shard)
        assert isinstance(place, BucketStorage)
        return place

    def _pause(self, attempt: int) -> None:
        self._schedule.sleep(min(1.0, 0.02 * 2.0**attempt))

    # As a member.

    def live(self) -> None:
        self._members = self._registry.join(self.incarnation.hex(), self._pause)
        self._claiming = Claiming(SHARDS, self._members, 3.0)
        next_beat_s = next_look_s = self._schedule.now_s
        while not (self.is_leaving and not len(self.shards)):
            now_s = self._schedule.now_s
            if now_s >= next_beat_s:
                next_beat_s = now_s + BEAT_S
                self._say()
            if now_s >= next_look_s:
                next_look_s = now_s + LOOK_S
                self._look()
            self._work()
            self._schedule.wait(0.005, 0.05)
        self._say(left=True)

    def _say(self, *, left: bool = False) -> None:
        self._beats += 1
        heartbeat = Heartbeat(
            number=self._members.number,
            incarnation=self.incarnation.hex(),
            beat=self._beats,
            address=self.name,
            shards={shard: self._place(shard).epoch for shard in self.shards.numbers},
            given=self._given,
            draining=self.is_leaving,
            left=left,
        )
        self._members.own(heartbeat)
        self._registry.send(heartbeat)
        for shard, sent_s in dict(self._registry.tenure.lapsed).items():
            if shard in self.shards:
                with contextlib.suppress(PenstockError, OSError):
                    self.shards[shard].journal.prove()
                    self._registry.tenure.trust(shard, sent_s)

    def _look(self) -> None:
        asked_s = self._schedule.now_s
        found = self._registry.look(self._members.wanted)
        if found is None:
            return
        self._members.looked(found, asked_s)
        for shard in self._claiming.lost():
            self._lose(shard, NotOwner("another one has a later epoch", shard))
        for shard, opened in list(self.shards.items()):
            if isinstance(opened.frozen, NotOwner):
                self._lose(shard, opened.frozen)
            elif opened.frozen is not None:
                self._lose(shard, NotOwner(str(opened.frozen), shard))
        for action in self._claiming.decide(self._schedule.now_s):
            match action:
                case Claim(shard, dead_epoch):
                    if not self.is_leaving:
                        self._claim(shard, dead_epoch)
                case Give(shard, to):
                    self._give(shard, to)

    def _claim(self, shard: int, dead_epoch: int) -> None:
        if shard in self.shards:
            return
        storage = self._place(shard)
        storage.dead_epoch, since_s = dead_epoch, self._schedule.now_s
        try:
            self.shards.open(shard)
        except NotOwner as error:
            self._heed_seal(error)
        except (PenstockError, OSError) as error:
            self._schedule.say(f"shard {shard} cannot be opened: {error}")
            self._claiming.failed(shard, self._schedule.now_s)
        else:
            self._registry.tenure.trust(shard, since_s)
            self._given.pop(shard, None)
            self._schedule.say(f"has shard {shard} in epoch {storage.epoch}")
            self._say()

    def _give(self, shard: int, to: int) -> None:
        target, storage = self._members.living.get(to), self._place(shard)
        if target is None or shard not in self.shards:
            return
        try:
            opened = self.shards[shard]
            opened.drain()
            opened = self.shards.let_go(shard)
            opened.close()
            identity = _Identity(bytes.fromhex(target.incarnation), target.address)
            storage.hand_over(identity)
        except NotOwner as error:
            self._heed_seal(error)
        except (PenstockError, OSError) as error:
            self._schedule.say(f"shard {shard} was not handed over: {error}")
        else:
            self._given[shard] = (storage.epoch + 1, to)
            self._schedule.say(f"gives shard {shard} to {to}")
        self._say()

    def _lose(self, shard: int, error: NotOwner) -> None:
        if shard in self.shards:
            self._heed_seal(error)
            self._schedule.say(f"loses shard {shard}")
            self.shards.lose(shard, error)

    def _heed_seal(self, error: NotOwner) -> None:
        cause = error.__cause__
        while cause is not None and not isinstance(cause, Fenced):
            cause = cause.__cause__
        if cause is not None:
            self._claiming.heard(error.shard, cause.seal.next_epoch, cause.seal.incarnation.hex())

    # What clients do.

    def _work(self) -> None:
        topic = self._random.choice(TOPICS)
        with contextlib.suppress(PenstockError, OSError):
            match self._random.randrange(8):
                case 0 | 1 | 2 | 3:
                    self._world.publish(self, topic)
                case 4 | 5 | 6:
                    self._consume(topic)
                case _:
                    opened = self.shards.of(topic)
                    opened.checkpoint()

    def _consume(self, topic: str) -> None:
        opened = self.shards.of(topic)
        key = (topic, opened.storage.epoch)
        if key not in self._consumers:
            self._consumers[key] = Consumer(self.shards, topic, GROUP)
        consumer, turns = self._consumers[key], self._schedule.turns
        found = consumer.receive(self._random.randint(1, 4))
        if found and turns == self._schedule.turns:  # what was read from the bucket meanwhile is on its way for long
            self._world.note_delivered(self, topic, opened.storage.epoch)
        self._world.check_not_acked([(topic, message.offset) for message in found])
        if found and self._random.random() < 0.8:
            taken = [(topic, message.offset) for message in found]
            consumer.ack(found)
            self._world.acked.update(taken)


class _Identity:
    def __init__(self, incarnation: bytes, address: str) -> None:
        self.incarnation, self.address = incarnation, address


class World:
    """The bucket, the brokers, and what was promised."""

    def __init__(self, seed: int, often: float) -> None:
        self.schedule = Schedule(seed)
        self.random = random.Random(seed)
        self.objects = FaultyObjects(seed, often)
        self.is_down = False
        self.nodes: list[Node] = []
        self.published: dict[str, tuple[str, int]] = {}
        self.acked: set[tuple[str, int]] = set()
        self._delivered: Counter[str] = Counter()
        self._values = 0

    def start(self) -> None:
        node = Node(self, len(self.nodes))
        node.actor = self.schedule.start(node.name, node.live)
        self.nodes.append(node)

    @property
    def living(self) -> list[Node]:
        return [node for node in self.nodes if not node.actor.is_killed and not node.is_leaving]

    # What is promised.

    def publish(self, node: Node, topic: str) -> None:
        self._values += 1
        value = f"{node.name}.{self._values}"
        identity, commit = publish(node.shards, topic, Message(value))
        if commit is not None:
            commit.wait()
        self.published[value] = (topic, identity.offset)

    def note_delivered(self, node: Node, topic: str, epoch: int) -> None:
        """C9: when a later owner has handed messages out, an earlier one does not any more."""
        shard = str(node.shards.of(topic).place.number)
        assert epoch >= self._delivered[shard], f"C9: shard {shard} is handed out in epoch {epoch} after a later one"
        self._delivered[shard] = epoch

    def check_not_acked(self, found: Sequence[tuple[str, int]]) -> None:
        """Q4: what was acked is not handed out again."""
        again = self.acked.intersection(found)
        assert not again, f"handed out after it was acked: {sorted(again)}"

    # The course of events.

    def run(self, events: int) -> None:
        """Let things happen, then have all be well, and look whether everything is there."""
        for _ in range(3):
            self.start()
        self.schedule.sleep(4.0)
        for _ in range(events):
            self._disturb()
            self.schedule.sleep(self.random.uniform(0.2, 6.0))
        self._heal()
        self._check()
        for node in self.nodes:
            if not node.actor.is_killed:
                self.schedule.kill(node.actor)
        self.schedule.sleep(1.0)

    def _disturb(self) -> None:
        node = self.random.choice(self.living) if self.living else None
        match self.random.randrange(8):
            case 0 | 1 if node is not None and len(self.living) > 1:
                self.schedule.say(f"{node.name} is killed")
                self.schedule.kill(node.actor)
            case 2:
                self.start()
            case 3 if node is not None:
                self.schedule.say(f"{node.name} is stopped")
                self.schedule.stop(node.actor, self.random.uniform(0.5, 12))
            case 4 if node is not None:
                self.schedule.say(f"{node.name} is cut off, or not any more")
                node.is_cut_off = not node.is_cut_off
            case 5:
                self.schedule.say("the bucket is down, or not any more")
                self.is_down = not self.is_down
            case 6 if node is not None and len(self.living) > 1:
                self.schedule.say(f"{node.name} leaves")
                node.is_leaving = True

    def _heal(self) -> None:
        self.is_down, self.objects.is_calm = False, True
        for node in self.nodes:
            node.is_cut_off, node.actor.stopped_until_s = False, 0.0
        if not self.living:
            self.start()
        for pause_s in (10.0, 0.0):  # then nobody gives shards away any more, or has just begun to
            self.schedule.sleep(pause_s)
            until_s = self.schedule.now_s + 60
            while not self._is_served():
                assert self.schedule.now_s < until_s, "C15: a shard is served by nobody"
                self.schedule.sleep(0.2)

    def _owners(self) -> dict[int, Node]:
        """Who has each shard, where several think so by the latest epoch."""
        found: dict[int, Node] = {}
        for node in self.living:
            for shard, opened in node.shards.items():
                other = found.get(shard)
                if opened.frozen is None and (
                    other is None or other.shards[shard].storage.epoch < opened.storage.epoch
                ):
                    found[shard] = node
        return found

    def _is_served(self) -> bool:
        return len(self._owners()) == SHARDS

    def _check(self) -> None:
        """Everything that was acknowledged is there, once, and where it was said to be."""
        for node in self.living:
            self.schedule.stop(node.actor, 1e6)  # nothing changes any more
        there: dict[str, tuple[str, int]] = {}
        for topic in TOPICS:
            owner = next((node for node in self._owners().values() if _has(node, topic)), None)
            if owner is None:
                continue
            storage = owner.shards.of(topic)
            for offset, value in self._read(owner, topic):
                assert value not in there, f"C12: {value} is there twice"
                there[value] = (topic, offset)
            assert storage.frozen is None
        lost = {value: place for value, place in self.published.items() if there.get(value) != place}
        assert not lost, f"C2: acknowledged, and not there: {lost}"

    def _read(self, owner: Node, topic: str) -> list[tuple[int, str]]:

        shard = owner.shards.of(topic)
        logs = [partition.messages for partition in shard.topic(topic).partitions]
        return [
            (message.offset, message.value.decode())
            for log in logs
            for message in LogReader(shard, log).messages(Window())
        ]


def _has(node: Node, topic: str) -> bool:
    try:
        node.shards.of(topic).topic(topic)
    except PenstockError:
        return False
    return True


def simulate(seed: int, events: int = 12, often: float = 0.02) -> World:
    """One course of events; raises AssertionError if a promise is broken."""
    world = World(seed, often)
    try:
        world.run(events)
    except Killed:  # pragma: no cover - only actors are
        raise AssertionError("the director was killed") from None
    return world
