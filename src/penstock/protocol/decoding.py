"""Decoders of bodies: whatever bytes come, they give what was asked for, or an error of msgspec."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from penstock.model.bounds import REQUEST_BYTES_MAX, check_size

Body = TypeVar("Body")
Packed = bytes | memoryview | msgspec.Raw


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
