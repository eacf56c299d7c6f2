# Made from api/operations.py by tools/faces.py: change that, and run `make faces`.
"""The operations of `penstock.Broker` that a thread can wait for, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from penstock.model.info import BrokerStatus, GroupInfo, TopicInfo
from penstock.model.layout import TopicLayout
from penstock.model.letters import DeadLetter, LetterChoice, RedriveReport
from penstock.model.message import Data, MessageId, StoredMessage
from penstock.model.names import Priority
from penstock.model.schedules import DelayedMessage, Schedule
from penstock.model.traces import Trace
from penstock.model.units import Duration, Time

if TYPE_CHECKING:
    from penstock.embedded.broker import Broker


class AsyncAdministration:
    """Each operation that may wait runs in a worker thread; functions that it is given are called there."""

    if TYPE_CHECKING:

        @property
        def _broker(self) -> Broker: ...

    async def offset_at(self, topic: str, time: Time, partition: int = 0) -> int:
        """The offset of the first message with a timestamp at or after `time`; the end if there is none."""
        return await asyncio.to_thread(self._broker.offset_at, topic, time, partition)

    async def topics(self) -> list[TopicInfo]:
        """Every topic, by name, with its partitions."""
        return self._broker.topics()

    async def layout(self, topic: str, *, segments: bool = True) -> TopicLayout:
        """Where the messages and events of a topic lie: how far they reach, and the segment files, if wanted."""
        return self._broker.layout(topic, segments=segments)

    async def create_topic(self, name: str, **config: Any) -> TopicInfo:
        """Make a topic with options of its own: `partitions`, `spread`, `retention_age`, `retention_bytes`, …."""
        return await asyncio.to_thread(self._broker.create_topic, name, **config)

    async def configure_topic(self, name: str, **options: Any) -> TopicInfo:
        """Change options of a topic, such as `retention_age` or `visibility_timeout`; `partitions` and `order` stay.

        Consumers that are at work follow at once: what they hold stays as it was leased to them.
        """
        return await asyncio.to_thread(self._broker.configure_topic, name, **options)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with all its messages; a topic made later under this name goes on with higher offsets."""
        await asyncio.to_thread(self._broker.delete_topic, name)

    async def settle(self) -> None:
        """Turn what is in the journal into Parquet segments now (very many tiny topics stay: docs/decisions/0003)."""
        await asyncio.to_thread(self._broker.settle)

    async def retain(self) -> int:
        """Apply retention now; how many segments were removed or archived."""
        return await asyncio.to_thread(self._broker.retain)

    async def trim(self, topic: str, before: Mapping[int, int], *, events: Mapping[int, int] | None = None) -> int:
        """Remove the segments that lie wholly before these offsets (by partition), for good; how many went.

        For whoever has copied them. What is leased, delayed and not due, or unacked where the topic protects it stays,
        and so does what is not settled. With `events` (numbers of events, by partition), segments of events go too, if
        all messages that they speak of are gone.
        """
        return await asyncio.to_thread(self._broker.trim, topic, before, events=events)

    async def status(self) -> BrokerStatus:
        """The broker at this instant: who it is, how much it holds, and whether it can write."""
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
        """One group: its lag, what is ready, leased, delayed and dead, and its consumers."""
        return await asyncio.to_thread(self._broker.group, topic, group)

    async def seek_group(self, topic: str, group: str, to: int | str | Time, *, partition: int | None = None) -> None:
        """Move a group to an offset (a whole number), a time, 'earliest' or 'latest'; what it leased is taken back.

        Times are datetimes, ISO 8601 text, or seconds since 1970 with a fraction (a whole number is an offset).
        """
        await asyncio.to_thread(self._broker.seek_group, topic, group, to, partition=partition)

    async def reset_group(self, topic: str, group: str) -> None:
        """Let a group begin again, with everything that is kept: `seek_group` to 'earliest'."""
        await asyncio.to_thread(self._broker.reset_group, topic, group)

    async def pause_group(self, topic: str, group: str) -> GroupInfo:
        """Hand no messages to a group until it is resumed; its consumers keep what they hold, and can finish it."""
        return await asyncio.to_thread(self._broker.pause_group, topic, group)

    async def resume_group(self, topic: str, group: str) -> GroupInfo:
        """Hand messages to a paused group again; whatever has come meanwhile waits for it."""
        return await asyncio.to_thread(self._broker.resume_group, topic, group)

    async def checkpoint_group(self, topic: str, group: str, positions: Mapping[int, int]) -> None:
        """Note how far a reader is that keeps its own position (offsets by partition), so that its lag is seen.

        The group is made if it is new, and is for no consumers; durable when this returns. Each position is the next
        offset to be read, and may go back; where it is the same as before, nothing is written.
        """
        await asyncio.to_thread(self._broker.checkpoint_group, topic, group, positions)

    async def delete_group(self, topic: str, group: str) -> None:
        """Forget a group; it must have no consumers."""
        await asyncio.to_thread(self._broker.delete_group, topic, group)

    async def delayed(self, topic: str, *, limit: int | None = None) -> list[DelayedMessage]:
        """What is not due yet, the next to fall due first."""
        return await asyncio.to_thread(self._broker.delayed, topic, limit=limit)

    async def cancel_delayed(self, identity: MessageId | str) -> bool:
        """Withdraw a delayed message: True if and only if nobody ever gets it."""
        return await asyncio.to_thread(self._broker.cancel_delayed, identity)

    async def reschedule_delayed(
        self, identity: MessageId | str, *, delay: Duration | None = None, deliver_at: Time | None = None
    ) -> datetime | None:
        """Give a delayed message another time; that time, or None if it is not delayed (any more)."""
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
        """Publish a message again and again, when a cron expression says so in a time zone.

        A schedule of the same name is replaced. What was missed while the broker was closed is published once.
        """
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
        """Let a paused schedule fire again, from now on."""
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
        """One dead letter, by its id among the dead letters (`orders.dlq/0/7`)."""
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
        """Send dead letters back to the groups that gave them up, or as new messages to another topic.

        Each goes once, also when this is stopped in the middle; `rate` is in messages a second. `progress` is told
        after each step how many letters it had.
        """
        return await asyncio.to_thread(
            self._broker.redrive, topic, filter=filter, to=to, rate=rate, dry_run=dry_run, progress=progress
        )

    async def purge_dead_letters(self, topic: str, *, filter: LetterChoice | None = None) -> int:
        """Let dead letters go for good; how many."""
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
        """A window of the past once more, into a fresh group (its name) or a function; how many messages.

        Acked, dead and archived messages are included; the live groups are not touched. A function is called here
        and now; a group waits for its consumers.
        """
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
        """The life of a message: published, delivered, failed, acked, …, each with time, group and cause."""
        return await asyncio.to_thread(self._broker.trace, identity)

    async def seal_stage(self, stage: str) -> int:
        """Put what was staged on disk; it takes no more from now on. How many messages; none if there is no stage."""
        return await asyncio.to_thread(self._broker.seal_stage, stage)

    async def publish_staged(self, stages: Sequence[str], *, producer: str, sequence: int) -> int:
        """Publish what sealed stages hold, in their order, once for each producer and sequence; how many messages.

        If this sequence or a higher one of the producer was published before, these stages are dropped, and nothing
        else happens: the number is that of the first time, or 0 if it was an older sequence than its newest. What was
        begun before a crash is finished with the stages of the first time.
        """
        return await asyncio.to_thread(self._broker.publish_staged, stages, producer=producer, sequence=sequence)

    async def staged_sequence(self, producer: str) -> int | None:
        """The sequence that `publish_staged` knows of a producer as its newest; None if it knows none.

        So work that publishes in numbered parts goes on where it was, after whatever ended it.
        """
        return await asyncio.to_thread(self._broker.staged_sequence, producer)

    async def drop_staged(self, stages: Sequence[str]) -> None:
        """Forget stages that will not be published; any that is not there, or is being published, is left alone."""
        await asyncio.to_thread(self._broker.drop_staged, stages)
