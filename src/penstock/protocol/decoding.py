"""Decoders of bodies: whatever bytes come, they give what was asked for, or an error of msgspec."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

Body = TypeVar("Body")


def decoder(kind: type[Body]) -> Callable[[bytes | memoryview], Body]:
    """The decoder of one kind of body."""
    decode = msgspec.msgpack.Decoder(kind).decode

    def checked(body: bytes | memoryview) -> Body:
        try:
            return decode(body)
        except UnicodeDecodeError as error:
            raise msgspec.DecodeError(f"text that is not UTF-8: {error}") from error
        except RecursionError as error:
            raise msgspec.DecodeError("it is nested too deeply") from error

    return checked
