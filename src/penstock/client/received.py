"""Messages that a client has received, and their leases."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from penstock.model.batch import decode_payload
from penstock.model.errors import InvalidArgument
from penstock.model.message import MessageId, StoredMessage
from penstock.protocol.consuming import Held, Rows, runs_of

_FIRST = (1, 0)
_NAMED_AT_ONCE = 100_000


class Lease:
    """The messages that one delivery leased from one partition, as the client knows it."""

    __slots__ = ("again", "deadline_s", "generation", "id", "owner", "partition", "topic", "visibility_s")

    def __init__(self, rows: Rows, owner: object, generation: int, now_s: float) -> None:
        self.id = rows.lease
        self.topic, self.partition = rows.topic, rows.partition
        self.again = rows.again
        self.visibility_s = rows.visibility_s
        self.deadline_s = now_s + rows.visibility_s  # by our clock, for what waits here; the server's is the one
        self.owner = owner
        self.generation = generation


class Received(StoredMessage, frozen=True, gc=False, kw_only=False):
    """A message that was received from a server."""

    lease: Lease | None = None

    @property
    def deliveries(self) -> int:
        """How often it was delivered to its group, this time included."""
        return self._again()[0]

    @property
    def failures(self) -> int:
        """How many of the deliveries before failed."""
        return self._again()[1]

    @property
    def receipt(self) -> str:
        """What names this delivery of the message, and no other one."""
        return f"{self.topic}/{self.partition}/{self.offset}@{0 if self.lease is None else self.lease.id:x}"

    def _again(self) -> tuple[int, int]:
        return _FIRST if self.lease is None else self.lease.again.get(self.offset, _FIRST)


Message = TypeVar("Message", bound=StoredMessage)


def messages_of(rows: Rows, message_class: type[Message], *more: object) -> Iterable[Message]:
    """Columns as messages of a class; `more` are the fields that it has beyond a stored message."""
    keys, values, headers = decode_payload(rows.payload)
    count = len(values)
    nothing = [None] * count
    offsets, times_us, priority = rows.offsets, rows.timestamps_us, rows.priority
    return map(
        message_class,
        [rows.topic] * count,
        [rows.partition] * count,
        range(offsets, offsets + count) if isinstance(offsets, int) else offsets,
        [times_us] * count if isinstance(times_us, int) else times_us,
        values,
        keys or nothing,
        headers or nothing,
        [priority] * count if isinstance(priority, int) else priority,
        nothing if rows.deliver_at_us is None else [time_us or None for time_us in rows.deliver_at_us],
        rows.dedupe_ids or nothing,
        nothing if rows.expires_at_us is None else [time_us or None for time_us in rows.expires_at_us],
        *([extra] * count for extra in more),
    )


def by_lease(messages: Iterable[Received]) -> dict[Lease | None, list[int]]:
    """The offsets of messages, by the lease that holds them."""
    try:
        rows = messages if isinstance(messages, list) else list(messages)
    except TypeError as error:
        raise InvalidArgument(f"{messages!r:.80} is not a list of messages") from error
    found: dict[Lease | None, list[int]] = {}
    try:
        leases = [message.lease for message in rows]
        offsets = [message.offset for message in rows]
        if leases and leases.count(leases[0]) == len(leases):
            found[leases[0]] = offsets
        else:
            for lease, offset in zip(leases, offsets, strict=True):
                found.setdefault(lease, []).append(offset)
    except (AttributeError, TypeError) as error:
        raise InvalidArgument("only messages that were received can be finished") from error
    return found


def held_by(lease: Lease, offsets: list[int]) -> Held:
    """Messages of a lease, as they are named to the server."""
    if offsets[-1] - offsets[0] + 1 != len(offsets) or not _ascending(offsets):
        offsets = sorted(set(offsets))
    return Held(lease.topic, lease.partition, lease.id, runs_of(offsets))


def _ascending(offsets: list[int]) -> bool:
    return offsets == list(range(offsets[0], offsets[0] + len(offsets)))


def ids_of(lease: Lease, offsets: Iterable[int]) -> list[MessageId]:
    """The ids of messages of a lease."""
    return [MessageId(lease.topic, lease.partition, offset) for offset in offsets]


def portions(held: list[tuple[Lease, list[int]]]) -> Iterable[list[tuple[Lease, list[int]]]]:
    """The messages in portions that one request may name."""
    portion: list[tuple[Lease, list[int]]] = []
    count = 0
    for lease, offsets in held:
        for start in range(0, len(offsets), _NAMED_AT_ONCE):
            some = offsets[start : start + _NAMED_AT_ONCE]
            if count + len(some) > _NAMED_AT_ONCE:
                yield portion
                portion, count = [], 0
            portion.append((lease, some))
            count += len(some)
    if portion:
        yield portion


def named(held: list[tuple[Lease, list[int]]], ids: Iterable[object]) -> list[tuple[Lease, list[int]]]:
    """Those of the held messages that have one of these ids."""
    wanted = set(ids)
    return [
        (lease, [identity.offset for identity in ids_of(lease, offsets) if identity in wanted])
        for lease, offsets in held
    ]
