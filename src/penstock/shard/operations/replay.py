"""Replay: a window of a topic's past once more, for a fresh group or a function; the live groups never notice."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.delivery.offsets import Offsets, from_range
from penstock.model.bounds import shown
from penstock.model.errors import InvalidArgument
from penstock.model.message import StoredMessage
from penstock.model.names import check_group_name
from penstock.model.options import check_rate
from penstock.model.pace import Pace
from penstock.model.units import Time, parse_time_us
from penstock.segments.window import Window
from penstock.shard.interrupts import uninterrupted
from penstock.shard.reading.log_reader import LogReader

if TYPE_CHECKING:
    from penstock.shard.shard import Shard

Choice = Callable[[StoredMessage], bool]


def replay(
    shard: Shard,
    topic: str,
    to: str | Callable[[StoredMessage], object],
    *,
    from_time: Time | None = None,
    to_time: Time | None = None,
    from_offset: int | None = None,
    to_offset: int | None = None,
    partition: int | None = None,
    filter: Choice | None = None,
    rate: float | None = None,
) -> int:
    """A window of the past once more, into a fresh group or a function; how many messages."""
    window = _window(from_time, to_time, from_offset, to_offset)
    if isinstance(to, str):
        return replay_to_group(shard, topic, window, partition, to, filter, check_rate(rate))
    if not callable(to):
        raise InvalidArgument(f"{shown(to)} is not the name of a group and not a function")
    return replay_to_function(shard, topic, window, partition, to, filter, check_rate(rate))


def _window(from_time: Time | None, to_time: Time | None, from_offset: int | None, to_offset: int | None) -> Window:
    """The window that was asked for: times or offsets, the first inside and the second outside."""
    window = Window()
    if from_time is not None:
        window.from_us = parse_time_us(from_time)
    if to_time is not None:
        window.to_us = parse_time_us(to_time)
    for name, offset in (("from_offset", from_offset), ("to_offset", to_offset)):
        if offset is not None and (not isinstance(offset, int) or isinstance(offset, bool) or offset < 0):
            raise InvalidArgument(f"{name}: {shown(offset)} is not an offset: they are whole numbers from 0")
    if from_offset is not None:
        window.start = from_offset
    if to_offset is not None:
        window.end = to_offset
    if window.from_us > window.to_us or window.start > window.end:
        raise InvalidArgument("the window of the replay ends before it begins")
    return window


def replay_to_function(
    shard: Shard,
    topic_name: str,
    window: Window,
    partition: int | None,
    function: Callable[[StoredMessage], object],
    chosen: Choice | None,
    rate: float | None,
) -> int:
    """Call the function with every message of the window, acked, dead and archived ones too; how many."""
    count = 0
    pace, clock = Pace(rate), shard.clock
    for number, reader in _readers(shard, topic_name, partition):
        withdrawn = _withdrawn(shard, topic_name, number)
        for message in reader.messages(window):
            if message.offset in withdrawn or (chosen is not None and not chosen(message)):
                continue
            if rate is not None:
                if ahead_s := pace.ahead_s(clock.monotonic_s()):
                    clock.sleep_s(ahead_s)
                pace.went(1, clock.monotonic_s())
            function(message)
            count += 1
    return count


@uninterrupted
def replay_to_group(
    shard: Shard,
    topic_name: str,
    window: Window,
    partition: int | None,
    group: str,
    chosen: Choice | None,
    rate: float | None,
) -> int:
    """Make a fresh group that gets just the messages of the window; how many these are."""
    check_group_name(group)
    windows: list[tuple[int, int]] = []
    left_out: list[Offsets] = []
    count = 0
    _readers(shard, topic_name, partition)  # the one that was asked for must be there
    for number, reader in _readers(shard, topic_name, None):
        found = Offsets()
        if partition is None or number == partition:
            found = _find(reader, window, chosen) - _withdrawn(shard, topic_name, number)
        start, end = (found.min(), found.max() + 1) if found else (0, 0)
        windows.append((start, end))
        left_out.append(from_range(start, end) - found)
        count += len(found)
    shard.dispatcher.create_replay(topic_name, group, windows, left_out, rate)
    return count


def _withdrawn(shard: Shard, topic_name: str, number: int) -> Offsets:
    """What was cancelled, purged or redriven: it is not to be delivered to anybody."""
    with shard.lock:
        return Offsets(shard.topic(topic_name).partitions[number].delivery_state().withdrawn)


def _find(reader: LogReader, window: Window, chosen: Choice | None) -> Offsets:
    if chosen is not None:
        return Offsets(message.offset for message in reader.messages(window) if chosen(message))
    if window.timed:
        found = Offsets()
        for rows in reader.rows(window):
            found.update(rows.offsets)
        return found
    return reader.held(window)


def _readers(shard: Shard, topic_name: str, partition: int | None) -> list[tuple[int, LogReader]]:
    with shard.lock:
        topic = shard.topic(topic_name)
        count = len(topic.partitions)
        if partition is not None and not (isinstance(partition, int) and 0 <= partition < count):
            raise InvalidArgument(f"{topic_name} has no partition {shown(partition)}: it has 0 to {count - 1}")
        chosen = range(count) if partition is None else [partition]
        return [
            (number, LogReader(shard, topic.partitions[number].messages, include_deleted=True)) for number in chosen
        ]
