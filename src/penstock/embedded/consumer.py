"""A consumer in plain calls: `broker.consumer(...)` gives one."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from penstock.cluster.consuming import consume
from penstock.journal import Commit
from penstock.model.errors import LeaseLost
from penstock.model.options import duration, optional, whole, yes_or_no
from penstock.model.units import Duration, Time, parse_duration
from penstock.shard.interrupts import Uninterrupted
from penstock.shard.operations.leased_messages import LeasedMessage
from penstock.shard.operations.read_ahead import LOOP_WAIT_S, ReadAhead

if TYPE_CHECKING:
    from penstock.cluster.shards import Shards
    from penstock.shard.dispatch.waiting import Fetched


class Delivery(LeasedMessage, frozen=True, gc=False):
    """A received message; it comes again unless it is acked before its lease runs out."""

    def ack(self) -> None:
        """It is done; returns when that is durable."""
        owner = self._owner
        with Uninterrupted():
            owner._wait(*owner._consuming.ack_one(self))  # noqa: SLF001 - a message is part of its consumer

    def extend(self, seconds: Duration) -> None:
        """Hold it for so long from now, if that is longer than it is held anyway."""
        self._owner.extend([self], seconds)

    def release(self) -> None:
        """Give it back at once, through no fault of its own."""
        self._owner.release([self])

    def fail(self, reason: str, delay: Duration | None = None) -> None:
        """It could not be processed: try again after `delay` (or the topic's backoff), or dead-letter it."""
        self._owner.fail([self], reason, delay)

    def kill(self, reason: str) -> None:
        """It can never be processed: dead-letter it now."""
        self._owner.kill([self], reason)

    @property
    def _owner(self) -> Consumer:
        assert isinstance(self.lease.owner, Consumer)
        return self.lease.owner


class Consumer:
    """Receives the messages of one or more topics for a group. Safe to use from several threads.

    >>> import tempfile, penstock
    >>> with penstock.open(tempfile.mkdtemp()) as broker:
    ...     ids = broker.publish_many("orders", ["two coffees", "one tea"])
    ...     with broker.consumer("orders", "kitchen") as consumer:
    ...         for message in consumer.receive(10, wait=1):
    ...             print(message.value.decode(), message.deliveries)
    ...             message.ack()
    two coffees 1
    one tea 1
    """

    def __init__(
        self,
        shards: Shards,
        topics: str | Sequence[str],
        group: str,
        *,
        mode: str = "shared",
        max_in_flight: int = 1000,
        visibility_timeout: Duration | None = None,
        autoack: bool = False,
        start: str | Time = "earliest",
        session_timeout: Duration = 30.0,
        name: str | None = None,
    ) -> None:
        self._clock = shards.clock
        self._autoack = yes_or_no(autoack)
        self._consuming = consume(
            shards,
            Delivery,
            topics,
            group,
            mode=mode,
            max_in_flight=max_in_flight,
            visibility_timeout=visibility_timeout,
            session_timeout=session_timeout,
            start=start,
            name=name,
        )
        self._ready = ReadAhead(self._consuming, self._clock, self._autoack)

    @property
    def name(self) -> str:
        """Its name, as traces show it."""
        return self._consuming.name

    @property
    def group(self) -> str:
        """The group that it works for."""
        return self._consuming.group

    def receive(
        self, max_messages: int = 100, wait: Duration = 0, *, visibility_timeout: Duration | None = None
    ) -> list[Delivery]:
        """Up to so many messages, best lanes first; waits for the first one if there is none yet.

        `visibility_timeout` is how long these may take, if not as long as the consumer, group or topic says.
        """
        wanted, wait_s = whole(1, 1_000_000)(max_messages), parse_duration(wait)
        visibility_s = optional(duration(0.001))(visibility_timeout)
        return self._ready.take(wanted) or self._receive(wanted, wait_s, visibility_s)

    def __iter__(self) -> Iterator[Delivery]:
        """Messages one by one, for as long as the consumer is open."""
        while not self._consuming.closed:
            message = self._ready.next() or self._ready.hold(self._receive(self._ready.wanted, LOOP_WAIT_S))
            if message is not None:
                yield message

    def ack(self, messages: Iterable[Delivery]) -> None:
        """All of them are done; returns when that is durable. Raises LeaseLost for those that were not held."""
        with Uninterrupted():
            self._wait(*self._consuming.ack(messages))

    def extend(self, messages: Iterable[Delivery], seconds: Duration) -> None:
        """Hold them for so long from now, where that is longer."""
        with Uninterrupted():
            _, lost = self._consuming.extend(messages, seconds)
        if lost is not None:
            raise lost

    def release(self, messages: Iterable[Delivery]) -> None:
        """Give them back at once, through no fault of theirs."""
        with Uninterrupted():
            self._wait(*self._consuming.release(messages))

    def fail(self, messages: Iterable[Delivery], reason: str, delay: Duration | None = None) -> None:
        """They could not be processed: another try later, or the dead letters."""
        with Uninterrupted():
            self._wait(*self._consuming.fail(messages, reason, delay))

    def kill(self, messages: Iterable[Delivery], reason: str) -> None:
        """They can never be processed: dead-letter them now."""
        with Uninterrupted():
            self._wait(*self._consuming.kill(messages, reason))

    def heartbeat(self) -> None:
        """Say that it is alive, in `assigned` mode, during long work; every other call says so too."""
        with Uninterrupted():
            self._consuming.heartbeat()

    def close(self) -> None:
        """Give back what is held and leave the group; closing twice is harmless."""
        if not self._consuming.closed:
            with Uninterrupted():
                commit = self._consuming.close()
                if commit is not None:
                    commit.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def _receive(self, wanted: int, wait_s: float, visibility_s: float | None = None) -> list[Delivery]:
        with Uninterrupted():
            found = self._consuming.fetch_now(wanted, visibility_s)
            if found or wait_s <= 0:
                return self._take(found)
        return self._wait_for_messages(wanted, wait_s, visibility_s)

    def _wait_for_messages(self, wanted: int, wait_s: float, visibility_s: float | None) -> list[Delivery]:
        arrived = threading.Lock()  # bare: Ctrl-C in a wait leaves no other lock behind
        arrived.acquire()
        waiter = self._consuming.waiter(wanted, visibility_s, arrived.release)
        until_s = self._clock.monotonic_s() + wait_s
        try:
            while True:
                with Uninterrupted():
                    found = waiter.take(waits=wait_s > 0)
                    if found is not None:
                        return self._take(found)
                woken = arrived.acquire(timeout=min(wait_s, threading.TIMEOUT_MAX))
                wait_s = until_s - self._clock.monotonic_s() if woken else 0.0
        except BaseException:
            waiter.give_up()
            raise

    def _take(self, found: Fetched) -> list[Delivery]:
        messages = self._consuming.messages(found, self)
        if self._autoack and messages:
            self._wait(*self._consuming.ack(messages))
        return messages

    def _wait(self, commit: Commit | None, lost: LeaseLost | None) -> None:
        if commit is not None:
            commit.wait()
        if lost is not None:
            raise lost
