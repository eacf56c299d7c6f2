"""Publishing and consuming through a client; for asyncio."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from penstock.client.consumer import AsyncClientConsumer, AsyncReceived
from penstock.client.merged import AnyRemote
from penstock.client.publisher import Publisher
from penstock.client.received import Received
from penstock.client.requests import subscription
from penstock.model.message import Data, Message, MessageId, MessageIds
from penstock.model.names import Priority
from penstock.model.options import yes_or_no
from penstock.model.units import Duration, Time
from penstock.protocol.consuming import Subscribe

_Received = TypeVar("_Received", bound=Received)


class AsyncClientMessaging(ABC):
    """The operations of `penstock.Broker` that publish and consume, asked of a server."""

    @property
    @abstractmethod
    def publisher(self) -> Publisher:
        """What messages are published through."""

    @abstractmethod
    async def join(self, options: Subscribe, message_class: type[_Received], auto_extend: bool) -> AnyRemote[_Received]:
        """A consumer that hands out messages of a class; `consumer` is the way to one."""

    async def publish(
        self,
        topic: str,
        value: Data,
        *,
        key: Data | None = None,
        headers: Mapping[str, str] | None = None,
        priority: Priority = "normal",
        delay: Duration | None = None,
        deliver_at: Time | None = None,
        partition: int | None = None,
        dedupe_id: str | None = None,
        expires_in: Duration | None = None,
    ) -> MessageId:
        """Publish one message; returns when it is durable. The topic is made if it is new."""
        message = Message(value, key, headers, priority, delay, deliver_at, partition, dedupe_id, expires_in)
        return await self.publisher.publish(topic, message)

    async def publish_soon(
        self,
        topic: str,
        value: Data,
        *,
        key: Data | None = None,
        headers: Mapping[str, str] | None = None,
        priority: Priority = "normal",
        delay: Duration | None = None,
        deliver_at: Time | None = None,
        partition: int | None = None,
        dedupe_id: str | None = None,
        expires_in: Duration | None = None,
    ) -> asyncio.Future[MessageId]:
        """Take one message to be published in the background; the future is its delivery report.

        Waits only while too many are on the way already; `flush` waits for all of them.
        """
        message = Message(value, key, headers, priority, delay, deliver_at, partition, dedupe_id, expires_in)
        return await self.publisher.publish_soon(topic, message)

    async def publish_many(
        self,
        topic: str,
        messages: Iterable[Message | bytes | str],
        *,
        producer: str | None = None,
        sequence: int | None = None,
    ) -> MessageIds:
        """Publish a batch in one durable step: after a crash all of it is there, or nothing.

        With `producer` and a growing `sequence`, publishing the same batch again returns the same ids and
        changes nothing.
        """
        return await self.publisher.publish_many(topic, messages, producer, sequence)

    async def flush(self) -> None:
        """Send what waits; returns when everything that was published is durable, or has failed."""
        await self.publisher.flush()

    async def consumer(
        self,
        topic: str | Sequence[str],
        group: str,
        *,
        mode: str = "shared",
        max_in_flight: int = 1000,
        visibility_timeout: Duration | None = None,
        autoack: bool = False,
        start: str | Time = "earliest",
        session_timeout: Duration = 30.0,
        name: str | None = None,
        auto_extend: bool = False,
    ) -> AsyncClientConsumer:
        """A consumer of one topic or of several, working for a group, which is made at `start` if it is new.

        With `auto_extend`, messages that were handed out stay leased for as long as this client lives, until they
        are finished.
        """
        options = subscription(
            topic, group, mode, max_in_flight, visibility_timeout, autoack, start, session_timeout, name
        )
        return AsyncClientConsumer(await self.join(options, AsyncReceived, yes_or_no(auto_extend)))
