# Made from api/operations.py by tools/faces.py: change that, and run `make faces`.
"""The operations of `penstock.Broker` that its shards do, or that are answers about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from penstock.cluster import gathering, spreading
from penstock.cluster.shards import Shards
from penstock.model.info import BrokerStatus, GroupInfo
from penstock.model.letters import DeadLetter, LetterChoice, RedriveReport
from penstock.model.message import Data, MessageId, StoredMessage
from penstock.model.names import Priority
from penstock.model.schedules import DelayedMessage, Schedule
from penstock.model.traces import Trace
from penstock.model.units import Duration, Time
from penstock.shard.operations import dead_letters, delays
from penstock.shard.shard import Shard
from penstock.views import tracing


class Administration:
    """The operations that people and tools use to look after a broker."""

    shards: Shards

    def status(self) -> BrokerStatus:
        """The broker at this instant: who it is, how much it holds, and whether it can write."""
        return gathering.status(self._open_shards())

    def create_group(
        self,
        topic: str,
        group: str,
        *,
        start: str | Time = "earliest",
        visibility_timeout: Duration | None = None,
        max_in_flight: int | None = None,
    ) -> GroupInfo:
        """Make a group before its first consumer comes, with settings of its own."""
        return spreading.create_group(
            self._open_shards(),
            topic,
            group,
            start=start,
            visibility_timeout=visibility_timeout,
            max_in_flight=max_in_flight,
        )

    def groups(self, topic: str | None = None) -> list[GroupInfo]:
        """Every group, or those of one topic."""
        return gathering.groups(self._open_shards(), topic)

    def group(self, topic: str, group: str) -> GroupInfo:
        """One group: its lag, what is ready, leased, delayed and dead, and its consumers."""
        return spreading.group(self._open_shards(), topic, group)

    def seek_group(self, topic: str, group: str, to: int | str | Time, *, partition: int | None = None) -> None:
        """Move a group to an offset (a whole number), a time, 'earliest' or 'latest'; what it leased is taken back.

        Times are datetimes, ISO 8601 text, or seconds since 1970 with a fraction (a whole number is an offset).
        """
        spreading.seek_group(self._open_shards(), topic, group, to, partition=partition)

    def reset_group(self, topic: str, group: str) -> None:
        """Let a group begin again, with everything that is kept: `seek_group` to 'earliest'."""
        spreading.reset_group(self._open_shards(), topic, group)

    def pause_group(self, topic: str, group: str) -> GroupInfo:
        """Hand no messages to a group until it is resumed; its consumers keep what they hold, and can finish it."""
        return spreading.pause_group(self._open_shards(), topic, group)

    def resume_group(self, topic: str, group: str) -> GroupInfo:
        """Hand messages to a paused group again; whatever has come meanwhile waits for it."""
        return spreading.resume_group(self._open_shards(), topic, group)

    def checkpoint_group(self, topic: str, group: str, positions: Mapping[int, int]) -> None:
        """Note how far a reader is that keeps its own position (offsets by partition), so that its lag is seen.

        The group is made if it is new, and is for no consumers; durable when this returns. Each position is the next
        offset to be read, and may go back; where it is the same as before, nothing is written.
        """
        spreading.checkpoint_group(self._open_shards(), topic, group, positions)

    def delete_group(self, topic: str, group: str) -> None:
        """Forget a group; it must have no consumers."""
        spreading.delete_group(self._open_shards(), topic, group)

    def delayed(self, topic: str, *, limit: int | None = None) -> list[DelayedMessage]:
        """What is not due yet, the next to fall due first."""
        return spreading.delayed(self._open_shards(), topic, limit=limit)

    def cancel_delayed(self, identity: MessageId | str) -> bool:
        """Withdraw a delayed message: True if and only if nobody ever gets it."""
        return delays.cancel_delayed(self._shard_with(identity), identity)

    def reschedule_delayed(
        self, identity: MessageId | str, *, delay: Duration | None = None, deliver_at: Time | None = None
    ) -> datetime | None:
        """Give a delayed message another time; that time, or None if it is not delayed (any more)."""
        return delays.reschedule_delayed(self._shard_with(identity), identity, delay=delay, deliver_at=deliver_at)

    def schedule(
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
        return gathering.schedule(
            self._open_shards(),
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

    def schedules(self) -> list[Schedule]:
        """Every schedule, by name."""
        return gathering.schedules(self._open_shards())

    def pause_schedule(self, name: str) -> Schedule:
        """Stop a schedule from firing."""
        return gathering.pause_schedule(self._open_shards(), name)

    def resume_schedule(self, name: str) -> Schedule:
        """Let a paused schedule fire again, from now on."""
        return gathering.resume_schedule(self._open_shards(), name)

    def remove_schedule(self, name: str) -> None:
        """End a schedule."""
        gathering.remove_schedule(self._open_shards(), name)

    def dead_letters(
        self, topic: str, *, filter: LetterChoice | None = None, limit: int | None = None
    ) -> list[DeadLetter]:
        """The dead letters of a topic, oldest first."""
        return spreading.dead_letters(self._open_shards(), topic, filter=filter, limit=limit)

    def dead_letter(self, identity: MessageId | str) -> DeadLetter:
        """One dead letter, by its id among the dead letters (`orders.dlq/0/7`)."""
        return dead_letters.dead_letter(self._shard_with(identity), identity)

    def redrive(
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
        return spreading.redrive(
            self._open_shards(), topic, filter=filter, to=to, rate=rate, dry_run=dry_run, progress=progress
        )

    def purge_dead_letters(self, topic: str, *, filter: LetterChoice | None = None) -> int:
        """Let dead letters go for good; how many."""
        return spreading.purge_dead_letters(self._open_shards(), topic, filter=filter)

    def replay(
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
        return spreading.replay(
            self._open_shards(),
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

    def trace(self, identity: MessageId | str) -> Trace:
        """The life of a message: published, delivered, failed, acked, …, each with time, group and cause."""
        return tracing.trace(self._shard_with(identity), identity)

    def _open_shards(self) -> Shards:
        self.shards.check_open()
        return self.shards

    def _shard_of(self, topic: str) -> Shard:
        return self._open_shards().of(topic)

    def _shard_with(self, identity: MessageId | str) -> Shard:
        return self._open_shards().of_message(identity)
