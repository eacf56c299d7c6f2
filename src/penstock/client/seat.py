"""The place of a consumer in its group, on the server that has its topics: it is taken again wherever they go."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from penstock.client.cluster import Cluster
from penstock.client.link import Link
from penstock.client.pending import ignore_reply
from penstock.model.errors import BrokerClosed, ConnectionLost, GroupInUse, NotOwner
from penstock.protocol.consuming import ConsumerRequest, Subscribe, Subscribed, decode_subscribed, encode
from penstock.protocol.frames import Command

_TAKEN_S = 0.2  # until it is tried again, where the server has not given up the last connection yet
_ON_ITS_WAY_S = 0.02  # until another look for the owner of a shard that moves


class Seat:
    """Subscribed on one connection at a time, to the owner of a shard, or to a server that has all."""

    def __init__(self, cluster: Cluster, shard: int | None, options: Subscribe) -> None:
        self._cluster, self._shard, self._options = cluster, shard, options
        self.link: Link = cluster.link_of(shard) or cluster.first
        """The link to the owner, as far as it is known."""
        self.number = 0
        """Of the consumer, as the server knows it; 0: it has none."""
        self.generation = 0
        """Of the connection that it has its number on."""
        self.name = options.name or ""
        self.closed = False
        self._joining = asyncio.Lock()
        self.on_left: Callable[[], None] = lambda: None
        """Called when what was received there is void."""
        self.on_switched: Callable[[Link], None] = lambda _: None
        """Called with the next link, before it is that."""
        self.on_taken: Callable[[], Awaitable[None]] | None = None
        """Awaited when it is taken."""

    @property
    def is_taken(self) -> bool:
        """Whether it is, at the owner of now; not while there is no connection to it."""
        is_here = self.number != 0 and self.generation == self.link.generation and self.link.connected
        return is_here and (self._shard is None or self._cluster.link_of(self._shard) is self.link)

    async def begin(self) -> None:
        """Join for the first time."""
        if self._shard is not None:
            await self.take(self.link.timeout_s)
        else:
            await self.link.ready(self.link.timeout_s)
            await self._join()

    async def take(self, patience_s: float | None = None) -> None:
        """Join the group where it is now, even if connections are lost meanwhile; at most `patience_s`."""
        loop = self.link.loop
        until_s = None if patience_s is None else loop.time() + patience_s
        taken_until_s = loop.time() + self.link.timeout_s
        while not self.is_taken or self.closed:
            left_s = None if until_s is None else max(0.001, until_s - loop.time())
            await self._follow(left_s)
            await self._cluster.reach(self._shard, left_s)
            try:
                await self._join()
            except ConnectionLost:
                continue
            except NotOwner:
                if loop.time() > taken_until_s:
                    raise
                await asyncio.sleep(_ON_ITS_WAY_S)
            except GroupInUse:  # by this consumer, on a connection that the server has not given up yet
                if not self.generation or loop.time() > taken_until_s:
                    raise
                await asyncio.sleep(_TAKEN_S)

    async def lost(self, error: Exception, generation: int) -> None:
        """The server does not know the consumer of that connection (any more): the next `take` joins again."""
        if self.generation != generation:
            return
        self.number = 0
        if isinstance(error, NotOwner):
            await asyncio.sleep(_ON_ITS_WAY_S)

    async def leave(self) -> None:
        """Leave the group, if it is in it."""
        if self.is_taken:
            await self.link.ask(Command.UNSUBSCRIBE, encode(ConsumerRequest(self.number)))

    async def _follow(self, patience_s: float | None) -> None:
        """Be at the owner of its topics: where that is another one than before, what was held there is given up."""
        while (link := self._cluster.link_of(self._shard)) is None:
            await self._cluster.moved(self.link.timeout_s if patience_s is None else patience_s)
        if link is self.link:
            return
        if self.number and self.generation == self.link.generation:
            self._leave(self.number)
        self.on_left()
        self.on_switched(link)
        self.link, self.number = link, 0

    async def _join(self) -> None:
        """Join on the current connection."""
        async with self._joining:
            if self.closed:
                raise self._is_closed()
            if self.is_taken:
                return
            generation = self.link.generation
            member = await self._subscribe()
            self.on_left()
            self.number, self.name, self.generation = member.consumer, member.name, generation
            if self.on_taken is not None:
                await self.on_taken()

    async def _subscribe(self) -> Subscribed:
        """Join; if it was cancelled or closed meanwhile, leave again."""
        if not self.link.connected:
            raise ConnectionLost(f"there is no connection to {self.link.address} to subscribe on")
        asking = asyncio.ensure_future(self.link.ask(Command.SUBSCRIBE, encode(self._options)))
        try:
            member = decode_subscribed(await asyncio.shield(asking))
        except asyncio.CancelledError:
            asking.add_done_callback(self._leave_unwanted)
            raise
        if self.closed:
            self._leave(member.consumer)
            raise self._is_closed()
        return member

    def _leave_unwanted(self, asked: asyncio.Future[bytes]) -> None:
        if not asked.cancelled() and asked.exception() is None:
            self._leave(decode_subscribed(asked.result()).consumer)

    def _leave(self, number: int) -> None:
        if self.link.connected:
            self.link.send(Command.UNSUBSCRIBE, encode(ConsumerRequest(number)), ignore_reply)

    def _is_closed(self) -> BrokerClosed:
        return BrokerClosed(f"the consumer {self.name!r} is closed")
