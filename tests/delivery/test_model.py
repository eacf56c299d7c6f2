"""Delivery against a model: any order of commands, commits, refusals and crashes, in every order of a topic.

The model knows each message of each group by itself, with dictionaries and no bitmap, cursor or heap.
"""

from __future__ import annotations

import sys
from typing import ClassVar, NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.delivery.leases import Lease
from penstock.delivery.outcomes import Pick
from penstock.model.events import Event, EventKind
from tests.delivery.harness import PureTopic

PARTITIONS = 2
GROUPS = ("g", "h")
MAX_DELIVERIES = 2
_SETTLES = (EventKind.ACKED, EventKind.RELEASED, EventKind.DEAD, EventKind.LAPSED, EventKind.SKIPPED)
_FAILS = (EventKind.FAILED, EventKind.EXPIRED)

Place = tuple[int, int]  # partition, offset
names = st.sampled_from(GROUPS)
numbers = st.integers(0, 2**16)
some = st.sets(st.integers(0, 7))
consumers = st.sampled_from(["ann", "bob"])
messages = st.lists(
    st.tuples(
        st.sampled_from([1, 5, 5, 9]),
        st.sampled_from([0, 0, 0, 1, 5, 60]),  # seconds of delay
        st.sampled_from([0, 0, 0, 2, 20, 90]),  # seconds to live
        st.sampled_from([None, b"a", b"a", b"b"]),
    ),
    min_size=1,
    max_size=4,
)


class Fact(NamedTuple):
    """What a message was published with."""

    lane: int
    due_us: int
    expires_us: int
    key: bytes | None


class Sight:
    """What one group must think of the messages."""

    def __init__(self) -> None:
        self.start = dict.fromkeys(range(PARTITIONS), 0)
        self.done: dict[Place, str] = {}
        self.waiting: dict[Place, int] = {}
        self.delivered: dict[Place, int] = {}
        self.failed: dict[Place, int] = {}
        self.leased: dict[Place, tuple[Lease, float]] = {}
        self.acked: dict[int, set[Place]] = {}  # by the id of the lease
        self.limbo: set[Place] = set()  # held by nobody while the group is moved
        self.moving = dict.fromkeys(range(PARTITIONS), 0)


class DeliveryMachine(RuleBasedStateMachine):
    """Two groups on two partitions."""

    options: ClassVar[dict[str, object]] = {}

    @initialize()
    def start(self) -> None:
        self.topic = PureTopic(PARTITIONS, max_deliveries=MAX_DELIVERIES, **self.options)
        self.by_key = self.topic.config.order == "key"
        self.facts: dict[Place, Fact] = {}
        self.moved: dict[Place, int] = {}
        self.withdrawn: set[Place] = set()
        self.leases: list[tuple[str, Lease, set[Place]]] = []
        self.sights = {name: Sight() for name in GROUPS}
        for name in GROUPS:
            self.topic.create(name)

    # What consumers and producers do.

    @rule(batch=messages, partition=st.integers(0, PARTITIONS - 1))
    def publish(self, batch: list[tuple[int, int, int, bytes | None]], partition: int) -> None:
        topic = self.topic
        facts = [
            Fact(lane, topic.in_s(delay) if delay else 0, topic.in_s(life) if life else 0, key)
            for lane, delay, life, key in batch
        ]
        lanes, dues, ends, keys = (list(column) for column in zip(*facts, strict=True))
        offsets = topic.publish(
            partition=partition,
            priorities=lanes,
            deliver_at=dues if any(dues) else None,
            expires_at=ends if any(ends) else None,
            keys=keys,
        )
        self.facts.update({(partition, offset): fact for offset, fact in zip(offsets, facts, strict=True)})

    @rule(name=names, consumer=consumers, number=st.integers(1, 6), visibility_s=st.sampled_from([None, 4.0]))
    def fetch(self, name: str, consumer: str, number: int, visibility_s: float | None) -> None:
        self.time_passes()
        picks = self.topic.fetch(name, number, consumer, visibility_s)
        deadline_s = self.topic.now.monotonic_s + (visibility_s or 30.0)
        found = 0
        for pick in picks:
            for offset in pick.offsets:
                self.check_pick(name, (pick.lease.partition, offset), pick)
                self.sights[name].leased[pick.lease.partition, offset] = (pick.lease, deadline_s)
                found += 1
        for lease in {pick.lease.id: pick.lease for pick in picks}.values():
            self.leases.append((name, lease, {(lease.partition, offset) for offset in lease.messages}))
        assert found <= number
        if found < number:
            assert self.ready(name) == set(), "Q2: it is ready, and was not handed out"

    def check_pick(self, name: str, place: Place, pick: Pick) -> None:
        ready, fact, partition = self.ready(name), self.facts[place], place[0]
        assert place in self.ready(name, lapsing_blocks=False), (
            f"{place} of {fact} is not ready: {self.sights[name].done.get(place)}"
        )
        assert pick.lane == fact.lane
        before = {other for other in ready if other[0] == partition} | {place}
        assert min(other for other in before if self.facts[other].lane == fact.lane) == place, "O1, O2: the place"
        if self.topic.config.lanes == "strict":
            assert min(self.facts[other].lane for other in before) == fact.lane, "O3"

    @precondition(lambda self: self.leases)
    @rule(number=numbers, chosen=some)
    def ack(self, number: int, chosen: set[int]) -> None:
        name, lease, places = self.choose(number, chosen)
        refused = self.topic.ack(lease, [offset for _, offset in places], name)
        held = self.settled(name, lease, places)
        again = self.sights[name].acked.setdefault(lease.id, set())
        assert set(refused) == {offset for _, offset in places - held - again}, "Q4"
        again |= held

    @precondition(lambda self: self.leases)
    @rule(number=numbers, chosen=some, seconds=st.sampled_from([1.0, 20.0, 40.0]))
    def extend(self, number: int, chosen: set[int], seconds: float) -> None:
        name, lease, places = self.choose(number, chosen)
        refused = self.topic.extend(lease, seconds, [offset for _, offset in places], name)
        leased = self.sights[name].leased
        held = self.held_under(name, lease, places)
        assert set(refused) == {offset for _, offset in places - held}, "Q5"
        for place in held:
            leased[place] = (lease, max(leased[place][1], self.topic.now.monotonic_s + seconds))

    @precondition(lambda self: self.leases)
    @rule(number=numbers, chosen=some)
    def release(self, number: int, chosen: set[int]) -> None:
        name, lease, places = self.choose(number, chosen)
        refused = self.topic.release(lease, [offset for _, offset in places], name)
        assert set(refused) == {offset for _, offset in places - self.settled(name, lease, places)}, "Q4"

    @precondition(lambda self: self.leases)
    @rule(number=numbers, chosen=some, delay_s=st.sampled_from([None, 0.0, 3.0]))
    def fail(self, number: int, chosen: set[int], delay_s: float | None) -> None:
        name, lease, places = self.choose(number, chosen)
        refused = self.topic.fail(lease, [offset for _, offset in places], name, delay_s)
        assert set(refused) == {offset for _, offset in places - self.settled(name, lease, places)}, "Q4"

    @precondition(lambda self: self.leases)
    @rule(number=numbers, chosen=some)
    def kill(self, number: int, chosen: set[int]) -> None:
        name, lease, places = self.choose(number, chosen)
        refused = self.topic.kill(lease, [offset for _, offset in places], name)
        assert set(refused) == {offset for _, offset in places - self.settled(name, lease, places)}, "Q4"

    @rule(name=names, consumer=consumers, kind=st.sampled_from([EventKind.RELEASED, EventKind.EXPIRED]))
    def leave(self, name: str, consumer: str, kind: EventKind) -> None:
        self.time_passes()
        self.topic.tick()
        self.topic.leave(consumer, name, kind)
        leased = self.sights[name].leased
        for place in [place for place, (lease, _) in leased.items() if lease.consumer == consumer]:
            del leased[place]

    @precondition(lambda self: self.facts)
    @rule(number=numbers, seconds=st.sampled_from([None, None, 0.0, 2.0, 30.0]))
    def cancel_or_reschedule(self, number: int, seconds: float | None) -> None:
        self.time_passes()
        now_us = self.topic.now.wall_us
        places = sorted(
            place for place, fact in self.facts.items() if fact.due_us and not 0 < fact.expires_us <= now_us
        )
        if not places:
            return
        partition, offset = place = places[number % len(places)]
        delayed = self.is_delayed(place) and place not in self.undecided() and place not in self.withdrawn
        if seconds is None:
            assert self.topic.cancel(offset, partition) == delayed
        else:
            assert self.topic.reschedule(offset, self.topic.in_s(seconds), partition) == delayed

    @precondition(lambda self: self.facts)
    @rule(name=names, partition=st.integers(0, PARTITIONS - 1), number=numbers)
    def seek(self, name: str, partition: int, number: int) -> None:
        self.time_passes()
        self.topic.tick()
        sight = self.sights[name]
        sight.limbo |= {place for place in self.in_flight(name, logged=False) if place[0] == partition}
        for place in [place for place in sight.leased if place[0] == partition]:
            sight.limbo.add(place)
            del sight.leased[place]
        sight.moving[partition] += 1
        self.topic.seek(number % (self.topic.indexes[partition].end + 1), name, partition)

    @rule(name=names, number=numbers)
    def redrive(self, name: str, number: int) -> None:
        sight = self.sights[name]
        asked = {(partition, event.offset) for partition, event in self.topic.log if event.kind == EventKind.REDRIVEN}
        dead = sorted(place for place, reason in sight.done.items() if reason == "dead" and not sight.moving[place[0]])
        if dead and (place := dead[number % len(dead)]) not in asked:
            self.topic.redrive(place[1], name, place[0])

    # Time and the log.

    @rule(seconds=st.sampled_from([0.5, 1.0, 3.0, 10.0, 31.0, 100.0]))
    def advance(self, seconds: float) -> None:
        self.topic.clock.advance(seconds)
        self.time_passes()
        self.topic.tick()

    @rule(number=st.none() | st.integers(1, 4))
    def commit(self, number: int | None) -> None:
        self.topic.bury()
        for _ in range(len(self.topic.log) if number is None else min(number, len(self.topic.log))):
            self.apply(*self.topic.log[0])
            self.topic.commit(1)

    @rule(number=st.none() | st.integers(1, 4), bury=st.booleans())
    def refuse(self, number: int | None, bury: bool) -> None:
        if bury:
            self.topic.bury()
        for partition, event in self.topic.log[:number]:
            if event.group is not None and event.kind == EventKind.SOUGHT:
                self.moves_end(event.group, partition)
            elif event.group is not None and event.kind == EventKind.ACKED:
                for acked in self.sights[event.group].acked.values():
                    acked -= set(places_of(partition, event))
        self.topic.refuse(len(self.topic.log) if number is None else number)

    @rule(opened=st.sampled_from([("g",), ("h",), GROUPS]))
    def crash(self, opened: tuple[str, ...]) -> None:
        self.topic.crash(*opened)
        for sight in self.sights.values():
            sight.leased, sight.acked, sight.limbo = {}, {}, set()
            sight.moving = dict.fromkeys(range(PARTITIONS), 0)

    # What must hold.

    @invariant()
    def every_message_is_in_one_place(self) -> None:
        for name, group in self.topic.groups.items():
            sight, moving = self.sights[name], self.sights[name].moving
            in_flight = self.in_flight(name)
            assert not in_flight & sight.leased.keys(), "Q3: settled, and leased again"
            held = in_flight | sight.leased.keys() | sight.limbo
            assert group.leases.total == len(sight.leased)
            for partition, claims in enumerate(group.claims):
                here = {place for place in held if place[0] == partition}
                if not moving[partition]:
                    self.topic.account(name, partition, len([place for place in here if place in sight.done]))
                    assert claims.held == len(here), "Q1: held"
                progress = self.topic.progress(name, partition)
                end = self.topic.indexes[partition].end
                places = [(partition, offset) for offset in range(sight.start[partition], end)]
                assert set(progress.pending(end)) == {place[1] for place in places if place not in sight.done}
                assert {reason: count for reason in ("acked", "dead", "lapsed", "withdrawn")
                        if (count := getattr(progress.tally, reason))} == counted(sight, places)  # fmt: skip
                for place in places:
                    if place not in sight.done:
                        counts = (sight.delivered.get(place, 0), sight.failed.get(place, 0))
                        assert progress.counts_of(place[1]) == counts, "Q6"
                        assert counts[0] >= counts[1], "Q6"

    def teardown(self) -> None:
        """Once nothing fails any more, everything that is not done is delivered (Q2)."""
        if sys.exc_info()[0] is not None or not hasattr(self, "topic"):
            return
        for name in GROUPS:
            self.topic.open(name)
        for _ in range(MAX_DELIVERIES + 200):
            self.commit(None)
            self.advance(100.0)
            for name in GROUPS:
                self.fetch(name, "ann", 6, None)
                for number in range(len(self.leases)):
                    self.ack(number, set())
            self.every_message_is_in_one_place()
            if all(len(sight.done) == self.expected_done(sight) for sight in self.sights.values()):
                break
        for name in GROUPS:
            for partition in range(PARTITIONS):
                assert self.topic.account(name, partition).keys() <= {"acked", "dead", "lapsed", "withdrawn"}, "Q2"

    # The model.

    def expected_done(self, sight: Sight) -> int:
        return sum(place[1] >= sight.start[place[0]] for place in self.facts)

    def due_us(self, place: Place) -> int:
        return self.moved.get(place, self.facts[place].due_us)

    def is_delayed(self, place: Place) -> bool:
        """Whether nobody may have it yet: it is not due, or its cancelling was under way when it fell due."""
        return self.due_us(place) > self.topic.now.wall_us

    def undecided(self) -> set[Place]:
        kinds = (EventKind.CANCELLED, EventKind.RESCHEDULED)
        return {(partition, event.offset) for partition, event in self.topic.log if event.kind in kinds}

    def in_flight(self, name: str, logged: bool = True, lapsing: bool = True) -> set[Place]:
        """What was settled, and is not written yet; also where it was not leased, but lapsed."""
        group = self.topic.groups.get(name)
        found = {
            (dying.partition, offset)
            for of, dying in self.topic.dying
            if of is group and not of.is_void(dying) and (lapsing or dying.consumer is not None)
            for offset in dying.offsets
        }
        for partition, event in self.topic.log if logged else ():
            if not lapsing and event.consumer is None:
                continue
            if event.group == name and (event.kind in _SETTLES or (event.kind in _FAILS and event.due_us)):
                found |= set(places_of(partition, event))
        return found

    def ready(self, name: str, lapsing_blocks: bool = True) -> set[Place]:
        """What a consumer must get, now that time has done its work.

        What lapses keeps its key until that is written if it was delivered before; if not, it need not.
        """
        sight, now_us, undecided = self.sights[name], self.topic.now.wall_us, self.undecided()
        in_flight = self.in_flight(name)
        waiting = {place for place, due_us in sight.waiting.items() if due_us > now_us}
        out = in_flight | sight.leased.keys() | sight.limbo | waiting
        busy: set[tuple[int, bytes]] = set()
        if self.by_key:
            blocking = out if lapsing_blocks else out - in_flight | self.in_flight(name, lapsing=False)
            busy = {(place[0], key) for place in blocking if (key := self.facts[place].key) is not None}
        return {
            place
            for place, fact in self.facts.items()
            if place not in sight.done
            and place[1] >= sight.start[place[0]]
            and place not in out
            and place not in undecided
            and not self.is_delayed(place)
            and not 0 < fact.expires_us <= now_us
            and (place[0], fact.key) not in busy
            and not sight.moving[place[0]]
        }

    def choose(self, number: int, chosen: set[int]) -> tuple[str, Lease, set[Place]]:
        """Some messages of any lease there ever was; all where none are chosen. Late leases are likelier."""
        self.time_passes()
        name, lease, places = self.leases[-1 - number % len(self.leases)]
        listed = sorted(places)
        return name, lease, {listed[n] for n in chosen if n < len(listed)} or places

    def held_under(self, name: str, lease: Lease, places: set[Place]) -> set[Place]:
        leased = self.sights[name].leased
        return {place for place in places if place in leased and leased[place][0] is lease}

    def settled(self, name: str, lease: Lease, places: set[Place]) -> set[Place]:
        held = self.held_under(name, lease, places)
        for place in held:
            del self.sights[name].leased[place]
        return held

    def time_passes(self) -> None:
        """Leases run out."""
        for sight in self.sights.values():
            for place, (_, deadline_s) in list(sight.leased.items()):
                if deadline_s <= self.topic.now.monotonic_s:
                    del sight.leased[place]

    def moves_end(self, name: str, partition: int) -> None:
        sight = self.sights[name]
        sight.moving[partition] = max(0, sight.moving[partition] - 1)
        sight.limbo = {place for place in sight.limbo if place[0] != partition}

    def apply(self, partition: int, event: Event) -> None:
        """The meaning of an event, message by message."""
        places = places_of(partition, event)
        if event.group is None:
            for place in places:
                if event.kind == EventKind.RESCHEDULED:
                    self.moved[place] = event.due_us
                else:
                    self.withdrawn.add(place)
                    for sight in self.sights.values():
                        self.finish(sight, place, "withdrawn")
            return
        sight = self.sights[event.group]
        if event.kind == EventKind.SOUGHT:
            self.moves_end(event.group, partition)
            for table in (sight.done, sight.waiting, sight.delivered, sight.failed):
                for place in [place for place in table if place[0] == partition]:
                    table.pop(place)
            sight.start[partition] = event.offset
            for place in self.withdrawn:
                if place[0] == partition:
                    self.finish(sight, place, "withdrawn")
        for place in places:
            if event.kind == EventKind.REDRIVEN:
                assert sight.done.pop(place) == "dead"
                sight.failed[place] = 0
            elif place in sight.done:
                assert event.kind != EventKind.DEAD or sight.done[place] == "withdrawn", "Q7: it died twice"
            elif event.kind == EventKind.DELIVERED:
                sight.delivered[place] = sight.delivered.get(place, 0) + 1
                sight.waiting.pop(place, None)
                assert event.attempt == sight.delivered[place], "Q6"
            elif event.kind in _FAILS:
                sight.failed[place] = sight.failed.get(place, 0) + 1
                sight.delivered[place] = max(sight.delivered.get(place, 0), sight.failed[place])
                if event.due_us:
                    assert sight.failed[place] < MAX_DELIVERIES, "Q7"
                    sight.waiting[place] = event.due_us
            elif event.kind in (EventKind.ACKED, EventKind.DEAD, EventKind.LAPSED):
                self.finish(sight, place, event.kind.value)

    @staticmethod
    def finish(sight: Sight, place: Place, reason: str) -> None:
        if place not in sight.done and place[1] >= sight.start[place[0]]:
            sight.done[place] = reason
            sight.waiting.pop(place, None)


def places_of(partition: int, event: Event) -> list[Place]:
    offsets = event.offsets or range(event.offset, event.offset + event.count)
    return [(partition, offset) for offset in offsets]


def counted(sight: Sight, places: list[Place]) -> dict[str, int]:
    reasons = [sight.done[place] for place in places if place in sight.done]
    return {reason: reasons.count(reason) for reason in reasons}


class WeightedMachine(DeliveryMachine):
    """With lanes that share."""

    options: ClassVar[dict[str, object]] = {"lanes": "weighted", "lane_weights": {1: 5, 5: 3}}


class KeyMachine(DeliveryMachine):
    """With one message of a key at a time, and dead letters of what lapsed."""

    options: ClassVar[dict[str, object]] = {"order": "key", "dead_letter_lapsed": True}


class WeightedKeyMachine(DeliveryMachine):
    """With both."""

    options: ClassVar[dict[str, object]] = {"order": "key", "lanes": "weighted", "lane_weights": {9: 4}}


DeliveryMachine.TestCase.settings = settings(max_examples=120, stateful_step_count=40)
WeightedMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=40)
KeyMachine.TestCase.settings = settings(max_examples=120, stateful_step_count=40)
WeightedKeyMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=40)
TestQ1Q2Q3Q4Q5Q6Q7O3T1StrictLanes = DeliveryMachine.TestCase
TestQ1Q2Q3Q4Q5Q6Q7T1WeightedLanes = WeightedMachine.TestCase
TestO1O2Q1Q2Q3Q7KeyOrder = KeyMachine.TestCase
TestO1O2Q1Q2Q3Q7KeyOrderInWeightedLanes = WeightedKeyMachine.TestCase
