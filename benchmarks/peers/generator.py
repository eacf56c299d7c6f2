"""The raw generator: prepared requests over plain sockets, one at a time, with a window, or over many connections.

The sockets block, and their timeouts are the kernel's: no system call is made but sending and receiving.
"""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Protocol

from benchmarks.peers.plans import Consume, Publish, Refused, Timed
from benchmarks.peers.replies import Replies
from benchmarks.peers.requests import Buffers, Requests
from penstock.bench.histogram import Histogram

_TIMEOUT_S = 60
_READ_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class Delivery:
    """Messages that came together: how many, the request that acks them, and the bytes that they came in."""

    count: int
    ack: bytes
    data: bytes


class Receiver(Protocol):
    """The consumer's side of a connection."""

    def ask(self, count: int) -> bytes:
        """The request for so many messages, which are there."""

    def ask_for_any(self) -> bytes:
        """The request for what comes, as soon as it comes; empty if an earlier one is still good for that."""

    def feed(self, data: bytes) -> tuple[list[Delivery], int]:
        """What came: deliveries, and how many messages were acked; raises Refused."""


def connect(port: int) -> socket.socket:
    """A connection for the generator."""
    connection = socket.create_connection(("127.0.0.1", port), _TIMEOUT_S)
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for side in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        connection.setsockopt(socket.SOL_SOCKET, side, struct.pack("@ll", _TIMEOUT_S, 0))
    return connection


def receive(connection: socket.socket) -> bytes:
    """What came, at least a byte."""
    try:
        data = connection.recv(_READ_BYTES)
    except BlockingIOError:
        raise Refused(f"no reply for {_TIMEOUT_S} s") from None
    if not data:
        raise Refused("the peer closed the connection")
    return data


def send(connection: socket.socket, buffers: Buffers) -> None:
    """Send all of it."""
    sent = connection.sendmsg(buffers)
    if sent < sum(map(len, buffers)):
        connection.sendall(b"".join(buffers)[sent:])


@dataclass(slots=True)
class Lane:
    """A connection with its requests and replies."""

    connection: socket.socket
    requests: Requests
    replies: Replies
    sent_ns: int = 0


def publish(lanes: Sequence[Lane], plan: Publish, seconds: float) -> Timed:
    """Publish for some seconds, and wait for all replies."""
    if len(lanes) > 1:
        return _on_many(lanes, seconds)
    if plan.window > 1:
        return _with_window(lanes[0], plan, seconds)
    return _one_at_a_time(lanes[0], plan, seconds)


def _one_at_a_time(lane: Lane, plan: Publish, seconds: float) -> Timed:
    connection, take, feed, latency = lane.connection, lane.requests.take, lane.replies.feed, Histogram()
    before_ns = start_ns = perf_counter_ns()
    until_ns = start_ns + round(seconds * 1e9)
    while before_ns < until_ns and lane.requests.left:
        send(connection, take(1))
        while not feed(receive(connection)):
            pass
        now_ns = perf_counter_ns()
        latency.record(now_ns - before_ns)
        before_ns = now_ns
    return Timed(latency.count * plan.batch, (before_ns - start_ns) / 1e9, latency)


def _with_window(lane: Lane, plan: Publish, seconds: float) -> Timed:
    connection, requests, feed = lane.connection, lane.requests, lane.replies.feed
    free, sent, answered = plan.window, 0, 0
    now_ns = start_ns = perf_counter_ns()
    until_ns = start_ns + round(seconds * 1e9)
    while True:
        if free and now_ns < until_ns and requests.left:
            count = min(free, requests.left)
            send(connection, requests.take(count))
            sent += count
            free -= count
        elif answered == sent:
            break
        found = feed(receive(connection))
        answered += found
        free += found
        now_ns = perf_counter_ns()
    return Timed(answered * plan.batch, (now_ns - start_ns) / 1e9)


def _on_many(lanes: Sequence[Lane], seconds: float) -> Timed:
    """One request at a time on each of the connections."""
    latency, by_number = Histogram(), {lane.connection.fileno(): lane for lane in lanes}
    start_ns = perf_counter_ns()
    until_ns = start_ns + round(seconds * 1e9)
    with select.epoll() as ready:
        for number, lane in by_number.items():
            ready.register(number, select.EPOLLIN)
            lane.sent_ns = perf_counter_ns()
            send(lane.connection, lane.requests.take(1))
        under_way = len(lanes)
        while under_way:
            events = ready.poll(_TIMEOUT_S)
            if not events:
                raise Refused(f"no reply for {_TIMEOUT_S} s")
            for number, _ in events:
                lane = by_number[number]
                if not lane.replies.feed(receive(lane.connection)):
                    continue
                now_ns = perf_counter_ns()
                latency.record(now_ns - lane.sent_ns)
                if now_ns < until_ns and lane.requests.left:
                    lane.sent_ns = now_ns
                    send(lane.connection, lane.requests.take(1))
                else:
                    under_way -= 1
    return Timed(latency.count, (perf_counter_ns() - start_ns) / 1e9, latency)


def consume(connection: socket.socket, receiver: Receiver, plan: Consume, count: int, seconds: float) -> Timed:
    """Receive and ack; the latency is that of a batch, from asking for it until its ack is answered."""
    latency, asked, received, acked, under_way = Histogram(), 0, 0, 0, 0
    asked_ns = now_ns = start_ns = perf_counter_ns()
    until_ns = start_ns + round(seconds * 1e9)

    def more() -> bytes:
        """The next request to receive, if there are more messages than were asked for."""
        nonlocal asked, asked_ns, under_way
        wanted = min(plan.batch, count - asked)
        if not wanted or now_ns >= until_ns:
            return b""
        asked += wanted
        asked_ns = now_ns
        under_way += 1
        return receiver.ask(wanted)

    connection.sendall(b"".join(more() for _ in range(max(1, plan.ahead))))
    while under_way or acked < received:
        deliveries, done = receiver.feed(receive(connection))
        now_ns = perf_counter_ns()
        answers = []
        for delivery in deliveries:
            if not delivery.count:
                raise Refused(f"{received:,} messages came of {count:,}, and then none")
            under_way -= 1
            received += delivery.count
            if not under_way:
                asked = received  # a peer may send fewer than it was asked for
            answers.append(delivery.ack)
            if plan.ahead:
                answers.append(more())
        acked += done
        if done and acked == received and not under_way:
            latency.record(now_ns - asked_ns)
            answers.append(more())
        if answers:
            connection.sendall(b"".join(answers))
    return Timed(acked, (now_ns - start_ns) / 1e9, None if plan.ahead else latency)
