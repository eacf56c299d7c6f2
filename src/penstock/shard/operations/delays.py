"""Delayed messages: find them, cancel them, give them another time."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from penstock.model.errors import InvalidArgument, MessageNotFound
from penstock.model.events import Event, EventKind
from penstock.model.message import MessageId, StoredMessage
from penstock.model.options import check_limit
from penstock.model.schedules import DelayedMessage, check_open_topic
from penstock.model.units import Duration, Time, due_time_us, to_datetime
from penstock.segments.window import Window
from penstock.shard.flow import check_flow
from penstock.shard.interrupts import uninterrupted
from penstock.shard.reading.log_reader import LogReader

if TYPE_CHECKING:
    from penstock.delivery.index import PartitionIndex
    from penstock.shard.dispatch.topic_dispatcher import TopicDispatcher
    from penstock.shard.shard import Shard

_AT_ONCE = 10_000
_Place = tuple[int, int, int]  # when it falls due, its partition and its offset
_BEFORE_ALL: _Place = (-1, -1, -1)


@uninterrupted
def delayed(shard: Shard, topic: str, *, limit: int | None = None) -> list[DelayedMessage]:
    """What is not due yet, the next to fall due first."""
    return list(list_delayed(shard, topic, check_limit(limit)))


def list_delayed(shard: Shard, topic_name: str, limit: int | None = None, skip: int = 0) -> Iterator[DelayedMessage]:
    """What is not due yet, the next to fall due first; publishers wait while some of it is found."""
    with shard.lock:
        name = shard.topic(topic_name).name
    delivery = shard.dispatcher.attach(name)
    with shard.lock:
        delivery.tick(shard.dispatcher.now())
    found: list[_Place] = []
    while limit is None or len(found) < skip + limit:
        at_once = _AT_ONCE if limit is None else min(_AT_ONCE, skip + limit - len(found))
        with shard.lock:
            some = list(itertools.islice(_behind(delivery, found[-1] if found else _BEFORE_ALL), at_once))
        if not some:
            break
        found += some
    return (DelayedMessage(MessageId(name, number, offset), due_us) for due_us, number, offset in found[skip:])


def _behind(delivery: TopicDispatcher, last: _Place) -> Iterator[_Place]:
    """What falls due behind a message of the list."""

    def places(number: int, index: PartitionIndex) -> Iterator[_Place]:
        return ((due_us, number, offset) for due_us, offset in index.delayed(max(0, last[0])))

    in_order = heapq.merge(*(places(number, index) for number, index in enumerate(delivery.indexes)))
    return (place for place in in_order if place > last)


def find_delayed(shard: Shard, identity: MessageId) -> DelayedMessage:
    """One message that is not due yet."""
    delivery, message = _find(shard, identity)
    with shard.lock:
        delivery.tick(shard.dispatcher.now())
        if not delivery.indexes[identity.partition].is_delayed(identity.offset):
            raise MessageNotFound(f"{identity} is not delayed (any more)")
        return DelayedMessage(identity, _due_us(delivery, message))


@uninterrupted
def cancel_delayed(shard: Shard, identity: MessageId | str) -> bool:
    """Withdraw a delayed message: True if and only if nobody ever gets it."""
    identity = MessageId.parse(str(identity))
    check_open_topic(identity.topic)
    delivery, message = _find(shard, identity)
    with shard.lock:
        due_us = _hold(shard, delivery, message)
        commit = shard.journal.latest_commit()  # if somebody else is cancelling it
        if due_us is not None:
            event = Event(EventKind.CANCELLED, shard.clock.wall_us(), identity.offset, 1, detail=str(due_us))
            commit = shard.log_events(delivery.topic, [(identity.partition, event)])
    if commit is not None:
        shard.journal.wait(commit)
    with shard.lock:
        state = delivery.topic.partitions[identity.partition].delivery_state()
        return message.deliver_at_us is not None and identity.offset in state.withdrawn


@uninterrupted
def reschedule_delayed(
    shard: Shard, identity: MessageId | str, *, delay: Duration | None = None, deliver_at: Time | None = None
) -> datetime | None:
    """Give a delayed message another time; that time, or None if it is not delayed (any more)."""
    identity = MessageId.parse(str(identity))
    check_open_topic(identity.topic)
    delivery, message = _find(shard, identity)
    now_us = shard.clock.wall_us()
    if delay is None and deliver_at is None:
        raise InvalidArgument("give delay or deliver_at: when the message is to fall due")
    new_us = max(due_time_us(delay, deliver_at, now_us), now_us)
    with shard.lock:
        check_flow(delivery.topic, 0, new_us, now_us)
        due_us = _hold(shard, delivery, message)
        if due_us is None:
            return None
        event = Event(EventKind.RESCHEDULED, now_us, identity.offset, 1, detail=str(due_us), due_us=new_us)
        commit = shard.log_events(delivery.topic, [(identity.partition, event)])
    shard.journal.wait(commit)
    return to_datetime(new_us)


def _find(shard: Shard, identity: MessageId) -> tuple[TopicDispatcher, StoredMessage]:
    with shard.lock:
        topic = shard.topic(identity.topic)
        if identity.partition >= len(topic.partitions):
            raise MessageNotFound(f"there is no message {identity}: the topic has {len(topic.partitions)} partitions")
        log = topic.partitions[identity.partition].messages
    window = Window(identity.offset, identity.offset + 1)
    message = next(LogReader(shard, log).messages(window), None)
    if message is None:
        raise MessageNotFound(f"there is no message {identity}, or not any more")
    return shard.dispatcher.attach(identity.topic), message


def _hold(shard: Shard, delivery: TopicDispatcher, message: StoredMessage) -> int | None:
    """Keep the message from falling due; when it would have, or None if it is not delayed."""
    shard.journal.check_writable(0)
    delivery.tick(shard.dispatcher.now())
    if not delivery.indexes[message.partition].hold(message.offset):
        return None
    return _due_us(delivery, message)


def _due_us(delivery: TopicDispatcher, message: StoredMessage) -> int:
    moved = delivery.topic.partitions[message.partition].delivery_state().moved
    return moved.get(message.offset, message.deliver_at_us or 0)
