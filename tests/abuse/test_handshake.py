"""Large greetings of the native port, before anybody has said who they are."""

from __future__ import annotations

import contextlib
import struct

import pytest

from penstock.protocol.frames import Command, frame
from penstock.protocol.session import Hello, encode
from tests.abuse.harness import Target, heard_until_the_end

_VERSIONS = 20_000_000
_MANY_VERSIONS = b"\x81\xa8versions\xdd" + struct.pack(">I", _VERSIONS) + b"\x02" * _VERSIONS


@pytest.mark.parametrize(
    "first", [b"", frame(Command.HELLO, 1, b"\xc1"), frame(Command.HELLO, 1, encode(Hello([1], "", "pst_wrong")))]
)
def test_H2_a_huge_hello_costs_next_to_nothing(first: bytes, guarded: Target) -> None:
    with guarded.unharmed(), guarded.connect(guarded.port) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(first)
            connection.sendall(frame(Command.HELLO, 2, _MANY_VERSIONS))
        heard_until_the_end(connection)


def test_H2_a_huge_second_hello_is_not_decoded(target: Target) -> None:
    data = frame(Command.HELLO, 1, encode(Hello([1]))) + frame(Command.HELLO, 2, _MANY_VERSIONS)
    with target.unharmed(sent_bytes=len(data) // 4), target.connect(target.port) as connection:  # it is held once
        with contextlib.suppress(ConnectionError):
            connection.sendall(data)
        heard_until_the_end(connection)
