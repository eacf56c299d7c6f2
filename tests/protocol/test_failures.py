"""Every error arrives as what it was; none is forgotten."""

from __future__ import annotations

import inspect

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model import errors
from penstock.model.errors import CorruptData, InvalidArgument, LeaseLost, PenstockError
from penstock.model.message import MessageId
from penstock.protocol.failures import _CODES, UNKNOWN, Failure, decode_failure, encode_failure
from penstock.protocol.frames import ProtocolError
from penstock.server.config import ConfigError

NEVER_SENT = {
    errors.PenstockError,  # the base of all: what has no code of its own arrives as this
    errors.DirectoryLocked,  # a server that has no directory does not answer
    errors.ConnectionLost,  # only the client can know
    errors.RequestTimeout,
}
IDS = (MessageId("orders", 2, 45678), MessageId("x.dlq", 0, 2**62), MessageId("é", -1, 0))
EXAMPLES: list[PenstockError] = [
    LeaseLost("not leased (any more): orders/2/45678 and 2 more", IDS),
    LeaseLost("nothing is known", ()),
    CorruptData("journal/0000000000000007.journal", 4096, "the checksum is wrong at byte 5: 1 instead of 2"),
    CorruptData("", 0, ""),
    *(kind("what was wrong, and what is allowed: é") for kind in _CODES.values() if kind is not CorruptData),
]
known = {kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, PenstockError)}


def test_every_error_has_a_code_or_is_never_sent() -> None:
    assert known | {ProtocolError} == set(_CODES.values()) | NEVER_SENT
    assert not NEVER_SENT & set(_CODES.values())
    assert len(set(_CODES.values())) == len(_CODES)


def test_codes_do_not_change_their_meaning() -> None:
    """A new error takes the next number; these are in clients that cannot be changed."""
    assert {code: kind.__name__ for code, kind in _CODES.items() if code <= 18} == {
        1: "InvalidArgument",
        2: "LimitExceeded",
        3: "TopicNotFound",
        4: "TopicExists",
        5: "GroupNotFound",
        6: "GroupInUse",
        7: "MessageNotFound",
        8: "ScheduleNotFound",
        9: "LeaseLost",
        10: "Overloaded",
        11: "DiskFull",
        12: "StaleSequence",
        13: "StorageFailed",
        14: "BrokerClosed",
        15: "CorruptData",
        16: "ProtocolError",
        17: "ConsumerNotFound",
        18: "StageNotFound",
    }
    assert UNKNOWN not in _CODES


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_arrives_as_it_was(error: PenstockError) -> None:
    found = decode_failure(encode_failure(error))
    assert type(found) is type(error)
    assert str(found) == str(error)
    assert vars(found) == vars(error)
    assert encode_failure(found) == encode_failure(error)


def test_an_error_of_no_code_arrives_as_the_nearest_one_that_has_one() -> None:
    assert type(decode_failure(encode_failure(ConfigError([])))) is InvalidArgument


@pytest.mark.parametrize("error", [OSError("disk"), KeyError("x"), *(kind("why") for kind in NEVER_SENT)])
def test_a_fault_of_the_server_arrives_as_such(error: BaseException) -> None:
    found = decode_failure(encode_failure(error))
    assert type(found) is PenstockError
    assert "the server failed at this request" in str(found)
    assert msgspec.msgpack.decode(encode_failure(error))[0] == UNKNOWN


@given(st.integers(24, 2**63), st.text())
def test_a_code_of_a_later_version_is_an_error_all_the_same(code: int, text: str) -> None:
    found = decode_failure(msgspec.msgpack.encode([code, text, [], "more", {"than": "we know"}]))
    assert type(found) is PenstockError
    assert str(found) == text


@given(st.one_of(st.binary(), st.binary().map(lambda rest: msgspec.msgpack.encode(Failure(15, "x", []))[:-1] + rest)))
def test_an_error_that_cannot_be_read_is_an_error(body: bytes) -> None:
    assert isinstance(decode_failure(body), PenstockError)


@given(st.text(st.characters(codec=None)), st.sampled_from(sorted(_CODES)))
def test_any_text_can_be_told(text: str, code: int) -> None:
    kind = _CODES[code]
    error = CorruptData(text, 1, text) if kind is CorruptData else kind(text)
    found = decode_failure(encode_failure(error))
    assert type(found) is kind
    assert str(found) == str(error).encode(errors="replace").decode()


@pytest.mark.parametrize("position", ["9" * 5000, "²", "-1", ""])
def test_the_text_of_an_error_may_look_like_anything(position: str) -> None:
    found = decode_failure(msgspec.msgpack.encode([15, f"x at byte {position}: y"]))
    assert isinstance(found, CorruptData)


def test_a_long_text_is_cut() -> None:
    """An error may repeat what it is about, and that may be as large as a frame."""
    body = encode_failure(InvalidArgument(f"{bytes(1_000_000)!r} is not a number"))
    assert len(body) < 50_000
    assert str(decode_failure(body)).endswith("…")
