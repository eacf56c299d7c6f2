"""A consumer on a server. It survives lost connections: it subscribes again and goes on.

Messages leased on a lost connection were released by the server: settling them raises LeaseLost.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import Generic, TypeVar

from penstock.client.cluster import Cluster
from penstock.client.finishing import Finishing
from penstock.client.leases import GatheredAcks, LeaseKeeper, extend_held
from penstock.client.link import Link
from penstock.client.pending import ignore_reply
from penstock.client.received import Lease, Received, by_lease, held_by, messages_of
from penstock.client.requests import wanted_of
from penstock.client.seat import Seat
from penstock.model.errors import BrokerClosed, ConnectionLost, ConsumerNotFound, LeaseLost, NotOwner, PenstockError
from penstock.model.units import Duration
from penstock.protocol.consuming import (
    Cancel,
    ConsumerRequest,
    Delivery,
    Finish,
    Push,
    Receive,
    Rows,
    Subscribe,
    decode_delivery,
    encode,
)
from penstock.protocol.failures import error_of
from penstock.protocol.frames import Command

_WINDOW = 100
_TAKEN_S = 0.05

Message = TypeVar("Message", bound=Received)


class RemoteConsumer(Generic[Message]):
    """What the awaited and the plain consumer share; `message_class` is what they hand out."""

    def __init__(
        self,
        cluster: Cluster,
        shard: int | None,
        options: Subscribe,
        message_class: type[Message],
        auto_extend: bool,
    ) -> None:
        self._cluster = cluster
        self._seat = seat = Seat(cluster, shard, options)
        seat.on_left, seat.on_switched, seat.on_taken = self._forget, self._switch, self._push_again
        link = seat.link
        self._options = options
        self._class = message_class
        self._face: object = self  # what messages are finished through
        self.group = options.group
        self.timeout_s = link.timeout_s
        self.begin = seat.begin
        self._buffer: deque[Message] = deque()
        self._arrived = asyncio.Event()
        self._ahead = _WINDOW
        self._pushing = False
        self._broken: PenstockError | None = None  # why nothing more is pushed
        self._taken: list[Message] = []
        self._taken_timer: asyncio.TimerHandle | None = None
        self.ack_one = GatheredAcks[Message](link.loop, partial(self.finish, Command.ACK)).ack
        self._auto_extend = auto_extend and not options.autoack
        self._keeper = LeaseKeeper(link.loop, self._extend_held)
        self._beating: asyncio.TimerHandle | None = None
        self._resuming: asyncio.Task[None] | None = None
        if options.mode == "assigned":
            self._beat()

    def finish_through(self, face: object) -> None:
        """Set the consumer through which messages are finished."""
        self._face = face

    # Coming and going.

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._seat.closed

    @property
    def is_joined(self) -> bool:
        """Whether it is in the group, at the owner of its topics as it is now."""
        return self._seat.is_taken

    async def join(self) -> None:
        """Be in the group, at the owner of its topics as it is now; raises ConnectionLost after `timeout_s`."""
        await self._seat.take(self.timeout_s)

    @property
    def name(self) -> str:
        """Its name, as traces show it."""
        return self._seat.name

    @property
    def number(self) -> int:
        """As the server knows it."""
        return self._seat.number

    @property
    def link(self) -> Link:
        """The link to the owner of its topics, as far as it is known."""
        return self._seat.link

    def _switch(self, link: Link) -> None:
        """The owner of its topics is another one now."""
        if self._pushing:
            self.link.on_connected.remove(self.resume)
            link.on_connected.append(self.resume)

    async def _push_again(self) -> None:
        """It has joined: go on being pushed to."""
        if self._pushing:
            self.link.on_push[self.number] = self._pushed
            await self.link.ask(Command.PUSH, encode(Push(self.number, _WINDOW)))

    def may_be_asked_past(self, generation: int) -> bool:
        """Whether threads may use the consumer past the loop, on a connection: then nothing of it is noted here."""
        idle = not (self.closed or self._pushing or self._buffer or self._auto_extend)
        return idle and self._seat.is_taken and self._seat.generation == generation

    def _forget(self) -> None:
        """Drop waiting messages: they were leased on a connection that is gone."""
        if self._seat.generation == self.link.generation:
            self.link.on_push.pop(self.number, None)
        self._buffer.clear()
        self._taken.clear()

    def resume(self) -> None:
        """There is a new connection: subscribe again at once, because messages are pushed."""
        self._resuming = self.link.loop.create_task(self._resume())

    def _moved(self) -> None:
        """Shards have moved: subscribe again if it was that of its topics."""
        if not self.closed and not self._seat.is_taken:
            self.resume()

    async def _resume(self) -> None:
        try:
            await self._seat.take()
        except PenstockError as error:
            if not self.closed:
                self._broken = error
                self._arrived.set()

    async def close(self) -> None:
        """Give back what is held and leave the group; closing twice is harmless."""
        if self.closed:
            return
        self._seat.closed = True
        self._arrived.set()
        self._keeper.close()
        for timer in (self._taken_timer, self._beating, self._resuming):
            if timer is not None:
                timer.cancel()
        self._stop_pushing()
        self._forget()
        with contextlib.suppress(ConnectionLost, ConsumerNotFound, NotOwner):  # then it has left already
            await self._seat.leave()

    # Receiving.

    async def receive(self, max_messages: int, wait: Duration, visibility_timeout: Duration | None) -> list[Message]:
        """Up to so many messages; waits for the first one if there is none yet."""
        wanted, wait_s, visibility_s = wanted_of(max_messages, wait, visibility_timeout)
        if self.closed:
            raise BrokerClosed(f"the consumer {self.name!r} is closed")
        if self._buffer:  # a loop may have left some
            ready = [message for _ in range(wanted) if (message := self._take()) is not None]
            if ready:
                return ready
        loop = self.link.loop
        until_s = loop.time() + wait_s
        while True:
            await self._seat.take(max(0.0, until_s - loop.time()) + self.link.timeout_s)
            generation = self._seat.generation
            try:
                found = await self._ask_for_messages(wanted, max(0.0, until_s - loop.time()), visibility_s)
            except (ConnectionLost, ConsumerNotFound, NotOwner) as error:
                if self.closed or loop.time() >= until_s + self.link.timeout_s:
                    raise
                await self._seat.lost(error, generation)
                continue
            if found or loop.time() >= until_s or self.closed:
                self._keep(found)
                return found

    async def receive_now(self, wanted: int, visibility_s: float | None) -> list[Message] | None:
        """Up to so many messages that are ready; None if it turns out not to be in the group any more."""
        generation = self._seat.generation
        try:
            found = await self._ask_for_messages(wanted, 0.0, visibility_s)
        except (ConnectionLost, ConsumerNotFound, NotOwner) as error:
            await self._seat.lost(error, generation)
            return None
        self._keep(found)
        return found

    async def _ask_for_messages(self, wanted: int, wait_s: float, visibility_s: float | None) -> list[Message]:
        future: asyncio.Future[list[Message]] = self.link.loop.create_future()
        generation = self._seat.generation

        def on_reply(reply: bytes | None, error: PenstockError | None) -> None:
            if error is not None or reply is None:
                if not future.done():
                    future.set_exception(error or PenstockError("no reply"))
                return
            found = self.messages_in(reply, generation)
            if not (self._options.autoack or (self.is_joined and self._seat.generation == generation)):
                found.clear()  # it comes late: its shard is elsewhere by now, where others may have them
            if not future.done():
                future.set_result(found)
            elif found:  # nobody wants them any more
                self.give_back(found)

        request = self.asking_for(wanted, wait_s, visibility_s)
        correlation = self.link.send(Command.RECEIVE, request, on_reply, timeout_s=wait_s + self.link.timeout_s)
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                self.give_back(future.result())
            self.cancel(correlation)
            raise

    def asking_for(self, wanted: int, wait_s: float, visibility_s: float | None) -> bytes:
        """The request for messages."""
        return encode(Receive(self.number, wanted, wait_s, visibility_s))

    def cancel(self, correlation: int) -> None:
        """Nobody waits for the messages of a request any more."""
        self.link.tell(Command.CANCEL, encode(Cancel(self.number, correlation)))

    def messages_in(self, reply: bytes, generation: int) -> list[Message]:
        """The messages of a reply to what was asked on a connection."""
        return self._messages(decode_delivery(reply).rows, generation)

    def _messages(self, rows: list[Rows], generation: int) -> list[Message]:
        now_s = time.monotonic()
        found: list[Message] = []
        for some in rows:
            lease = Lease(some, self._face, generation, now_s)
            found += messages_of(some, self._class, lease)
        return found

    def give_back(self, messages: list[Message]) -> None:
        """Release messages that nobody waits for."""
        held = [held_by(lease, offsets) for lease, offsets in by_lease(messages).items() if lease is not None]
        if held and not self.link.closed:
            self.link.send(Command.RELEASE, encode(Finish(self.number, held)), ignore_reply)

    # One by one.

    async def next(self) -> Message | None:
        """The next message of a loop, which the server has pushed; None when the consumer is closed."""
        while not self.closed:
            message = self._take()
            if message is not None:
                return message
            if self._broken is not None:
                error, self._broken = self._broken, None
                self._stop_pushing()
                found = await self.receive(1, 0, None)  # which tells better what is wrong, if it still is
                if not found:
                    raise error
                return found[0]
            self._arrived.clear()
            if not self._pushing:
                await self._begin_pushing()
            if not self._buffer:
                await self._arrived.wait()
        return None

    async def _begin_pushing(self) -> None:
        self._pushing = True
        self.link.on_connected.append(self.resume)
        self._cluster.on_moved.append(self._moved)
        try:
            await self._seat.take()
            self.link.on_push[self.number] = self._pushed
            await self.link.ask(Command.PUSH, encode(Push(self.number, _WINDOW)))
        except (ConnectionLost, ConsumerNotFound, NotOwner):
            pass  # it is asked for again on the next connection, or at the next owner
        except PenstockError:
            self._stop_pushing()
            raise

    def _stop_pushing(self) -> None:
        self._pushing = False
        if self.resume in self.link.on_connected:
            self.link.on_connected.remove(self.resume)
        if self._moved in self._cluster.on_moved:
            self._cluster.on_moved.remove(self._moved)

    def _pushed(self, body: memoryview | bytes) -> None:
        delivery: Delivery = decode_delivery(body)
        if delivery.error is not None:
            error = error_of(delivery.error)
            if isinstance(error, NotOwner):
                self._seat.number = 0
                self.resume()
                return
            self._broken = error
        self._ahead = delivery.ahead
        self._buffer.extend(self._messages(delivery.rows, self._seat.generation))
        self._arrived.set()

    def _take(self) -> Message | None:
        """The next waiting message whose lease has not run out, if there is one."""
        while self._buffer:
            message = self._buffer.popleft()
            self._taken.append(message)
            lease = message.lease
            assert lease is not None
            left_s = lease.deadline_s - time.monotonic()
            if (
                len(self._taken) >= max(1, self._ahead // 2)
                or not self._buffer
                or left_s < lease.visibility_s / 2  # its time begins anew when the server hears of it
            ):
                self._say_taken()
            elif self._taken_timer is None:
                self._taken_timer = self.link.loop.call_later(_TAKEN_S, self._say_taken)
            if self.link.connected and lease.generation == self.link.generation and left_s > 0:
                self._keep([message])
                return message
        return None

    def _say_taken(self) -> None:
        if self._taken_timer is not None:
            self._taken_timer.cancel()
            self._taken_timer = None
        taken, self._taken = self._taken, []
        if taken and self._seat.generation == self.link.generation:
            held = [held_by(lease, offsets) for lease, offsets in by_lease(taken).items() if lease is not None]
            self.link.tell(Command.TAKEN, encode(Finish(self.number, held)))

    # What becomes of messages.

    async def finish(
        self, command: Command, messages: Iterable[Message], reason: str = "", seconds: float | None = None
    ) -> None:
        """Ack, extend, release, fail or kill messages; raises LeaseLost for those that were not leased."""
        finishing = self.finishing(messages)
        if self._auto_extend and command != Command.EXTEND:
            self._keeper.finished(finishing.leases)
        for body, some in finishing.requests(self.number, reason, seconds):
            try:
                await self.link.ask(command, body)
            except (LeaseLost, ConsumerNotFound, NotOwner) as error:
                finishing.refused(some, error)
        finishing.conclude()

    def finishing(self, messages: Iterable[Message]) -> Finishing:
        """Messages that are to be finished."""
        return Finishing(messages, self._face, self.link.generation)

    def _keep(self, messages: list[Message]) -> None:
        if self._auto_extend:
            self._keeper.hold(messages)

    def keep(self, messages: list[Message]) -> None:
        """Keep messages leased that nobody has seen yet."""
        self._keeper.hold(messages)

    def let_run(self, message: Message) -> None:
        """Somebody sees a message that was kept: its lease runs out like others."""
        assert message.lease is not None
        self._keeper.finished([(message.lease, [message.offset])])

    def holds(self, lease: Lease) -> bool:
        """Whether what was leased here is so still, as far as that is known without looking at the time."""
        return self.is_joined and lease.generation == self._seat.generation

    async def _extend_held(self, held: list[tuple[Lease, list[int]]], seconds: float) -> None:
        await extend_held(self.link, self.number, self._keeper, held, seconds)

    def _beat(self) -> None:
        """Send heartbeats, so that the consumer keeps its partitions during long work."""
        if self._seat.is_taken:
            self.link.send(Command.HEARTBEAT, encode(ConsumerRequest(self.number)), ignore_reply)
        self._beating = self.link.loop.call_later(max(self._options.session_timeout / 3, 0.005), self._beat)

    async def heartbeat(self) -> None:
        """Send a heartbeat."""
        await self._seat.take(self.link.timeout_s)
        await self.link.ask(Command.HEARTBEAT, encode(ConsumerRequest(self.number)))
