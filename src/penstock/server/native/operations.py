"""Everything that is asked for by name, and reading: done in threads, for it may take a while."""

from __future__ import annotations

import difflib
import inspect
import itertools
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.broker.dead_letters import list_dead_letters
from penstock.broker.embedded import Broker
from penstock.delivery.offsets import Offsets
from penstock.model.errors import InvalidArgument, LimitExceeded
from penstock.model.letters import DeadLetter
from penstock.model.message import MessageId, StoredMessage
from penstock.model.options import whole
from penstock.model.units import Time, format_size
from penstock.protocol.consuming import ranges_of
from penstock.protocol.frames import Command
from penstock.protocol.session import decode_call, decode_read, encode
from penstock.server.native.pages import read_page

if TYPE_CHECKING:
    from penstock.server.native.connection import Connection, Handler
    from penstock.server.native.listener import NativeListener

_LETTERS_AT_ONCE = 1000
_LETTERS_BYTES = 4 << 20


def _dead_letters(
    broker: Broker, topic: str, *, after: str | None = None, limit: int | None = None
) -> list[DeadLetter]:
    """A page of dead letters, behind the one that was the last of the page before."""
    start = None if after is None else MessageId.parse(str(after))
    wanted = _LETTERS_AT_ONCE if limit is None else min(whole(0, 1 << 62)(limit), _LETTERS_AT_ONCE)
    page: list[DeadLetter] = []
    left_bytes = _LETTERS_BYTES
    for letter in itertools.islice(list_dead_letters(broker.engine, topic, start), wanted):
        page.append(letter)
        left_bytes -= len(letter.value)
        if left_bytes <= 0:
            break
    return page


def _redrive(
    broker: Broker,
    topic: str,
    *,
    ids: list[str] | None = None,
    to: str | None = None,
    rate: float | None = None,
    dry_run: bool = False,
) -> object:
    """Redrive all dead letters, or those that are named."""
    return broker.redrive(topic, filter=_named(ids), to=to, rate=rate, dry_run=dry_run)


def _purge(broker: Broker, topic: str, *, ids: list[str] | None = None) -> int:
    """Purge all dead letters, or those that are named."""
    return broker.purge_dead_letters(topic, filter=_named(ids))


def _named(ids: list[str] | None) -> Callable[[DeadLetter], bool] | None:
    if ids is None:
        return None
    if not isinstance(ids, list):
        raise InvalidArgument(f"{ids!r:.80} is not a list of message ids")
    wanted = {MessageId.parse(str(identity)) for identity in ids}
    return lambda letter: letter.id in wanted


def _offset_at(broker: Broker, topic: str, time: Time, partition: int = 0) -> int:
    """As the broker's, of one partition for sure."""
    return broker.offset_at(topic, time, whole(0, 1 << 62)(partition))


def _replay(
    broker: Broker,
    topic: str,
    to: str,
    *,
    from_time: Time | None = None,
    to_time: Time | None = None,
    from_offset: int | None = None,
    to_offset: int | None = None,
    partition: int | None = None,
    rate: float | None = None,
    only: dict[str, list[int]] | None = None,
) -> int:
    """Replay a window, or just some offsets of it (by partition, as runs), into a group."""
    if not isinstance(to, str):
        raise InvalidArgument(f"{to!r} is not the name of a group")
    return broker.replay(
        topic,
        to,
        from_time=from_time,
        to_time=to_time,
        from_offset=from_offset,
        to_offset=to_offset,
        partition=partition,
        filter=None if only is None else _among(only),
        rate=rate,
    )


def _among(only: dict[str, list[int]]) -> Callable[[StoredMessage], bool]:
    wanted: dict[int, Offsets] = {}
    try:
        for partition, runs in only.items():
            offsets = wanted[int(partition)] = Offsets()
            for some in ranges_of(runs):
                offsets.add_range(some.start, some.stop)
    except (AttributeError, TypeError, ValueError) as error:
        raise InvalidArgument(f"only: give runs of offsets by partition: {error}") from error
    return lambda message: message.offset in wanted.get(message.partition, ())


_PLAIN = (
    *("topics", "create_topic", "configure_topic", "delete_topic", "settle", "retain", "status"),
    *("create_group", "groups", "group", "seek_group", "reset_group", "delete_group"),
    *("delayed", "cancel_delayed", "reschedule_delayed"),
    *("schedule", "schedules", "pause_schedule", "resume_schedule", "remove_schedule"),
    *("dead_letter", "trace"),
)
OPERATIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(Broker, name) for name in _PLAIN},
    "offset_at": _offset_at,
    "dead_letters": _dead_letters,
    "redrive": _redrive,
    "purge_dead_letters": _purge,
    "replay": _replay,
}
"""Every operation that can be called, with the broker as its first argument."""
_SLOW = frozenset({"settle", "retain", "redrive", "purge_dead_letters", "replay", "delete_topic"})
"""Those that may take long: they have threads of their own."""
_SIGNATURES = {name: inspect.signature(operation) for name, operation in OPERATIONS.items()}


class Operations:
    """The calls and the reading of one connection."""

    def __init__(self, listener: NativeListener, connection: Connection) -> None:
        self._listener = listener
        self._connection = connection

    def handlers(self) -> dict[int, Handler]:
        """The handler of each command."""
        return {Command.CALL: self._call, Command.READ: self._read}

    def _call(self, correlation: int, body: memoryview | bytes) -> None:
        call = decode_call(body)
        operation = OPERATIONS.get(call.operation)
        if operation is None:
            near = difflib.get_close_matches(call.operation, OPERATIONS, n=1)
            hint = f", did you mean {near[0]}?" if near else f": there are {', '.join(sorted(OPERATIONS))}"
            raise InvalidArgument(f"there is no operation {call.operation!r}{hint}")
        try:
            _SIGNATURES[call.operation].bind(self._listener.broker, **call.arguments)
        except TypeError as error:
            raise InvalidArgument(f"{call.operation}: {error}") from error
        for name in ("topic", "group", "name"):
            if not isinstance(call.arguments.get(name), str | None):
                raise InvalidArgument(f"{call.operation}: {name} is text")
        in_thread = self._listener.in_slow_thread if call.operation in _SLOW else self._connection.in_thread
        in_thread(
            lambda: self._bounded(encode(operation(self._listener.broker, **call.arguments))),
            partial(self._connection.reply, Command.CALL, correlation),
            partial(self._connection.refuse, correlation),
        )

    def _read(self, correlation: int, body: memoryview | bytes) -> None:
        request = decode_read(body)
        self._connection.in_thread(
            lambda: encode(read_page(self._listener.broker, request)),
            partial(self._connection.reply, Command.READ, correlation),
            partial(self._connection.refuse, correlation),
        )

    def _bounded(self, reply: bytes) -> bytes:
        limit = self._listener.config.max_frame_bytes
        if len(reply) > limit:
            raise LimitExceeded(
                f"the answer has {format_size(len(reply))}, which is more than a frame may have "
                f"({format_size(limit)}): ask for less (limit)"
            )
        return reply
