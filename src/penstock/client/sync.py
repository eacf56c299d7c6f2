"""The client in plain calls: `penstock.connect(...)`; the same as the one for asyncio, waited for."""

from __future__ import annotations

import concurrent.futures
import itertools
import os
import ssl
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from penstock.client.client import AsyncClient, subscription
from penstock.client.loop import WAITS_HERE, LoopThread
from penstock.client.outbox import Outbox
from penstock.client.staging import ClientStaging
from penstock.client.sync_administration import ClientAdministration
from penstock.client.sync_consumer import ClientConsumer, ClientDelivery
from penstock.model.errors import BrokerClosed
from penstock.model.events import Event
from penstock.model.info import RecoveryReport, TopicInfo
from penstock.model.layout import TopicLayout
from penstock.model.message import Data, Message, MessageId, MessageIds, StoredMessage
from penstock.model.names import Priority
from penstock.model.options import yes_or_no
from penstock.model.units import Duration, Time
from penstock.protocol.session import Page, Read

if TYPE_CHECKING:
    import pyarrow as pa


class Client(ClientStaging, ClientAdministration):
    """A Penstock server, used from here as an embedded broker is. Safe to use from any number of threads.

    Messages that threads publish at the same moment travel together; `linger` has them wait a little for more, up
    to `batch_size`. A publish whose reply was lost is repeated on the next connection, and is never there twice.

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
        client = AsyncClient(
            address,
            token=token,
            name=name,
            tls=tls,
            ca=ca,
            cert=cert,
            key=key,
            timeout=timeout,
            linger=linger,
            batch_size=batch_size,
        )
        self._loop = LoopThread()
        self._client = client
        try:
            self._loop.wait(client.__aenter__())
        except BaseException:
            self._loop.stop()
            raise
        self._outbox = Outbox(self._loop, client.publisher)

    # Publishing.

    def publish(
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
        if self._loop.is_here:
            raise RuntimeError(WAITS_HERE)
        return self._outbox.publish(topic, message)

    def publish_soon(
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
    ) -> concurrent.futures.Future[MessageId]:
        """Publish one message in the background; the future is its delivery report. `flush` waits for all of them."""
        message = Message(value, key, headers, priority, delay, deliver_at, partition, dedupe_id, expires_in)
        return self._outbox.put(topic, message)

    def publish_many(
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
        if not isinstance(messages, list | bytes | str):
            messages = list(messages)
        return self._loop.wait(self._client.publish_many(topic, messages, producer=producer, sequence=sequence))

    def flush(self) -> None:
        """Send what waits; returns when everything that was published is durable, or has failed."""
        self._loop.wait(self._outbox.flush())

    # Consuming and reading.

    def consumer(
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
    ) -> ClientConsumer:
        """A consumer of one topic or of several, working for a group, which is made at `start` if it is new.

        With `auto_extend`, messages that were handed out stay leased for as long as this client lives, until they
        are settled.
        """
        options = subscription(
            topic, group, mode, max_in_flight, visibility_timeout, autoack, start, session_timeout, name
        )
        remote = self._loop.wait(self._client.join(options, ClientDelivery, yes_or_no(auto_extend)))
        return ClientConsumer(self._loop, remote)

    def read(
        self,
        topic: str,
        partition: int | None = None,
        *,
        offset: int | None = None,
        from_time: Time | None = None,
        to_time: Time | None = None,
        limit: int | None = None,
        include_deleted: bool = False,
    ) -> Iterator[StoredMessage]:
        """The messages of a topic up to now, partition after partition, each in the order of its offsets."""
        pages = self._client.message_pages(topic, partition, offset, from_time, to_time, limit, include_deleted)
        return itertools.chain.from_iterable(self._loop.iterate(pages))

    def read_arrow(
        self,
        topic: str,
        partition: int | None = None,
        *,
        offset: int | None = None,
        from_time: Time | None = None,
        to_time: Time | None = None,
        include_deleted: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """The same messages as Arrow record batches: the fast way to read many."""
        return self._loop.iterate(
            self._client.read_arrow(
                topic, partition, offset=offset, from_time=from_time, to_time=to_time, include_deleted=include_deleted
            )
        )

    def events(self, topic: str, partition: int | None = None) -> Iterator[Event]:
        """What happened to the messages of a topic, partition after partition."""
        return itertools.chain.from_iterable(self._loop.iterate(self._client.event_pages(topic, partition)))

    def pages(self, request: Read, partition: int) -> Iterator[Page]:
        """Everything that a request asks for of one partition, page by page: what the other ways to read stand on."""
        return self._loop.iterate(self._client.pages(request, partition))

    def offset_at(self, topic: str, time: Time, partition: int = 0) -> int:
        """The offset of the first message with a timestamp at or after `time`; the end if there is none."""
        return self._loop.wait(self._client.offset_at(topic, time, partition))

    # Topics and upkeep.

    def topics(self) -> list[TopicInfo]:
        """Every topic, by name, with its partitions."""
        return self._loop.wait(self._client.topics())

    def layout(self, topic: str, *, segments: bool = True) -> TopicLayout:
        """Where the messages and events of a topic lie, on the machine of the server."""
        return self._loop.wait(self._client.layout(topic, segments=segments))

    def create_topic(self, name: str, **config: Any) -> TopicInfo:
        """Make a topic with options of its own: `partitions`, `retention_age`, `retention_bytes`, `archive`, …."""
        return self._loop.wait(self._client.create_topic(name, **config))

    def configure_topic(self, name: str, **options: Any) -> TopicInfo:
        """Change options of a topic."""
        return self._loop.wait(self._client.configure_topic(name, **options))

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its messages; a topic made later under this name goes on with higher offsets."""
        self._loop.wait(self._client.delete_topic(name))

    def settle(self) -> None:
        """Turn what is in the journal into Parquet segments now (very many tiny topics stay: docs/decisions/0003)."""
        self._loop.wait(self._client.settle())

    def retain(self) -> int:
        """Apply retention now; how many segments were removed or archived."""
        return self._loop.wait(self._client.retain())

    @property
    def recovery(self) -> RecoveryReport:
        """What the server found when it opened its directory."""
        return self.status().recovery

    def ping(self) -> float:
        """Ask the server whether it is there; how many seconds the answer took."""
        return self._loop.wait(self._client.ping())

    def close(self) -> None:
        """Send what waits, give leases back, and let the server go; closing twice is harmless."""
        self._outbox.close()
        try:
            self._loop.wait(self._client.close())
        except BrokerClosed:
            pass  # it is closed already
        finally:
            self._loop.stop()
            self._outbox.give_up()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()
