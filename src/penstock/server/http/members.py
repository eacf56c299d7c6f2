"""Consumers of clients without a connection: they are named by an id, and removed when no request names them."""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.aio.consumer import AsyncConsumer, AsyncDelivery
from penstock.aio.receiving import read_fetched, take_or_wait
from penstock.delivery.offsets import Offsets
from penstock.model.bounds import shown
from penstock.model.errors import (
    ConsumerNotFound,
    InvalidArgument,
    LeaseLost,
    NotOwner,
    Overloaded,
    PenstockError,
    TopicNotFound,
)
from penstock.model.message import MessageId
from penstock.model.options import duration
from penstock.model.units import Duration

if TYPE_CHECKING:
    from penstock.server.services import Services
    from penstock.shard.operations.leased_messages import Leased
    from penstock.shard.shard import Shard

_MEMBERS_MAX = 100_000
_SWEEP_S = 1.0
_SHARED_IDLE_S = 60.0
_SHARED_IN_FLIGHT = 1_000_000
SESSION_S = 30.0
_LEASE = re.compile(r"[0-9a-f]{1,16}")


Receipt = tuple[str, MessageId, int]
"""The member, the message and the lease that a receipt names."""


class Member:
    """A consumer that requests name by its id."""

    __slots__ = ("consumer", "consuming", "heard_s", "id", "session_s", "shared", "slices", "topics", "waiting")

    def __init__(
        self,
        consumer: AsyncConsumer,
        topics: tuple[str, ...],
        session_s: float,
        now_s: float,
        *,
        shared: bool,
        process: int | None = None,
    ) -> None:
        """`process`: the number of the process that it is in, where there are several."""
        self.id = secrets.token_hex(8) if process is None else f"{process}-{secrets.token_hex(8)}"
        self.consumer = consumer
        self.consuming = consumer.consuming  # which knows its leases by their numbers
        self.topics = topics
        self.session_s = session_s
        self.shared = shared
        self.slices: tuple[Shard, ...] = ()
        """The shards here that its topics were in when it joined."""
        self.heard_s = now_s
        self.waiting = 0  # requests that are under way

    def receipt(self, message: AsyncDelivery) -> str:
        """The receipt by which a client finishes this delivery."""
        return f"{self.id}:{message.receipt}"


class Held(NamedTuple):
    """What a member holds of a topic, by some receipts."""

    member: Member
    leased: Leased
    receipts: list[str]


class Members:
    """All consumers of the HTTP port."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._loop = services.loop
        self._by_id: dict[str, Member] = {}
        self._shared: dict[tuple[str, str], asyncio.Task[Member]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._stopped: asyncio.Future[None] = self._loop.create_future()

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def stopping(self) -> bool:
        """Whether the server is stopping."""
        return self._stopped.done()

    async def pause(self, seconds: float) -> None:
        """Wait for so long, or until the server stops."""
        await asyncio.wait([self._stopped], timeout=seconds)

    def start(self) -> None:
        """Begin to remove idle members."""
        self._timer = self._loop.call_later(_SWEEP_S, self._sweep)

    async def join(
        self,
        topics: Sequence[str],
        group: str,
        *,
        session_timeout: Duration = SESSION_S,
        shared: bool = False,
        **options: Any,
    ) -> Member:
        """A new member of a group, with options of its consumer."""
        if len(self._by_id) >= _MEMBERS_MAX:
            raise Overloaded(f"there are {_MEMBERS_MAX:,} members already: try later")
        if self._services.scattered is not None:
            for topic in topics:
                self._services.scattered.check_in_one(topic)
        session_s = duration(1.0)(session_timeout)
        consumer = await self._services.awaited.consumer(list(topics), group, session_timeout=session_s, **options)
        membership = self._services.membership
        process = None if membership is None else membership.number
        member = Member(consumer, tuple(topics), session_s, self._loop.time(), shared=shared, process=process)
        member.slices = self._slices_of(topics)
        self._by_id[member.id] = member
        return member

    async def of_group(self, topic: str, group: str) -> Member:
        """The member shared by all requests that receive for a group without joining it; the topic must exist."""
        name, slices = self._services.shards.slices(topic)
        making = self._shared.get((topic, group))
        if making is not None and making.done():
            member = None if making.exception() else making.result()
            if member is not None and member.slices != tuple(slices) and not set(slices).isdisjoint(member.slices):
                member = None  # some have moved; what it holds of others is finished all the same, and then it is idle
            elif member is not None and member.consuming.is_void:
                self._forget(member)
            if member is None or member.id not in self._by_id:
                making = None
        if making is None:
            slices[0].partition_count(name)  # which must be there
            joining = self.join(
                [topic], group, max_in_flight=_SHARED_IN_FLIGHT, session_timeout=_SHARED_IDLE_S, shared=True
            )
            making = self._shared[topic, group] = self._loop.create_task(joining)
        try:
            return await asyncio.shield(making)
        except BaseException:
            if making.done() and self._shared.get((topic, group)) is making:
                del self._shared[topic, group]
            raise

    def _slices_of(self, topics: Sequence[str]) -> tuple[Shard, ...]:
        """The shards that topics are in, as far as they are here."""
        found: list[Shard] = []
        for topic in topics:
            with contextlib.suppress(NotOwner, TopicNotFound):
                found += self._services.shards.slices(topic)[1]
        return tuple(found)

    def find(self, group: str, member_id: str, sees: Callable[[str], bool]) -> Member:
        """A member that joined, for somebody who sees all of its topics."""
        member = self._by_id.get(member_id)
        known = member is not None and not member.shared and member.consumer.group == group
        if member is None or not known or not all(map(sees, member.topics)):
            raise ConsumerNotFound(f"the group {shown(group)} has no member {shown(member_id)} (any more)")
        member.heard_s = self._loop.time()
        return member

    async def receive(
        self,
        member: Member,
        wanted: int,
        wait_s: float,
        left: Callable[[], Coroutine[Any, Any, None]] | None = None,
        visibility_s: float | None = None,
    ) -> list[AsyncDelivery]:
        """Messages for a member; none when the server stops, or when the waiting client has `left`."""
        consumer = member.consumer
        member.heard_s = self._loop.time()
        can_move = self._services.membership is not None and not member.shared
        if can_move and self._slices_of(member.topics) != member.slices:
            self._forget(member)
            raise ConsumerNotFound("shards of its topics have moved to other processes: begin again")
        found = await consumer.receive(wanted, 0, visibility_timeout=visibility_s)
        if found or wait_s <= 0 or self.stopping:
            return found
        leaving = None if left is None else self._loop.create_task(left())
        ends = [self._stopped] if leaving is None else [self._stopped, leaving]
        member.waiting += 1
        try:
            leased = await take_or_wait(member.consuming, wanted, wait_s, visibility_s, ends)
            found = await read_fetched(member.consuming, leased, consumer, asyncio.to_thread)
            if leaving is not None and leaving.done():  # nobody is there any more to hear of them
                await consumer.release(found)
                return []
            return found
        finally:
            member.waiting -= 1
            member.heard_s = self._loop.time()
            if leaving is not None:
                leaving.cancel()
                await asyncio.gather(leaving, return_exceptions=True)

    def held(self, receipts: Iterable[tuple[str, Receipt]]) -> tuple[list[Held], list[str]]:
        """What receipts name, which were parsed, by member and topic; and the receipts of members that are gone.

        Receipts of two deliveries of one message are apart, so that it can be told which of them holds it.
        """
        wanted: dict[tuple[str, str, int], tuple[list[str], dict[tuple[str, int, int], Offsets]]] = {}
        turns: Counter[tuple[str, MessageId]] = Counter()
        unknown: list[str] = []
        for receipt, (member_id, identity, lease) in receipts:
            if member_id not in self._by_id:
                unknown.append(receipt)
                continue
            turn = turns[member_id, identity]
            turns[member_id, identity] += 1
            named, by_lease = wanted.setdefault((member_id, identity.topic, turn), ([], {}))
            named.append(receipt)
            by_lease.setdefault((identity.topic, identity.partition, lease), Offsets()).add(identity.offset)
        found: list[Held] = []
        for (member_id, _, _), (named, by_lease) in wanted.items():
            member = self._by_id[member_id]
            member.heard_s = self._loop.time()
            leased = member.consuming.find_leased((*place, offsets) for place, offsets in by_lease.items())
            found.append(Held(member, leased, named))
        return found, unknown

    async def leave(self, member: Member) -> None:
        """Remove a member; the messages that it holds are released."""
        self._drop(member)
        await member.consumer.close()

    async def leave_idle(self, topic: str, group: str) -> None:
        """Remove the shared member of a group, unless something is leased or waited for through it."""
        making = self._shared.get((topic, group))
        if making is None or not making.done() or making.exception():
            return
        member = making.result()
        if not member.waiting and not member.consuming.in_flight:
            await self.leave(member)

    def stop_waiting(self) -> None:
        """End all requests that wait for messages: they are answered with what there is."""
        if not self._stopped.done():
            self._stopped.set_result(None)

    async def close(self) -> None:
        """Remove all members."""
        if self._timer is not None:
            self._timer.cancel()
        members = list(self._by_id.values())
        for member in members:
            with contextlib.suppress(PenstockError):
                await self.leave(member)
        if self._closing:
            await asyncio.wait(self._closing)

    def _sweep(self) -> None:
        """Remove idle members; a shared one only when nothing is leased through it."""
        now_s = self._loop.time()
        for member in list(self._by_id.values()):
            if member.waiting or now_s - member.heard_s < member.session_s:
                continue
            if member.shared and member.consuming.in_flight:
                continue
            self._forget(member)
        self._timer = self._loop.call_later(_SWEEP_S, self._sweep)

    def _drop(self, member: Member) -> None:
        self._by_id.pop(member.id, None)
        place = member.topics[0], member.consumer.group
        making = self._shared.get(place)
        if member.shared and making is not None and making.done() and making.result() is member:
            del self._shared[place]

    def _forget(self, member: Member) -> None:
        self._drop(member)
        task = self._loop.create_task(self._close(member))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    @staticmethod
    async def _close(member: Member) -> None:
        with contextlib.suppress(PenstockError):
            await member.consumer.close()


def parse_receipt(receipt: str) -> Receipt:
    """The member, the message and the lease that a receipt names."""
    member_id, colon, rest = receipt.partition(":")
    identity, at, lease = rest.rpartition("@")
    if not (colon and at and member_id and _LEASE.fullmatch(lease)):
        raise InvalidArgument(f"{shown(receipt)} is not a receipt handle")
    return member_id, MessageId.parse(identity), int(lease, 16)


def lost_receipts(receipts: Sequence[str], lost: LeaseLost) -> list[str]:
    """Those of the receipts that were about messages which are not held."""
    ids = set(map(str, lost.ids))
    return [receipt for receipt in receipts if str(parse_receipt(receipt)[1]) in ids]
