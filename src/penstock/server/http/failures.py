"""Errors as HTTP tells them: `{"error", "status", "hint"}` with the right code."""

from __future__ import annotations

import math

import msgspec

from penstock.model import errors
from penstock.model.bounds import error_text
from penstock.model.errors import NotOwner, PenstockError


class Problem(msgspec.Struct, omit_defaults=True):
    """What went wrong, what HTTP calls it, and what to do."""

    error: str
    status: int
    hint: str
    lost: list[str] | None = None
    """The receipts that hold nothing (any more), of a request about several."""
    settled: int | None = None
    """How many of the others were finished all the same."""


_KINDS: list[tuple[type[BaseException], int, str]] = [
    (errors.Unauthenticated, 401, "send a valid token: `Authorization: Bearer …`"),
    (errors.Forbidden, 403, "use a token that is for this"),
    (errors.LimitExceeded, 413, "send less at once; the limits are options of the server and of topics"),
    (errors.TopicNotFound, 404, "GET /v1/topics lists the topics"),
    (errors.GroupNotFound, 404, "GET /v1/groups lists the groups"),
    (errors.ConsumerNotFound, 404, "join again: members that are not heard of for long are forgotten"),
    (errors.MessageNotFound, 404, "it was never there, or retention has removed it"),
    (errors.ScheduleNotFound, 404, "GET /v1/schedules lists the schedules"),
    (errors.StageNotFound, 404, "stage it again, under another name"),
    (errors.TopicExists, 409, "use it as it is, or PATCH /v1/topics/{topic} to change its options"),
    (errors.TopicSpread, 409, "use a native client, which asks each slice; see how to run several processes"),
    (errors.GroupInUse, 409, "wait until its consumers have left, or use another group"),
    (errors.StaleSequence, 409, "begin with another producer id"),
    (errors.LeaseLost, 410, "receive again what is still to be done"),
    (errors.InvalidArgument, 400, "see /docs for what is allowed"),
    (errors.Overloaded, 429, "try again after the time of Retry-After"),
    (errors.DiskFull, 507, "make room on the server's disk; reading and acking go on"),
    (errors.StorageFailed, 503, "restart the server once its disk is well"),
    (errors.ShardLost, 503, "try again: the same dedupe id is published once; what was acked may come again"),
    (errors.BrokerClosed, 503, "the server is stopping or starting: try again"),
]
_RETRY_S = 1
_REASON_BYTES_MAX = 123


NOT_OWNER = b"x-penstock-not-owner"
"""The header of a reply that says that nothing was done, for the shard is in another process."""


def problem_of(error: BaseException) -> Problem:
    """An error as it is told; what is not known is a fault of ours, which the log tells about."""
    for kind, status, hint in _KINDS:
        if isinstance(error, kind):
            return Problem(error_text(error), status, hint)
    if isinstance(error, PenstockError):
        return Problem(error_text(error), 500, "the server's log tells more")
    return Problem("the server failed at this request", 500, "the server's log tells more")


def headers_of(error: BaseException, status: int) -> list[tuple[bytes, bytes]]:
    """The headers that go with an error."""
    if status == 401:
        return [(b"www-authenticate", b'Bearer realm="penstock"')]
    if status == 413:
        return [(b"connection", b"close")]  # the rest of the body is not read
    if status in (429, 503):
        wait_s = getattr(error, "retry_after_s", _RETRY_S)
        refused = [(NOT_OWNER, str(error.shard).encode())] if isinstance(error, NotOwner) else []
        return [(b"retry-after", str(max(1, math.ceil(wait_s))).encode()), *refused]
    return []


def close_reason(text: str) -> str:
    """What is told when a WebSocket is closed: there is room for 123 bytes."""
    return text.encode()[:_REASON_BYTES_MAX].decode(errors="ignore")


encode = msgspec.json.Encoder(enc_hook=str).encode
