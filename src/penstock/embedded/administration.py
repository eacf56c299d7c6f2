"""Everything of a broker beside publishing, consuming and reading: groups, delays, dead letters, replay, traces."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime

from penstock.model.group_settings import GroupSettings
from penstock.model.bounds import shown
from penstock.model.errors import BrokerClosed, GroupInUse, InvalidArgument
from penstock.model.info import BrokerStatus, GroupInfo
from penstock.model.letters import DeadLetter, LetterChoice, RedriveReport
from penstock.model.message import Data, Message, MessageId, StoredMessage
from penstock.model.names import Priority, check_group_name
from penstock.model.options import check_limit, check_rate, duration, optional, whole
from penstock.model.schedules import DelayedMessage, Schedule
from penstock.model.traces import Trace
from penstock.model.units import Duration, Time
from penstock.shard.interrupts import Uninterrupted
from penstock.shard.operations import dead_letters, delays, groups, replay
from penstock.shard.shard import Shard
from penstock.views import info, tracing


class Administration:
    """The operations that people and tools use to look after a broker."""

    shard: Shard

    def status(self) -> BrokerStatus:
        """The broker at this instant: who it is, how much it holds, and whether it can write."""
        return info.broker_status(self._open_engine())

    # Groups.

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
        check_group_name(group)
        settings = GroupSettings(
            visibility_timeout=optional(duration(0.001))(visibility_timeout),
            max_in_flight=optional(whole(1, 1_000_000_000))(max_in_flight),
        )
        with Uninterrupted():
            if (topic, group) in groups.list_groups(self.shard, None):
                raise GroupInUse(f"{topic} has a group {shown(group)} already")
            self.shard.dispatcher.open_group(topic, group, start, settings)
            return groups.show_group(self.shard, topic, group)

    def groups(self, topic: str | None = None) -> list[GroupInfo]:
        """Every group, or those of one topic."""
        with Uninterrupted():
            found = groups.list_groups(self.shard, topic)
            return [groups.show_group(self.shard, name, group) for name, group in found]

    def group(self, topic: str, group: str) -> GroupInfo:
        """One group: its lag, what is ready, leased, delayed and dead, and its consumers."""
        with Uninterrupted():
            return groups.show_group(self.shard, topic, group)

    def seek_group(self, topic: str, group: str, to: int | str | Time, *, partition: int | None = None) -> None:
        """Move a group to an offset (a whole number), a time, 'earliest' or 'latest'; what it leased is taken back.

        Times are datetimes, ISO 8601 text, or seconds since 1970 with a fraction (a whole number is an offset).
        """
        with Uninterrupted():
            groups.seek_group(self.shard, topic, group, to, partition)

    def reset_group(self, topic: str, group: str) -> None:
        """Let a group begin again, with everything that is kept: `seek_group` to 'earliest'."""
        self.seek_group(topic, group, "earliest")

    def checkpoint_group(self, topic: str, group: str, positions: Mapping[int, int]) -> None:
        """Note how far a reader is that keeps its own position (offsets by partition), so that its lag is seen.

        The group is made if it is new, and is for no consumers; durable when this returns. Each position is the next
        offset to be read, and may go back; where it is the same as before, nothing is written.
        """
        with Uninterrupted():
            groups.checkpoint_group(self._open_engine(), topic, group, positions)

    def delete_group(self, topic: str, group: str) -> None:
        """Forget a group; it must have no consumers."""
        with Uninterrupted():
            self.shard.dispatcher.delete_group(topic, group)

    # Delays.

    def delayed(self, topic: str, *, limit: int | None = None) -> list[DelayedMessage]:
        """What is not due yet, the next to fall due first."""
        with Uninterrupted():
            return list(delays.list_delayed(self.shard, topic, check_limit(limit)))

    def cancel_delayed(self, identity: MessageId | str) -> bool:
        """Withdraw a delayed message: True if and only if nobody ever gets it."""
        with Uninterrupted():
            return delays.cancel_delayed(self.shard, _identity(identity))

    def reschedule_delayed(
        self, identity: MessageId | str, *, delay: Duration | None = None, deliver_at: Time | None = None
    ) -> datetime | None:
        """Give a delayed message another time; that time, or None if it is not delayed (any more)."""
        with Uninterrupted():
            return delays.reschedule_delayed(self.shard, _identity(identity), delay, deliver_at)

    # Schedules.

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
        message = Message(value, key, headers, priority, expires_in=expires_in)
        with Uninterrupted():
            with self.shard.lock:
                made, commit = self._open_engine().schedules.put(name, cron, zone, topic, message)
            self.shard.journal.wait(commit)
        return made

    def schedules(self) -> list[Schedule]:
        """Every schedule, by name."""
        with self.shard.lock:
            return self._open_engine().schedules.all()

    def pause_schedule(self, name: str) -> Schedule:
        """Stop a schedule from firing."""
        return self._pause(name, paused=True)

    def resume_schedule(self, name: str) -> Schedule:
        """Let a paused schedule fire again, from now on."""
        return self._pause(name, paused=False)

    def remove_schedule(self, name: str) -> None:
        """End a schedule."""
        with Uninterrupted():
            with self.shard.lock:
                commit = self._open_engine().schedules.remove(name)
            self.shard.journal.wait(commit)

    def _pause(self, name: str, paused: bool) -> Schedule:
        with Uninterrupted():
            with self.shard.lock:
                changed, commit = self._open_engine().schedules.pause(name, paused)
            self.shard.journal.wait(commit)
        return changed

    # Dead letters.

    def dead_letters(
        self, topic: str, *, filter: LetterChoice | None = None, limit: int | None = None
    ) -> list[DeadLetter]:
        """The dead letters of a topic, oldest first."""
        found: Iterator[DeadLetter] = dead_letters.list_dead_letters(self._open_engine(), topic)
        chosen = (letter for letter in found if filter is None or filter(letter))
        return list(itertools.islice(chosen, check_limit(limit)))

    def dead_letter(self, identity: MessageId | str) -> DeadLetter:
        """One dead letter, by its id among the dead letters (`orders.dlq/0/7`)."""
        return dead_letters.find_dead_letter(self._open_engine(), _identity(identity))

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
        return dead_letters.redrive(self._open_engine(), topic, filter, to, check_rate(rate), dry_run, progress)

    def purge_dead_letters(self, topic: str, *, filter: LetterChoice | None = None) -> int:
        """Let dead letters go for good; how many."""
        return dead_letters.purge(self._open_engine(), topic, filter)

    # The past.

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
        window = replay.replay_window(from_time, to_time, from_offset, to_offset)
        place = (self._open_engine(), topic, window, partition)
        if isinstance(to, str):
            with Uninterrupted():
                return replay.replay_to_group(*place, to, filter, check_rate(rate))
        if not callable(to):
            raise InvalidArgument(f"{shown(to)} is not the name of a group and not a function")
        return replay.replay_to_function(*place, to, filter, check_rate(rate))

    def trace(self, identity: MessageId | str) -> Trace:
        """The life of a message: published, delivered, failed, acked, …, each with time, group and cause."""
        with Uninterrupted():
            return tracing.trace(self._open_engine(), _identity(identity))

    def _open_engine(self) -> Shard:
        if self.shard.closed:
            raise BrokerClosed("the broker is closed")
        return self.shard


def _identity(identity: MessageId | str) -> MessageId:
    return MessageId.parse(str(identity))  # one that was made by hand is checked too
