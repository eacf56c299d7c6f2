"""The links of a client: one to the address that it was given, and one to each process that has shards it needs.

Most servers are one process, and then the first link is all there is. Others send a map of their shards, and a new one
whenever a shard has moved. A request for a topic goes to the owner of its shard. What an owner did not answer before
the shard left is asked again at the next owner: in its order, and before anything newer, for all requests of a shard go
one way at a time. While nobody is known to have the shard, its requests are *parked* here.

Only what can be repeated without harm leaves a link that may have done it; everything else waits for the answer there,
and NOT_OWNER says that nothing was done.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any

from penstock.client.link import Link
from penstock.client.pending import OnReply, Request, awaited
from penstock.client.slices import Slices, is_divided
from penstock.model.cluster_map import ClusterMap
from penstock.model.errors import BrokerClosed, ConnectionLost, NotOwner
from penstock.model.placement import shard_of
from penstock.protocol.frames import HEADER_BYTES

_SWEEP_S = 0.25
_BACKOFF_MAX_S = 0.25  # a process that was replaced is back within a second, at the same address
_ASK_AGAIN_S = 0.05  # until an owner that said no is asked again, where no other is known

NewLink = Callable[[str, Iterator[int]], Link]


class Cluster:
    """Knows which link leads to which topic; on the event loop of the client."""

    def __init__(self, address: str, new_link: NewLink) -> None:
        self._new_link = new_link
        self._generations = itertools.count(1)
        self.first = new_link(address, self._generations)
        """The link to the address that was given: for all that no topic routes."""
        self._links: dict[str, Link] = {}
        self._owners: list[tuple[int, str]] = []  # epoch and address, by shard; none where one process has all
        self._parked: dict[int, list[Request]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()
        self.slices = Slices()
        """How topics are spread."""
        self.on_moved: list[Callable[[], None]] = []
        """Called when shards have moved."""
        self._attach(self.first)

    @property
    def is_mapped(self) -> bool:
        """Whether shards are in several processes."""
        return bool(self._owners)

    async def open(self) -> None:
        """Connect for the first time; raises if that fails."""
        await self.first.open()

    async def close(self) -> None:
        """Close all connections; requests without a reply fail."""
        if self._timer is not None:
            self._timer.cancel()
        for request in [request for parked in self._parked.values() for request in parked]:
            request.on_reply(None, BrokerClosed("the client was closed before the reply came"))
        self._parked.clear()
        for link in (*self._links.values(), self.first):
            await link.close()
        self._tell()

    # The way to a topic.

    def shard_of(self, topic: str, partition: int | None = None) -> int | None:
        """The shard of a topic, or of a partition of it; None where one process has all."""
        owners = self._owners  # threads ask too
        if not owners:
            return None
        name = topic if partition is None else self.slices.name_of_partition(topic, partition)
        return shard_of(name, len(owners))

    def link_of(self, shard: int | None) -> Link | None:
        """The link to the owner of a shard; None while nobody is known to have it."""
        if shard is None or not self._owners:
            return self.first
        address = self._owners[shard][1] if shard < len(self._owners) else ""
        return self._link_to(address) if address else None

    def link_to_topic(self, topic: str) -> Link | None:
        """The link to the owner of a topic, as `link_of`."""
        return self.link_of(self.shard_of(topic)) if self._owners else self.first

    def link_known(self, topic: str) -> Link | None:
        """As `link_to_topic`, if there is such a link already; asked in any thread."""
        owners = self._owners
        return self._links.get(owners[shard_of(topic, len(owners))][1]) if owners else self.first

    async def ready(self, topic: str, patience_s: float) -> None:
        """Wait until there is a connection to the owner of a topic, and the server takes more."""
        await self.reach(self.shard_of(topic), patience_s)

    async def reach(self, shard: int | None, patience_s: float | None) -> None:
        """Wait until there is a connection to the owner of a shard, whoever that is by then, and it takes more."""
        loop = self.first.loop
        until_s = None if patience_s is None else loop.time() + patience_s
        while True:
            left_s = None if until_s is None else max(0.001, until_s - loop.time())
            link = self.link_of(shard)
            try:
                if link is None:
                    await self.moved(left_s)
                elif link.connected or shard is None:
                    await link.ready(left_s)
                    return
                else:
                    await _first_of(link.ready(left_s), self.moved(left_s))
            except BrokerClosed:
                if self.first.closed:
                    raise  # else the process is gone that had the shard

    async def moved(self, patience_s: float | None) -> None:
        """Wait until shards have moved, or the client is closed; raises ConnectionLost if that takes too long."""
        if self.first.closed:
            raise BrokerClosed("the client is closed")
        self._changed.clear()
        try:
            async with asyncio.timeout(patience_s):
                await self._changed.wait()
        except TimeoutError:
            raise ConnectionLost("nobody had the shard in time: nothing was sent") from None

    # Requests.

    def send(
        self,
        topic: str | None,
        command: int,
        body: bytes,
        on_reply: OnReply,
        *,
        repeatable: bool = False,
        timeout_s: float | None = None,
        whole: bool = False,
    ) -> None:
        """Send a request to the owner of a topic, or anywhere; its reply goes to `on_reply`.

        Where a topic is spread, messages go to their slices, but for a `whole` request: it hears TopicSpread instead.
        """
        if topic is None or not self._owners:
            self.first.send(command, body, on_reply, repeatable=repeatable, timeout_s=timeout_s)
        elif not whole and is_divided(topic, command):
            send = partial(self._send, command=command, repeatable=repeatable, timeout_s=timeout_s)
            self.slices.send(topic, command, body, on_reply, send)
        else:
            self._send(topic, body, on_reply, command=command, repeatable=repeatable, timeout_s=timeout_s)

    def _send(
        self,
        topic: str,
        body: bytes,
        on_reply: OnReply,
        *,
        command: int,
        repeatable: bool,
        timeout_s: float | None,
    ) -> None:
        """Send a request to the owner of the shard of a topic, or of a slice."""
        shard = shard_of(topic, len(self._owners)) if self._owners else None
        if shard is None:
            self.first.send(command, body, on_reply, repeatable=repeatable, timeout_s=timeout_s)
            return
        link = None if shard in self._parked else self.link_of(shard)
        if link is not None:
            link.send(command, body, on_reply, repeatable=repeatable, timeout_s=timeout_s, shard=shard)
            return
        if self.first.closed:
            raise BrokerClosed("the client is closed")
        first = self.first
        patience_s = first.timeout_s if timeout_s is None else timeout_s
        self._park(
            Request(command, bytes(HEADER_BYTES) + body, on_reply, repeatable, first.loop.time(), patience_s, shard)
        )

    async def ask(
        self,
        topic: str | None,
        command: int,
        body: bytes,
        *,
        repeatable: bool = False,
        timeout_s: float | None = None,
    ) -> bytes:
        """Send a request and wait for the reply."""
        if topic is None or not self._owners:
            return await self.first.ask(command, body, repeatable=repeatable, timeout_s=timeout_s)
        future, on_reply = awaited(self.first.loop)
        self.send(topic, command, body, on_reply, repeatable=repeatable, timeout_s=timeout_s)
        return await future

    def _park(self, request: Request) -> None:
        """Keep a request until its shard has an owner."""
        assert request.shard is not None
        parked = self._parked.setdefault(request.shard, [])
        parked.append(request)
        parked.sort(key=lambda each: each.order)
        if self._timer is None:
            self._timer = self.first.loop.call_later(_SWEEP_S, self._sweep)

    def _misplaced(self, link: Link, request: Request, error: NotOwner) -> None:
        """A process has not done something, for it has not the shard."""
        shard = request.shard
        assert shard is not None
        for each in (request, *link.take_away(shard)):
            self._park(each)
        is_own = error.shard == shard  # it may be about another topic that the request names
        address = _with_host(error.address, link)
        is_news = is_own and bool(address) and self._learn(shard, error.epoch, address)
        if self.link_of(shard) is link:  # it has just left, and nobody says yet where it is
            self.first.loop.call_later(_ASK_AGAIN_S, self._go_on, shard)
        else:
            self._go_on(shard)
        if is_news:
            self._tell()

    def _takes(self, link: Link, request: Request) -> bool:
        """Whether a request that a thread had at a link is for another one by now; then it goes there."""
        if request.shard is None or self.link_of(request.shard) is link:
            return False
        self._park(request)
        self._go_on(request.shard)
        return True

    def _go_on(self, shard: int) -> None:
        """Send what is parked for a shard, in its order, if somebody has it."""
        link = self.link_of(shard)
        if link is not None:
            for request in self._parked.pop(shard, ()):
                request.sent_s = None
                link.put(request)

    def _sweep(self) -> None:
        """Fail what was parked for too long."""
        now_s = self.first.loop.time()
        self._timer = None
        for shard, parked in list(self._parked.items()):
            late = [request for request in parked if request.deadline_s <= now_s]
            parked[:] = [request for request in parked if request.deadline_s > now_s]
            if not parked:
                del self._parked[shard]
            for request in late:
                told = f"nobody had shard {shard} in time: {request.name} was not done"
                request.on_reply(None, ConnectionLost(told))
        if self._parked:
            self._timer = self.first.loop.call_later(_SWEEP_S, self._sweep)

    # The map.

    def _attach(self, link: Link) -> None:
        link.on_map = partial(self._update, link)
        link.on_misplaced = partial(self._misplaced, link)
        link.on_adopted = partial(self._takes, link)
        link.is_one_of_several = self.first.route.has_several

    def _link_to(self, address: str) -> Link:
        link = self._links.get(address)
        if link is None:
            link = self._links[address] = self._new_link(address, self._generations)
            link.limits, link.backoff_max_s = self.first.limits, _BACKOFF_MAX_S
            self._attach(link)
            link.open_soon()
        return link

    def _update(self, link: Link, cluster_map: ClusterMap | None) -> None:
        """A process says where the shards are; None: it has all of them."""
        if cluster_map is None:
            if link is self.first and self._owners:
                self._forget_map()
            return
        if len(cluster_map.shards) != len(self._owners):
            self._owners = [(-1, "")] * len(cluster_map.shards)
        changed = [
            shard
            for shard, place in enumerate(cluster_map.shards)
            if self._learn(shard, place.epoch, _with_host(cluster_map.address_of(shard) or "", link))
        ]
        for shard in changed:
            self._move(shard)
        self._note_members({_with_host(address, link) for address in cluster_map.addresses.values()}, cluster_map)
        if changed:
            self._tell()

    def _note_members(self, addresses: set[str], cluster_map: ClusterMap) -> None:
        """Note where any member can be asked, and connect no more to those that are gone."""
        told = [address for address in cluster_map.addresses.values() if not address.startswith(":")]
        if self.first.route.addresses is not None:
            self.first.route.addresses.learn(told)  # those without a host are ports that come and go with a process
        for link in (self.first, *self._links.values()):
            link.is_one_of_several = self.first.route.has_several
        used = addresses.union(address for _, address in self._owners)
        for address, link in list(self._links.items()):
            if address not in used and not link.connected:
                del self._links[address]
                link.drop(ConnectionLost(f"{address} is gone: it is not known what was done of this"))

    def _forget_map(self) -> None:
        """One process serves everything now: all that was not answered goes there."""
        shards, self._owners = range(len(self._owners)), []
        links, self._links = self._links, {}
        for shard in shards:
            for link in links.values():
                for request in link.take_away(shard):
                    self._park(request)
            self._go_on(shard)
        for link in links.values():
            link.drop(ConnectionLost("another process has everything now: it is not known what was done of this"))
        self._tell()

    def _learn(self, shard: int, epoch: int, address: str) -> bool:
        """Note who has a shard, if that is news; whether it was."""
        if shard >= len(self._owners):
            return False
        known_epoch, known = self._owners[shard]
        if epoch < known_epoch or (epoch, address) == (known_epoch, known):
            return False
        self._owners[shard] = (epoch, address)
        return address != known

    def _move(self, shard: int) -> None:
        """A shard has another owner, or none: what was not answered goes there, or waits."""
        current = self.link_of(shard)
        for link in self._links.values():
            if link is not current:
                for request in link.take_away(shard):
                    self._park(request)
        self._go_on(shard)

    def _tell(self) -> None:
        self._changed.set()
        for moved in list(self.on_moved):
            moved()


def _with_host(address: str, link: Link) -> str:
    """An address that came by a link: where it has no host, it is that of the link."""
    if not address.startswith(":"):
        return address
    host = link.route.host
    return f"[{host}]{address}" if ":" in host else f"{host}{address}"


async def _first_of(*waiting: Coroutine[Any, Any, None]) -> None:
    """Wait for one of them; raises what that raises."""
    tasks = [asyncio.get_running_loop().create_task(one) for one in waiting]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
