"""One broker among others on a bucket: says that it lives, looks at the others, and has the shards that it claims.

All of it runs on the event loop, so that a loop that hangs is a broker that says nothing; requests to the bucket, and
shards that are opened and closed, are in threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import deque
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, NamedTuple

from penstock.cluster.bucket_place import BucketPlace, boottime_s
from penstock.cluster.claiming import Claim, Claiming, Give
from penstock.cluster.members import BEAT_S, LOOK_S, TENURE_S, Heartbeat, Members
from penstock.journal.bucket_storage import BucketStorage
from penstock.journal.chain import Fenced
from penstock.model.errors import NotOwner, PenstockError
from penstock.model.processes import Move
from penstock.server.membership import Membership
from penstock.server.metrics.member import FAILED, TAKEN, TOO_LATE, MemberMeter
from penstock.server.metrics.process import cpu_seconds, resident_bytes
from penstock.server.peer_places import ManyMachines
from penstock.server.server import Server
from penstock.shard.shard import Shard

_log = logging.getLogger("penstock.server")
DRAIN_S = 0.5
_MOVES_KEPT = 10
_GIVEN_KEPT_S = 60.0
_LEAVING_LOOK_S = 0.05


class _Moving(NamedTuple):
    """A shard that was handed over."""

    to: int
    epoch: int
    since_s: float


class _Identity(NamedTuple):
    """Of the member that a shard is handed over to."""

    incarnation: bytes
    address: str


class BrokerMember:
    """The member that this process is."""

    def __init__(self, server: Server, place: BucketPlace, members: Members, machines: ManyMachines) -> None:
        membership = server.membership
        assert membership is not None
        self._server, self._place, self.members, self._machines = server, place, members, machines
        self._membership: Membership = membership
        self.claiming = Claiming(place.shards, members, server.config.balance_after)
        self.tenure = place.registry.tenure
        self.number, self.address = members.number, ""
        self.is_draining = False
        self._is_leaving = False
        self._since = datetime.now(UTC)
        self._beats = 0
        self.balances = 0
        """How often somebody wished that shards be shared evenly, as far as it knows."""
        self._given: dict[int, _Moving] = {}
        self._moving: dict[int, _Moving] = {}  # those of them that nobody has yet
        self._moves: deque[Move] = deque(maxlen=_MOVES_KEPT)
        self._busy: dict[int, asyncio.Task[None]] = {}  # what is being done about shards
        self._claimed_s: dict[int, float] = {}  # shards that are being opened, and since when
        self._last_owned: dict[int, int] = {}
        self._proving: set[int] = set()
        self._loops: list[asyncio.Task[None]] = []
        self._beat_wanted = asyncio.Event()
        self.meter = server.services.metrics.member = MemberMeter(
            tenure_left_s=lambda: self.tenure.left_s, members=lambda: len(members.living)
        )
        self.complete = asyncio.Event()
        """Set once every shard has been seen to have an owner."""
        self._threads = {name: ThreadPoolExecutor(1, f"penstock-{name}") for name in ("beat", "look")}

    @property
    def shards(self) -> dict[int, Shard]:
        """Those that are open here."""
        return dict(self._server.broker.shards.items())

    def _storage(self, shard: int) -> BucketStorage:
        storage = self._server.broker.shards.place(shard)
        assert isinstance(storage, BucketStorage)
        return storage

    # From start to end.

    async def start(self, address: str) -> None:
        """Take part, reached at this address."""
        self.address = address
        self._place.root.advertise(address)
        self._server.broker.shards.address = address
        await self._say()
        loop = asyncio.get_running_loop()
        self._loops = [loop.create_task(self._beat()), loop.create_task(self._look())]

    async def leave(self, grace_s: float) -> None:
        """Give all shards to others, if there are any; after that nothing is claimed any more."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + grace_s
        self.is_draining = self._is_leaving = True
        await self._say()
        while (self.shards or self._busy) and loop.time() < until_s and self._has_heirs():
            self._act()
            await asyncio.sleep(_LEAVING_LOOK_S)
        if self._busy:
            await asyncio.wait(self._busy.values(), timeout=max(0.0, until_s - loop.time()))
        for shard in self.shards:
            if not self.tenure.holds(shard):  # the bucket does not answer: a last write could take for ever
                await self._lose(shard, NotOwner("the bucket does not answer, and this broker stops", shard))

    async def end(self) -> None:
        """Say that it has left, with all shards closed."""
        for task in self._loops:
            task.cancel()
        self._beats += 1
        last = self._heartbeat(left=True)
        with contextlib.suppress(OSError):
            await self._in_thread("beat", self._place.registry.send, last)
        self._place.patience.end()
        for thread in self._threads.values():
            thread.shutdown(wait=False)

    def _has_heirs(self) -> bool:
        return any(each.is_able for number, each in self.members.living.items() if number != self.number)

    async def _in_thread(self, name: str, function: Any, *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads[name], function, *arguments)

    # Saying that it lives.

    async def _beat(self) -> None:
        while True:
            self._beat_wanted.clear()
            await self._say()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._beat_wanted.wait(), BEAT_S)

    async def _say(self) -> None:
        """Say that it lives, as long as every shard can be worked with, and what it writes is answered."""
        await self._in_thread("beat", _lock_each, list(self.shards.values()))
        if any(shard.stalled_s() > TENURE_S for shard in self.shards.values()):
            return
        self._beats += 1
        heartbeat = self._heartbeat()
        self.members.own(heartbeat)
        try:
            is_heard = await self._in_thread("beat", self._place.registry.send, heartbeat)
        except OSError as error:
            _log.error("this broker cannot say that it lives: %s", error)
            return
        if is_heard:
            self._prove_lapsed()

    def _heartbeat(self, *, left: bool = False) -> Heartbeat:
        metrics = self._server.services.metrics
        return Heartbeat(
            number=self.number,
            incarnation=self._place.root.incarnation.hex(),
            beat=self._beats,
            address=self.address,
            shards=self._last_owned if left else self._owned(),
            given={shard: (moving.epoch, moving.to) for shard, moving in self._given.items()},
            draining=self.is_draining,
            steady=self.claiming.is_steady,
            left=left,
            balances=self.balances,
            pid=os.getpid(),
            since=self._since,
            resident_bytes=resident_bytes(),
            cpu_seconds=cpu_seconds(),
            connections=metrics.connections,
            moves=list(self._moves),
        )

    def _owned(self) -> dict[int, int]:
        """The shards that are this broker's, open or being opened, with their epochs."""
        for shard, since_s in list(self._claimed_s.items()):
            if self._storage(shard).is_owned:
                del self._claimed_s[shard]
                self.tenure.trust(shard, since_s)
        numbers = {*self.shards, *(shard for shard in self._busy if self._storage(shard).is_owned)}
        self._last_owned = {shard: self._storage(shard).epoch for shard in sorted(numbers - self._given.keys())}
        return self._last_owned

    def _prove_lapsed(self) -> None:
        """Make sure of shards that others may have claimed while this broker was not heard."""
        for shard, sent_s in self.tenure.lapsed.items():
            if shard in self.shards and shard not in self._busy and shard not in self._proving:
                self._proving.add(shard)
                asyncio.get_running_loop().create_task(self._prove(shard, sent_s))

    async def _prove(self, shard: int, sent_s: float) -> None:
        opened = self.shards.get(shard)
        try:
            if opened is not None:
                await asyncio.to_thread(opened.prove)
                self.tenure.trust(shard, sent_s)
                await asyncio.to_thread(opened.serve_all)
        except (PenstockError, OSError) as error:
            _log.warning("shard %d was not proven to be here still: %s", shard, error)
        finally:
            self._proving.discard(shard)

    # Looking at the others.

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            started_s, asked_s = loop.time(), boottime_s()
            try:
                found = await self._in_thread("look", self._place.registry.look, self.members.wanted)
            except OSError as error:
                _log.error("this broker cannot look at the others: %s", error)
                found = None
            if found is not None:
                self.members.looked(found, asked_s)
                try:
                    await self._heed()
                except Exception:  # noqa: BLE001 - the next look may go better; a loop that ends is a broker that hangs
                    _log.exception("what was seen of the others could not be heeded")
            await asyncio.sleep(max(0.0, LOOK_S - (loop.time() - started_s)))

    async def _heed(self) -> None:
        """Do what follows from what was seen."""
        self._heed_wishes()
        self._note_moved()
        for shard in self.claiming.lost():
            self._begin(shard, self._lose(shard, NotOwner("another broker has a later epoch of it", shard)))
        for shard, opened in self.shards.items():
            if opened.frozen is not None:
                self._begin(shard, self._let_go_frozen(shard, opened))
        self._act()
        self._show_map()
        if forgotten := self.members.forgettable(boottime_s()):
            with contextlib.suppress(OSError):
                await self._in_thread("look", self._place.registry.forget, forgotten)

    def _heed_wishes(self) -> None:
        newest = max((each.balances for each in self.members.living.values()), default=0)
        if newest > self.balances:
            self.balances = newest
            self.claiming.balance()
            self.is_draining = self._is_leaving

    def balance(self) -> None:
        """Have all members share the shards evenly."""
        self.balances += 1
        self.claiming.balance()
        self.is_draining = self._is_leaving
        self._beat_wanted.set()

    def drain(self) -> None:
        """Have all shards leave this member, until they are to be shared evenly."""
        self.is_draining = True
        self._beat_wanted.set()

    def _note_moved(self) -> None:
        """Shards that were handed over, and are open where they went to."""
        now_s = boottime_s()
        for shard, moving in list(self._moving.items()):
            taker = self.members.living.get(moving.to)
            if taker is not None and taker.shards.get(shard, 0) >= moving.epoch:
                del self._moving[shard]
                self._moves.append(
                    Move(
                        shard=shard,
                        origin=self.number,
                        target=moving.to,
                        at=datetime.now(UTC),
                        seconds=now_s - moving.since_s,
                    )
                )
        for shard, moving in list(self._given.items()):
            if now_s - moving.since_s > _GIVEN_KEPT_S or shard in self.shards:
                del self._given[shard]

    def _show_map(self) -> None:
        newest = self.claiming.map()
        if newest != self._membership.map:
            self._machines.addresses = dict(newest.addresses)
            self._membership.update(newest)
        if newest.is_complete:
            self.complete.set()

    # Shards that come and go.

    def _act(self) -> None:
        for action in self.claiming.decide(boottime_s()):
            if action.shard in self._busy:
                continue
            match action:
                case Claim(shard, dead_epoch):
                    if not self._is_leaving:
                        self._begin(shard, self._claim(shard, dead_epoch))
                case Give(shard, to):
                    self._begin(shard, self._give(shard, to))

    def _begin(self, shard: int, work: Coroutine[Any, Any, None]) -> None:
        if shard in self._busy:
            work.close()
            return
        task = self._busy[shard] = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(lambda _: self._busy.pop(shard, None))

    async def _claim(self, shard: int, dead_epoch: int) -> None:
        self._storage(shard).dead_epoch = dead_epoch
        since_s = self._claimed_s[shard] = boottime_s()
        try:
            opened = await self._server.take_shard(shard)
        except NotOwner as error:
            self.meter.claims[TOO_LATE] += 1
            self._heed_seal(error)
        except (PenstockError, OSError) as error:
            self.meter.claims[FAILED] += 1
            _log.error("shard %d cannot be opened: %s", shard, error)
            self.claiming.failed(shard, boottime_s())
        else:
            if shard in self._claimed_s:
                self.tenure.trust(shard, since_s)
            self.meter.claims[TAKEN] += 1
            self._given.pop(shard, None)
            _log.info("shard %d is here", shard, extra={"epoch": self._storage(shard).epoch})
            await asyncio.to_thread(opened.serve_all)
        finally:
            self._claimed_s.pop(shard, None)
            self._beat_wanted.set()

    async def _give(self, shard: int, to: int) -> None:
        target = self.members.living.get(to)
        if target is None or shard not in self.shards:
            return
        storage = self._storage(shard)
        try:
            await self._server.drain_shard(shard, DRAIN_S)
            since_s = boottime_s()
            await self._server.release_shard(shard, 0.0)
            await asyncio.to_thread(storage.hand_over, _Identity(bytes.fromhex(target.incarnation), target.address))
        except NotOwner as error:
            self._heed_seal(error)
        except (PenstockError, OSError) as error:
            _log.error("shard %d could not be handed over: %s", shard, error)
        else:
            self.meter.handed_over += 1
            moving = _Moving(to, storage.epoch + 1, since_s)
            self._given[shard] = self._moving[shard] = moving
            _log.info("shard %d goes to broker %d", shard, to)
        finally:
            self._show_map()
            self._beat_wanted.set()

    async def _let_go_frozen(self, shard: int, opened: Shard) -> None:
        """A shard that cannot be written any more, because another broker has it or the bucket refuses."""
        frozen = opened.frozen
        if isinstance(frozen, NotOwner):
            self._heed_seal(frozen)
            await self._lose(shard, frozen)
        else:
            _log.error("shard %d is let go: %s", shard, frozen)
            await self._lose(shard, NotOwner(str(frozen), shard))
            self.claiming.failed(shard, boottime_s())

    async def _lose(self, shard: int, error: NotOwner) -> None:
        _log.warning("shard %d is another broker's now: %s", shard, error)
        if shard in self.shards:
            self.meter.lost += 1
            await self._server.lose_shard(shard, error)
        self._beat_wanted.set()

    def _heed_seal(self, error: NotOwner) -> None:
        fenced = error.__cause__
        while fenced is not None and not isinstance(fenced, Fenced):
            fenced = fenced.__cause__
        if fenced is not None:
            self.claiming.heard(error.shard, fenced.seal.next_epoch, fenced.seal.incarnation.hex())


def _lock_each(shards: list[Shard]) -> None:
    for shard in shards:
        shard.lock_once()
