"""The client in plain calls: `penstock.connect(...)`; the same as the one for asyncio, waited for.

Here is what it stands on: how it connects, asks and ends. The operations are in the modules of its parents, which are
made from those of the client for asyncio (`tools/faces.py`).
"""

from __future__ import annotations

import os
import ssl
from typing import Self, TypeVar

from penstock.client.client import AsyncClient
from penstock.client.direct import Directs
from penstock.client.link import Link
from penstock.client.loop import LoopThread
from penstock.client.outbox import Outbox
from penstock.client.received import Received
from penstock.client.slices import Slices
from penstock.client.sync_administration import ClientAdministration
from penstock.client.sync_messaging import ClientMessaging
from penstock.client.sync_staging import ClientStaging
from penstock.client.waited import WaitedConsumer
from penstock.model.config import BrokerConfig
from penstock.model.errors import BrokerClosed, NotOwner, ShardLost, TopicSpread
from penstock.model.info import RecoveryReport
from penstock.model.units import Duration
from penstock.protocol.consuming import Subscribe
from penstock.protocol.frames import Command

_Received = TypeVar("_Received", bound=Received)


class Client(ClientMessaging, ClientStaging, ClientAdministration):
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
        super().__init__()
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
        self._directs = Directs(self._loop, client.links)
        self._outbox = Outbox(self._loop, client.publisher, self._directs)

    @property
    def link(self) -> Link:
        """The connection, and what is known of the server; it belongs to the event loop of this client."""
        return self._client.link

    @property
    def slices(self) -> Slices:
        """What is known of topics that are spread."""
        return self._client.slices

    @property
    def publisher(self) -> Outbox:
        """What messages are published through."""
        return self._outbox

    @property
    def limits(self) -> BrokerConfig:
        """What the server allows, as far as it tells clients."""
        return self.link.limits

    def join(self, options: Subscribe, message_class: type[_Received], auto_extend: bool) -> WaitedConsumer[_Received]:
        """A consumer that hands out messages of a class; `consumer` is the way to one."""
        remote = self._loop.wait(self._client.join(options, message_class, auto_extend))
        return WaitedConsumer(self._loop, remote, self._directs)

    def ask(
        self,
        command: Command,
        body: bytes,
        *,
        topic: str | None = None,
        repeatable: bool = False,
        timeout_s: float | None = None,
    ) -> bytes:
        replies: list[bytes] = []
        try:
            direct = self._directs.of(topic)
            shard = self._directs.shard_of(topic)
            if direct.ask(command, body, replies, repeatable=repeatable, timeout_s=timeout_s, shard=shard):
                return replies[0]
        except (NotOwner, TopicSpread):
            pass  # nothing was done: the loop finds the owners
        except ShardLost:
            if not repeatable:
                raise
        links = self._client.links
        return self._loop.wait(links.ask(topic, command, body, repeatable=repeatable, timeout_s=timeout_s))

    def _ready(self) -> None:
        self._loop.wait(self.link.ready(self.link.timeout_s))

    @property
    def recovery(self) -> RecoveryReport:
        """What the server found when it opened its directory."""
        return self.status().recovery

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

    def __exit__(self, *_: object) -> None:
        self.close()
