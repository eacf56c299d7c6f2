"""Messages that a loop over a consumer holds ready, so that most of its turns need no receive."""

from __future__ import annotations

from collections import deque
from typing import Generic, Protocol

from penstock.delivery.offsets import Offsets
from penstock.model.clock import ShardClock
from penstock.shard.operations.consuming import Message
from penstock.shard.operations.leased_messages import Leased

_PREFETCH = 100
LOOP_WAIT_S = 0.5
"""How long a loop waits before it looks whether its consumer is still open."""


class Ahead(Protocol[Message]):
    """The consumer, as far as it knows of messages that are held ready."""

    def ahead(self, window: int) -> int:
        """How many of `window` messages to hold ready."""

    def hold_unseen(self, messages: list[Message]) -> None:
        """Nobody has seen these yet."""

    def take(self, leased: Leased) -> None:
        """Somebody sees messages that were held ready."""


class ReadAhead(Generic[Message]):
    """What was received and nobody has seen yet; several threads may share it."""

    def __init__(self, consuming: Ahead[Message], clock: ShardClock, autoack: bool) -> None:
        self._consuming = consuming
        self._clock = clock
        self._most = 1 if autoack else _PREFETCH
        self._messages: deque[Message] = deque()

    @property
    def wanted(self) -> int:
        """How many messages to receive when there is none left."""
        return self._consuming.ahead(self._most)

    def hold(self, received: list[Message]) -> Message | None:
        """The first of what was received; the rest is held ready."""
        if not received:
            return None
        self._consuming.hold_unseen(received[1:])
        self._messages.extend(received[1:])
        return received[0]

    def take(self, wanted: int) -> list[Message]:
        """Hand out some of what is held ready."""
        found: list[Message] = []
        while self._messages and len(found) < wanted and (message := self.next()) is not None:
            found.append(message)
        return found

    def next(self) -> Message | None:
        """Hand out the next one whose lease has not run out; its time begins anew."""
        while self._messages:
            try:
                message = self._messages.popleft()
            except IndexError:  # another thread was faster
                return None
            if self._hand_out(message):
                return message
        return None

    def _hand_out(self, message: Message) -> bool:
        lease, offset = message.lease, message.offset
        if lease.unseen is not None:
            lease.unseen.discard(offset)
        left_s = lease.deadline_of(offset) - self._clock.monotonic_s()
        if offset not in lease.messages or left_s <= 0:
            return False
        if left_s < 0.9 * lease.visibility_s:
            leased = Leased()
            leased.by_topic[message.topic] = [(lease, Offsets([offset]))]
            self._consuming.take(leased)
        return offset in lease.messages
