"""The client for asyncio: the surface of the embedded broker, on a server."""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from penstock.api.operations import OPERATIONS
from penstock.client.administration import AsyncClientAdministration
from penstock.client.consumer import AsyncClientConsumer, AsyncReceived
from penstock.client.link import Link, parse_address
from penstock.client.publisher import Publisher
from penstock.client.reading import AsyncClientReading
from penstock.client.received import Received
from penstock.client.remote import RemoteConsumer
from penstock.client.staging import AsyncClientStaging
from penstock.client.tls import client_context
from penstock.model.errors import BrokerClosed, InvalidArgument
from penstock.model.info import TopicInfo
from penstock.model.layout import TopicLayout
from penstock.model.message import Data, Message, MessageId, MessageIds
from penstock.model.names import Priority, check_group_name, check_topic_name
from penstock.model.options import duration, optional, whole, yes_or_no
from penstock.model.units import Duration, Time, parse_duration
from penstock.protocol.consuming import Subscribe
from penstock.protocol.frames import Command
from penstock.protocol.session import Call, encode

Result = TypeVar("Result")
_Received = TypeVar("_Received", bound=Received)
_decoders: dict[Any, msgspec.msgpack.Decoder[Any]] = {}


class AsyncClient(AsyncClientReading, AsyncClientStaging, AsyncClientAdministration):
    """A Penstock server, used from here; to be entered with `async with`.

    Messages that tasks publish at the same moment travel together; `linger` has them wait a little for more, up to
    `batch_size`. A publish whose reply was lost is repeated on the next connection, and is never there twice.

    With `tls`, the server must show a certificate of an authority that this machine trusts, or that is in the file
    `ca`; `cert` and `key` are files with what this client shows itself, where a server asks for that.

    `name` is what traces call the producer of its messages; without one, that is the name of the token.
    """

    def __init__(
        self,
        address: str = "127.0.0.1:9000",
        *,
        token: str | None = None,
        name: str | None = None,
        tls: bool | ssl.SSLContext = False,
        ca: str | os.PathLike[str] | None = None,
        cert: str | os.PathLike[str] | None = None,
        key: str | os.PathLike[str] | None = None,
        timeout: Duration = 30.0,
        linger: Duration = 0,
        batch_size: int = 1000,
    ) -> None:
        super().__init__()
        parse_address(address)
        self._address = address
        self._token = token
        self._name = None if name is None else check_group_name(name, "client")
        self._tls = client_context(tls, ca, cert, key)
        self._timeout_s = duration(0.001)(timeout)
        self._linger_s = parse_duration(linger)
        self._batch_size = whole(1, 100_000)(batch_size)
        self._opened: tuple[Link, Publisher] | None = None
        self._consumers: set[RemoteConsumer[Any]] = set()

    async def __aenter__(self) -> Self:
        if self._opened is not None:
            raise BrokerClosed("a client is entered once")
        link = Link(self._address, self._token, self._timeout_s, self._tls, self._name)
        await link.open()
        self._opened = (link, Publisher(link, self._linger_s, self._batch_size))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def link(self) -> Link:
        """The connection, and what is known of the server."""
        return self._parts[0]

    @property
    def closed(self) -> bool:
        """Whether it was connected, and is not any more."""
        return self._opened is not None and self.link.closed

    @property
    def _parts(self) -> tuple[Link, Publisher]:
        if self._opened is None:
            raise BrokerClosed("the client is not connected: use `async with penstock.aio.connect(...) as client`")
        return self._opened

    async def close(self) -> None:
        """Send what waits, give leases back, and let the server go; closing twice is harmless."""
        if self._opened is None or self.link.closed:
            return
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._parts[1].flush()
                await asyncio.gather(*(consumer.close() for consumer in list(self._consumers)))
        except TimeoutError:
            pass  # whoever waits for what was not sent hears of it from the link
        finally:
            await self.link.close()
            self._parts[1].close()

    # Publishing.

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
        return await (await self._parts[1].publish_soon(topic, message))

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

        Waits only while too many are on the way already.
        """
        message = Message(value, key, headers, priority, delay, deliver_at, partition, dedupe_id, expires_in)
        return await self._parts[1].publish_soon(topic, message)

    @property
    def publisher(self) -> Publisher:
        """What single messages go through."""
        return self._parts[1]

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
        return await self._parts[1].publish_many(topic, messages, producer, sequence)

    async def flush(self) -> None:
        """Send what waits; returns when everything that was published is durable, or has failed."""
        await self._parts[1].flush()

    # Consuming.

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
        are settled.
        """
        options = subscription(
            topic, group, mode, max_in_flight, visibility_timeout, autoack, start, session_timeout, name
        )
        return AsyncClientConsumer(await self.join(options, AsyncReceived, yes_or_no(auto_extend)))

    async def join(
        self, options: Subscribe, message_class: type[_Received], auto_extend: bool
    ) -> RemoteConsumer[_Received]:
        """A consumer that hands out messages of a class; `consumer` is the way to one."""
        remote = RemoteConsumer(self.link, options, message_class, auto_extend)
        await self.link.ready(self._timeout_s)
        await remote.join()
        self._consumers = {known for known in self._consumers if not known.closed} | {remote}
        return remote

    # Topics.

    async def topics(self) -> list[TopicInfo]:
        """Every topic, by name, with its partitions."""
        return await self.call("topics", list[TopicInfo])

    async def layout(self, topic: str, *, segments: bool = True) -> TopicLayout:
        """Where the messages and events of a topic lie, on the machine of the server."""
        return await self.call("layout", TopicLayout, topic=topic, segments=segments)

    async def create_topic(self, name: str, **config: Any) -> TopicInfo:
        """Make a topic with options of its own: `partitions`, `retention_age`, `retention_bytes`, `archive`, …."""
        return await self.call("create_topic", TopicInfo, name=name, **config)

    async def configure_topic(self, name: str, **options: Any) -> TopicInfo:
        """Change options of a topic."""
        return await self.call("configure_topic", TopicInfo, name=name, **options)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with all its messages; a topic made later under this name goes on with higher offsets."""
        await self.call("delete_topic", None, name=name)

    async def settle(self) -> None:
        """Turn what is in the journal into Parquet segments now (very many tiny topics stay: docs/decisions/0003)."""
        await self.call("settle", None)

    async def retain(self) -> int:
        """Apply retention now; how many segments were removed or archived."""
        return await self.call("retain", int)

    async def ping(self) -> float:
        """Ask the server whether it is there; how many seconds the answer took."""
        started_s = time.perf_counter()
        await self.link.ask(Command.PING, encode(None), repeatable=True)
        return time.perf_counter() - started_s

    async def call(self, operation: str, result: type[Result] | None, /, **arguments: Any) -> Result:
        """Call an operation of the broker by its name."""
        request = Call(operation, {name: _plain(value) for name, value in arguments.items()})
        rules = OPERATIONS.get(operation)  # a newer server may have more
        timeout_s = max(self._timeout_s, _PATIENCE_S) if rules is not None and rules.is_patient else None
        repeatable = rules is not None and rules.repeatable
        try:
            body = encode(request)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidArgument(f"{operation}: {error}") from error
        reply = await self.link.ask(Command.CALL, body, repeatable=repeatable, timeout_s=timeout_s)
        decoder = _decoders.get(result)
        if decoder is None:
            decoder = _decoders[result] = msgspec.msgpack.Decoder(result)
        decoded: Result = decoder.decode(reply)
        return decoded


_PATIENCE_S = 3600.0


def subscription(
    topic: str | Sequence[str],
    group: str,
    mode: str,
    max_in_flight: int,
    visibility_timeout: Duration | None,
    autoack: bool,
    start: str | Time,
    session_timeout: Duration,
    name: str | None,
) -> Subscribe:
    """The request of a consumer, with what can be checked here checked here."""
    names = [topic] if isinstance(topic, str) else list(topic) if isinstance(topic, Iterable) else []
    if not names or len({check_topic_name(one) for one in names}) < len(names):
        raise InvalidArgument(f"{topic!r} is not a topic or a list of different topics")
    return Subscribe(
        topics=names,
        group=check_group_name(group),
        mode=_mode(mode),
        max_in_flight=whole(1, 1_000_000)(max_in_flight),
        visibility_timeout=optional(duration(0.001))(visibility_timeout),
        autoack=yes_or_no(autoack),
        start=start.isoformat() if isinstance(start, datetime) else start,
        session_timeout=duration(0.001)(session_timeout),
        name=None if name is None else check_group_name(name, "consumer"),
    )


def _mode(mode: object) -> str:
    if mode not in ("shared", "assigned"):
        raise InvalidArgument(f"{mode!r} is not a mode: give 'shared' or 'assigned'")
    return str(mode)


def _plain(value: object) -> object:
    """An argument as msgpack can carry it."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, MessageId | os.PathLike):
        return str(value)
    return value
