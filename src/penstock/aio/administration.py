"""The operations that people and tools use to look after a broker, awaited; see `broker.administration`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from penstock.model.info import BrokerStatus, GroupInfo
from penstock.model.letters import DeadLetter, LetterChoice, RedriveReport
from penstock.model.message import Data, MessageId, StoredMessage
from penstock.model.names import Priority
from penstock.model.schedules import DelayedMessage, Schedule
from penstock.model.traces import Trace
from penstock.model.units import Duration, Time

if TYPE_CHECKING:
    from penstock.embedded.broker import Broker


class AsyncAdministration:
    """The same operations as `penstock.Broker` has, each in a worker thread."""

    if TYPE_CHECKING:

        @property
        def _broker(self) -> Broker: ...

    async def status(self) -> BrokerStatus:
        """The broker at this instant."""
        return await asyncio.to_thread(self._broker.status)

    async def create_group(
        self,
        topic: str,
        group: str,
        *,
        start: str | Time = "earliest",
        visibility_timeout: Duration | None = None,
        max_in_flight: int | None = None,
    ) -> GroupInfo:
        """Make a group before its first consumer comes, with settings of its own."""
        return await asyncio.to_thread(
            self._broker.create_group,
            topic,
            group,
            start=start,
            visibility_timeout=visibility_timeout,
            max_in_flight=max_in_flight,
        )

    async def groups(self, topic: str | None = None) -> list[GroupInfo]:
        """Every group, or those of one topic."""
        return await asyncio.to_thread(self._broker.groups, topic)

    async def group(self, topic: str, group: str) -> GroupInfo:
        """One group."""
        return await asyncio.to_thread(self._broker.group, topic, group)

    async def seek_group(self, topic: str, group: str, to: int | str | Time, *, partition: int | None = None) -> None:
        """Move a group to an offset, a time, 'earliest' or 'latest'."""
        await asyncio.to_thread(self._broker.seek_group, topic, group, to, partition=partition)

    async def reset_group(self, topic: str, group: str) -> None:
        """Let a group begin again, with everything that is kept."""
        await asyncio.to_thread(self._broker.reset_group, topic, group)

    async def checkpoint_group(self, topic: str, group: str, positions: Mapping[int, int]) -> None:
        """Note how far a reader is that keeps its own position, so that its lag is seen."""
        await asyncio.to_thread(self._broker.checkpoint_group, topic, group, positions)

    async def delete_group(self, topic: str, group: str) -> None:
        """Forget a group."""
        await asyncio.to_thread(self._broker.delete_group, topic, group)

    async def delayed(self, topic: str, *, limit: int | None = None) -> list[DelayedMessage]:
        """What is not due yet."""
        return await asyncio.to_thread(self._broker.delayed, topic, limit=limit)

    async def cancel_delayed(self, identity: MessageId | str) -> bool:
        """Withdraw a delayed message: True if and only if nobody ever gets it."""
        return await asyncio.to_thread(self._broker.cancel_delayed, identity)

    async def reschedule_delayed(
        self, identity: MessageId | str, *, delay: Duration | None = None, deliver_at: Time | None = None
    ) -> datetime | None:
        """Give a delayed message another time."""
        return await asyncio.to_thread(self._broker.reschedule_delayed, identity, delay=delay, deliver_at=deliver_at)

    async def schedule(
        self,
        name: str,
        cron: str,
        topic: str,
        value: Data,
        *,
        zone: str = "UTC",
        key: Data | None = None,
        headers: Mapping[str, str] | None = None,
        priority: Priority = "normal",
        expires_in: Duration | None = None,
    ) -> Schedule:
        """Publish a message again and again."""
        return await asyncio.to_thread(
            self._broker.schedule,
            name,
            cron,
            topic,
            value,
            zone=zone,
            key=key,
            headers=headers,
            priority=priority,
            expires_in=expires_in,
        )

    async def schedules(self) -> list[Schedule]:
        """Every schedule, by name."""
        return self._broker.schedules()

    async def pause_schedule(self, name: str) -> Schedule:
        """Stop a schedule from firing."""
        return await asyncio.to_thread(self._broker.pause_schedule, name)

    async def resume_schedule(self, name: str) -> Schedule:
        """Let a paused schedule fire again."""
        return await asyncio.to_thread(self._broker.resume_schedule, name)

    async def remove_schedule(self, name: str) -> None:
        """End a schedule."""
        await asyncio.to_thread(self._broker.remove_schedule, name)

    async def dead_letters(
        self, topic: str, *, filter: LetterChoice | None = None, limit: int | None = None
    ) -> list[DeadLetter]:
        """The dead letters of a topic, oldest first."""
        return await asyncio.to_thread(self._broker.dead_letters, topic, filter=filter, limit=limit)

    async def dead_letter(self, identity: MessageId | str) -> DeadLetter:
        """One dead letter."""
        return await asyncio.to_thread(self._broker.dead_letter, identity)

    async def redrive(
        self,
        topic: str,
        *,
        filter: LetterChoice | None = None,
        to: str | None = None,
        rate: float | None = None,
        dry_run: bool = False,
        progress: Callable[[int], object] | None = None,
    ) -> RedriveReport:
        """Send dead letters back; `filter` and `progress` are called in another thread."""
        return await asyncio.to_thread(
            self._broker.redrive, topic, filter=filter, to=to, rate=rate, dry_run=dry_run, progress=progress
        )

    async def purge_dead_letters(self, topic: str, *, filter: LetterChoice | None = None) -> int:
        """Let dead letters go for good."""
        return await asyncio.to_thread(self._broker.purge_dead_letters, topic, filter=filter)

    async def replay(
        self,
        topic: str,
        to: str | Callable[[StoredMessage], object],
        *,
        from_time: Time | None = None,
        to_time: Time | None = None,
        from_offset: int | None = None,
        to_offset: int | None = None,
        partition: int | None = None,
        filter: Callable[[StoredMessage], bool] | None = None,
        rate: float | None = None,
    ) -> int:
        """A window of the past once more; a function is called in a worker thread."""
        return await asyncio.to_thread(
            self._broker.replay,
            topic,
            to,
            from_time=from_time,
            to_time=to_time,
            from_offset=from_offset,
            to_offset=to_offset,
            partition=partition,
            filter=filter,
            rate=rate,
        )

    async def trace(self, identity: MessageId | str) -> Trace:
        """The life of a message."""
        return await asyncio.to_thread(self._broker.trace, identity)
