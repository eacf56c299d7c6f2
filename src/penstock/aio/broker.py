"""The broker for asyncio, on the embedded one."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from penstock.aio.administration import AsyncAdministration
from penstock.aio.consumer import AsyncConsumer, AsyncDelivery
from penstock.aio.outcomes import Outcomes, ThreadOutcomes
from penstock.cluster.consuming import consume
from penstock.cluster.publishing import publish, publish_many
from penstock.cluster.shards import Shards
from penstock.embedded.broker import Broker
from penstock.embedded.opening import open_broker
from penstock.model.clock import Clock
from penstock.model.errors import BrokerClosed
from penstock.model.events import Event
from penstock.model.info import RecoveryReport
from penstock.model.message import Data, Message, MessageId, MessageIds, StoredMessage
from penstock.model.names import Priority
from penstock.model.options import yes_or_no
from penstock.model.units import Duration, Time
from penstock.storage import Storage

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS_AT_ONCE = 1000
Item = TypeVar("Item")


class AsyncBroker(AsyncAdministration):
    """A message broker inside this process, for asyncio; see `penstock.Broker` for what each operation does.

    >>> import asyncio, tempfile, penstock.aio
    >>> async def main():
    ...     async with penstock.aio.open(tempfile.mkdtemp()) as broker:
    ...         await asyncio.gather(*(broker.publish("numbers", str(n)) for n in range(100)))
    ...         return len([message async for message in broker.read("numbers")])
    >>> asyncio.run(main())
    100
    """

    def __init__(self, opening: Callable[[], Broker]) -> None:
        self._opening = opening
        self._opened: Broker | None = None
        self._outcomes: Outcomes

    @property
    def _broker(self) -> Broker:
        if self._opened is None:
            raise BrokerClosed("the broker is not open: use `async with penstock.aio.open(...) as broker`")
        return self._opened

    @property
    def _shards(self) -> Shards:
        return self._broker.shards

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        opening = asyncio.ensure_future(asyncio.to_thread(self._opening))
        try:
            self._opened = await asyncio.shield(opening)
        except asyncio.CancelledError:
            (await opening).close()  # it cannot be stopped half-way
            raise
        self._outcomes = ThreadOutcomes(loop)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        await self.close()

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
        """Publish one message; done when it is durable."""
        message = Message(value, key, headers, priority, delay, deliver_at, partition, dedupe_id, expires_in)
        identity, commit = publish(self._shards, topic, message)
        if commit is not None:
            if not commit.done:
                await self._outcomes.of(commit)
            if commit.failed:
                commit.result()
        return identity

    async def publish_many(
        self,
        topic: str,
        messages: Iterable[Message | bytes | str],
        *,
        producer: str | None = None,
        sequence: int | None = None,
    ) -> MessageIds:
        """Publish a batch in one durable step."""
        ids, commit = publish_many(self._shards, topic, messages, producer, sequence)
        if commit is not None:
            if not commit.done:
                await self._outcomes.of(commit)
            commit.result()
        return ids

    async def stage_many(self, stage: str, topic: str, messages: Iterable[Message | bytes | str]) -> int:
        """Hand in a part of what is to be published together later."""
        rows = messages if isinstance(messages, list | bytes | str) else list(messages)
        return await asyncio.to_thread(self._broker.stage_many, stage, topic, rows)

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
    ) -> AsyncConsumer:
        """A consumer of one topic or of several, working for a group, which is made at `start` if it is new."""
        acks_itself = yes_or_no(autoack)
        making = asyncio.ensure_future(
            asyncio.to_thread(
                lambda: consume(
                    self._shards,
                    AsyncDelivery,
                    topic,
                    group,
                    mode=mode,
                    max_in_flight=max_in_flight,
                    visibility_timeout=visibility_timeout,
                    session_timeout=session_timeout,
                    start=start,
                    name=name,
                )
            )
        )
        try:
            consuming = await asyncio.shield(making)
        except asyncio.CancelledError:
            (await making).close()  # it cannot be stopped half-way
            raise
        return AsyncConsumer(consuming, self._outcomes, self._shards.clock, acks_itself)

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
    ) -> AsyncIterator[StoredMessage]:
        """The messages of a topic up to now."""
        return _in_thread(
            self._broker.read(
                topic,
                partition,
                offset=offset,
                from_time=from_time,
                to_time=to_time,
                limit=limit,
                include_deleted=include_deleted,
            ),
            _ROWS_AT_ONCE,
        )

    def read_arrow(
        self,
        topic: str,
        partition: int | None = None,
        *,
        offset: int | None = None,
        from_time: Time | None = None,
        to_time: Time | None = None,
        include_deleted: bool = False,
    ) -> AsyncIterator[pa.RecordBatch]:
        """The same messages as Arrow record batches."""
        batches = self._broker.read_arrow(
            topic, partition, offset=offset, from_time=from_time, to_time=to_time, include_deleted=include_deleted
        )
        return _in_thread(batches, 1)

    def events(self, topic: str, partition: int | None = None) -> AsyncIterator[Event]:
        """What happened to the messages of a topic."""
        return _in_thread(self._broker.events(topic, partition), _ROWS_AT_ONCE)

    @property
    def recovery(self) -> RecoveryReport:
        """What was found when the directory was opened."""
        return self._broker.recovery

    async def close(self) -> None:
        """Finish what is under way and let the directory go."""
        if self._opened is not None:
            await asyncio.to_thread(self._opened.close)


def open(  # noqa: A001 - named after the builtin, as `penstock.open` is
    path: str | os.PathLike[str] | None = None,
    *,
    shards: int | None = None,
    storage: Storage | None = None,
    clock: Clock | None = None,
    **config: Any,
) -> AsyncBroker:
    """The broker of a directory, to be entered with `async with`; the options are those of `penstock.open`."""
    return AsyncBroker(lambda: open_broker(path, shards=shards, storage=storage, clock=clock, **config))


def around(broker: Broker, outcomes: Outcomes) -> AsyncBroker:
    """The awaited face of a broker that is open, and stays somebody else's."""
    made = AsyncBroker(lambda: broker)
    made._opened, made._outcomes = broker, outcomes  # noqa: SLF001 - the other half of making it
    return made


async def _in_thread(items: Iterator[Item], at_once: int) -> AsyncIterator[Item]:
    """Iterate in a worker thread, some items at a time."""

    def take() -> list[Item]:
        return list(itertools.islice(items, at_once))

    while taken := await asyncio.to_thread(take):
        for item in taken:
            yield item
