"""Requests of a client, checked as far as the client can."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec

from penstock.api.operation import ALL, Operation
from penstock.model.errors import InvalidArgument
from penstock.model.message import MessageId
from penstock.model.names import check_group_name, check_topic_names
from penstock.model.options import duration, optional, whole, yes_or_no
from penstock.model.units import Duration, Time, parse_duration, parse_time_us
from penstock.protocol.consuming import Subscribe
from penstock.protocol.session import Call, Read, encode

Result = TypeVar("Result")
_decoders: dict[Any, msgspec.msgpack.Decoder[Any]] = {}


def encode_call(operation: str, arguments: Mapping[str, Any]) -> bytes:
    """The body of a call."""
    try:
        return encode(Call(operation, {name: _plain(value) for name, value in arguments.items()}))
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgument(f"{operation}: {error}") from error


def topic_of(operation: Operation, arguments: Mapping[str, Any]) -> str | None:
    """The topic that a call is about, by which it finds the process that has it; None if any can do it."""
    given = None if operation.route == ALL else arguments.get(operation.route)
    if given is None or operation.route != "identity":
        return given if isinstance(given, str) else None
    return given.topic if isinstance(given, MessageId) else str(given).partition("/")[0]


def decode_result(result: type[Result] | None, reply: bytes) -> Result:
    """The result of a call."""
    decoder = _decoders.get(result)
    if decoder is None:
        decoder = _decoders[result] = msgspec.msgpack.Decoder(result)
    decoded: Result = decoder.decode(reply)
    return decoded


def _plain(value: object) -> object:
    """An argument in a form that msgpack has; any other type is left to the encoder."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, MessageId | os.PathLike):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray | memoryview):
        return list(value)
    return value


def subscription(
    topic: str | Sequence[str],
    group: str,
    mode: str,
    max_in_flight: int,
    visibility_timeout: Duration | None,
    autoack: bool,
    start: str | Time,
    session_timeout: Duration,
    name: str | None,
) -> Subscribe:
    """The request of a consumer."""
    return Subscribe(
        topics=check_topic_names(topic),
        group=check_group_name(group),
        mode=_mode(mode),
        max_in_flight=whole(1, 1_000_000)(max_in_flight),
        visibility_timeout=optional(duration(0.001))(visibility_timeout),
        autoack=yes_or_no(autoack),
        start=start.isoformat() if isinstance(start, datetime) else start,
        session_timeout=duration(0.001)(session_timeout),
        name=None if name is None else check_group_name(name, "consumer"),
    )


def _mode(mode: object) -> str:
    if mode not in ("shared", "assigned"):
        raise InvalidArgument(f"{mode!r} is not a mode: give 'shared' or 'assigned'")
    return str(mode)


def reading(topic: str, offset: int | None, from_time: Time | None, to_time: Time | None) -> Read:
    """The request for messages of a topic."""
    if offset is not None and (not isinstance(offset, int) or isinstance(offset, bool) or offset < 0):
        raise InvalidArgument(f"{offset!r} is not an offset: they are whole numbers from 0")
    return Read(
        topic,
        0,
        offset or 0,
        from_time_us=None if from_time is None else parse_time_us(from_time),
        to_time_us=None if to_time is None else parse_time_us(to_time),
    )


def wanted_of(
    max_messages: int, wait: Duration, visibility_timeout: Duration | None
) -> tuple[int, float, float | None]:
    """How many messages, how long to wait for them, and how long they may take; all checked."""
    visibility_s = optional(duration(0.001))(visibility_timeout)
    return whole(1, 1_000_000)(max_messages), parse_duration(wait), visibility_s
