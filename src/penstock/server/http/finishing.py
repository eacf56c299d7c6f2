"""What becomes of messages that clients name by their receipts."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.aio.consumer import AsyncConsumer
from penstock.model.errors import GroupNotFound, InvalidArgument, LeaseLost, TopicNotFound
from penstock.server.access.principal import Scope
from penstock.server.http.bodies import Seconds
from penstock.server.http.caller import Caller
from penstock.server.http.members import lost_receipts, parse_receipt
from penstock.shard.operations.leased_messages import Leased

_RECEIPTS_MAX = 10_000
_Reason = Annotated[str, Meta(min_length=1, max_length=1000)]


class Handles(msgspec.Struct, forbid_unknown_fields=True):
    """The deliveries that a request is about."""

    receipt_handle: str | None = None
    receipt_handles: Annotated[list[str], Meta(max_length=_RECEIPTS_MAX)] | None = None

    def all(self) -> list[str]:
        """All of them, each once."""
        found = [*([] if self.receipt_handle is None else [self.receipt_handle]), *(self.receipt_handles or [])]
        if not found:
            raise InvalidArgument("give receipt_handle, or receipt_handles with at least one")
        return list(dict.fromkeys(found))

    def act(self, consumer: AsyncConsumer, leased: Leased) -> Awaitable[None]:
        """Do it to some of them, which one consumer holds."""
        raise NotImplementedError


class Ack(Handles):
    """They are done."""

    def act(self, consumer: AsyncConsumer, leased: Leased) -> Awaitable[None]:
        return consumer.ack(leased)


class Release(Handles):
    """They are given back, through no fault of theirs."""

    def act(self, consumer: AsyncConsumer, leased: Leased) -> Awaitable[None]:
        return consumer.release(leased)


class Nack(Handles):
    """They could not be processed."""

    reason: _Reason = "nack"
    delay: Seconds | None = None
    """Until the next try; the topic's backoff if it is not given."""

    def act(self, consumer: AsyncConsumer, leased: Leased) -> Awaitable[None]:
        return consumer.fail(leased, self.reason, self.delay)


class Reject(Handles):
    """They can never be processed."""

    reason: _Reason = "rejected"

    def act(self, consumer: AsyncConsumer, leased: Leased) -> Awaitable[None]:
        return consumer.kill(leased, self.reason)


class Extend(Handles, kw_only=True):
    """They take longer."""

    visibility_timeout: Seconds
    """From now, if that is longer than they are held anyway."""

    def act(self, consumer: AsyncConsumer, leased: Leased) -> Awaitable[None]:
        return consumer.extend(leased, self.visibility_timeout)


async def finish(caller: Caller, wanted: Handles) -> tuple[int, list[str]]:
    """Do it; for how many it is done, and the receipts that hold nothing (any more)."""
    handles = wanted.all()
    parsed = list(map(parse_receipt, handles))
    for topic in {identity.topic for _, identity, _ in parsed}:
        caller.require(Scope.CONSUME, topic)
    found, lost = caller.members.held(zip(handles, parsed, strict=True))
    for held in found:
        try:
            await wanted.act(held.member.consumer, held.leased)
        except LeaseLost as error:
            lost += lost_receipts(held.receipts, error)
        except (TopicNotFound, GroupNotFound):  # it was deleted, with everything that was held of it
            lost += held.receipts
    return len(handles) - len(lost), lost
