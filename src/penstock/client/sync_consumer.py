# Made from client/consumer.py by tools/faces.py: change that, and run `make faces`.
"""A consumer of a server, in plain calls: `client.consumer(...)` gives one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from penstock.client.received import Received
from penstock.client.waited import WaitedConsumer
from penstock.model.units import Duration, parse_duration
from penstock.protocol.frames import Command


class ClientDelivery(Received, frozen=True, gc=False):
    """A message received from a server; it comes again unless it is acked before its lease runs out."""

    def ack(self) -> None:
        """It is done; returns when that is durable."""
        self._owner.remote.ack_one(self)

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
    def _owner(self) -> ClientConsumer:
        assert self.lease is not None
        assert isinstance(self.lease.owner, ClientConsumer)
        return self.lease.owner


class ClientConsumer:
    """Receives the messages of one or more topics for a group, from a server; threads and tasks may share it."""

    def __init__(self, remote: WaitedConsumer[ClientDelivery]) -> None:
        self.remote = remote
        remote.finish_through(self)

    @property
    def name(self) -> str:
        """Its name, as traces show it."""
        return self.remote.name

    @property
    def group(self) -> str:
        """The group that it works for."""
        return self.remote.group

    def receive(
        self, max_messages: int = 100, wait: Duration = 0, *, visibility_timeout: Duration | None = None
    ) -> list[ClientDelivery]:
        """Up to so many messages, best lanes first; waits for the first one if there is none yet.

        `visibility_timeout` is how long these may take, if not as long as the consumer, group or topic says.
        """
        return self.remote.receive(max_messages, wait, visibility_timeout)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ClientDelivery:
        message = self.remote.next()
        if message is None:
            raise StopIteration
        return message

    def ack(self, messages: Iterable[ClientDelivery]) -> None:
        """All of them are done; returns when that is durable. Raises LeaseLost for those that were not held."""
        self.remote.finish(Command.ACK, messages)

    def extend(self, messages: Iterable[ClientDelivery], seconds: Duration) -> None:
        """Hold them for so long from now, where that is longer."""
        self.remote.finish(Command.EXTEND, messages, seconds=parse_duration(seconds))

    def release(self, messages: Iterable[ClientDelivery]) -> None:
        """Give them back at once, through no fault of theirs."""
        self.remote.finish(Command.RELEASE, messages)

    def fail(self, messages: Iterable[ClientDelivery], reason: str, delay: Duration | None = None) -> None:
        """They could not be processed: another try later, or the dead letters."""
        delay_s = None if delay is None else parse_duration(delay)
        self.remote.finish(Command.FAIL, messages, reason, delay_s)

    def kill(self, messages: Iterable[ClientDelivery], reason: str) -> None:
        """They can never be processed: dead-letter them now."""
        self.remote.finish(Command.KILL, messages, reason)

    def heartbeat(self) -> None:
        """Say that it is alive, in `assigned` mode, during long work; every other call says so too."""
        self.remote.heartbeat()

    def close(self) -> None:
        """Give back what is held and leave the group; closing twice is harmless."""
        self.remote.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
