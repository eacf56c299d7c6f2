"""A request that waits for its reply."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from penstock.model.errors import ConnectionLost, PenstockError, RequestTimeout
from penstock.protocol.frames import CORRELATION_MAX, HEADER_BYTES, Command, frame

DIRECT = CORRELATION_MAX
"""The correlation of requests that are sent past the link (`direct.py`)."""

OnReply = Callable[[bytes | None, PenstockError | None], None]
_orders = itertools.count()


class Request:
    """A request: what was sent, who waits for the reply, and until when."""

    __slots__ = ("asked_s", "command", "deadline_s", "frame", "on_reply", "order", "repeatable", "sent_s", "shard")

    def __init__(
        self,
        command: int,
        data: bytes,
        on_reply: OnReply,
        repeatable: bool,
        asked_s: float,
        timeout_s: float,
        shard: int | None = None,
    ) -> None:
        self.command = command
        self.frame = data
        self.on_reply = on_reply
        self.repeatable = repeatable
        self.asked_s = asked_s
        self.deadline_s = asked_s + timeout_s
        self.sent_s: float | None = None
        self.shard = shard
        """The shard that it is for, if it is for one, of a server that has them in several processes."""
        self.order = next(_orders)
        """Requests for a shard stay in this order, wherever it moves."""

    def number(self, correlation: int) -> None:
        """Give it another correlation, for another link."""
        self.frame = frame(self.command, correlation, self.frame[HEADER_BYTES:])

    @property
    def name(self) -> str:
        """Of its command."""
        return Command(self.command).name

    def cut_off(self, address: str) -> ConnectionLost:
        """The error of one whose connection was lost."""
        lost = f"the connection to {address} was lost before the reply to {self.name} came"
        return ConnectionLost(f"{lost}: it is not known whether it was done")

    def too_late(self, address: str, now_s: float, why_not: BaseException | None) -> PenstockError:
        """The error of one that was not answered in time."""
        if self.sent_s is None:
            reason = why_not or "no connection"
            return ConnectionLost(f"{address} could not be reached in time ({reason}): {self.name} was not sent")
        return RequestTimeout(
            f"{address} did not answer {self.name} within {now_s - self.sent_s:.1f} s: "
            "it is not known whether it was done"
        )


def awaited(loop: asyncio.AbstractEventLoop) -> tuple[asyncio.Future[bytes], OnReply]:
    """A future for a reply, and what tells it."""
    future: asyncio.Future[bytes] = loop.create_future()

    def on_reply(reply: bytes | None, error: PenstockError | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(reply or b"")

    return future, on_reply


def ignore_reply(reply: bytes | None, error: PenstockError | None) -> None:
    """Ignore the reply."""
