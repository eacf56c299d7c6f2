"""Messages in the hands of a consumer, and the leases that they are held by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from penstock.delivery.leases import Lease
from penstock.delivery.offsets import Offsets
from penstock.model.bounds import shown
from penstock.model.errors import InvalidArgument
from penstock.model.message import MessageId, StoredMessage

NO_LEASE = Lease(0, 0, "", 0.0, Offsets())
_FIRST = (1, 0)


class LeasedMessage(StoredMessage, frozen=True, gc=False, kw_only=False):
    """A message in the hands of a consumer."""

    lease: Lease = NO_LEASE
    """What the consumer holds it by; the same for everything that one fetch took from a partition."""

    @property
    def deliveries(self) -> int:
        """How often it was delivered to its group, this time included."""
        return self.lease.again.get(self.offset, _FIRST)[0]

    @property
    def failures(self) -> int:
        """How many of the deliveries before failed."""
        return self.lease.again.get(self.offset, _FIRST)[1]

    @property
    def receipt(self) -> str:
        """What names this delivery of the message, and no other one."""
        return f"{self.topic}/{self.partition}/{self.offset}@{self.lease.id:x}"


class Leased:
    """Leased messages, by topic and lease; `unknown` are those that no lease was found for."""

    __slots__ = ("by_topic", "count", "unknown")

    def __init__(self) -> None:
        self.by_topic: dict[str, list[tuple[Lease, Offsets]]] = {}
        self.count = 0
        self.unknown: list[MessageId] = []


def hold_unseen(lease: Lease, offsets: Offsets) -> None:
    """Nobody has seen these messages of a lease yet."""
    lease.unseen = offsets if lease.unseen is None else lease.unseen | offsets


def leased_of(messages: Iterable[LeasedMessage] | Leased) -> Leased:
    """Messages that were received, by topic and lease."""
    if isinstance(messages, Leased):
        return messages
    rows = messages if isinstance(messages, list) else _listed(messages)
    leased = Leased()
    leased.count = len(rows)
    for lease, some in _by_lease(rows):
        leased.by_topic.setdefault(some[0].topic, []).append((lease, _offsets(some)))
    return leased


def offsets_by_lease(messages: Sequence[LeasedMessage]) -> Iterator[tuple[Lease, Offsets]]:
    """Where the messages of each lease lie."""
    return ((lease, _offsets(some)) for lease, some in _by_lease(messages))


def _offsets(messages: Sequence[LeasedMessage]) -> Offsets:
    return Offsets([message.offset for message in messages])


def _by_lease(messages: Sequence[LeasedMessage]) -> Iterable[tuple[Lease, Sequence[LeasedMessage]]]:
    try:
        leases = [message.lease for message in messages]
    except AttributeError as error:
        raise InvalidArgument("only messages that were received can be finished") from error
    if leases and leases.count(leases[0]) == len(leases):
        return [(leases[0], messages)]
    found: dict[Lease, list[LeasedMessage]] = {}
    for lease, message in zip(leases, messages, strict=True):
        found.setdefault(lease, []).append(message)
    return found.items()


def _listed(messages: Iterable[LeasedMessage]) -> list[LeasedMessage]:
    try:
        return list(messages)
    except TypeError as error:
        raise InvalidArgument(f"{shown(messages)} is not a list of messages") from error
