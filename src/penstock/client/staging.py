"""Staging through a client, for asyncio: batches that wait on the server, seen by nobody, until they are published.

Every request to a stage has a number, so that one whose reply was lost is repeated and is not there twice. Where it is
not known what became of one, or a part of a batch was refused, the stage is given up: what it holds is not what was
asked for, and a seal must not say that it is.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Iterable, Sequence

from penstock.client.calling import AsyncCaller
from penstock.client.stages import REFUSED, Filling, batches_of
from penstock.model.intake import check_messages
from penstock.model.message import Message
from penstock.model.names import check_stage_name, check_topic_name
from penstock.protocol.decoding import topic_of
from penstock.protocol.frames import Command
from penstock.protocol.publishing import decode_staged, encode_stage


class AsyncClientStaging(AsyncCaller):
    """The operations of `penstock.Broker` on stages, asked of a server."""

    def __init__(self) -> None:
        self._filling: dict[str, Filling[asyncio.Lock]] = {}

    @abstractmethod
    async def _ready(self) -> None:
        """Wait while there is no connection, or the server does not take what was sent before."""

    async def stage_many(self, stage: str, topic: str, messages: Iterable[Message | bytes | str]) -> int:
        """Hand in a part of what is to be published together later: checked as by `publish_many`, seen by nobody.

        A batch that is larger than a request may be goes in several: then a part of it is staged when it fails.
        """
        check_stage_name(stage)
        check_topic_name(topic)
        if isinstance(messages, bytes | str):
            check_messages(messages, self.link.limits, 0)  # which it refuses
        rows = messages if isinstance(messages, list) else list(messages)
        await self._ready()
        batches = batches_of(self.link, topic, rows)
        filling = self._filling.setdefault(stage, Filling(asyncio.Lock()))
        async with filling.lock:
            staged = 0
            for batch in batches:
                staged += await self._stage(stage, filling, batch, is_first=not staged)
        return staged

    async def stage_packed(self, stage: str, batch: bytes) -> int:
        """Hand in a batch that `penstock.protocol.publishing.encode_packed` made; the server checks it."""
        check_stage_name(stage)
        await self._ready()
        filling = self._filling.setdefault(stage, Filling(asyncio.Lock()))
        async with filling.lock:
            return await self._stage(stage, filling, batch, is_first=True)

    async def _stage(self, stage: str, filling: Filling[asyncio.Lock], batch: bytes, is_first: bool) -> int:
        """One request; after a failure nothing of the whole batch is staged, or the stage is given up."""
        filling.check_kept(stage)
        body = encode_stage(stage, filling.writer, filling.requests, batch)
        filling.given_up = True  # until it is known what became of it: Ctrl-C may come at any time
        try:
            messages = decode_staged(
                await self.ask(Command.STAGE, body, topic=topic_of(batch), repeatable=True)
            ).messages
        except REFUSED:
            filling.given_up = not is_first
            raise
        filling.requests += 1
        filling.messages += messages
        filling.given_up = False
        return messages

    async def seal_stage(self, stage: str) -> int:
        """Put what was staged on disk; it takes no more from now on. How many messages; none if there is no stage."""
        filling = self._filling.get(stage)
        if filling is None:
            return await self.call("seal_stage", int, stage=check_stage_name(stage))
        async with filling.lock:
            filling.check_kept(stage)
            messages = await self.call("seal_stage", int, stage=stage, staged=filling.messages)
        self._filling.pop(stage, None)
        return messages

    async def publish_staged(self, stages: Sequence[str], *, producer: str, sequence: int) -> int:
        """Publish what sealed stages hold, in their order, once for each producer and sequence; how many messages."""
        messages = await self.call("publish_staged", int, stages=stages, producer=producer, sequence=sequence)
        self._forget(stages)
        return messages

    async def drop_staged(self, stages: Sequence[str]) -> None:
        """Forget stages that will not be published; any that is not there, or is being published, is left alone."""
        await self.call("drop_staged", None, stages=stages)
        self._forget(stages)

    def _forget(self, stages: Sequence[str]) -> None:
        for stage in stages:
            self._filling.pop(stage, None)
