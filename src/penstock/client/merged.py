"""A consumer of topics that live in several shards, which may be in several processes: it is a member in each.

Each shard has a consumer of its own here, which follows it wherever it moves. Shards take turns at being asked first,
and all that is handed out and not finished counts against one window. Best lanes come first within a shard; between
shards there is no such order.

A shard that cannot be asked now, for its process was killed or it is on its way, holds up none of the others: its part
joins again in the background. Only when there is nothing anywhere else is it waited for.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections import Counter, deque
from collections.abc import Coroutine, Iterable
from typing import Any, Generic, TypeVar

import msgspec

from penstock.client.cluster import Cluster
from penstock.client.link import Link
from penstock.client.received import Lease, Received
from penstock.client.remote import RemoteConsumer
from penstock.client.requests import wanted_of
from penstock.client.window import Window
from penstock.model.errors import BrokerClosed, ConnectionLost, LeaseLost, PenstockError
from penstock.model.message import MessageId
from penstock.model.placement import is_slice, slice_name, whole_name
from penstock.model.units import Duration
from penstock.protocol.consuming import Subscribe
from penstock.protocol.frames import Command

_AHEAD = 100  # messages that a loop holds ready
_WAIT_S = 20.0  # of one long poll of a loop
_ANSWER_S = 1.0  # how long one shard holds up the others that has joined, and does not answer: its process may hang
_NEVER = float("inf")

Message = TypeVar("Message", bound=Received)


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
    by_topic: dict[str, RemoteConsumer[Message]] = {}
    for shard, topics in by_shard.items():
        own = msgspec.structs.replace(options, topics=topics)
        part = RemoteConsumer(cluster, shard, own, message_class, auto_extend)
        by_topic |= dict.fromkeys(topics, part)
    return part if len(by_shard) == 1 else MergedConsumer(by_topic, options, auto_extend)


class MergedConsumer(Generic[Message]):
    """As `RemoteConsumer`, for topics of several shards."""

    def __init__(self, by_topic: dict[str, RemoteConsumer[Message]], options: Subscribe, auto_extend: bool) -> None:
        self._by_topic = by_topic  # or by slice
        self._slices = Counter(whole_name(name) for name in by_topic if is_slice(name))
        self._parts = list(dict.fromkeys(by_topic.values()))  # in the order in which they are asked
        self._joining: dict[RemoteConsumer[Message], asyncio.Task[None]] = {}
        self._auto_extend, self._autoack = auto_extend, options.autoack
        self._window = Window(options.max_in_flight, self._lives)
        self._ahead = max(1, min(_AHEAD, options.max_in_flight // 2))
        self._buffer: deque[Message] = deque()
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
        self._window.wake()
        self._buffer.clear()
        await asyncio.gather(*(part.close() for part in self._parts))
        for task in self._joining.values():
            task.cancel()
        await asyncio.gather(*self._joining.values(), return_exceptions=True)

    async def heartbeat(self) -> None:
        """Send a heartbeat to each."""
        await asyncio.gather(*(part.heartbeat() for part in self._parts))

    # Receiving.

    async def receive(self, max_messages: int, wait: Duration, visibility_timeout: Duration | None) -> list[Message]:
        """Up to so many messages; waits for the first one if there is none yet."""
        wanted, wait_s, visibility_s = wanted_of(max_messages, wait, visibility_timeout)
        if self.closed:
            raise BrokerClosed(f"the consumer {self.name!r} is closed")
        ready = [message for _ in range(min(wanted, len(self._buffer))) if (message := self._see()) is not None]
        return ready or await self._receive(wanted, wait_s, visibility_s)

    async def _receive(self, wanted: int, wait_s: float, visibility_s: float | None) -> list[Message]:
        until_s = time.monotonic() + wait_s
        while not self.closed:
            self._join_again()
            with self._window.reserved(wanted) as room:
                found, is_all = await self._take(room, visibility_s)
                left_s = until_s - time.monotonic()
                if room and not found:
                    joining = self._join_again()
                    is_all = is_all and not joining
                    if joining or left_s > 0:
                        found = await self._wait_for(room, left_s, joining, visibility_s)
                if not self._autoack:
                    self._window.hold(found, _NEVER if self._auto_extend else None)
            left_s = until_s - time.monotonic()
            if found or (is_all and left_s <= 0):
                return found
            if left_s <= -self.timeout_s:
                raise ConnectionLost("a process with topics of this consumer did not answer in time")
            if not room:
                await self._window.wait(left_s)
        return []

    def _join_again(self) -> list[asyncio.Task[None]]:
        """Have those parts join that cannot be asked now; raises what kept one from it."""
        for part, task in list(self._joining.items()):
            if task.done():
                del self._joining[part]
                task.result()
        for part in self._parts:
            if not part.is_joined and part not in self._joining:
                self._joining[part] = asyncio.get_running_loop().create_task(part.join())
        return list(self._joining.values())

    async def _take(self, wanted: int, visibility_s: float | None) -> tuple[list[Message], bool]:
        """What is ready, shard after shard until there is enough, and whether all that were asked have answered.

        Whoever was asked is the last the next time.
        """
        found: list[Message] = []
        is_all = True
        try:
            for part in [part for part in self._parts if part.is_joined]:
                if len(found) >= wanted:
                    break
                self._put_last(part)
                some = None
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_ANSWER_S):
                        some = await part.receive_now(wanted - len(found), visibility_s)
                is_all = is_all and some is not None
                found += some or []
        except BaseException as error:
            if not (found and isinstance(error, PenstockError)):  # else the next call hears what is wrong
                self.give_back(found)
                raise
        return self._living(found), is_all

    async def _wait_for(
        self,
        wanted: int,
        wait_s: float,
        joining: list[asyncio.Task[None]],
        visibility_s: float | None,
    ) -> list[Message]:
        """The first messages that come in any shard; nothing if one has joined, and can be asked like the others."""
        patience_s = max(wait_s, self.timeout_s if joining else 0.0)
        parts = [part for part in self._parts if part.is_joined]
        asked = [_task(part.receive(wanted, patience_s, visibility_s)) for part in parts]
        try:
            await self._first_messages(asked, joining)
        except BaseException:
            self.give_back([message for some in await _ended(asked) for message in _messages_of(some)])
            raise
        found: list[Message] = []
        errors: list[BaseException] = []
        for part, outcome in zip(parts, await _ended(asked), strict=True):
            if some := _messages_of(outcome):
                self._put_last(part)
                found += some
            elif isinstance(outcome, PenstockError):
                errors.append(outcome)
        if errors and not found:
            raise errors[0]
        if len(found) > wanted:
            self.give_back(found[wanted:])
        return self._living(found[:wanted])

    async def _first_messages(
        self, asked: list[asyncio.Task[list[Message]]], joining: list[asyncio.Task[None]]
    ) -> None:
        """Wait until somebody who was asked has messages or an error, all have answered, or somebody has joined."""
        left: set[asyncio.Task[Any]] = {*asked, *joining}
        while left and not self.closed:
            done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
            if any(task in joining or task.exception() is not None or task.result() for task in done):
                return

    def _put_last(self, part: RemoteConsumer[Message]) -> None:
        """It has had its turn."""
        self._parts.remove(part)
        self._parts.append(part)

    async def next(self) -> Message | None:
        """The next message of a loop; None when the consumer is closed."""
        while not self.closed:
            if (message := self._see()) is not None:
                return message
            if not self._buffer:
                self._put_ahead(await self._receive(self._ahead, _WAIT_S, None))
        return None

    def _put_ahead(self, messages: list[Message]) -> None:
        """Hold messages ready for a loop: they stay leased until it sees them."""
        self._buffer.extend(messages)
        if not (self._autoack or self.closed):
            self._window.extend(messages, _NEVER)
            for part, some in self._by_part(messages):
                part.keep(some)

    def _see(self) -> Message | None:
        """The first message that is held ready, if it is leased still: its time runs from now on."""
        if not self._buffer:
            return None
        message = self._buffer.popleft()
        lease = message.lease
        if self._autoack or lease is None:
            return message
        if not self._lives(lease):
            self._window.drop([message])
            return None
        if not self._auto_extend:
            self._part_of(message).let_run(message)
            self._window.hold([message], time.monotonic() + lease.visibility_s)
        return message

    def give_back(self, messages: list[Message]) -> None:
        """Release messages that nobody waits for."""
        for part, some in self._by_part(messages):
            part.give_back(some)
        self._window.drop(messages)

    # What becomes of messages.

    async def ack_one(self, message: Message) -> None:
        """Ack a message together with those that other tasks ack at the same moment."""
        try:
            await self._part_of(message).ack_one(message)
        finally:
            self._window.drop([message])

    async def finish(
        self, command: Command, messages: Iterable[Message], reason: str = "", seconds: float | None = None
    ) -> None:
        """Ack, extend, release, fail or kill messages; raises LeaseLost for those that were not leased."""
        some = list(messages)
        finishing = [part.finish(command, own, reason, seconds) for part, own in self._by_part(some)]
        outcomes = await asyncio.gather(*finishing, return_exceptions=True)
        if command == Command.EXTEND:
            self._window.extend(some, time.monotonic() + (seconds or 0.0))
        else:
            self._window.drop(some)
        lost: list[MessageId] = []
        for outcome in outcomes:
            if isinstance(outcome, LeaseLost):
                lost += [identity for identity in outcome.ids if isinstance(identity, MessageId)]
            elif isinstance(outcome, BaseException):
                raise outcome
        if lost:
            raise LeaseLost.of(lost, len(some))

    def _living(self, messages: list[Message]) -> list[Message]:
        """Those that are leased still: shards may have moved while others were asked."""
        if self._autoack:
            return messages
        lost = {lease for lease in {message.lease for message in messages} if lease is None or not self._lives(lease)}
        return [message for message in messages if message.lease not in lost] if lost else messages

    def _lives(self, lease: Lease) -> bool:
        return self._part_with(lease.topic, lease.partition).holds(lease)

    def _part_of(self, message: Message) -> RemoteConsumer[Message]:
        return self._part_with(message.topic, message.partition)

    def _part_with(self, topic: str, partition: int) -> RemoteConsumer[Message]:
        """The part that has a partition of a topic: they are dealt to its slices in turn, if it is spread."""
        slices = self._slices[topic]
        name = slice_name(topic, partition % slices) if slices else topic
        return self._by_topic.get(name) or self._parts[0]

    def _by_part(self, messages: Iterable[Message]) -> list[tuple[RemoteConsumer[Message], list[Message]]]:
        found: dict[RemoteConsumer[Message], list[Message]] = {}
        for message in messages:
            found.setdefault(self._part_of(message), []).append(message)
        return list(found.items())


AnyRemote = RemoteConsumer[Message] | MergedConsumer[Message]
"""A consumer on a server, of one shard or of several."""


def _task(work: Coroutine[Any, Any, list[Message]]) -> asyncio.Task[list[Message]]:
    return asyncio.get_running_loop().create_task(work)


async def _ended(asked: list[asyncio.Task[list[Message]]]) -> list[list[Message] | BaseException]:
    """What became of those who were asked, in their order: who waits still is told to give back what it gets."""
    for task in asked:
        task.cancel()
    return await asyncio.gather(*asked, return_exceptions=True)


def _messages_of(outcome: list[Message] | BaseException) -> list[Message]:
    return [] if isinstance(outcome, BaseException) else outcome
