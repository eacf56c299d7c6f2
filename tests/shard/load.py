"""Threads that use a broker for everything that it does, and what they were told is done.

`main` hosts a broker for each of several directories, and says what it was told, until its process is killed.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import penstock
from penstock.model.clock import SystemClock

TOPIC, GROUPS = "work", ("crew", "audit")
OPTIONS: dict[str, Any] = {"journal_file_bytes": "256KiB", "segment_min_bytes": "16KiB", "min_free_bytes": 0}
_FATES = {3: "dead", 5: "tried", 11: "tried"}
"""What becomes of messages, by the last digits of their offsets; others are acked."""
_PAUSE_S = 0.01
"""Between publishes, so that consumers keep up."""
Say = Callable[[str, str, str], None]
"""Is told a word, a message and its value, or who it was done for."""


class AlmostNextMinute(SystemClock):
    """A clock on which the next minute begins soon, so that a schedule fires."""

    def __init__(self, in_s: float, days: int = 0) -> None:
        now_us = super().wall_us()
        minute_us = 60_000_000
        self._shift_us = (now_us // minute_us + 1) * minute_us - round(in_s * 1e6) - now_us + days * 86_400_000_000

    def wall_us(self) -> int:
        return super().wall_us() + self._shift_us


class Load:
    """Publishes, receives, acks, fails and kills messages of one broker, delayed ones too, while it settles."""

    def __init__(self, broker: penstock.Broker, run: str, say: Say) -> None:
        self._broker, self._run, self._say = broker, run, say
        self._stopping = threading.Event()
        self.errors: list[Exception] = []
        if TOPIC not in {topic.name for topic in broker.topics()}:
            broker.create_topic(TOPIC, partitions=3, max_deliveries=5, retry_backoff=0, retention_age=None, order="key")
            broker.schedule("often", "* * * * *", "ticks", "tick")
        for group in GROUPS:
            broker.consumer(TOPIC, group).close()
        work = [self._singles, self._batches, self._delayed, self._settle]
        work += [self._consume(group) for group in GROUPS for _ in range(2)]
        self._threads = [threading.Thread(target=self._attempt, args=(one,), daemon=True) for one in work]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the threads; what they do is finished first."""
        self._stopping.set()
        self.join()

    def join(self) -> None:
        """Wait for the threads to end."""
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    def _attempt(self, work: Callable[[], None]) -> None:
        try:
            work()
        except (penstock.PenstockError, OSError) as error:
            self.errors.append(error)

    def _numbers(self) -> Iterator[int]:
        """Numbers until the load is stopped."""
        return itertools.takewhile(lambda _: not self._stopping.is_set(), itertools.count())

    def _singles(self) -> None:
        for number in self._numbers():
            value = f"{self._run}.single.{number}"
            self._published([self._broker.publish(TOPIC, value, key=f"{number % 50}", dedupe_id=value)], [value])
            self._stopping.wait(_PAUSE_S / 10)

    def _batches(self) -> None:
        for number in self._numbers():
            values = [f"{self._run}.batch.{number}.{place}" for place in range(20)]
            messages = [penstock.Message(value, priority=1 + place % 9) for place, value in enumerate(values)]
            sent = self._broker.publish_many(TOPIC, messages, producer=self._run, sequence=number)
            self._published(list(sent), values)
            self._stopping.wait(_PAUSE_S)

    def _delayed(self) -> None:
        for number in self._numbers():
            value = f"{self._run}.delayed.{number}"
            delay = 1000 if number % 4 == 3 else 0.05
            identity = self._broker.publish(TOPIC, value, delay=delay)
            if delay == 1000:
                assert self._broker.cancel_delayed(identity)
                self._say("cancelled", str(identity), value)
            else:
                self._published([identity], [value])
            self._stopping.wait(_PAUSE_S)

    def _published(self, ids: list[penstock.MessageId], values: list[str]) -> None:
        for identity, value in zip(ids, values, strict=True):
            self._say("published", str(identity), value)

    def _consume(self, group: str) -> Callable[[], None]:
        def work() -> None:
            with self._broker.consumer(TOPIC, group) as consumer:
                for _ in self._numbers():
                    self._finish(consumer, group, consumer.receive(100, wait=0.2))

        return work

    def _finish(self, consumer: penstock.Consumer, group: str, messages: list[penstock.Delivery]) -> None:
        fates: dict[str, list[penstock.Delivery]] = {}
        for message in messages:
            fate = _FATES.get(message.offset % 20, "acked")
            fates.setdefault("acked" if fate == "tried" and message.deliveries > 1 else fate, []).append(message)
        consumer.fail(fates.pop("tried", []), "once more", delay=0)
        for message in itertools.chain(*fates.values()):
            self._say("finishing", str(message.id), group)
        consumer.kill(fates.get("dead", []), "it can never be done")
        consumer.ack(fates.get("acked", []))
        for word, done in fates.items():
            for message in done:
                self._say(word, str(message.id), group)

    def _settle(self) -> None:
        for _ in self._numbers():
            self._broker.settle()
            self._stopping.wait(_PAUSE_S)


class Told:
    """What a load was told, and whether a broker still knows it."""

    def __init__(self) -> None:
        self.published: dict[str, str] = {}
        self.cancelled: set[str] = set()
        self.done: dict[str, dict[str, str]] = {group: {} for group in GROUPS}
        self.unsure: dict[str, set[str]] = {group: set() for group in GROUPS}
        """What somebody began to finish, and was not told that it is."""

    def note(self, word: str, identity: str, of: str) -> None:
        """Take in what a load says."""
        if word == "published":
            assert identity not in self.published, "L3: an offset was given twice"
            self.published[identity] = of
        elif word == "cancelled":
            self.cancelled.add(identity)
        elif word == "finishing":
            self.unsure[of].add(identity)
        else:
            self.unsure[of].discard(identity)
            assert identity not in self.done[of], f"{identity} was {self.done[of][identity]}, and came again to {of}"
            self.done[of][identity] = word

    def check(self, broker: penstock.Broker) -> None:
        """Everything published is there; what is done never comes again, and everything else comes."""
        stored = {str(message.id): message.value.decode() for message in broker.read(TOPIC)}
        missing = [identity for identity, value in self.published.items() if stored.get(identity) != value]
        assert not missing, f"L1: {len(missing)} of {len(self.published)} are missing, such as {missing[0]}"
        batches = Counter(value.rpartition(".")[0] for value in stored.values() if ".batch." in value)
        assert set(batches.values()) == {20}, "L5: a batch is there in part"
        for delayed in broker.delayed(TOPIC):
            if str(delayed.id) not in self.published:  # it was not told that it is there, nor that it is cancelled
                assert broker.cancel_delayed(delayed.id)
        for group, done in self.done.items():
            self._drain(broker, group)
            letters = {str(letter.origin) for letter in broker.dead_letters(TOPIC) if letter.group == group}
            killed = {identity for identity, word in done.items() if word == "dead"}
            assert killed <= letters, "Q7: what was killed is no dead letter"
            never = self.published.keys() - done.keys() - letters - self.unsure[group]
            assert not never, f"Q2: {len(never)} never came to {group}"

    def _drain(self, broker: penstock.Broker, group: str) -> None:
        with broker.consumer(TOPIC, group, max_in_flight=10_000) as consumer:
            while broker.group(TOPIC, group).lag:
                messages = consumer.receive(1000, wait=1)
                consumer.ack(messages)
                for message in messages:
                    assert str(message.id) not in self.cancelled, "T4: it was cancelled, and comes"
                    self.note("acked", str(message.id), group)


def main(*paths: str) -> None:
    """Load the brokers of all these directories; each line is something that one of them has confirmed."""
    loads = []
    for path in paths:

        def say(word: str, identity: str, of: str, path: str = path) -> None:
            sys.stdout.write(f"{path} {word} {identity} {of}\n")
            sys.stdout.flush()

        broker = penstock.open(path, **OPTIONS)
        loads.append(Load(broker, f"{Path(path).name}.{broker.status().epoch}", say))
    for load in loads:
        load.join()
        raise load.errors[0]
