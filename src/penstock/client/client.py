"""The client for asyncio: the surface of the embedded broker, on a server.

Here is what it stands on: how it connects, asks and ends. The operations are in the modules of its parents.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Iterator
from typing import Any, Self, TypeVar

from penstock.client.addresses import parse_address
from penstock.client.administration import AsyncClientAdministration
from penstock.client.cluster import Cluster
from penstock.client.connection import client_context
from penstock.client.link import Link
from penstock.client.merged import AnyRemote, consumer_of
from penstock.client.messaging import AsyncClientMessaging
from penstock.client.publisher import Publisher
from penstock.client.received import Received
from penstock.client.slices import Slices
from penstock.client.staging import AsyncClientStaging
from penstock.model.errors import BrokerClosed, TopicSpread
from penstock.model.names import check_group_name
from penstock.model.options import duration, whole
from penstock.model.units import Duration, parse_duration
from penstock.protocol.consuming import Subscribe
from penstock.protocol.frames import Command

_Received = TypeVar("_Received", bound=Received)


class AsyncClient(AsyncClientMessaging, AsyncClientStaging, AsyncClientAdministration):
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
        self._opened: tuple[Cluster, Publisher] | None = None
        self._consumers: set[AnyRemote[Any]] = set()

    async def __aenter__(self) -> Self:
        if self._opened is not None:
            raise BrokerClosed("a client is entered once")
        cluster = Cluster(self._address, self._new_link)
        await cluster.open()
        self._opened = (cluster, Publisher(cluster, self._linger_s, self._batch_size))
        return self

    def _new_link(self, address: str, generations: Iterator[int]) -> Link:
        return Link(address, self._token, self._timeout_s, self._tls, self._name, generations)

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def links(self) -> Cluster:
        """The connections, and where topics are."""
        return self._parts[0]

    @property
    def link(self) -> Link:
        """The connection to the address that was given, and what is known of the server."""
        return self._parts[0].first

    @property
    def slices(self) -> Slices:
        """What is known of topics that are spread."""
        return self._parts[0].slices

    @property
    def publisher(self) -> Publisher:
        """What messages are published through."""
        return (self._opened or self._parts)[1]  # most often without another call

    @property
    def closed(self) -> bool:
        """Whether it was connected, and is not any more."""
        return self._opened is not None and self.link.closed

    @property
    def _parts(self) -> tuple[Cluster, Publisher]:
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
            await self.links.close()
            self._parts[1].close()

    async def join(self, options: Subscribe, message_class: type[_Received], auto_extend: bool) -> AnyRemote[_Received]:
        """A consumer that hands out messages of a class; `consumer` is the way to one."""
        remote = consumer_of(self.links, options, message_class, auto_extend)
        for _ in options.topics:  # each may turn out to be spread
            try:
                await remote.begin()
            except TopicSpread as error:
                self.links.slices.note(error)
                remote = consumer_of(self.links, options, message_class, auto_extend)
            else:
                break
        else:
            await remote.begin()
        self._consumers = {known for known in self._consumers if not known.closed} | {remote}
        return remote

    async def ask(
        self,
        command: Command,
        body: bytes,
        *,
        topic: str | None = None,
        repeatable: bool = False,
        timeout_s: float | None = None,
    ) -> bytes:
        return await self.links.ask(topic, command, body, repeatable=repeatable, timeout_s=timeout_s)

    async def _ready(self) -> None:
        await self.link.ready(self._timeout_s)
