"""Those who wait for messages: each is served once, by whoever makes something ready."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.delivery.group import Pick
    from penstock.shard.dispatch.topic_delivery import Seat, TopicDelivery

Seats = list[tuple["TopicDelivery", "Seat"]]
Fetched = list[tuple["TopicDelivery", list["Pick"]]]
"""What was leased, topic by topic."""


class Waiter:
    """A consumer that found nothing and waits, on all its topics at once; used under the state lock."""

    __slots__ = ("_seats", "_wake", "done", "found", "max_messages", "visibility_s")

    def __init__(self, seats: Seats, max_messages: int, visibility_s: float | None, wake: Callable[[], None]) -> None:
        self._seats = seats
        self._wake = wake
        self.max_messages = max_messages
        self.visibility_s = visibility_s
        self.done = False
        self.found: Fetched | None = None

    def seats_in(self, topic: TopicDelivery) -> list[Seat]:
        """Its seats in a topic."""
        return [seat for delivery, seat in self._seats if delivery is topic]

    def served(self, topic: TopicDelivery, picks: list[Pick]) -> None:
        """It has its messages (or, without any, must look for itself); whoever comes first serves it."""
        if self.done:
            return
        self.done = True
        self.found = [(topic, picks)] if picks else []
        self._wake()
