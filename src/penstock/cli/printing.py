"""Messages on standard output: from the log, or received for a group and acked when they were printed."""

from __future__ import annotations

import array
import fcntl
import io
import os
import select
import stat
import sys
import termios
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock.cli.errors import CommandError, warn
from penstock.cli.interrupts import Interrupts
from penstock.cli.output import TABLE_HEADING, StreamFormat, counted, encode, encode_visibly
from penstock.cli.terminal import is_terminal
from penstock.cli.topic import find_topic
from penstock.delivery.offsets import offsets_of
from penstock.model.errors import LeaseLost
from penstock.model.events import EventKind

if TYPE_CHECKING:
    from penstock import Consumer, Delivery, StoredMessage
    from penstock.api.operations import BrokerOperations

_AT_ONCE = 100
_IN_FLIGHT_MAX = 1_000_000
_LOOK_S = 3600.0
_HOLD_EVERY_S = 5.0
_HOLD_S = 30.0
_POLL_S = 0.2
_LOOKS = 50
_PAUSE_S = 0.000_02
_PAUSE_MAX_S = 0.02


class Past(NamedTuple):
    """Which part of the log."""

    partition: int | None
    from_offset: int | None
    from_time: float | str | None
    to_time: float | str | None
    include_deleted: bool

    @property
    def is_window(self) -> bool:
        """Whether it is less, or more, than what is there."""
        return self.include_deleted or any(bound is not None for bound in self[1:4])


class Lines:
    """Writes bytes to standard output. A pipe has a reader who may leave: it tells what that reader took."""

    def __init__(self) -> None:
        if sys.stdout is None:
            raise CommandError("there is no standard output", "let it go to a file or to a pipe")
        sys.stdout.flush()
        self._stream = sys.stdout.buffer
        self._pipe: int | None = None
        try:
            descriptor = self._stream.fileno()
        except io.UnsupportedOperation:
            return
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            self._pipe = descriptor
            self._poll = select.poll()
            self._poll.register(descriptor, 0)  # errors are told anyway: the reader has gone

    @property
    def has_reader(self) -> bool:
        """Whether somebody reads it from a pipe."""
        return self._pipe is not None

    def write(self, data: bytes) -> None:
        """Write it, perhaps only as far as a buffer."""
        self._stream.write(data)

    def flush(self) -> None:
        """Hand over what was written."""
        self._stream.flush()

    def wait_taken(self, idle: Callable[[], None]) -> None:
        """Return when the reader has everything, calling `idle` meanwhile; BrokenPipeError if it left before."""
        self.flush()
        looks = 0
        while self._pipe is not None and self._left_bytes():
            if self._poll.poll(0):
                raise BrokenPipeError
            looks += 1
            if looks > _LOOKS:  # it is not a quick one
                idle()
                time.sleep(min(_PAUSE_MAX_S, looks * _PAUSE_S))
            else:
                os.sched_yield()

    def _left_bytes(self) -> int:
        count = array.array("i", [0])
        try:
            fcntl.ioctl(self._pipe or 0, termios.FIONREAD, count)
        except OSError:  # this system does not tell
            return 0
        return count[0]


class Printer:
    """Prints messages in one format, up to a number of them; Ctrl-C comes between two."""

    def __init__(self, form: StreamFormat, maximum: int | None, interrupts: Interrupts) -> None:
        self.left = maximum
        self.lines = Lines()
        self.interrupts = interrupts
        self._form = form
        self._encode = encode_visibly if is_terminal("stdout") else encode
        self._heading = TABLE_HEADING if form is StreamFormat.TABLE else b""

    @property
    def is_full(self) -> bool:
        """Whether there were as many messages as were asked for."""
        return self.left == 0

    def wanted(self, at_most: int) -> int:
        """How many more, but not too many at once."""
        return at_most if self.left is None else min(self.left, at_most)

    def print(self, message: StoredMessage) -> None:
        """One message, perhaps only as far as a buffer."""
        self.lines.write(self._heading + self._encode(message, self._form))
        self._heading = b""
        if self.left is not None:
            self.left -= 1


class Unready:
    """Messages that were printed although no group gets them, or not yet; the user is told how many."""

    def __init__(self, broker: BrokerOperations, topic: str) -> None:
        self._broker = broker
        self._topic = topic
        self._delayed: dict[int, dict[int, int]] = {}  # when they fall due, by partition and offset

    def note(self, message: StoredMessage) -> None:
        """A message was printed; only one with a delay can be cancelled."""
        if message.deliver_at_us is not None:
            self._delayed.setdefault(message.partition, {})[message.offset] = message.deliver_at_us

    def tell(self) -> None:
        """Say how many of the messages since the last time are cancelled, and how many are not due yet."""
        cancelled = waiting = 0
        now_us = time.time() * 1_000_000
        for partition, dues in self._delayed.items():
            for event in self._broker.events(self._topic, partition):
                if event.kind == EventKind.CANCELLED:
                    cancelled += sum(dues.pop(offset, None) is not None for offset in offsets_of(event))
            waiting += sum(due_us > now_us for due_us in dues.values())
        self._delayed = {}
        if cancelled:
            warn(f"{counted(cancelled, 'message')} of these cancelled: no group gets them")
        if waiting:
            warn(f"{counted(waiting, 'message')} of these not due yet: no group gets them before")


def print_log(broker: BrokerOperations, topic: str, past: Past, printer: Printer) -> None:
    """Print what the log holds."""
    unready = Unready(broker, topic)
    messages = broker.read(
        topic,
        past.partition,
        offset=past.from_offset,
        from_time=past.from_time,
        to_time=past.to_time,
        limit=printer.left,
        include_deleted=past.include_deleted,
    )
    print_all(messages, printer, unready.note)
    unready.tell()


def print_all(
    messages: Iterable[StoredMessage], printer: Printer, printed: Callable[[StoredMessage], None] = lambda _: None
) -> None:
    """Print messages one after the other."""
    for message in messages:
        printer.interrupts.check()
        printer.print(message)
        printed(message)
    printer.lines.flush()


def follow_log(broker: BrokerOperations, topic: str, past: Past, printer: Printer) -> None:
    """Print what the log holds, and then what is added to it."""
    numbers = [partition.number for partition in find_topic(broker, topic).partitions]
    chosen = numbers if past.partition is None else [past.partition]
    following = dict.fromkeys(chosen, past.from_offset or 0)
    if past.from_time is not None:
        following = {
            number: max(offset, broker.offset_at(topic, past.from_time, number)) for number, offset in following.items()
        }
    unready = Unready(broker, topic)
    while True:
        before = dict(following)
        for number, offset in following.items():
            for message in broker.read(
                topic, number, offset=offset, limit=printer.left, include_deleted=past.include_deleted
            ):
                printer.interrupts.check()
                printer.print(message)
                unready.note(message)
                following[number] = message.offset + 1
        printer.lines.flush()
        unready.tell()
        if printer.is_full:
            return
        if following == before:
            with printer.interrupts.waiting():
                time.sleep(_POLL_S)


def print_received(broker: BrokerOperations, topic: str, group: str, follow: bool, printer: Printer) -> None:
    """Print what is ready for a group, and ack it after that."""
    with broker.consumer(topic, group, visibility_timeout=_HOLD_S) as consumer:
        while not printer.is_full:
            with printer.interrupts.waiting():
                messages = consumer.receive(printer.wanted(_AT_ONCE), wait=60 if follow else 0)
            if messages:
                _hand_over(consumer, messages, printer)
            elif not follow:
                return


def look(broker: BrokerOperations, topic: str, group: str, printer: Printer) -> None:
    """Print what is ready for a group, and release all of it at the end."""
    with broker.consumer(topic, group, max_in_flight=_IN_FLIGHT_MAX, visibility_timeout=_LOOK_S) as consumer:
        while not printer.is_full:
            with printer.interrupts.waiting():
                messages = consumer.receive(printer.wanted(_AT_ONCE))
            for message in messages:
                printer.print(message)
            printer.lines.flush()
            if not messages:
                return


def _hand_over(consumer: Consumer, messages: list[Delivery], printer: Printer) -> None:
    """Print messages, and ack those that were printed for sure, whatever comes between."""
    done = 0
    hold = _Hold(consumer, messages)
    try:
        for message in messages:
            printer.print(message)
            if printer.lines.has_reader:
                with printer.interrupts.waiting():
                    printer.lines.wait_taken(hold.on)
                done += 1
        printer.lines.flush()
        done = len(messages)
    finally:
        _ack(consumer, messages[:done])


def _ack(consumer: Consumer, messages: Sequence[Delivery]) -> None:
    if messages:
        try:
            consumer.ack(messages)
        except LeaseLost as error:
            warn(f"{counted(len(error.ids), 'message')} held for too long: to be delivered again")


class _Hold:
    """Extends the leases of messages while the reader is slow."""

    def __init__(self, consumer: Consumer, messages: list[Delivery]) -> None:
        self._consumer = consumer
        self._messages = messages
        self._due_s = time.monotonic() + _HOLD_EVERY_S

    def on(self) -> None:
        """Extend the leases every few seconds."""
        if time.monotonic() >= self._due_s:
            self._due_s = time.monotonic() + _HOLD_EVERY_S
            try:
                self._consumer.extend(self._messages, _HOLD_S)
            except LeaseLost:
                self._due_s = float("inf")  # what can be acked shows later
