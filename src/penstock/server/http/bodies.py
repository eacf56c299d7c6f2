"""Messages as JSON: what publishers send, and what readers and consumers get."""

from __future__ import annotations

import base64
import binascii
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from penstock.model.errors import InvalidArgument
from penstock.model.message import Message, StoredMessage
from penstock.model.units import to_datetime

Encoding = Literal["utf8", "base64"]
Priority = Annotated[int, Meta(ge=0, le=255)] | Literal["critical", "high", "normal", "low", "background"]
Seconds = Annotated[float, Meta(ge=0, le=1e10)] | Annotated[str, Meta(max_length=40, examples=["30s", "5m"])]
Moment = Annotated[str, Meta(max_length=40, examples=["2026-12-24T18:00:00Z"])] | Annotated[float, Meta(ge=0, le=1e11)]


class NewMessage(msgspec.Struct, forbid_unknown_fields=True, gc=False, rename={"deliver_at_too": "deliverAt"}):
    """A message to publish. Its key and value are text, or base64 where `encoding` says so."""

    value: str
    key: str | None = None
    encoding: Encoding | None = None
    headers: dict[str, str] | None = None
    priority: Priority = "normal"
    delay: Seconds | None = None
    deliver_at: Moment | None = None
    deliver_at_too: Moment | None = None
    partition: Annotated[int, Meta(ge=0, lt=1 << 31)] | None = None
    dedupe_id: str | None = None
    expires_in: Seconds | None = None

    def message(self, encoding: Encoding | None = None, value_encoding: Encoding | None = None) -> Message:
        """As the broker takes it; `encoding` is that of the batch that it came in, where it says nothing itself.

        `value_encoding` is that of the value alone.
        """
        value: bytes | str = self.value
        key: bytes | str | None = self.key
        if (self.encoding or encoding) == "base64":
            value = decode_base64("value", self.value)
            key = None if self.key is None else decode_base64("key", self.key)
        elif self.encoding is None and value_encoding == "base64":
            value = decode_base64("value", self.value)
        return Message(
            value,
            key,
            self.headers,
            self.priority,
            self.delay,
            self.deliver_at if self.deliver_at_too is None else self.deliver_at_too,
            self.partition,
            self.dedupe_id,
            self.expires_in,
        )


class NewMessages(msgspec.Struct, forbid_unknown_fields=True):
    """A batch, which is published as one: all of it or nothing."""

    messages: list[NewMessage]
    encoding: Encoding | None = None
    producer: str | None = None
    """With `sequence`, publishes the batch once, however often it is sent."""
    sequence: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)] | None = None


class Published(msgspec.Struct):
    """Where a message is."""

    id: str
    topic: str
    partition: int
    offset: int
    priority: int
    delayed: bool
    deliver_at: datetime | None = None


class Result(msgspec.Struct, gc=False):
    """Where a message of a batch is."""

    partition: int
    offset: int
    priority: int
    delayed: bool = False
    deliverAt: datetime | None = None  # noqa: N815 - the name that clients of this route know
    error: str | None = None


class Results(msgspec.Struct):
    """Where the messages of a batch are, in their order."""

    results: list[Result]
    published: int


class MessageView(msgspec.Struct):
    """A message as it is stored."""

    id: str
    topic: str
    partition: int
    offset: int
    timestamp: datetime
    key: str | None
    value: str
    encoding: Encoding
    headers: dict[str, str] | None
    priority: int
    deliver_at: datetime | None
    expires_at: datetime | None
    dedupe_id: str | None
    size: int


def decode_base64(what: str, text: str) -> bytes:
    """Bytes that were written as base64, with or without its padding."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidArgument(f"{what}: {text[:40]!r} is not base64") from error


def as_text(value: bytes, key: bytes | None, wanted: Encoding | None) -> tuple[str, str | None, Encoding]:
    """A value and its key as JSON can have them: as text where both are, else as base64."""
    if wanted != "base64":
        try:
            return value.decode(), None if key is None else key.decode(), "utf8"
        except UnicodeDecodeError:
            pass
    return base64.b64encode(value).decode(), None if key is None else base64.b64encode(key).decode(), "base64"


def view_of(message: StoredMessage, encoding: Encoding | None = None) -> MessageView:
    """A message as JSON."""
    return MessageView(**view_fields(message, encoding))


def view_fields(message: StoredMessage, encoding: Encoding | None) -> dict[str, Any]:
    """What is shown of a message, by name."""
    value, key, written = as_text(message.value, message.key, encoding)
    return {
        "id": str(message.id),
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": to_datetime(message.timestamp_us),
        "key": key,
        "value": value,
        "encoding": written,
        "headers": message.headers,
        "priority": message.priority,
        "deliver_at": message.deliver_at,
        "expires_at": message.expires_at,
        "dedupe_id": message.dedupe_id,
        "size": len(message.value),
    }


class Settled(msgspec.Struct):
    """How many it is done for."""

    settled: int
