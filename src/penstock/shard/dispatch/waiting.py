"""Receiving: take what is ready, else wait until something may be. All consumers decide it here.

Most find something at once (`Consuming.fetch_now`). For the others a `Waiter` is one such request; whoever made it says
how it is woken and when its time is over:

    while (found := waiter.take(waits=time_is_left)) is None:
        sleep until `wake` was called, or until the time is over
    read what was found

A thread sleeps on a lock (`embedded.consumer`), a task on a future (`aio.consumer`), and a connection does not sleep:
it calls `take` again from its event loop (`server.native.delivering`). Whoever does not want the messages any more,
because it was cancelled or the client went away, calls `give_up`: what came at the last moment is given back.

A consumer with topics in several shards cannot be served by one of them. Its waiters ask for no messages and are woken
with nothing as soon as there may be some (`watch`); it looks into all shards then.

Each waiter is served once, by whoever makes something ready: a commit, or the timer. It may also be woken with nothing,
when its consumer or topic is closed or serving it failed; then `take` looks for itself, and raises what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from penstock.delivery.outcomes import Pick
    from penstock.shard.dispatch.topic_dispatcher import TopicDispatcher
    from penstock.shard.state_lock import StateLock


class GroupMember:
    """The place of a consumer in a group: what it asked for."""

    __slots__ = ("consumer", "group", "max_in_flight", "mode", "session_timeout_s", "visibility_s")

    def __init__(
        self,
        consumer: str,
        group: str,
        mode: str,
        max_in_flight: int,
        visibility_s: float | None,
        session_timeout_s: float,
    ) -> None:
        self.consumer, self.group, self.mode = consumer, group, mode
        self.max_in_flight, self.visibility_s, self.session_timeout_s = max_in_flight, visibility_s, session_timeout_s


Members = list[tuple["TopicDispatcher", GroupMember]]
Fetched = list[tuple["TopicDispatcher", list["Pick"]]]
"""What was leased, topic by topic."""


class Receiver(Protocol):
    """The consumer that a waiter receives for."""

    members: Members
    closed: bool

    def fetch(self, max_messages: int, visibility_s: float | None) -> Fetched:
        """Lease what is ready."""

    def give_back(self, found: Fetched) -> None:
        """Whoever they were taken for has gone."""


class Waiter:
    """One request for messages, on all topics of a consumer at once."""

    __slots__ = ("_consumer", "_is_waiting", "_lock", "_served", "_wake", "done", "max_messages", "visibility_s")

    def __init__(
        self,
        consumer: Receiver,
        lock: StateLock,
        max_messages: int,
        visibility_s: float | None,
        wake: Callable[[], None],
    ) -> None:
        """`wake` is called once for each wait, with the state lock held."""
        self._consumer = consumer
        self._lock = lock
        self._wake = wake
        self._is_waiting = False  # among those who wait on the topics
        self._served: Fetched | None = None
        self.max_messages = max_messages
        self.visibility_s = visibility_s
        self.done = False

    # For whoever receives.

    def take(self, *, waits: bool) -> Fetched | None:
        """What came or is ready; an empty list if nothing is, and None if it `waits` for that."""
        with self._lock:
            if self._is_waiting:
                if waits and not self.done:
                    return None
                served = self._stop()
                if served:
                    return served
                if served is None or self._consumer.closed:
                    return []
            found = self._consumer.fetch(self.max_messages, self.visibility_s)
            if found or not waits:
                return found
            self._start()
            return None

    def watch(self) -> None:
        """Be woken as soon as there may be something: for waiters that ask for no messages."""
        assert not self.max_messages
        with self._lock:
            if not self._is_waiting:
                self._start()

    def give_up(self) -> None:
        """Nobody wants the messages any more: wait no longer, and give back what came meanwhile."""
        with self._lock:
            served = self._stop() if self._is_waiting else None
        if served:
            self._consumer.give_back(served)

    def _start(self) -> None:
        self._is_waiting, self.done = True, False
        for delivery, member in self._consumer.members:
            delivery.wait(member, self)

    def _stop(self) -> Fetched | None:
        self._is_waiting, self.done = False, True
        for delivery, member in self._consumer.members:
            delivery.stop_waiting(member, self)
        served, self._served = self._served, None
        return served

    # For whoever makes something ready.

    def members_in(self, topic: TopicDispatcher) -> list[GroupMember]:
        """Itself, as a member of groups of a topic."""
        return [member for delivery, member in self._consumer.members if delivery is topic]

    def served(self, topic: TopicDispatcher, picks: list[Pick]) -> None:
        """It has its messages (or, without any, must look for itself); whoever comes first serves it."""
        assert self._lock.held
        if self.done:
            return
        self.done = True
        self._served = [(topic, picks)] if picks else []
        self._wake()
