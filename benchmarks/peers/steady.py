"""A steady rate, open loop: each message is sent when it is due, whatever happened to those before.

A message carries the time at which it was due, and its latency is from then until it is received: what a stall delays
is late, also if it could not even be sent.
"""

from __future__ import annotations

import re
import select
import socket
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter_ns

from benchmarks.peers.generator import Receiver, receive
from benchmarks.peers.plans import Refused, Timed, TooSlow
from benchmarks.peers.replies import Replies
from penstock.bench.histogram import Histogram

_STAMP = re.compile(rb"@(\d{19})@")
_WARM_S = 0.5
_SILENCE_S = 3.0
_LATE_NS = 5_000_000_000


@dataclass(frozen=True, slots=True)
class Schedule:
    """When each message is due: one after the other, at the same distance.

    >>> schedule = Schedule(start_ns=1_000, per_second=1_000_000, count=3)
    >>> [schedule.due_ns(number) for number in range(3)]
    [1000, 2000, 3000]
    >>> [schedule.due_by(time_ns) for time_ns in (0, 999, 1000, 1999, 2000, 9999)]
    [0, 0, 1, 1, 2, 3]
    """

    start_ns: int
    per_second: int
    count: int

    def due_ns(self, number: int) -> int:
        """When the message with this number is due."""
        return self.start_ns + number * 1_000_000_000 // self.per_second

    def due_by(self, now_ns: int) -> int:
        """How many messages are due by now."""
        if now_ns < self.start_ns:
            return 0
        behind_ns = now_ns - self.start_ns + 1
        return min(self.count, -(-behind_ns * self.per_second // 1_000_000_000))  # rounded up


def stamped(value: bytes, due_ns: int) -> bytes:
    """A value of the same length that begins with the time at which it is due."""
    stamp = b"@%019d@" % due_ns
    return stamp + value[len(stamp) :]


def stamps_in(data: bytes) -> list[int]:
    """The times in all values that some bytes contain."""
    return [int(found) for found in _STAMP.findall(data)]


@dataclass(frozen=True, slots=True)
class Ends:
    """The two connections, and their bytes."""

    publisher: socket.socket
    request: Callable[[bytes, int], bytes]
    """The request that publishes a value, and has this number."""
    replies: Replies
    consumer: socket.socket
    receiver: Receiver


def run(ends: Ends, value: bytes, per_second: int, seconds: float) -> Timed:
    """Publish by the schedule, receive and ack everything; the first half second is not counted.

    Raises TooSlow if not all is acked a few seconds after the last one was due.
    """
    count = round((seconds + _WARM_S) * per_second)
    latency, sent, answered, received, acked = Histogram(), 0, 0, 0, 0
    publisher, consumer, receiver = ends.publisher, ends.consumer, ends.receiver
    consumer.sendall(receiver.ask_for_any())
    schedule = Schedule(perf_counter_ns() + 20_000_000, per_second, count)
    counted_from_ns = schedule.start_ns + round(_WARM_S * 1e9)
    while min(answered, acked) < count:
        now_ns = perf_counter_ns()
        if now_ns > schedule.due_ns(count) + _LATE_NS:
            raise TooSlow(f"{received:,} messages of {count:,} came in time")
        due = schedule.due_by(now_ns)
        if due > sent:
            dues = ((number, schedule.due_ns(number)) for number in range(sent, due))
            publisher.sendall(b"".join(ends.request(stamped(value, due_ns), number + 1) for number, due_ns in dues))
            sent = due
            now_ns = perf_counter_ns()
        wait_s = max(0.0, (schedule.due_ns(sent) - now_ns) / 1e9) if sent < count else _SILENCE_S
        ready, _, _ = select.select((publisher, consumer), (), (), wait_s)  # its timeout is in microseconds
        if not ready and sent == count:
            raise Refused(f"{received:,} messages came of {count:,}, and then none for {_SILENCE_S:g} s")
        if consumer in ready:
            deliveries, done = receiver.feed(receive(consumer))
            now_ns = perf_counter_ns()
            acked += done
            for delivery in deliveries:
                dues_ns = stamps_in(delivery.data)
                if len(dues_ns) != delivery.count:
                    raise Refused(f"{len(dues_ns):,} of {delivery.count:,} messages have a time")
                received += delivery.count
                consumer.sendall(delivery.ack + (receiver.ask_for_any() if received < count else b""))
                for due_ns in dues_ns:
                    if due_ns >= counted_from_ns:
                        latency.record(now_ns - due_ns)
        if publisher in ready:
            answered += ends.replies.feed(receive(publisher))
    return Timed(count, (perf_counter_ns() - schedule.start_ns) / 1e9, latency)
