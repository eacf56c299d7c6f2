"""Messages on their way to one consumer: fetched when there is room for them, packed as columns, sent."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING

from penstock.cluster.consuming import AnyConsuming, AnyWaiter
from penstock.delivery.offsets import Offsets
from penstock.delivery.outcomes import Pick
from penstock.model.errors import InvalidArgument, Overloaded, PenstockError, Unauthenticated
from penstock.model.options import duration, optional, whole
from penstock.protocol.consuming import Delivery, Receive, Rows, encode, rows_of
from penstock.protocol.failures import failure_of
from penstock.protocol.frames import REPLY, Command, frame
from penstock.server.native.pages import fitting
from penstock.shard.dispatch.waiting import Fetched
from penstock.shard.operations.leased_messages import Leased, LeasedMessage, hold_unseen

if TYPE_CHECKING:
    from penstock.delivery.leases import Lease
    from penstock.journal import Commit
    from penstock.server.native.connection import Connection
    from penstock.server.native.listener import NativeListener
    from penstock.shard.dispatch.topic_dispatcher import TopicDispatcher

_log = logging.getLogger("penstock.server")
_REPLY_BYTES = 8 << 20
_PUSH_BYTES = 1 << 20
_PUSH_MESSAGES = 1000
_WAITING_MAX = 10_000  # requests of one connection
_RECEIVED = Command.RECEIVE | REPLY
_EMPTY = encode(Delivery([]))
_parse_messages, _parse_wait, _parse_visibility = whole(1, 1_000_000), duration(), optional(duration(0.001))


class _Packed:
    """Messages ready to be sent, once what they wait for is committed."""

    __slots__ = ("commit", "leased", "rows")

    def __init__(self) -> None:
        self.rows: list[Rows] = []
        self.leased = Leased()
        self.commit: Commit | None = None


Then = Callable[[_Packed, BaseException | None], None]


class _Receiving:
    """A consumer's request that waits for its first message."""

    __slots__ = ("timer", "waiter")

    def __init__(self, waiter: AnyWaiter[LeasedMessage], timer: asyncio.TimerHandle) -> None:
        self.waiter = waiter
        self.timer = timer


class Deliverer:
    """One consumer of a connection."""

    def __init__(
        self,
        listener: NativeListener,
        connection: Connection,
        number: int,
        consuming: AnyConsuming[LeasedMessage],
        autoack: bool,
    ) -> None:
        self._listener = listener
        self._loop, self._thread = listener.loop, get_ident()
        self._connection = connection
        self._number = number
        self.consuming = consuming
        self._autoack = autoack
        self._window = 0  # how many messages may be on the way to a client that is pushed to
        self._untaken = 0  # pushed, and waiting at the client for somebody to take them
        self._pushing: AnyWaiter[LeasedMessage] | None = None  # waits for something to push
        self._packing = False  # whether something to push is being read
        self._receiving: dict[int, _Receiving] = {}  # by correlation
        self._stalled: dict[int, Receive] = {}  # wait until the client takes its replies; by correlation
        self._message_bytes = 256.0  # how long messages have been lately

    # When the client asks.

    def receive(self, correlation: int, request: Receive) -> None:
        """Reply with messages: at once, or when there are some, or with none when the time is over."""
        wanted = self._affordable(_parse_messages(request.max_messages), _REPLY_BYTES)
        wait_s, visibility_s = _parse_wait(request.wait_s), _parse_visibility(request.visibility_s)
        if correlation in self._receiving or correlation in self._stalled:
            raise InvalidArgument(f"a RECEIVE with the correlation {correlation} waits already: give each its own")
        if self._connection.is_busy:
            self._stalled[correlation] = request
            return
        found = self.consuming.fetch_now(wanted, visibility_s)
        if not found and wait_s > 0:
            if self._connection.waiting >= _WAITING_MAX:
                raise Overloaded(f"{_WAITING_MAX:,} requests of this connection wait for messages already")
            waiter = self.consuming.waiter(wanted, visibility_s, partial(self._wake, self._received, correlation))
            came = waiter.take(waits=True)
            if came is None:
                timer = self._loop.call_later(min(wait_s, 1e6), self._time_over, correlation)
                self._receiving[correlation] = _Receiving(waiter, timer)
                self._connection.waiting += 1
                self._connection.end()  # it waits, which is no work
                return
            found = came
        self._reply_with(found, correlation)

    def cancel(self, correlation: int) -> None:
        """The client does not want the reply to a RECEIVE any more, and what it would have got goes to others."""
        if correlation in self._receiving:
            self._end_waiting(correlation).give_up()
        elif self._stalled.pop(correlation, None) is None:
            return
        self._connection.reply(Command.RECEIVE, correlation, _EMPTY)

    def _wake(self, woken: Callable[..., None], *arguments: int) -> None:
        call_soon = self._loop.call_soon if get_ident() == self._thread else self._loop.call_soon_threadsafe
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
            call_soon(woken, *arguments)

    def _received(self, correlation: int) -> None:
        """A request that waits was woken."""
        receiving = self._receiving.get(correlation)
        if receiving is None:
            return
        if not self._connection.is_busy:
            self._take(correlation, waits=True)
            self._connection.flush()  # somebody waits for it
            return
        waiter = self._end_waiting(correlation)
        waiter.give_up()
        left_s = max(0.0, receiving.timer.when() - self._loop.time())
        self._stalled[correlation] = Receive(self._number, waiter.max_messages, left_s, waiter.visibility_s)

    def _time_over(self, correlation: int) -> None:
        if self._connection.is_busy:
            self.cancel(correlation)
        else:
            self._take(correlation, waits=False)

    def _take(self, correlation: int, *, waits: bool) -> None:
        try:
            found = self._receiving[correlation].waiter.take(waits=waits)
        except PenstockError as error:
            self._end_waiting(correlation)
            self._connection.refuse(correlation, error)
            return
        if found is not None:
            self._end_waiting(correlation)
            self._reply_with(found, correlation)

    def _end_waiting(self, correlation: int) -> AnyWaiter[LeasedMessage]:
        receiving = self._receiving.pop(correlation)
        receiving.timer.cancel()
        self._connection.waiting -= 1
        self._connection.begin()
        return receiving.waiter

    def _reply_with(self, found: Fetched, correlation: int) -> None:
        if found:
            self._pack(found, _REPLY_BYTES, partial(self._reply, correlation))
        else:
            self._connection.reply(Command.RECEIVE, correlation, _EMPTY)

    def _reply(self, correlation: int, packed: _Packed, error: BaseException | None) -> None:
        if error is not None:
            self._connection.refuse(correlation, error)
            return
        reply = frame(_RECEIVED, correlation, encode(Delivery(packed.rows)))
        if packed.commit is None:
            self._connection.answer(reply)
        else:
            self._listener.commits.reply_after(packed.commit, self._connection, correlation, reply)

    def go_on(self) -> None:
        """The client takes more."""
        while self._stalled and not self._connection.is_busy:
            correlation = next(iter(self._stalled))
            try:
                self.receive(correlation, self._stalled.pop(correlation))
            except PenstockError as error:
                self._connection.refuse(correlation, error)
        self.push()

    # When they are pushed.

    def set_window(self, window: int) -> None:
        """Push while no more than so many messages are on the way."""
        self._window = window
        self.push()

    def push(self) -> None:
        """Send what there is room for; wait for more where there is nothing."""
        while (
            self._pushing is None and not self._packing and not self._connection.is_busy and not self.consuming.closed
        ):
            room = self._affordable(self._ahead() - self._untaken, _PUSH_BYTES)
            if room <= 0:
                return
            wake = partial(self._wake, self._pushable)
            self._push_from(self.consuming.waiter(min(room, _PUSH_MESSAGES), None, wake))

    def _push_from(self, waiter: AnyWaiter[LeasedMessage]) -> None:
        try:
            found = waiter.take(waits=True)
        except PenstockError as error:
            self._give_up_pushing(error)
            return
        if found is None:
            self._pushing = waiter
        elif found:
            self._push(found)

    def _pushable(self) -> None:
        waiter, self._pushing = self._pushing, None
        if waiter is None:
            return
        if not self._connection.writable:
            waiter.give_up()  # it is fetched again when the client listens
            return
        self._push_from(waiter)
        self.push()

    def _push(self, found: Fetched) -> None:
        self._packing = True
        for _, picks in found:
            for pick in picks:
                hold_unseen(pick.lease, Offsets(pick.offsets))
        self._pack(found, _PUSH_BYTES, self._send)

    def _send(self, packed: _Packed, error: BaseException | None) -> None:
        self._packing = False
        self._untaken += packed.leased.count
        if error is not None:
            self._give_up_pushing(error)
            return
        if packed.rows:
            data = frame(Command.DELIVER, self._number, encode(Delivery(packed.rows, self._ahead())))
            self._connection.begin()
            self._listener.commits.when_done(packed.commit, partial(self._go_out, packed.leased.count, data))
        self._loop.call_soon(self.push)

    def _go_out(self, count: int, data: bytes, error: PenstockError | None) -> None:
        """What a push waits for is committed, or its acks could not be: then nothing was pushed."""
        if error is None:
            self._connection.answer(data)
            return
        self._connection.end()
        self._untaken -= count
        self._give_up_pushing(error)

    def _ahead(self) -> int:
        """How many messages may be on the way: few while there are lanes, which must not be overtaken."""
        return min(self._window, 1) if self._autoack else self.consuming.ahead(self._window)

    def taken(self, leased: Leased) -> None:
        """The client handed out messages that were pushed: their time begins, and there is room for more."""
        taken = Leased()
        taken.count = len(leased.unknown)
        for topic, leases in leased.by_topic.items():
            taken.by_topic[topic] = [
                (lease, offsets & lease.unseen)
                for lease, offsets in leases
                if lease.consumer == self.consuming.name and lease.unseen is not None
            ]
            taken.count += sum(len(offsets) for _, offsets in taken.by_topic[topic])
        self._untaken = max(0, self._untaken - taken.count)
        self.consuming.take(taken)
        self.push()

    def _give_up_pushing(self, error: BaseException) -> None:
        """Nothing more can be pushed: a RECEIVE hears the reason, and so does whoever waits for a push."""
        self._window = 0
        _log.warning("a subscription ended: %s", error, extra={"consumer": self.consuming.name})
        self._connection.send(frame(Command.DELIVER, self._number, encode(Delivery([], 0, failure_of(error)))))

    # Both.

    def _affordable(self, wanted: int, limit_bytes: int) -> int:
        """How many messages to fetch so that they fit, as far as can be known."""
        return min(wanted, max(1, int(limit_bytes / self._message_bytes)))

    def _pack(self, found: Fetched, limit_bytes: int, then: Then) -> None:
        """Read what was leased, in a thread if that takes a while, and go on with it as columns.

        Whoever waited for it may not have it any more: all that is delivered passes here, and is given back then.
        """

        def go_on(packed: _Packed) -> None:
            if self.consuming.closed:  # it gave back what it held
                then(_Packed(), None)
                return
            try:
                self._listener.access.check(self._connection.principal, now=True)
                self._ack_packed(packed)
            except PenstockError as error:
                stop(error)
                if isinstance(error, Unauthenticated):
                    self._connection.close(error)
                return
            then(packed, None)

        def stop(error: BaseException) -> None:
            self.consuming.give_back(found)
            then(_Packed(), error)

        if self.consuming.must_read_segments(found):
            self._connection.in_thread(partial(self._read, found, limit_bytes), go_on, stop)
            return
        try:
            packed = self._read(found, limit_bytes)
        except PenstockError as error:
            stop(error)
        else:
            go_on(packed)

    def _read(self, found: Fetched, limit_bytes: int) -> _Packed:
        """The columns; what does not fit is given back."""
        packed = _Packed()
        left = limit_bytes
        too_many: Fetched = []
        for delivery, picks in found:
            if left <= 0:
                too_many.append((delivery, picks))
            else:
                left = self._read_topic(delivery, picks, left, packed, too_many)
        if packed.leased.count:
            self._message_bytes += 0.5 * ((limit_bytes - left) / packed.leased.count - self._message_bytes)
        if too_many:
            self.consuming.give_back(too_many)
        return packed

    def _read_topic(
        self, delivery: TopicDispatcher, picks: list[Pick], left: int, packed: _Packed, too_many: Fetched
    ) -> int:
        """Pack what was leased of one topic, as far as it fits; how many bytes are left after it."""
        kept: list[tuple[Lease, Offsets]] = []
        rest: list[Pick] = []
        for pick in picks:
            lease = pick.lease
            for found in self.consuming.rows_to_send(delivery, lease, pick.offsets, left):
                offsets, timestamps_us, batch = found
                count = max(fitting(found, left), 0 if packed.rows else 1)
                if count < len(offsets):
                    rest.append(Pick(lease, pick.lane, Offsets(offsets[count:])))
                    left = 0
                    if not count:
                        continue
                    batch, offsets = batch.slice(0, count), offsets[:count]
                rows = rows_of(delivery.topic.name, lease.partition, offsets, timestamps_us[:count], batch)
                rows.lease, rows.visibility_s = lease.id, lease.visibility_s
                if lease.again:
                    rows.again = {offset: lease.again[offset] for offset in offsets if offset in lease.again}
                packed.rows.append(rows)
                packed.leased.count += len(offsets)
                left -= len(rows.payload)
                if self._autoack:
                    kept.append((lease, Offsets(offsets)))
        if kept:
            packed.leased.by_topic[delivery.topic.name] = kept
        if rest:
            too_many.append((delivery, rest))
        return left

    def _ack_packed(self, packed: _Packed) -> None:
        if self._autoack and packed.rows:
            packed.commit, lost = self.consuming.ack(packed.leased)
            if lost is not None:
                raise lost

    def close(self) -> Commit | None:
        """Give back what is held, and leave the group."""
        for correlation in (*self._receiving, *self._stalled):
            self.cancel(correlation)
        waiter, self._pushing = self._pushing, None
        if waiter is not None:
            waiter.give_up()
        return self.consuming.close()
