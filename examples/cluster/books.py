"""What publishers were promised and what consumers got, number by number: whether anything is lost or there twice.

And for how long topics stood still when their broker was killed.
"""

from __future__ import annotations

import statistics
import threading
import time
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from penstock import MessageId

LOST_S = 45.0
"""Longer than a lease lasts: what a consumer held that was cut off has come again by then."""


@dataclass(frozen=True)
class Sums:
    """The books of one moment."""

    acknowledged: int
    received: int
    """Different messages of these."""
    waiting: int
    """Acknowledged, and not received yet."""
    lost: int
    """Of these, those that have waited for so long that nobody would expect them any more."""
    unanswered: int
    """Publishes that ended with an error: such a message may be there or not."""
    twice: int
    """Stored at two offsets, though published once: this must not happen."""
    again: int
    """Deliveries of a message that had been delivered before: after a crash, whoever held it may not have finished."""
    takeovers_s: list[float]
    """From each kill to the moment at which all topics of that broker were acknowledging again."""

    @property
    def is_well(self) -> bool:
        """Whether everything that was promised was kept, if nothing more will come."""
        return self.waiting == 0 and self.twice == 0 and self.acknowledged > 0


class Books:
    """Kept by publishers and consumers, from any thread; topics have one partition."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._sent: dict[int, tuple[str, float]] = {}  # numbers that are not answered, with topic and time
        self._offsets = array("q")  # by number; -1 where it is not known
        self._received = bytearray()
        self._waiting: dict[int, float] = {}  # since when
        self._acknowledged = self._unanswered = self._twice = self._again = 0
        self._down: dict[str, float] = {}  # topics of a broker that was killed, and when
        self._killed_s = 0.0
        self._takeovers_s: list[float] = []

    def publish(self, number: int, topic: str) -> None:
        """A message is about to be published."""
        with self._lock:
            self._sent[number] = (topic, self._clock_s())
            assert number == len(self._offsets), "numbers count messages"
            self._offsets.append(-1)
            self._received.append(0)

    def acknowledge(self, number: int, place: MessageId) -> None:
        """Its publisher was told that it is durable."""
        with self._lock:
            self._acknowledged += 1
            if not self._received[number]:
                self._waiting[number] = self._clock_s()
            self._note(number, place)
            topic, sent_s = self._sent.pop(number)
            if sent_s > self._down.get(topic, sent_s):
                del self._down[topic]
                if not self._down:
                    self._takeovers_s.append(self._clock_s() - self._killed_s)

    def fail(self, number: int) -> None:
        """Its publisher was told that it failed, or nothing."""
        with self._lock:
            del self._sent[number]
            self._unanswered += 1

    def receive(self, number: int, place: MessageId) -> None:
        """A consumer has got it."""
        with self._lock:
            self._again += self._received[number]
            self._received[number] = 1
            self._waiting.pop(number, None)
            self._note(number, place)

    def kill(self, topics: Iterable[str]) -> None:
        """The broker of some topics is killed now."""
        with self._lock:
            self._killed_s = self._clock_s()
            self._down = dict.fromkeys(topics, self._killed_s)

    def _note(self, number: int, place: MessageId) -> None:
        if self._offsets[number] not in (-1, place.offset):
            self._twice += 1
        self._offsets[number] = place.offset

    @property
    def is_over(self) -> bool:
        """Whether all publishes are answered, and everything acknowledged was received."""
        with self._lock:
            return not self._sent and not self._waiting

    @property
    def sums(self) -> Sums:
        """As they are now."""
        with self._lock:
            lost_s = self._clock_s() - LOST_S
            return Sums(
                self._acknowledged,
                self._acknowledged - len(self._waiting),
                len(self._waiting),
                sum(since_s < lost_s for since_s in self._waiting.values()),
                self._unanswered,
                self._twice,
                self._again,
                list(self._takeovers_s),
            )


def told(takeovers_s: list[float]) -> str:
    """Takeovers in a few words."""
    if not takeovers_s:
        return "none yet"
    return f"{takeovers_s[-1]:.1f} s (median {statistics.median(takeovers_s):.1f} s of {len(takeovers_s)})"
