"""Staging through a client: batches that wait on the server, seen by nobody, until they are published together.

Every request to a stage has a number, so that one whose reply was lost is repeated and is not there twice. Where it is
not known what became of one, or a part of a batch was refused, the stage is given up: what it holds is not what was
asked for, and a seal must not say that it is.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.client.loop import LoopThread
from penstock.client.publisher import size_of
from penstock.model.config import BrokerConfig
from penstock.model.errors import (
    DiskFull,
    Forbidden,
    InvalidArgument,
    LimitExceeded,
    Overloaded,
    StageNotFound,
    TopicNotFound,
)
from penstock.model.intake import check_messages
from penstock.model.message import Message
from penstock.model.names import check_stage_name, check_topic_name
from penstock.protocol.frames import Command
from penstock.protocol.publishing import decode_staged, encode_publish, encode_stage

if TYPE_CHECKING:
    from penstock.client.client import AsyncClient
    from penstock.client.link import Link

Result = TypeVar("Result")
Rows = list[Message | bytes | str]
_REQUEST_BYTES = 4 << 20
_REQUEST_MESSAGES = 100_000
_MESSAGE_BYTES = 64
_REFUSED = (InvalidArgument, TopicNotFound, Overloaded, DiskFull, Forbidden)
"""After these it is known that nothing was staged."""


class _Filling:
    """A stage as far as this client has filled it."""

    __slots__ = ("given_up", "lock", "messages", "requests", "writer")

    def __init__(self) -> None:
        self.writer = uuid.uuid4().hex
        self.requests = 0
        self.messages = 0
        self.given_up = False
        self.lock = asyncio.Lock()


class AsyncClientStaging:
    """The operations of `penstock.Broker` on stages, asked of a server."""

    if TYPE_CHECKING:

        async def call(self, operation: str, result: type[Result] | None, /, **arguments: Any) -> Result: ...
        @property
        def link(self) -> Link: ...

    def __init__(self) -> None:
        self._filling: dict[str, _Filling] = {}

    async def stage_many(self, stage: str, topic: str, messages: Iterable[Message | bytes | str]) -> int:
        """Hand in a part of what is to be published together later: checked as by `publish_many`, seen by nobody.

        A batch that is larger than a request may be goes in several: then a part of it is staged when it fails.
        """
        check_stage_name(stage)
        check_topic_name(topic)
        if isinstance(messages, bytes | str):
            check_messages(messages, self.link.limits, 0)  # which it refuses
        rows = messages if isinstance(messages, list) else list(messages)
        await self.link.ready(self.link.timeout_s)
        batches = self._batches(topic, rows)
        filling = self._filling.get(stage)
        if filling is None:
            filling = self._filling[stage] = _Filling()
        async with filling.lock:
            staged = 0
            for batch in batches:
                staged += await self._stage(stage, filling, batch, is_first=not staged)
        return staged

    async def stage_packed(self, stage: str, batch: bytes) -> int:
        """Hand in a batch that `penstock.protocol.publishing.encode_packed` made; the server checks it."""
        check_stage_name(stage)
        await self.link.ready(self.link.timeout_s)
        filling = self._filling.get(stage)
        if filling is None:
            filling = self._filling[stage] = _Filling()
        async with filling.lock:
            return await self._stage(stage, filling, batch, is_first=True)

    def _batches(self, topic: str, rows: Rows) -> list[bytes]:
        """The bodies of as few requests as can be; a batch that fits into one is encoded once."""
        limits = self.link.limits
        if len(rows) < 2:
            check_messages(rows, limits, 0)  # what is wrong with it is told as of a batch
        frame_bytes = self.link.welcome.limits.get("max_frame_bytes", _REQUEST_BYTES)
        room_bytes = min(_REQUEST_BYTES, limits.max_batch_bytes, frame_bytes // 2)
        if len(rows) <= _REQUEST_MESSAGES:
            try:
                body, count = encode_publish(topic, rows, limits)
            except LimitExceeded:
                if len(rows) < 2:
                    raise
            else:
                if len(body) <= room_bytes or count < 2:
                    return [body] if count else []
        return [encode_publish(topic, part, limits)[0] for part in _parts(rows, room_bytes)]

    async def _stage(self, stage: str, filling: _Filling, batch: bytes, is_first: bool) -> int:
        """One request; after a failure nothing of the whole batch is staged, or the stage is given up."""
        _check_kept(stage, filling)
        body = encode_stage(stage, filling.writer, filling.requests, batch)
        try:
            reply = await self.link.ask(Command.STAGE, body, repeatable=True)
        except BaseException as error:
            filling.given_up = not (is_first and isinstance(error, _REFUSED))
            raise
        messages = decode_staged(reply).messages
        filling.requests += 1
        filling.messages += messages
        return messages

    async def seal_stage(self, stage: str) -> int:
        """Put what was staged on disk; it takes no more from now on. How many messages; none if there is no stage."""
        filling = self._filling.get(stage)
        if filling is None:
            return await self.call("seal_stage", int, stage=check_stage_name(stage))
        async with filling.lock:
            _check_kept(stage, filling)
            messages = await self.call("seal_stage", int, stage=stage, staged=filling.messages)
        self._filling.pop(stage, None)
        return messages

    async def publish_staged(self, stages: Sequence[str], *, producer: str, sequence: int) -> int:
        """Publish what sealed stages hold, in their order, once for each producer and sequence; how many messages."""
        names = _names(stages)
        messages = await self.call("publish_staged", int, stages=names, producer=producer, sequence=sequence)
        self._forget(names)
        return messages

    async def staged_sequence(self, producer: str) -> int | None:
        """The newest sequence that `publish_staged` knows of a producer; None if it knows none."""
        return await self.call("staged_sequence", int | None, producer=producer)  # type: ignore[arg-type]

    async def drop_staged(self, stages: Sequence[str]) -> None:
        """Forget stages that will not be published; any that is not there, or is being published, is left alone."""
        names = _names(stages)
        await self.call("drop_staged", None, stages=names)
        self._forget(names)

    def _forget(self, names: object) -> None:
        for name in names if isinstance(names, list) else ():
            self._filling.pop(name, None)


class ClientStaging:
    """The same operations in plain calls."""

    _loop: LoopThread
    _client: AsyncClient

    def stage_many(self, stage: str, topic: str, messages: Iterable[Message | bytes | str]) -> int:
        """Hand in a part of what is to be published together later: checked as by `publish_many`, seen by nobody.

        A batch that is larger than a request may be goes in several: then a part of it is staged when it fails.
        """
        if not isinstance(messages, list | bytes | str):
            messages = list(messages)
        return self._loop.wait(self._client.stage_many(stage, topic, messages))

    def stage_packed(self, stage: str, batch: bytes) -> int:
        """Hand in a batch that `penstock.protocol.publishing.encode_packed` made; the server checks it."""
        return self._loop.wait(self._client.stage_packed(stage, batch))

    @property
    def limits(self) -> BrokerConfig:
        """What the server allows, as far as it tells clients."""
        return self._client.link.limits

    def seal_stage(self, stage: str) -> int:
        """Put what was staged on disk; it takes no more from now on. How many messages; none if there is no stage."""
        return self._loop.wait(self._client.seal_stage(stage))

    def publish_staged(self, stages: Sequence[str], *, producer: str, sequence: int) -> int:
        """Publish what sealed stages hold, in their order, once for each producer and sequence; how many messages."""
        return self._loop.wait(self._client.publish_staged(stages, producer=producer, sequence=sequence))

    def staged_sequence(self, producer: str) -> int | None:
        """The newest sequence that `publish_staged` knows of a producer; None if it knows none."""
        return self._loop.wait(self._client.staged_sequence(producer))

    def drop_staged(self, stages: Sequence[str]) -> None:
        """Forget stages that will not be published; any that is not there, or is being published, is left alone."""
        self._loop.wait(self._client.drop_staged(stages))


def _parts(rows: Rows, room_bytes: int) -> Iterator[Rows]:
    """The messages in parts that fit into a request each; one that does not is a part of its own."""
    start = size_bytes = 0
    for place, row in enumerate(rows):
        size = size_of(row) if isinstance(row, Message) else len(row) + _MESSAGE_BYTES
        if place > start and (size_bytes + size > room_bytes or place - start >= _REQUEST_MESSAGES):
            yield rows[start:place]
            start, size_bytes = place, 0
        size_bytes += size
    yield rows[start:]


def _check_kept(stage: str, filling: _Filling) -> None:
    if filling.given_up:
        raise StageNotFound(
            f"the stage {stage!r} is lost: it is not known what became of a part of it; drop it, and stage under "
            "another name"
        )


def _names(stages: object) -> object:
    """A list, where it is something like one: the server tells what is wrong with anything else."""
    return list(stages) if isinstance(stages, Sequence) and not isinstance(stages, str | bytes) else stages
