"""JSON that is published, decoded within the rule of `penstock.model.bounds`, and so that other threads go on."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from penstock.model.batch import check_count
from penstock.model.bounds import BATCH_MESSAGES_MAX, UNCOUNTED_BYTES, check_memory, check_size
from penstock.model.errors import InvalidArgument
from penstock.server.http.bodies import Encoding, NewMessage, NewMessages

if TYPE_CHECKING:
    from penstock.model.config import BrokerConfig
    from penstock.model.message import Message

_MESSAGE_MEMORY = 400  # what a message of a batch takes until it is published, beside what is in it
_DEPTH = 2  # of the commas between messages
_UNCOUNTED_HEADERS = 64 << 10
_ESCAPED = 12  # so many times longer may headers be in JSON, with all that stands around them
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\(?:.|\Z)[^"\\]*+)*+(?:"|\Z)|[][{},]', re.DOTALL)
_COMMA, _QUOTE, _OPENING = ord(","), ord('"'), b"[{"
Body = TypeVar("Body")


class _Undecoded(NewMessages):
    """A batch whose messages are counted, and decoded one by one."""

    messages: list[msgspec.Raw]  # type: ignore[assignment]


class _Headers(msgspec.Struct):
    """Of a message, only these, not decoded."""

    headers: msgspec.Raw = msgspec.Raw(b"{}")


_decode_one = msgspec.json.Decoder(NewMessage).decode
_decode_many = msgspec.json.Decoder(NewMessages).decode
_decode_undecoded = msgspec.json.Decoder(_Undecoded).decode
_decode_headers = msgspec.json.Decoder(_Headers).decode


def decode_message(body: bytes, config: BrokerConfig, value_encoding: Encoding | None = None) -> Message:
    """The message of a request; `value_encoding` is that of its value, unless it says so itself."""
    if len(body) > _UNCOUNTED_HEADERS:
        _check_headers(body, config, "the body")
    return decode_with(_decode_one, body, "the body").message(value_encoding=value_encoding)


def decode_batch(body: bytes, config: BrokerConfig) -> tuple[list[Message], NewMessages]:
    """The messages of a request, and what it says of all of them."""
    if len(body) <= UNCOUNTED_BYTES:
        batch = decode_with(_decode_many, body, "the body")
        return [new.message(batch.encoding) for new in batch.messages], batch
    if body.count(b",") >= BATCH_MESSAGES_MAX:
        _count_elements(body)
    undecoded = decode_with(_decode_undecoded, body, "the body")
    check_count(len(undecoded.messages))
    check_memory("the batch", len(body), len(undecoded.messages) * _MESSAGE_MEMORY)
    messages: list[Message] = []
    for row, raw in enumerate(undecoded.messages):
        what = f"the body: message {row}"
        if len(memoryview(raw)) > _UNCOUNTED_HEADERS:
            _check_headers(raw, config, what)
        messages.append(decode_with(_decode_one, raw, what).message(undecoded.encoding))
    return messages, undecoded


def _check_headers(message: bytes | msgspec.Raw, config: BrokerConfig, what: str) -> None:
    """Raise LimitExceeded where the headers of a message are so long that they cannot be within their limit."""
    headers = memoryview(decode_with(_decode_headers, message, what).headers)
    check_size("the JSON of the headers", len(headers), max(_UNCOUNTED_HEADERS, _ESCAPED * config.max_headers_bytes))


def _count_elements(body: bytes) -> None:
    """Raise LimitExceeded where the list of a batch has more elements than it may have messages."""
    depth, elements = 0, 1
    for token in _TOKEN.finditer(body):
        first = body[token.start()]
        if first == _COMMA:
            elements += depth == _DEPTH
            if elements > BATCH_MESSAGES_MAX:
                check_count(elements)
        elif first != _QUOTE:
            depth += 1 if first in _OPENING else -1


def decode_with(decode: Callable[[Any], Body], body: bytes | str | msgspec.Raw, what: str) -> Body:
    """A body that is decoded, or InvalidArgument with what it is and what is wrong with it."""
    try:
        return decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArgument(f"{what}: {error}") from error
