"""Errors on the wire: a code whose meaning never changes, and a text for people."""

from __future__ import annotations

import re

import msgspec

from penstock.model import errors
from penstock.model.bounds import error_text
from penstock.model.errors import LeaseLost, NotOwner, PenstockError, TopicSpread
from penstock.model.message import MessageId
from penstock.protocol.decoding import decoder
from penstock.protocol.frames import ProtocolError

_CODES: dict[int, type[PenstockError]] = {
    1: errors.InvalidArgument,
    2: errors.LimitExceeded,
    3: errors.TopicNotFound,
    4: errors.TopicExists,
    5: errors.GroupNotFound,
    6: errors.GroupInUse,
    7: errors.MessageNotFound,
    8: errors.ScheduleNotFound,
    9: errors.LeaseLost,
    10: errors.Overloaded,
    11: errors.DiskFull,
    12: errors.StaleSequence,
    13: errors.StorageFailed,
    14: errors.BrokerClosed,
    15: errors.CorruptData,
    16: ProtocolError,
    17: errors.ConsumerNotFound,
    18: errors.StageNotFound,
    19: errors.Unauthenticated,
    20: errors.Forbidden,
    21: errors.NotOwner,
    22: errors.TopicSpread,
    23: errors.ShardLost,
}
UNKNOWN = 0
"""An internal error of the server: its log has details."""
_BY_CLASS = {kind: code for code, kind in _CODES.items()}
_CORRUPT = re.compile(r"(.*?) at byte (\d{1,19}): (.*)", re.ASCII | re.DOTALL)


class Owner(msgspec.Struct, array_like=True, gc=False):
    """What is known of the owner of a shard."""

    shard: int
    epoch: int = 0
    address: str = ""
    """Empty while the shard is on its way."""


class Failure(msgspec.Struct, array_like=True, gc=False):
    """The body of an error."""

    code: int
    message: str
    ids: list[MessageId] = []
    """For LeaseLost: the messages that were not leased."""


class OwnerFailure(Failure, array_like=True, gc=False):
    """The body of NotOwner, which has one field more."""

    owner: Owner | None = None
    """Who is asked instead."""


class SpreadFailure(Failure, array_like=True, gc=False):
    """The body of TopicSpread, which has three fields more."""

    topic: str = ""
    slices: int = 1
    partitions: int = 1


_encode = msgspec.msgpack.Encoder().encode
_decode = decoder(Failure)
_decode_more = {
    errors.NotOwner: decoder(OwnerFailure),
    errors.TopicSpread: decoder(SpreadFailure),
}


def failure_of(error: BaseException) -> Failure:
    """An error as it is sent."""
    for kind in type(error).__mro__:
        code = _BY_CLASS.get(kind)
        if code is not None:
            ids = error.ids if isinstance(error, LeaseLost) else ()
            known = [identity for identity in ids if isinstance(identity, MessageId)]
            failure = Failure(code, _text(error_text(error)), known)
            if isinstance(error, NotOwner):
                owner = Owner(error.shard, error.epoch, error.address)
                return OwnerFailure(code, failure.message, known, owner)
            if isinstance(error, TopicSpread):
                return SpreadFailure(code, failure.message, known, error.topic, error.slices, error.partitions)
            return failure
    return Failure(UNKNOWN, _text(f"the server failed at this request: {error_text(error)}"))


def encode_failure(error: BaseException) -> bytes:
    """An error as the body of a frame."""
    return _encode(failure_of(error))


def decode_failure(body: bytes | memoryview) -> PenstockError:
    """The error in a frame, as the embedded broker would raise it."""
    try:
        failure = _decode(body)
        decode_more = _decode_more.get(_CODES.get(failure.code, PenstockError))
        if decode_more is not None:
            failure = decode_more(body)
    except msgspec.MsgspecError as error:
        return ProtocolError(f"an error came that cannot be read: {error}")
    return error_of(failure)


def error_of(failure: Failure) -> PenstockError:
    """The error of a failure that was sent."""
    kind = _CODES.get(failure.code, PenstockError)
    if kind is LeaseLost:
        return LeaseLost(failure.message, tuple(failure.ids))
    if kind is NotOwner:
        owner = (failure.owner if isinstance(failure, OwnerFailure) else None) or Owner(0)
        return NotOwner(failure.message, owner.shard, owner.epoch, owner.address)
    if kind is TopicSpread:
        spread = failure if isinstance(failure, SpreadFailure) else SpreadFailure(failure.code, failure.message)
        return TopicSpread(failure.message, spread.topic, max(1, spread.slices), max(1, spread.partitions))
    if kind is errors.CorruptData:
        return _corrupt(failure.message)
    return kind(failure.message)


def _text(message: str) -> str:
    return message.encode(errors="replace").decode()  # names of files may hold bytes that are not UTF-8


def _corrupt(message: str) -> errors.CorruptData:
    found = _CORRUPT.fullmatch(message)
    if found is None:
        return errors.CorruptData("the server's data", 0, message)
    return errors.CorruptData(found[1], int(found[2]), found[3])
