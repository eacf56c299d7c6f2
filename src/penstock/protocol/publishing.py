"""The body of PUBLISH: a batch whose payload is stored as it comes, and beside it the columns that the broker needs."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec

from penstock.model.batch import Payload
from penstock.model.config import BrokerConfig
from penstock.model.errors import InvalidArgument
from penstock.model.intake import Intake, check_columns, check_message, check_messages, check_producer
from penstock.model.message import IdRun, Message, MessageIds
from penstock.model.names import NORMAL
from penstock.model.singles import Single
from penstock.model.units import TIME_US_MAX
from penstock.protocol.decoding import count_columns, count_staged_columns, decoder
from penstock.protocol.frames import REPLY, VERSION, Command

PlainPublish = tuple[
    str,
    bytes,
    Annotated[str, msgspec.Meta(min_length=1, max_length=255)],
    Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)],
]
"""The first fields of a `Publish`: topic, payload, producer and sequence. Most requests have no others."""
Micros = int | list[int | None] | None
"""One number of microseconds for all messages, one for each, or none."""


class Publish(msgspec.Struct, array_like=True, gc=False):
    """A request to publish; whatever is the same for all messages is said once."""

    topic: str
    payload: bytes
    """msgpack of [keys or nil, values, headers or nil], each a list with an element a message."""
    producer: str | None = None
    sequence: int = 0
    priority: int | bytes = NORMAL
    """0 to 255, or one byte a message."""
    partition: int | list[int | None] | None = None
    delay_us: Micros = None
    """Delivered so long after the server takes it."""
    deliver_at_us: Micros = None
    expires_in_us: Micros = None
    dedupe_ids: list[str | None] | None = None


class Published(msgspec.Struct, array_like=True, gc=False):
    """The reply: where the messages are."""

    runs: list[IdRun]
    places: Sequence[tuple[int, int]] | None = None
    """(partition, offset) of each message, where the runs in their order do not tell it."""

    def ids(self, topic: str) -> MessageIds:
        """The ids of the batch."""
        return MessageIds(topic, self.runs, self.places)


class Stage(msgspec.Struct, array_like=True, gc=False):
    """A request to keep a batch until its stage is published."""

    stage: str
    writer: str
    """Whoever fills the stage, by a name of its own for each stage."""
    number: int
    """How many requests of the writer for this stage came before: a repeated one is known by it."""
    batch: Publish
    """What is to be published; without a producer."""


class Staged(msgspec.Struct, array_like=True, gc=False):
    """The reply: it is written, but not on disk before the stage is sealed."""

    messages: int


_encode = msgspec.msgpack.Encoder().encode
decode_staged = decoder(Staged)
decode_published = decoder(Published)
decode_stage = decoder(Stage)
decode_publish = decoder(Publish)
_decode_plain = msgspec.msgpack.Decoder(PlainPublish).decode


_FOUR_FIELDS = b"\x94"  # the first byte of an array that ends with the sequence
_pack_single = struct.Struct(">HIQHBQB").pack
_SINGLE_HEAD = VERSION << 8 | Command.PUBLISH | REPLY
_SINGLE_SHAPE = 16 << 32 | 0x919193CD  # bytes of the body, which begins with three arrays and a number of two bytes


def plain_publish(body: bytes | memoryview) -> PlainPublish | None:
    """A request that has only the first fields, and a producer; None if it is another one."""
    if body[:1] != _FOUR_FIELDS:
        return None
    try:
        plain: PlainPublish = _decode_plain(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return plain


def decode_large_publish(body: bytes | memoryview) -> Publish:
    """As `decode_publish`, for more than `UNCOUNTED_BYTES`: elements are counted before they are made."""
    count_columns(body)
    return decode_publish(body)


def decode_large_stage(body: bytes | memoryview) -> Stage:
    """As `decode_stage`, for more than `UNCOUNTED_BYTES`."""
    count_staged_columns(body)
    return decode_stage(body)


def encode_publish(
    topic: str,
    messages: Iterable[Message | bytes | str],
    limits: BrokerConfig,
    producer: str | None = None,
    sequence: int = 0,
    own: bool = True,
) -> tuple[bytes, int]:
    """The body of a request, and how many messages it holds; what can be checked here is checked here.

    A producer that is the client's `own`, and not its user's, is left out where dedupe ids do its work.
    """
    rows = messages if isinstance(messages, list | bytes | str) else list(messages)
    if len(rows) == 1 and isinstance(rows[0], Message):
        single = check_message(rows[0], limits, 0)  # what is wrong with it is no matter of a batch
        if own and single == Single(single.value) and rows[0].partition is None:
            return _encode_fields([topic, _encode([None, [single.value], None]), producer, sequence]), 1
    batch, partitions, _ = check_messages(rows, limits, 0)  # at time 0, so that delays stay as long as they are
    payload = batch.encode_payload()
    if not own:
        check_producer(batch, producer, sequence)
    fields: list[object] = [topic, payload, None if batch.dedupe_ids is not None else producer, sequence]
    if batch.deliver_at is not None or batch.expires_at is not None or partitions or batch.dedupe_ids is not None:
        delays, times = _times(rows, batch.deliver_at)
        fields += [
            batch.priority if batch.priorities is None else batch.priorities,
            _uniform(partitions),
            _uniform(delays),
            _uniform(times),
            _uniform(None if batch.expires_at is None else [life_us or None for life_us in batch.expires_at]),
            batch.dedupe_ids,
        ]
    elif batch.priorities is not None or batch.priority != NORMAL:
        fields.append(batch.priority if batch.priorities is None else batch.priorities)
    return _encode_fields(fields), len(batch)


def _encode_fields(fields: list[object]) -> bytes:
    try:
        return _encode(fields)
    except (TypeError, ValueError, OverflowError) as error:  # of what the server checks: topic, producer, partitions
        raise InvalidArgument(f"this cannot be published: {error}") from error


def encode_packed(
    topic: str,
    payload: bytes,
    priority: int | bytes = NORMAL,
    deliver_at_us: list[int | None] | None = None,
    partitions: list[int | None] | None = None,
) -> bytes:
    """The body of a request whose payload is packed already, by whoever has columns and no messages."""
    fields: list[object] = [topic, payload, None, 0, priority]
    if deliver_at_us is not None or partitions is not None:
        fields += [_uniform(partitions), None, _uniform(deliver_at_us)]
    return _encode(fields)


def encode_stage(stage: str, writer: str, number: int, batch: bytes) -> bytes:
    """The body of a request to stage a batch, which `encode_publish` made without a producer, or `encode_packed`."""
    return _encode([stage, writer, number, msgspec.Raw(batch)])


def _times(
    rows: Sequence[Message | bytes | str], due: array[int] | None
) -> tuple[list[int | None] | None, list[int | None] | None]:
    """What was given as a delay, and what was given as a point in time."""
    if due is None:
        return None, None
    delayed = [isinstance(row, Message) and row.delay is not None for row in rows]
    return (
        [time_us if time_us and later else None for time_us, later in zip(due, delayed, strict=True)],
        [time_us if time_us and not later else None for time_us, later in zip(due, delayed, strict=True)],
    )


def _uniform(column: list[int | None] | None) -> Micros:
    if not column:
        return None
    return column[0] if column.count(column[0]) == len(column) else column


def intake_of(request: Publish, payload: Payload, limits: BrokerConfig, now_us: int) -> Intake:
    """The batch of a request, checked as everything that is published is; `payload` is its payload, decoded."""
    intake = check_columns(payload, request.priority, request.dedupe_ids, limits)
    batch, count = intake.batch, len(intake.batch)
    if batch.headers == payload[2]:  # else some were empty, which is stored as none at all
        batch.payload = request.payload
    if request.delay_us is not None or request.deliver_at_us is not None:
        batch.deliver_at = _due_us(request, count, now_us)
    if request.expires_in_us is not None:
        lives = _column("expires_in_us", request.expires_in_us, count, 1)
        ends = [0 if life_us is None else _until(now_us + life_us) for life_us in lives]
        batch.expires_at = array("q", ends) if any(ends) else None
    asked = request.partition
    if asked is not None:
        partitions: list[int | None] = [asked] * count if isinstance(asked, int) else _long("partition", asked, count)
        intake = intake._replace(partitions=partitions)
    check_producer(batch, request.producer, request.sequence if request.producer is not None else None)
    return intake


def published_single(correlation: int, partition: int, offset: int) -> bytes:
    """The whole frame of the reply to a request with one message: [[[partition, offset, 1]]]."""
    return _pack_single(_SINGLE_HEAD, correlation, _SINGLE_SHAPE, partition, 0xCF, offset, 1)


def published_singles(correlations: Iterable[int], partition: int, base: int) -> list[bytes]:
    """The replies to requests whose messages are at consecutive offsets."""
    return [
        _pack_single(_SINGLE_HEAD, correlation, _SINGLE_SHAPE, partition, 0xCF, offset, 1)
        for offset, correlation in enumerate(correlations, base)
    ]


def single_of(intake: Intake) -> Single:
    """The one message of a batch that has no more."""
    batch = intake.batch
    return Single(
        batch.values[0],
        None if batch.keys is None else batch.keys[0],
        None if batch.headers is None else batch.headers[0],
        batch.priority if batch.priorities is None else batch.priorities[0],
        0 if batch.deliver_at is None else batch.deliver_at[0],
        None if batch.dedupe_ids is None else batch.dedupe_ids[0],
        0 if batch.expires_at is None else batch.expires_at[0],
    )


def _due_us(request: Publish, count: int, now_us: int) -> array[int] | None:
    delays = _column("delay_us", request.delay_us, count, 0)
    times = _column("deliver_at_us", request.deliver_at_us, count, 0)
    due: list[int] = []
    for delay_us, time_us in zip(delays, times, strict=True):
        if delay_us is not None and time_us is not None:
            raise InvalidArgument("give delay or deliver_at, not both")
        moment_us = now_us + delay_us if delay_us is not None else time_us or 0
        due.append(_until(moment_us) if moment_us > now_us else 0)
    return array("q", due) if any(due) else None


def _until(time_us: int) -> int:
    if time_us > TIME_US_MAX:
        raise InvalidArgument("a time lies after the year 9999")
    return time_us


def _column(name: str, given: Micros, count: int, low: int) -> list[int | None]:
    column = [given] * count if given is None or isinstance(given, int) else _long(name, given, count)
    if any(number is not None and number < low for number in column):
        raise InvalidArgument(f"{name}: microseconds are whole numbers from {low}")
    return column


def _long(name: str, column: list[int | None], count: int) -> list[int | None]:
    if len(column) != count:
        raise InvalidArgument(f"{name} has {len(column)} elements for {count} messages")
    return column
