"""Decoding bodies: any bytes give the expected type, or an error of msgspec.

Some bodies are first decoded into raw parts: enough to know what is asked for, and to count elements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from penstock.model.batch import check_count
from penstock.model.bounds import LARGE_REQUEST_BYTES_MAX, REQUEST_BYTES_MAX, check_size
from penstock.model.errors import InvalidArgument
from penstock.model.shapes import array_length

Body = TypeVar("Body")
Packed = bytes | memoryview | msgspec.Raw
_NIL = msgspec.Raw(b"\xc0")
_TEXT_OF_A_BYTE = 0xD9  # text, with a byte for its length
_TOPIC_END_MAX = 5 + 2 + 255


def decoder(kind: type[Body]) -> Callable[[Packed], Body]:
    """The decoder of one kind of body, of any size."""
    decode = msgspec.msgpack.Decoder(kind).decode

    def checked(body: Packed) -> Body:
        try:
            return decode(body)
        except UnicodeDecodeError as error:
            raise msgspec.DecodeError(f"text that is not UTF-8: {error}") from error
        except RecursionError as error:
            raise msgspec.DecodeError("it is nested too deeply") from error

    return checked


def request_decoder(kind: type[Body], bytes_max: int = REQUEST_BYTES_MAX) -> Callable[[bytes | memoryview], Body]:
    """The decoder of one kind of request, which has at most so many bytes (see `penstock.model.bounds`)."""
    decode = decoder(kind)

    def bounded(body: bytes | memoryview) -> Body:
        if len(body) > bytes_max:
            check_size("the request", len(body), bytes_max)
        return decode(body)

    return bounded


# Raw parts.


class Called(msgspec.Struct, array_like=True):
    """A call: its arguments are decoded only after its permission is checked."""

    operation: str
    arguments: msgspec.Raw = msgspec.Raw(b"\x80")


class _Columns(msgspec.Struct, array_like=True, gc=False):
    """The columns of a batch to publish."""

    topic: msgspec.Raw
    payload: msgspec.Raw
    producer: msgspec.Raw = _NIL
    sequence: msgspec.Raw = _NIL
    priority: msgspec.Raw = _NIL
    partition: msgspec.Raw = _NIL
    delay_us: msgspec.Raw = _NIL
    deliver_at_us: msgspec.Raw = _NIL
    expires_in_us: msgspec.Raw = _NIL
    dedupe_ids: msgspec.Raw = _NIL


class _Staged(msgspec.Struct, array_like=True, gc=False):
    """A batch to stage."""

    stage: msgspec.Raw
    writer: msgspec.Raw
    number: msgspec.Raw
    batch: msgspec.Raw


class _Finished(msgspec.Struct, array_like=True, gc=False):
    """The leases of a request to settle."""

    consumer: msgspec.Raw
    held: msgspec.Raw


decode_called = request_decoder(Called, LARGE_REQUEST_BYTES_MAX)
decode_arguments = decoder(dict[str, Any])
_decode_columns = decoder(_Columns)
_decode_staged = decoder(_Staged)
_decode_finished = decoder(_Finished)


def count_columns(publish: bytes | memoryview | msgspec.Raw) -> None:
    """Raise LimitExceeded if a column of a batch has more elements than a batch may have messages."""
    columns = _decode_columns(publish)
    for name in columns.__struct_fields__:
        check_count(array_length(memoryview(getattr(columns, name))) or 0)


def count_staged_columns(stage: bytes | memoryview) -> None:
    """As `count_columns`, of a batch to stage."""
    count_columns(_decode_staged(stage).batch)


def count_leases(settle: bytes | memoryview) -> int:
    """How many leases a request names."""
    return array_length(memoryview(_decode_finished(settle).held)) or 0


def topic_of(publish: bytes | memoryview) -> str:
    """The topic of a batch to publish, found without decoding the rest."""
    start = bytes(publish[:_TOPIC_END_MAX])
    place = {0xDC: 3, 0xDD: 5}.get(start[0], 1)
    first, length = start[place], start[place] - 0xA0
    if first == _TEXT_OF_A_BYTE:
        place, length = place + 1, start[place + 1]
    elif not 0 <= length < 32:
        raise InvalidArgument("the first element of a request to publish is the name of a topic")
    return start[place + 1 : place + 1 + length].decode(errors="replace")
