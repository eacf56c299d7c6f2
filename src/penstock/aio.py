"""The asynchronous face of the embedded broker: the same operations, awaited.

    import asyncio, penstock.aio

    async def main():
        async with penstock.aio.open("./data") as broker:
            await broker.publish("orders", b"two coffees")
            async for message in broker.read("orders"):
                print(message.id, message.value)

Publishing waits for the disk without a thread of its own: everything that tasks publish meanwhile goes into the
next commit. Reading and upkeep run in worker threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from penstock.broker.embedded import Broker, open_broker
from penstock.broker.info import TopicInfo
from penstock.broker.recovery import RecoveryReport
from penstock.journal import Commit
from penstock.model.clock import Clock
from penstock.model.errors import BrokerClosed
from penstock.model.events import Event
from penstock.model.message import Data, Message, MessageId, MessageIds, StoredMessage
from penstock.model.names import Priority
from penstock.model.units import Duration, Time
from penstock.storage import Storage

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS_AT_ONCE = 1000
Item = TypeVar("Item")


class AsyncBroker:
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
        self._waiting: dict[Commit, list[asyncio.Future[None]]] = {}

    @property
    def _broker(self) -> Broker:
        if self._opened is None:
            raise BrokerClosed("the broker is not open: use `async with penstock.aio.open(...) as broker`")
        return self._opened

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._create_future = loop.create_future
        self._call_soon_threadsafe = loop.call_soon_threadsafe
        opening = asyncio.ensure_future(asyncio.to_thread(self._opening))
        try:
            self._opened = await asyncio.shield(opening)
        except asyncio.CancelledError:
            (await opening).close()  # it cannot be stopped half-way
            raise
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
        identity, commit = self._broker.engine.publish(topic, message)
        if commit is not None:
            if not commit.done:
                await self._outcome(commit)
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
        ids, commit = self._broker.engine.publish_many(topic, messages, producer, sequence)
        if commit is not None:
            if not commit.done:
                await self._outcome(commit)
            commit.result()
        return ids

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

    async def offset_at(self, topic: str, time: Time, partition: int = 0) -> int:
        """The offset of the first message with a timestamp at or after `time`."""
        return await asyncio.to_thread(self._broker.offset_at, topic, time, partition)

    def topics(self) -> list[TopicInfo]:
        """Every topic, by name."""
        return self._broker.topics()

    async def create_topic(self, name: str, **config: Any) -> TopicInfo:
        """Make a topic with options of its own."""
        return await asyncio.to_thread(lambda: self._broker.create_topic(name, **config))

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with all its messages."""
        await asyncio.to_thread(self._broker.delete_topic, name)

    async def settle(self) -> None:
        """Turn everything that is in the journal into Parquet segments now."""
        await asyncio.to_thread(self._broker.settle)

    async def retain(self) -> int:
        """Apply retention now."""
        return await asyncio.to_thread(self._broker.retain)

    @property
    def recovery(self) -> RecoveryReport:
        """What was found when the directory was opened."""
        return self._broker.recovery

    async def close(self) -> None:
        """Finish what is under way and let the directory go."""
        if self._opened is not None:
            await asyncio.to_thread(self._opened.close)

    def _outcome(self, commit: Commit) -> asyncio.Future[None]:
        """Done when the commit is; one call wakes all tasks that wait for the same one."""
        future = self._create_future()
        waiting = self._waiting.get(commit)
        if waiting is not None:
            waiting.append(future)
        else:
            self._waiting[commit] = [future]
            commit.on_done(partial(self._wake_soon, commit))
            self._broker.engine.journal.wake_flusher()
        return future

    def _wake_soon(self, commit: Commit) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
            self._call_soon_threadsafe(self._wake, commit)

    def _wake(self, commit: Commit) -> None:
        for future in self._waiting.pop(commit):
            if not future.done():
                future.set_result(None)


def open(  # noqa: A001 - named after the builtin, as `penstock.open` is
    path: str | os.PathLike[str] | None = None,
    *,
    storage: Storage | None = None,
    clock: Clock | None = None,
    **config: Any,
) -> AsyncBroker:
    """The broker of a directory, to be entered with `async with`; options are those of `BrokerConfig`."""
    return AsyncBroker(lambda: open_broker(path, storage=storage, clock=clock, **config))


async def _in_thread(items: Iterator[Item], at_once: int) -> AsyncIterator[Item]:
    """Iterate in a worker thread, some items at a time."""

    def take() -> list[Item]:
        return list(itertools.islice(items, at_once))

    while taken := await asyncio.to_thread(take):
        for item in taken:
            yield item
