"""Messages that are to be finished: what a server is asked, and what it says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.client.received import Lease, Received, by_lease, held_by, ids_of, portions
from penstock.model.errors import ConsumerNotFound, InvalidArgument, LeaseLost, NotOwner
from penstock.model.message import MessageId
from penstock.protocol.consuming import Finish, encode

Portion = list[tuple[Lease, list[int]]]
"""Messages that one request may name."""


class Finishing:
    """Some messages, sorted by whether the consumer still holds them."""

    def __init__(self, messages: Iterable[Received], owner: object, generation: int) -> None:
        grouped = by_lease(messages)
        self.leases: Portion = [(lease, offsets) for lease, offsets in grouped.items() if lease is not None]
        self._asked = sum(map(len, grouped.values()))
        self._held: Portion = []
        self._lost: list[MessageId] = []
        for lease, offsets in self.leases:
            if lease.generation == generation and lease.owner is owner:
                self._held.append((lease, offsets))
            else:
                self._lost += ids_of(lease, offsets)

    def requests(self, consumer: int, reason: str, seconds: float | None) -> Iterator[tuple[bytes, Portion]]:
        """The requests that finish those that are held, each with its messages."""
        for some in portions(self._held):
            yield encode(Finish(consumer, [held_by(*one) for one in some], _text(reason), seconds)), some

    def refused(self, some: Portion, error: LeaseLost | ConsumerNotFound | NotOwner) -> None:
        """The server says that messages were not leased."""
        if isinstance(error, LeaseLost):
            self._lost += [identity for identity in error.ids if isinstance(identity, MessageId)]
        else:
            self._lost += [identity for one in some for identity in ids_of(*one)]

    def conclude(self) -> None:
        """All requests are answered; raises LeaseLost for messages that were not leased."""
        if self._lost:
            raise LeaseLost.of(self._lost, self._asked)


def _text(reason: object) -> str:
    if not isinstance(reason, str):
        raise InvalidArgument(f"{reason!r} is not a reason: say in a few words what went wrong")
    return reason.encode(errors="replace").decode()
