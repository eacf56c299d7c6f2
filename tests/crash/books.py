"""What clients were told, message by message, and whether a server that was disturbed kept to it.

Every message has a fate by its number: most are acked, some fail until they are dead letters or are killed, and are
acked once they were redriven; some are delayed, and some of these cancelled. `*_asked` is what somebody has asked for,
whether or not an answer came; without it, what was answered with yes.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

import penstock
from penstock.delivery.offsets import offsets_of
from penstock.model.events import Event, EventKind

MAX_FAILURES = 2
"""After so many failures a message is a dead letter."""
ACTS = ("ack", "fail", "kill")
_CANCELLED_OF_DELAYED = 3  # every third

Id = penstock.MessageId


def number_of(value: bytes | str) -> int:
    """The number of a message, from what it says: its publisher and the number."""
    return int((value if isinstance(value, str) else value.decode()).rsplit(".", 1)[1])


def is_cancelled(number: int) -> bool:
    """Whether a delayed message is to be cancelled."""
    return number % _CANCELLED_OF_DELAYED == 0


class Books:
    """What was acknowledged: to publishers, to consumers, and to whoever cancels and redrives."""

    def __init__(self) -> None:
        self.published: dict[str, Id] = {}
        self.values: dict[Id, str] = {}
        self.read: dict[Id, bytes] = {}
        self.due_s: dict[str, float] = {}
        self.cancels_asked: set[Id] = set()
        self.cancelled: dict[Id, bool] = {}
        self.asked: dict[str, set[Id]] = {act: set() for act in ACTS}
        self.done: dict[str, set[Id]] = {act: set() for act in ACTS}
        self.dead: set[Id] = set()
        """What is a dead letter for sure, or was one."""
        self._failures: Counter[Id] = Counter()
        self.redrives_asked: set[Id] = set()
        self.delivered: Counter[Id] = Counter()

    @property
    def acked(self) -> set[Id]:
        """What was acked for sure."""
        return self.done["ack"]

    # What clients do and are told.

    def publish(self, values: list[str], ids: Iterable[Id]) -> None:
        """A publisher was told where its messages are."""
        for value, identity in zip(values, ids, strict=True):
            assert identity not in self.values, f"C13: {identity} is {self.values[identity]}, and {value} too"
            self.published[value], self.values[identity] = identity, value

    def delay(self, value: str, delay_s: float) -> None:
        """Somebody is about to publish a message that must not come before."""
        self.due_s[value] = time.time() + delay_s

    def cancel(self, identity: Id, said: bool) -> None:
        """Whoever asked to cancel a message was told whether it was."""
        assert not (said and self.delivered[identity]), f"T4: {identity} was cancelled, and had come"
        self.cancelled[identity] = said

    def take(self, message: Any) -> None:
        """A message came."""
        identity, value = message.id, message.value.decode()
        assert identity not in self.acked, f"{identity} was acked, and came again"
        assert identity not in self.dead or identity in self.redrives_asked, f"Q7: {identity} was dead, and came"
        assert not self.cancelled.get(identity), f"T4: {identity} was cancelled, and came"
        assert time.time() >= self.due_s.get(value, 0.0), f"T1: {identity} came early"
        assert self.values.get(identity, value) == value, f"C13: {identity} was {self.values[identity]}"
        self.delivered[identity] += 1

    def fate(self, message: Any) -> str:
        """What a consumer does with a message."""
        number = number_of(message.value)
        if message.id in self.redrives_asked:
            return "ack"
        return {7: "fail", 19: "kill"}.get(number % 40, "ack")

    def ask(self, act: str, ids: set[Id]) -> None:
        """A consumer is about to ack messages, to fail or to kill them."""
        self.asked[act] |= ids

    def answer(self, act: str, ids: set[Id]) -> None:
        """It was told that this is done."""
        self.done[act] |= ids
        if act == "kill":
            self.dead |= ids
        if act == "fail":
            self._failures.update(ids)
            self.dead |= {identity for identity in ids if self._failures[identity] >= MAX_FAILURES}

    def letters(self, letters: list[Any]) -> set[Id]:
        """The origins of dead letters that somebody saw."""
        origins = [letter.origin for letter in letters]
        assert len(set(origins)) == len(origins), "Q7: one is a dead letter twice"
        assert not set(origins) & self.acked, "Q7: one is dead that was acked"
        assert set(origins) <= self.asked["fail"] | self.asked["kill"], "Q7: one is dead that did not fail"
        return set(origins)

    def grew(self, published: int, acked: int) -> bool:
        """Whether much has happened since."""
        return len(self.published) >= published + 200 and len(self.acked) >= acked + 50

    # Whether the server kept to it: while work goes on.

    def known(self, topic: str) -> dict[str, set[Id]]:
        """What became of messages of a topic, as far as somebody was told."""
        yes = {identity for identity, said in self.cancelled.items() if said}
        found = {"published": set(self.values), "acked": self.acked, "withdrawn": yes, "dead": self.dead}
        return {name: _of(topic, ids) for name, ids in found.items()}

    def check_group(self, group: penstock.GroupInfo, known: dict[str, set[Id]]) -> None:
        """It adds up (Q1, C14), to no less than was known before, and to no more than was asked for until now."""
        check_sum(group)
        topic = group.topic
        assert (group.lapsed, group.skipped, group.lost) == (0, 0, 0)
        assert len(known["published"]) <= group.published
        assert len(known["acked"]) <= group.acked <= len(_of(topic, self.asked["ack"]))
        assert len(known["withdrawn"]) <= group.withdrawn <= len(_of(topic, self.cancels_asked))
        may_be_dead = _of(topic, self.asked["fail"] | self.asked["kill"])
        assert len(known["dead"] - self.redrives_asked) <= group.dead <= len(may_be_dead)

    def check_read(self, stored: list[penstock.StoredMessage]) -> None:
        """Offsets increase, and have the value that they had whenever they were read (C13)."""
        offsets = [message.offset for message in stored]
        assert offsets == sorted(set(offsets)), "C13: offsets increase"
        for message in stored:
            assert self.read.setdefault(message.id, message.value) == message.value, f"C13: {message.id} has changed"
            told = self.values.get(message.id)
            assert told is None or told == message.value.decode(), f"C13: {message.id} is not what its publisher knows"

    # And in the end.

    def check_log(self, topic: str, stored: list[penstock.StoredMessage]) -> None:
        """Nothing that was acknowledged is missing, nothing is there twice, all in the order of its publisher."""
        self.check_read(stored)
        values = [message.value.decode() for message in stored]
        assert len(set(values)) == len(values), "C12: nothing is there twice"
        own = {value: identity for value, identity in self.published.items() if identity.topic == topic}
        assert {message.value.decode(): message.id for message in stored} == own, "L1"
        for publisher in {value.rsplit(".", 1)[0] for value in values}:
            numbers = [number_of(value) for value in values if value.rsplit(".", 1)[0] == publisher]
            assert numbers == sorted(numbers), "in the order in which they were published"

    def check_lives(self, topic: str, stored: list[penstock.StoredMessage], events: list[Event]) -> None:
        """What the server has noted of each message is what clients were told, once."""
        lives: dict[int, list[EventKind]] = {message.offset: [] for message in stored}
        for event in events:
            if event.count and event.group in ("g", None):
                for offset in offsets_of(event):
                    lives[offset].append(event.kind)
        for offset, life in lives.items():
            identity, counts = Id(topic, 0, offset), Counter(life)
            if self.cancelled.get(identity):
                assert life == [EventKind.CANCELLED], f"T4: {identity} {life}"
                assert not self.delivered[identity], f"T4: {identity}"
                continue
            assert life[-1] == EventKind.ACKED, f"Q2: {identity} {life}"
            assert counts[EventKind.ACKED] == 1, f"Q2: {identity} {life}"
            assert identity in self.asked["ack"]
            assert self.delivered[identity], f"{identity} was acked, and came to nobody"
            assert counts[EventKind.DEAD] <= 1, f"Q7: {identity} {life}"
            assert counts[EventKind.DEAD] == counts[EventKind.REDRIVEN], f"Q8: {identity} {life}"
            assert counts[EventKind.DEAD] or identity not in self.dead, f"Q7: {identity} {life}"

    def check_letters(self, topic: str, letters: list[penstock.StoredMessage]) -> None:
        """Each letter is there once, also of those that were redriven."""
        origins = Counter(Id.parse((letter.headers or {})["penstock-origin"]) for letter in letters)
        assert set(origins.values()) <= {1}, "Q7: each dead letter once"
        assert {identity for identity in self.dead if identity.topic == topic} <= origins.keys(), "Q7"
        assert origins.keys() <= self.asked["fail"] | self.asked["kill"], "Q7"


def _of(topic: str, ids: Iterable[Id]) -> set[Id]:
    return {identity for identity in ids if identity.topic == topic}


def check_sum(group: penstock.GroupInfo) -> None:
    """Every message is counted in exactly one place (Q1)."""
    waiting = group.ready + group.leased + group.delayed + group.retrying
    gone = group.acked + group.dead + group.lapsed + group.withdrawn + group.skipped + group.lost
    assert group.published == waiting + gone, f"Q1: {group}"
    assert group.lag == waiting, f"Q1: {group}"
