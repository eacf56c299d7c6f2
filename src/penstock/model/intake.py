"""Published messages, checked and turned into columns; every way of publishing goes through here."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from penstock.model.batch import Batch, Payload, check_count
from penstock.model.config import BrokerConfig
from penstock.model.errors import InvalidArgument, LimitExceeded
from penstock.model.message import Message
from penstock.model.names import LOWEST, Priority, parse_priority
from penstock.model.producers import name_of_producer
from penstock.model.singles import Single, headers_bytes
from penstock.model.units import TIME_US_MAX, Duration, due_time_us, format_size, parse_duration

DEDUPE_ID_BYTES_MAX = 1024
PRODUCER_BYTES_MAX = 1024
_SIMPLE_DELAY_S = 1e9


class Intake(NamedTuple):
    """A checked batch; `partitions` has the partition that was requested for each message."""

    batch: Batch
    partitions: list[int | None] | None
    size_bytes: int


def check_message(message: Message, limits: BrokerConfig, now_us: int) -> Single:
    """One message with everything checked; the error names the field and what is allowed."""
    value = message.value
    if type(value) is not bytes:
        value = to_bytes("value", value)
    if len(value) > limits.max_value_bytes:
        raise LimitExceeded(_too_large("the value", len(value), "max_value_bytes", limits.max_value_bytes))
    key, headers = message.key, message.headers
    if key is None and headers is None and message.priority == "normal" and _is_plain(message):
        return Single(value)
    return Single(
        value,
        None if key is None else _check_key(key, limits),
        None if headers is None else _check_headers(headers, limits),
        parse_priority(message.priority),
        _due_time_us(message, now_us),
        _check_dedupe_id(message.dedupe_id),
        _expiry_us(message.expires_in, now_us),
    )


def _is_plain(message: Message) -> bool:
    return (
        message.delay is None
        and message.deliver_at is None
        and message.dedupe_id is None
        and message.expires_in is None
    )


def check_messages(messages: Iterable[Message | bytes | str], limits: BrokerConfig, now_us: int) -> Intake:
    """A whole batch, checked column by column; an error says which message it is about."""
    if isinstance(messages, bytes | str):
        raise InvalidArgument(f"a batch is a list of messages, not one {type(messages).__name__}: use publish")
    rows = messages if isinstance(messages, list) else list(messages)
    check_count(len(rows))
    values = _only_values(rows)
    if values is not None:
        intake = Intake(Batch(values), None, sum(map(len, values)))
    else:
        intake = _columns(_as_messages(rows), limits, now_us)
        values = intake.batch.values
    if intake.size_bytes > limits.max_value_bytes and max(map(len, values)) > limits.max_value_bytes:
        _blame(map(Message, values), limits, now_us)
    if intake.size_bytes > limits.max_batch_bytes:
        raise LimitExceeded(_too_large("the batch", intake.size_bytes, "max_batch_bytes", limits.max_batch_bytes))
    return intake


def check_columns(
    payload: Payload, priority: int | bytes, dedupe_ids: list[str | None] | None, limits: BrokerConfig
) -> Intake:
    """A batch that is given as columns: everything but their types is checked."""
    keys, values, headers = payload
    count = len(values)
    check_count(count)
    size_bytes = sum(map(len, values))
    batch = Batch(values)
    if size_bytes > limits.max_value_bytes and max(map(len, values)) > limits.max_value_bytes:
        _blame(map(Message, values), limits, 0)
    if keys is not None:
        batch.keys = keys
        lengths = [len(key) for key in keys if key is not None]
        if lengths and max(lengths) > limits.max_key_bytes:
            _blame((Message(b"", key) for key in keys), limits, 0)
        size_bytes += sum(lengths)
    if headers is not None:
        checked = [header or None for header in headers]
        sizes = list(map(headers_bytes, checked))
        if sizes and max(sizes) > limits.max_headers_bytes:
            _blame((Message(b"", headers=header) for header in headers), limits, 0)
        batch.headers = checked if any(checked) else None
        size_bytes += sum(sizes)
    if isinstance(priority, bytes):
        if len(priority) != count:
            raise InvalidArgument(f"there are {len(priority)} priorities for {count} messages")
        uniform = priority.count(priority[:1]) == count
        batch.priority, batch.priorities = (priority[0], None) if uniform and count else (batch.priority, priority)
    else:
        batch.priority = parse_priority(priority)
    if dedupe_ids is not None:
        if len(dedupe_ids) != count:
            raise InvalidArgument(f"there are {len(dedupe_ids)} dedupe ids for {count} messages")
        batch.dedupe_ids = [_check_dedupe_id(identity) for identity in dedupe_ids]
    if size_bytes > limits.max_batch_bytes:
        raise LimitExceeded(_too_large("the batch", size_bytes, "max_batch_bytes", limits.max_batch_bytes))
    return Intake(batch, None, size_bytes)


def check_producer(batch: Batch, producer: object, sequence: object) -> None:
    """Set the producer and sequence of the batch; both must be given, or neither."""
    if producer is None and sequence is None:
        return
    if not is_text(producer, PRODUCER_BYTES_MAX) or not _is_sequence(sequence):
        raise InvalidArgument(
            f"give producer (text of 1 to {PRODUCER_BYTES_MAX} bytes) and sequence (a whole number that grows) together"
        )
    if batch.dedupe_ids is not None:
        raise InvalidArgument("give a producer with a sequence, or dedupe ids, not both")
    batch.producer, batch.sequence = plain_text(producer), int(sequence)  # type: ignore[call-overload]
    name = name_of_producer(batch.producer)
    if name is not None:
        set_producer_name(batch, name)


def set_producer_name(batch: Batch, name: str) -> None:
    """Set the name of the producer of the batch, unless it is set."""
    if batch.producer_names is None:
        batch.producer_names = [(0, name)]


def _is_sequence(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _only_values(rows: list[Message | bytes | str]) -> list[bytes] | None:
    """The values of messages that have nothing else; None if one of them has, or is wrong.

    Most batches are like this: nothing is made for each message, not even a tuple.
    """
    values: list[Any] = rows
    if rows and type(rows[0]) is Message:
        if list(map(type, rows)).count(Message) != len(rows):
            return None
        values = [
            row.value
            for row in cast("list[Message]", rows)
            if row.key is None
            and row.headers is None
            and row.priority == "normal"
            and row.delay is None
            and row.deliver_at is None
            and row.partition is None
            and row.dedupe_id is None
            and row.expires_in is None
        ]
        if len(values) != len(rows):
            return None
    kinds = list(map(type, values))
    if kinds.count(bytes) == len(kinds):
        return list(values) if values is rows else values  # a copy of the caller's list: it is encoded later
    if kinds.count(bytes) + kinds.count(str) != len(kinds):
        return None
    try:
        return [value if type(value) is bytes else value.encode() for value in values]
    except UnicodeEncodeError:
        return None


def _as_messages(rows: list[Message | bytes | str]) -> list[Message]:
    types = set(map(type, rows))
    if types == {Message}:
        return cast("list[Message]", rows)
    if not types <= {Message, bytes, str}:
        wrong = sorted(kind.__name__ for kind in types - {Message, bytes, str})
        raise InvalidArgument(f"a batch holds Message, bytes or str, not {', '.join(wrong)}")
    return [row if isinstance(row, Message) else Message(row) for row in rows]


def _columns(rows: list[Message], limits: BrokerConfig, now_us: int) -> Intake:
    count = len(rows)
    if not count:
        return Intake(Batch([]), None, 0)
    keys, headers = [row.key for row in rows], [row.headers for row in rows]
    priorities, lives = [row.priority for row in rows], [row.expires_in for row in rows]
    delays, deliver_at = [row.delay for row in rows], [row.deliver_at for row in rows]
    partitions, dedupe_ids = [row.partition for row in rows], [row.dedupe_id for row in rows]
    try:
        batch = Batch([to_bytes("value", row.value) for row in rows])
        size_bytes = sum(map(len, batch.values))
        if keys.count(None) != count:
            batch.keys = [None if key is None else _check_key(key, limits) for key in keys]
            size_bytes += sum(len(key) for key in batch.keys if key)
        if headers.count(None) != count:
            checked = [None if header is None else _check_headers(header, limits) for header in headers]
            batch.headers = checked if any(checked) else None
            size_bytes += sum(map(headers_bytes, checked))
        if priorities.count("normal") != count:
            _set_priorities(batch, priorities)
        if delays.count(None) != count or deliver_at.count(None) != count:
            batch.deliver_at = _due_times_us(rows, delays, deliver_at, now_us)
        if lives.count(None) != count:
            batch.expires_at = array("q", [_expiry_us(life, now_us) for life in lives])
        if dedupe_ids.count(None) != count:
            batch.dedupe_ids = [_check_dedupe_id(identity) for identity in dedupe_ids]
    except (ValueError, TypeError):
        _blame(rows, limits, now_us)
        raise
    return Intake(batch, None if partitions.count(None) == count else partitions, size_bytes)


def _blame(rows: Iterable[Message], limits: BrokerConfig, now_us: int) -> None:
    """Raise the error of the first message that has one, with its place in the batch."""
    for row, message in enumerate(rows):
        try:
            check_message(message, limits, now_us)
        except InvalidArgument as error:
            raise type(error)(f"message {row} of the batch: {error}") from error


def _set_priorities(batch: Batch, priorities: Sequence[Priority]) -> None:
    kinds = set(map(type, priorities))
    if kinds == {int} and min(priorities) >= 0 and max(priorities) <= LOWEST:  # type: ignore[operator]
        numbers = bytes(cast("Sequence[int]", priorities))
        uniform = numbers.count(numbers[0]) == len(numbers)
        batch.priority, batch.priorities = (numbers[0], None) if uniform else (batch.priority, numbers)
        return
    for kind in kinds - {int, str}:
        parse_priority(next(priority for priority in priorities if type(priority) is kind))
    lanes = {priority: parse_priority(priority) for priority in set(priorities)}
    if len(set(lanes.values())) == 1:
        batch.priority = lanes[priorities[0]]
    else:
        batch.priorities = bytes([lanes[priority] for priority in priorities])


def to_bytes(field: str, data: object) -> bytes:
    """A value or a key as bytes."""
    if type(data) is bytes:
        return data
    if isinstance(data, str):
        try:
            return str.encode(data)
        except UnicodeEncodeError as error:
            raise InvalidArgument(f"the {field} must be text that UTF-8 can hold: {error}") from error
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(memoryview(data))
    raise InvalidArgument(f"the {field} must be bytes or str, not {type(data).__name__}")


def _check_key(key: object, limits: BrokerConfig) -> bytes:
    data = to_bytes("key", key)
    if len(data) > limits.max_key_bytes:
        raise LimitExceeded(_too_large("the key", len(data), "max_key_bytes", limits.max_key_bytes))
    return data


def _check_headers(headers: object, limits: BrokerConfig) -> dict[str, str] | None:
    if not isinstance(headers, Mapping) or not all(
        isinstance(name, str) and isinstance(text, str) for name, text in headers.items()
    ):
        raise InvalidArgument("headers must map str to str")
    size = headers_bytes(headers)
    if size > limits.max_headers_bytes:
        raise LimitExceeded(_too_large("the headers", size, "max_headers_bytes", limits.max_headers_bytes))
    return {plain_text(name): plain_text(text) for name, text in headers.items()} or None


def _due_times_us(
    rows: list[Message], delays: Sequence[Duration | None], deliver_at: Sequence[object], now_us: int
) -> array[int] | None:
    """When each message is due, 0 for at once; None if all are due at once."""
    if set(map(type, delays)) <= {int, float} and deliver_at.count(None) == len(rows):
        seconds = cast("Sequence[float]", delays)
        if min(seconds) >= 0 and max(seconds) < _SIMPLE_DELAY_S:  # also false for what is not a number
            due_us = array("q", [now_us + later if (later := round(delay * 1_000_000)) else 0 for delay in seconds])
            return due_us if any(due_us) else None
    due_us = array("q", [_due_time_us(message, now_us) for message in rows])
    return due_us if any(due_us) else None


def _due_time_us(message: Message, now_us: int) -> int:
    if message.delay is None and message.deliver_at is None:
        return 0
    due_us = due_time_us(message.delay, message.deliver_at, now_us)
    return due_us if due_us > now_us else 0


def _expiry_us(life: Duration | None, now_us: int) -> int:
    if life is None:
        return 0
    life_us = round(parse_duration(life) * 1_000_000)
    if life_us <= 0:
        raise InvalidArgument("expires_in must be more than 0: what expires at once is never delivered")
    if now_us + life_us > TIME_US_MAX:
        raise InvalidArgument("the time of expiry lies after the year 9999")
    return now_us + life_us


def _check_dedupe_id(identity: object) -> str | None:
    if identity is None:
        return None
    if not is_text(identity, DEDUPE_ID_BYTES_MAX):
        raise InvalidArgument(f"the dedupe_id must be text of 1 to {DEDUPE_ID_BYTES_MAX} bytes")
    return plain_text(identity)


def plain_text(text: object) -> str:
    """The text as a plain `str`, not a subclass, to be stored."""
    return str.__str__(text)


def is_text(value: object, bytes_max: int) -> bool:
    """Whether it is text of 1 to `bytes_max` bytes in UTF-8."""
    try:
        return isinstance(value, str) and 0 < len(value.encode()) <= bytes_max
    except UnicodeEncodeError:
        return False


def _too_large(what: str, size: int, option: str, limit: int) -> str:
    shown, allowed = format_size(size), format_size(limit)
    if shown == allowed:
        shown, allowed = f"{size} bytes", f"{limit} bytes"
    return f"{what} has {shown}; the limit is {allowed} ({option})"
