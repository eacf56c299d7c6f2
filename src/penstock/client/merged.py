"""A consumer of topics that live in several shards, which may be in several processes: it is a member in each.

Each shard has a consumer of its own here, which follows it wherever it moves. Shards take turns at being asked first,
and all that is handed out and not finished counts against one window. Best lanes come first within a shard; between
shards there is no such order.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import deque
from collections.abc import Coroutine, Iterable
from typing import Any, Generic, TypeVar

import msgspec

from penstock.client.cluster import Cluster
from penstock.client.link import Link
from penstock.client.received import Received
from penstock.client.remote import RemoteConsumer, wanted_of
from penstock.model.errors import BrokerClosed, LeaseLost
from penstock.model.message import MessageId
from penstock.model.placement import slice_name
from penstock.model.units import Duration
from penstock.protocol.consuming import Subscribe
from penstock.protocol.frames import Command

_AHEAD = 100  # messages that a loop holds ready
_WAIT_S = 20.0  # of one long poll of a loop

Message = TypeVar("Message", bound=Received)
_Place = tuple[str, int, int]


def consumer_of(
    cluster: Cluster, options: Subscribe, message_class: type[Message], auto_extend: bool
) -> AnyRemote[Message]:
    """A new consumer, of one shard or of several."""
    by_shard: dict[int | None, list[str]] = {}
    for topic in options.topics:
        spread = cluster.slices.of(topic) if cluster.is_mapped else None
        names = [topic] if spread is None else [slice_name(topic, number) for number in range(spread.slices)]
        for name in names:
            by_shard.setdefault(cluster.shard_of(name), []).append(name)
    if len(by_shard) > 1 and options.name is None:  # a name that one shard gives may be taken in another
        options = msgspec.structs.replace(options, name=f"consumer-{uuid.uuid4().hex[:12]}")
    parts: dict[int | None, RemoteConsumer[Message]] = {}
    for shard, topics in by_shard.items():
        own = msgspec.structs.replace(options, topics=topics)
        parts[shard] = RemoteConsumer(cluster, shard, own, message_class, auto_extend)
    return next(iter(parts.values())) if len(parts) == 1 else MergedConsumer(parts, cluster, options)


class MergedConsumer(Generic[Message]):
    """As `RemoteConsumer`, for topics of several shards."""

    def __init__(self, parts: dict[int | None, RemoteConsumer[Message]], cluster: Cluster, options: Subscribe) -> None:
        self._by_shard, self._cluster = parts, cluster
        self._parts = list(parts.values())
        self._window = options.max_in_flight
        self._autoack = options.autoack
        self._held: dict[_Place, float] = {}  # what was handed out, and until when it is leased
        self._room = asyncio.Event()
        self._buffer: deque[Message] = deque()
        self._receiving = asyncio.Lock()
        self.closed = False
        self.group = options.group
        self.timeout_s = self._parts[0].timeout_s

    @property
    def name(self) -> str:
        """Its name, as traces show it."""
        return self._parts[0].name

    @property
    def number(self) -> int:
        """As the server knows its first part."""
        return self._parts[0].number

    @property
    def link(self) -> Link:
        """The link to the owner of its first topics."""
        return self._parts[0].link

    def finish_through(self, face: object) -> None:
        """Set the consumer through which messages are finished."""
        for part in self._parts:
            part.finish_through(face)

    def may_be_asked_past(self, generation: int) -> bool:
        """It never may: several links have a part of it."""
        return False

    async def begin(self) -> None:
        """Join the group in each shard, under one name."""
        try:
            await asyncio.gather(*(part.begin() for part in self._parts))
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Give back what is held and leave the group; closing twice is harmless."""
        self.closed = True
        self._room.set()
        self._buffer.clear()
        await asyncio.gather(*(part.close() for part in self._parts))

    async def heartbeat(self) -> None:
        """Send a heartbeat to each."""
        await asyncio.gather(*(part.heartbeat() for part in self._parts))

    # Receiving.

    async def receive(self, max_messages: int, wait: Duration, visibility_timeout: Duration | None) -> list[Message]:
        """Up to so many messages; waits for the first one if there is none yet."""
        wanted, wait_s, _ = wanted_of(max_messages, wait, visibility_timeout)
        if self.closed:
            raise BrokerClosed(f"the consumer {self.name!r} is closed")
        ready = [self._buffer.popleft() for _ in range(min(wanted, len(self._buffer)))]
        if ready:
            return ready
        return await self._receive(wanted, wait_s, visibility_timeout)

    async def _receive(self, wanted: int, wait_s: float, visibility_timeout: Duration | None) -> list[Message]:
        until_s = time.monotonic() + wait_s
        while not self.closed:
            room = min(wanted, self._room_now())
            if room > 0:
                found = await self._take(room, visibility_timeout)
                if not found and wait_s:
                    found = await self._wait_for(room, until_s - time.monotonic(), visibility_timeout)
                if found:
                    return found
            elif wait_s:
                await self._wait_for_room(until_s - time.monotonic())
            if time.monotonic() >= until_s:
                break
        return []

    async def _take(self, wanted: int, visibility_timeout: Duration | None) -> list[Message]:
        """What is ready, shard after shard until there is enough; the next call begins behind the last."""
        found: list[Message] = []
        async with self._receiving:
            for _ in range(len(self._parts)):
                part = self._parts[0]
                self._parts = [*self._parts[1:], part]
                found += self._hold(await part.receive(wanted - len(found), 0, visibility_timeout))
                if len(found) >= wanted:
                    break
        return found

    async def _wait_for(self, wanted: int, wait_s: float, visibility_timeout: Duration | None) -> list[Message]:
        """The first messages that come in any shard; what comes in others at the same moment too, if it has room."""
        if wait_s <= 0:
            return []
        asked = [_task(part.receive(wanted, wait_s, visibility_timeout)) for part in self._parts]
        waiting, found = set(asked), list[Message]()
        try:
            while waiting and not found and not self.closed:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    found += self._hold(task.result())
        finally:
            for task in waiting:
                task.cancel()  # which gives back what it was about to get
            await asyncio.gather(*waiting, return_exceptions=True)
        if len(found) > wanted:
            extra, found = found[wanted:], found[:wanted]
            await self.finish(Command.RELEASE, extra)
        return found

    def _hold(self, messages: list[Message]) -> list[Message]:
        if not self._autoack:
            for message in messages:
                assert message.lease is not None
                self._held[message.topic, message.partition, message.offset] = message.lease.deadline_s
        return messages

    def _room_now(self) -> int:
        """How many more may be handed out."""
        if len(self._held) >= self._window:
            now_s = time.monotonic()
            self._held = {place: until_s for place, until_s in self._held.items() if until_s > now_s}
        return self._window - len(self._held)

    async def _wait_for_room(self, wait_s: float) -> None:
        """Wait until something is finished, or a lease has run out."""
        self._room.clear()
        first_s = min(self._held.values(), default=0.0) - time.monotonic()
        try:
            async with asyncio.timeout(max(0.001, min(wait_s, first_s))):
                await self._room.wait()
        except TimeoutError:
            pass

    async def next(self) -> Message | None:
        """The next message of a loop; None when the consumer is closed."""
        while not self.closed:
            if self._buffer:
                return self._buffer.popleft()
            ahead = max(1, min(_AHEAD, self._window // 2))
            self._buffer.extend(await self._receive(ahead, _WAIT_S, None))
        return None

    def give_back(self, messages: list[Message]) -> None:
        """Release messages that nobody waits for."""
        for part, some in self._by_part(messages):
            part.give_back(some)
        self._drop(messages)

    # What becomes of messages.

    async def ack_one(self, message: Message) -> None:
        """Ack a message together with those that other tasks ack at the same moment."""
        try:
            await self._part_of(message).ack_one(message)
        finally:
            self._drop([message])

    async def finish(
        self, command: Command, messages: Iterable[Message], reason: str = "", seconds: float | None = None
    ) -> None:
        """Ack, extend, release, fail or kill messages; raises LeaseLost for those that were not leased."""
        some = list(messages)
        finishing = [part.finish(command, own, reason, seconds) for part, own in self._by_part(some)]
        outcomes = await asyncio.gather(*finishing, return_exceptions=True)
        if command == Command.EXTEND:
            until_s = time.monotonic() + (seconds or 0.0)
            places = {(message.topic, message.partition, message.offset) for message in some}
            self._held |= {place: max(self._held[place], until_s) for place in places & self._held.keys()}
        else:
            self._drop(some)
        lost: list[MessageId] = []
        for outcome in outcomes:
            if isinstance(outcome, LeaseLost):
                lost += [identity for identity in outcome.ids if isinstance(identity, MessageId)]
            elif isinstance(outcome, BaseException):
                raise outcome
        if lost:
            raise LeaseLost.of(lost, len(some))

    def _drop(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self._held.pop((message.topic, message.partition, message.offset), None)
        self._room.set()

    def _part_of(self, message: Message) -> RemoteConsumer[Message]:
        return self._by_shard.get(self._cluster.shard_of(message.topic, message.partition)) or self._parts[0]

    def _by_part(self, messages: Iterable[Message]) -> list[tuple[RemoteConsumer[Message], list[Message]]]:
        found: dict[RemoteConsumer[Message], list[Message]] = {}
        for message in messages:
            found.setdefault(self._part_of(message), []).append(message)
        return list(found.items())


AnyRemote = RemoteConsumer[Message] | MergedConsumer[Message]
"""A consumer on a server, of one shard or of several."""


def _task(work: Coroutine[Any, Any, list[Message]]) -> asyncio.Task[list[Message]]:
    return asyncio.get_running_loop().create_task(work)
