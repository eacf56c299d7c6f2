"""The consumers of one connection: they receive on request or by push, and are closed with the connection."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from penstock.api.operations import OPERATIONS
from penstock.cluster.consuming import AnyConsuming, consume
from penstock.cluster.slices import in_several, spread_of
from penstock.delivery.offsets import Offsets, from_range
from penstock.model.errors import ConsumerNotFound, InvalidArgument, Overloaded
from penstock.protocol.consuming import (
    FINISHED_MAX,
    Finish,
    Held,
    Subscribe,
    Subscribed,
    decode_cancel,
    decode_consumer,
    decode_finish,
    decode_push,
    decode_receive,
    decode_subscribe,
    encode,
    is_run,
    ranges_of,
)
from penstock.protocol.failures import encode_failure
from penstock.protocol.frames import ERROR, REPLY, Command, frame
from penstock.server.access.principal import Principal
from penstock.server.native.delivering import Deliverer
from penstock.shard.operations.leased_messages import Leased, LeasedMessage

if TYPE_CHECKING:
    from penstock.journal import Commit
    from penstock.model.errors import LeaseLost
    from penstock.server.native.connection import Connection, Handler
    from penstock.server.native.listener import NativeListener

_CONSUMERS_MAX = 10_000
_CONSUMING = OPERATIONS["consumer"].scope
_DONE = encode(())

Outcome = tuple["Commit | None", "LeaseLost | None"]


class Consumers:
    """Handles all requests about consuming."""

    def __init__(self, listener: NativeListener, connection: Connection) -> None:
        self._listener = listener
        self._connection = connection
        self._shards = listener.broker.shards
        self._deliverers: dict[int, Deliverer] = {}
        self._numbers = itertools.count(1)
        self._joining = 0

    def handlers(self) -> dict[int, Handler]:
        return {
            Command.SUBSCRIBE: self._subscribe,
            Command.UNSUBSCRIBE: self._unsubscribe,
            Command.RECEIVE: self._receive,
            Command.CANCEL: self._cancel,
            Command.PUSH: self._push,
            Command.TAKEN: self._taken,
            Command.ACK: self._ack,
            Command.EXTEND: self._extend,
            Command.RELEASE: self._release,
            Command.FAIL: self._fail,
            Command.KILL: self._kill,
            Command.HEARTBEAT: self._heartbeat,
        }

    def push_all(self) -> None:
        """The connection is writable again: continue the consumers that waited for it."""
        for deliverer in list(self._deliverers.values()):
            deliverer.go_on()

    def close(self) -> None:
        """The connection is closed: release the messages that its consumers hold."""
        for deliverer in self._deliverers.values():
            deliverer.close()
        self._deliverers.clear()

    # Coming and going.

    def _subscribe(self, correlation: int, body: memoryview | bytes) -> None:
        principal = self._connection.principal
        principal.require(_CONSUMING)
        request = decode_subscribe(body)
        if len(self._deliverers) + self._joining >= _CONSUMERS_MAX:
            raise Overloaded(f"a connection has at most {_CONSUMERS_MAX} consumers")
        self._listener.workers.in_thread(
            partial(self._join, principal, request),
            partial(self._joined, correlation, request),
            partial(self._not_joined, correlation),
        )
        self._joining += 1

    def _join(self, principal: Principal, request: Subscribe) -> AnyConsuming[LeasedMessage]:
        for topic in request.topics:
            principal.require(_CONSUMING, topic)
            spread = spread_of(self._shards, topic) if self._listener.services.membership is not None else None
            if spread is not None:  # its slices may move to other processes
                raise in_several(topic, spread)
        return consume(
            self._shards,
            LeasedMessage,
            request.topics,
            request.group,
            mode=request.mode,
            max_in_flight=request.max_in_flight,
            visibility_timeout=request.visibility_timeout,
            session_timeout=request.session_timeout,
            start=request.start,
            name=request.name,
        )

    def _joined(self, correlation: int, request: Subscribe, consuming: AnyConsuming[LeasedMessage]) -> None:
        self._joining -= 1
        if self._connection.closed:
            consuming.close()
            return
        number = next(self._numbers)
        deliverer = Deliverer(self._listener, self._connection, number, consuming, request.autoack)
        self._deliverers[number] = deliverer
        self._connection.reply(Command.SUBSCRIBE, correlation, encode(Subscribed(number, consuming.name)))

    def _not_joined(self, correlation: int, error: BaseException) -> None:
        self._joining -= 1
        self._connection.refuse(correlation, error)

    def _unsubscribe(self, correlation: int, body: memoryview | bytes) -> None:
        number = decode_consumer(body).consumer
        commit = self._find(number).close()
        del self._deliverers[number]
        self._reply_after(Command.UNSUBSCRIBE, correlation, (commit, None))

    def _heartbeat(self, correlation: int, body: memoryview | bytes) -> None:
        self._find(decode_consumer(body).consumer).consuming.heartbeat()
        self._connection.reply(Command.HEARTBEAT, correlation, _DONE)

    # Receiving.

    def _receive(self, correlation: int, body: memoryview | bytes) -> None:
        request = decode_receive(body)
        self._find(request.consumer).receive(correlation, request)

    def _cancel(self, _: int, body: memoryview | bytes) -> None:
        request = decode_cancel(body)
        self._connection.end()
        deliverer = self._deliverers.get(request.consumer)
        if deliverer is not None:
            deliverer.cancel(request.correlation)

    def _push(self, correlation: int, body: memoryview | bytes) -> None:
        request = decode_push(body)
        if not 0 <= request.window <= 1_000_000:
            raise InvalidArgument(f"{request.window} is not a window: give 0 to 1,000,000 messages")
        deliverer = self._find(request.consumer)
        self._connection.reply(Command.PUSH, correlation, _DONE)
        deliverer.set_window(request.window)

    def _taken(self, _: int, body: memoryview | bytes) -> None:
        request = decode_finish(body)
        deliverer = self._deliverers.get(request.consumer)
        if deliverer is not None:
            deliverer.taken(self._leased(deliverer, request))
        self._connection.end()

    # What becomes of messages.

    def _ack(self, correlation: int, body: memoryview | bytes) -> None:
        request = decode_finish(body)
        deliverer = self._find(request.consumer)
        if (commit := _ack_run(deliverer.consuming, request.held)) is not None:
            self._reply_after(Command.ACK, correlation, (commit, None))
            return
        leased = self._leased(deliverer, request)
        self._reply_after(Command.ACK, correlation, deliverer.consuming.ack(leased))

    def _extend(self, correlation: int, body: memoryview | bytes) -> None:
        request, consuming, leased = self._named(body)
        if request.seconds is None:
            raise InvalidArgument("say for how many seconds to extend")
        _, lost = consuming.extend(leased, request.seconds)
        self._reply_after(Command.EXTEND, correlation, (None, lost))

    def _release(self, correlation: int, body: memoryview | bytes) -> None:
        _, consuming, leased = self._named(body)
        self._reply_after(Command.RELEASE, correlation, consuming.release(leased))

    def _fail(self, correlation: int, body: memoryview | bytes) -> None:
        request, consuming, leased = self._named(body)
        act = partial(consuming.fail, leased, request.reason, request.seconds)
        self._finish_in_thread(Command.FAIL, correlation, act)

    def _kill(self, correlation: int, body: memoryview | bytes) -> None:
        request, consuming, leased = self._named(body)
        self._finish_in_thread(Command.KILL, correlation, partial(consuming.kill, leased, request.reason))

    def _finish_in_thread(self, command: Command, correlation: int, act: Callable[[], Outcome]) -> None:
        """Run in a thread what may have to copy messages to the dead letters."""
        self._connection.in_thread(
            act, partial(self._reply_after, command, correlation), partial(self._connection.refuse, correlation)
        )

    def _reply_after(self, command: Command, correlation: int, outcome: Outcome) -> None:
        commit, lost = outcome
        reply = (
            frame(command | REPLY, correlation, _DONE)
            if lost is None
            else frame(ERROR, correlation, encode_failure(lost))
        )
        self._listener.commits.reply_after(commit, self._connection, correlation, reply)

    def _named(self, body: memoryview | bytes) -> tuple[Finish, AnyConsuming[LeasedMessage], Leased]:
        """A request about messages that a consumer holds, with both."""
        request = decode_finish(body)
        deliverer = self._find(request.consumer)
        return request, deliverer.consuming, self._leased(deliverer, request)

    def _leased(self, deliverer: Deliverer, request: Finish) -> Leased:
        named: list[tuple[str, int, int, Offsets]] = []
        count = 0
        if sum(len(held.runs) for held in request.held) > 2 * FINISHED_MAX:
            raise InvalidArgument(f"one request finishes at most {FINISHED_MAX:,} messages")
        for held in request.held:
            try:
                ranges = list(ranges_of(held.runs))
            except ValueError as error:
                raise InvalidArgument(str(error)) from error
            count += sum(map(len, ranges))
            if count > FINISHED_MAX:
                raise InvalidArgument(f"one request finishes at most {FINISHED_MAX:,} messages")
            offsets = from_range(ranges[0].start, ranges[0].stop) if ranges else Offsets()
            for others in ranges[1:]:
                offsets.add_range(others.start, others.stop)
            named.append((held.topic, held.partition, held.lease, offsets))
        return deliverer.consuming.find_leased(named)

    def _find(self, number: int) -> Deliverer:
        deliverer = self._deliverers.get(number)
        if deliverer is None:
            raise ConsumerNotFound(f"this connection has no consumer {number}: subscribe first")
        return deliverer


def _ack_run(consuming: AnyConsuming[LeasedMessage], held: list[Held]) -> Commit | None:
    """Ack what a request names if that is all that one lease holds, or one message of it, as most often it is."""
    if len(held) != 1 or len(held[0].runs) != 2:
        return None
    named = held[0]
    first, count = named.runs
    if count > FINISHED_MAX or not is_run(first, count):
        return None
    return consuming.ack_held(named.topic, named.partition, named.lease, first, count)
