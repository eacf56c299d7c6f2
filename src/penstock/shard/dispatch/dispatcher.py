"""Delivery for the whole broker: attaches topics, opens groups, keeps the alarm clock, and buries the dead."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from penstock.delivery.group import Group
from penstock.delivery.lease_book import LeaseBook
from penstock.delivery.offsets import Offsets, lowest, written
from penstock.delivery.outcomes import Dying, Logged, Moment
from penstock.journal import Commit
from penstock.log.partition_log import first_offset, missing_runs
from penstock.log.topics import Topic
from penstock.model.bounds import shown
from penstock.model.errors import GroupInUse, GroupNotFound, InvalidArgument, PenstockError
from penstock.model.events import Event, EventKind
from penstock.model.group_settings import GroupSettings, encode_settings
from penstock.model.schedules import check_open_topic
from penstock.model.units import Time, parse_time_us
from penstock.shard.core import Core
from penstock.shard.dispatch.alarms import Alarms
from penstock.shard.dispatch.topic_dispatcher import TopicDispatcher
from penstock.shard.dispatch.topics_in_use import TopicsInUse
from penstock.shard.dispatch.waiting import Fetched, Members
from penstock.shard.reading.contents import Contents
from penstock.shard.reading.indexing import segment_columns
from penstock.shard.reading.log_reader import LogReader
from penstock.shard.topics import Topics

_log = logging.getLogger("penstock")
_FOREVER_S = 3600.0
_COMMIT_S = 0.005  # twice that, and deliveries are on their way to the disk although nobody waits for it
_OFFSETS_AT_ONCE = 100_000
_TOPICS_AT_ONCE = 1000  # that one call takes messages from: others wait for the state lock meanwhile


class Dispatcher:
    """All topics with consumers."""

    def __init__(self, core: Core, topics: Topics) -> None:
        self._core, self._topics = core, topics
        self.in_use = TopicsInUse(core)
        self.contents = Contents(core)
        self.dying: deque[tuple[TopicDispatcher, Group, Dying]] = deque()
        self.burying = threading.Lock()
        self.redriving = threading.Lock()
        self._attach_lock = threading.Lock()
        self._news: set[TopicDispatcher] = set()
        self._wall_alarms = Alarms()
        self._monotonic_alarms = Alarms()
        self._commits_soon = False  # whether the timer looks after deliveries that nobody waits for
        self._pending: Commit | None = None  # what they were to be committed with, when it last looked
        self.lease_book = LeaseBook(core.epoch << 32)
        self._consumers = 0
        self.wake_timer: Callable[[], None] = lambda: None
        core.journal.on_committed = self._serve_news

    def now(self) -> Moment:
        """The time of both clocks."""
        return Moment(self._core.clock.wall_us(), self._core.clock.monotonic_s())

    # Topics and groups.

    def attach(self, topic_name: str) -> TopicDispatcher:
        """The delivery of a topic, made ready if this is the first use; the topic is made if it is new."""
        core = self._core
        with self._attach_lock:
            with core.lock:
                topic, commit = self._topics.to_use(topic_name)
                delivery = self.in_use.of(topic)
                if delivery is not None:
                    return delivery
            if commit is not None:
                core.journal.wait(commit)
            indexes = [self.in_use.index(partition) for partition in topic.partitions]
            with core.lock:
                delivery = TopicDispatcher(
                    topic,
                    indexes,
                    self._log_events,
                    self._bury_soon,
                    self._arm,
                    self._news.add,
                    self.lease_book,
                    self.contents,
                )
                self.in_use.add(delivery)
                delivery.time_changed()
            if any(progress.settings.archived for progress in topic.partitions[0].delivery_state().groups.values()):
                self._show_archive(delivery)
            return delivery

    def open_group(
        self, topic_name: str, group: str, start: str | Time = "earliest", settings: GroupSettings | None = None
    ) -> TopicDispatcher:
        """The delivery of a topic with the group in use; a new group begins at `start`."""
        delivery = self.attach(topic_name)
        with self._attach_lock:
            with self._core.lock:
                known = delivery.topic.partitions[0].delivery_state().groups.get(group)
            if known is None:
                offsets = self._offsets(delivery.topic, start)
                self._create(delivery.topic, group, offsets, [settings or GroupSettings()] * len(offsets))
            elif known.settings.checkpoint:
                raise GroupInUse(
                    f"the group {shown(group)} of {topic_name} shows how far a reader is that keeps its own position "
                    "(a checkpoint group): consumers need a group of another name, and only the reader moves it"
                )
            with self._core.lock:
                delivery.active(group)
        return delivery

    def _create(
        self,
        topic: Topic,
        group: str,
        offsets: list[int],
        settings: list[GroupSettings],
        left_out: Sequence[Offsets] = (),
    ) -> None:
        check_open_topic(topic.name)
        now_us = self._core.clock.wall_us()
        with self._core.lock:
            events = []
            for number, (offset, own) in enumerate(zip(offsets, settings, strict=True)):
                log = topic.partitions[number].messages
                detail = encode_settings(replace(own, missing=missing_runs(log, offset, own.archived)))
                events.append((number, Event(EventKind.CREATED, now_us, offset, 0, group, detail=detail)))
            for number, skipped in enumerate(left_out):
                while skipped:
                    some = lowest(skipped, _OFFSETS_AT_ONCE)
                    skipped -= some  # noqa: PLW2901 - it is used up
                    first, count, others = written(some)
                    events.append((number, Event(EventKind.SKIPPED, now_us, first, count, group, offsets=others)))
            commit = self._core.log_events(topic, events)
        self._core.journal.wait(commit)

    def create_replay(
        self,
        topic_name: str,
        group: str,
        windows: list[tuple[int, int]],
        left_out: list[Offsets],
        rate: float | None,
    ) -> None:
        """A fresh group that gets just these windows of offsets without some, archived ones too."""
        delivery = self.attach(topic_name)
        with self._attach_lock:
            with self._core.lock:
                if group in delivery.topic.partitions[0].delivery_state().groups:
                    raise GroupInUse(f"the group {shown(group)} of {topic_name} exists: a replay needs a fresh one")
            self._show_archive(delivery)
            settings = [GroupSettings(until=end, rate=rate, archived=True) for _, end in windows]
            self._create(delivery.topic, group, [start for start, _ in windows], settings, left_out)

    def _show_archive(self, delivery: TopicDispatcher) -> None:
        """Have the indexes know what is in the archive too; replays get it."""
        with self._core.lock:
            missing = [
                [] if delivery.archived else [segment for segment in part.messages.segments if segment.archived]
                for part in delivery.topic.partitions
            ]
        columns = [
            list(segment_columns(self._core, partition.messages, segments, index.by_key))
            for partition, segments, index in zip(delivery.topic.partitions, missing, delivery.indexes, strict=True)
        ]
        with self._core.lock:
            if not delivery.archived:
                for index, found in zip(delivery.indexes, columns, strict=True):
                    index.add_below(found)
                delivery.archived = True

    def _offsets(self, topic: Topic, start: str | Time) -> list[int]:
        """Where a group begins, partition by partition."""
        logs = [partition.messages for partition in topic.partitions]
        if start == "earliest" or start == "latest":
            with self._core.lock:
                return [first_offset(log) if start == "earliest" else log.committed_end for log in logs]
        try:
            time_us = parse_time_us(start)
        except InvalidArgument as error:
            raise InvalidArgument(
                f"{shown(start)} is not a start: give 'earliest', 'latest' or a point in time"
            ) from error
        return [max(LogReader(self._core, log).first_at(time_us), first_offset(log)) for log in logs]

    def find_group(self, topic_name: str, group: str) -> TopicDispatcher:
        """A group that exists, put to use."""
        with self._core.lock:
            self.settings_of(self._core.topic(topic_name), group)
        return self.open_group(topic_name, group)

    def settings_of(self, topic: Topic, group: str) -> GroupSettings:
        """The settings of a group that exists."""
        assert self._core.lock.held
        known = topic.partitions[0].delivery_state().groups.get(group) if isinstance(group, str) else None
        if known is None:
            raise GroupNotFound(f"{topic.name} has no group {shown(group)}")
        return known.settings

    def seek(self, topic_name: str, group: str, offsets: dict[int, int]) -> None:
        """Move a group: everything from these offsets on is to be done again, everything before is done."""
        delivery = self.find_group(check_open_topic(topic_name), group)
        with self._core.lock:
            for number in offsets:
                delivery.active(group).group.pause(number)
            commit = self._move(delivery.topic, group, offsets)
        self._core.journal.wait(commit)

    def _move(self, topic: Topic, group: str, offsets: Mapping[int, int]) -> Commit:
        check_open_topic(topic.name)
        now_us = self._core.clock.wall_us()
        events = []
        for number, offset in sorted(offsets.items()):
            detail = encode_settings(GroupSettings(missing=missing_runs(topic.partitions[number].messages, offset)))
            events.append((number, Event(EventKind.SOUGHT, now_us, offset, 0, group, detail=detail)))
        return self._core.log_events(topic, events)

    def create_checkpoint(self, topic: Topic, group: str, positions: Mapping[int, int]) -> None:
        """Make a group that shows how far a reader is; nobody takes messages for it, so no index is needed."""
        with self._attach_lock:
            with self._core.lock:
                if group in topic.partitions[0].delivery_state().groups:
                    return
                logs = [partition.messages for partition in topic.partitions]
                offsets = [positions.get(log.partition, first_offset(log)) for log in logs]
            self._create(topic, group, offsets, [GroupSettings(checkpoint=True)] * len(offsets))

    def move_checkpoint(self, topic: Topic, group: str, positions: Mapping[int, int]) -> None:
        """Move such a group, in one commit; where it is there already, nothing is written."""
        with self._core.lock:
            if not self.settings_of(topic, group).checkpoint:
                raise GroupInUse(
                    f"the group {shown(group)} of {topic.name} is for consumers, which move it themselves: "
                    "a reader that keeps its own position needs a group of another name"
                )
            starts = {number: topic.partitions[number].delivery_state().groups[group].start for number in positions}
            moved = {number: offset for number, offset in positions.items() if offset != starts[number]}
            commit = self._move(topic, group, moved) if moved else None
        if commit is not None:
            self._core.journal.wait(commit)

    def delete_group(self, topic_name: str, group: str) -> None:
        """Forget a group; it must have no consumers."""
        now_us = self._core.clock.wall_us()
        with self._core.lock:
            topic = self._core.topic(topic_name)
            events = [
                (number, Event(EventKind.FORGOTTEN, now_us, 0, 0, group)) for number in range(len(topic.partitions))
            ]
            commit = self._core.log_events(topic, events) if self.settings_of(topic, group).checkpoint else None
        if commit is None:
            delivery = self.find_group(topic_name, group)
            with self._core.lock:
                active = delivery.active(group)
                if active.members:
                    names = ", ".join(sorted(active.members))
                    raise GroupInUse(f"the group {shown(group)} of {topic_name} has consumers: {names}")
                commit = self._core.log_events(topic, events)
                active.deleting = True
        self._core.journal.wait(commit)

    # Consumers.

    def new_consumer_name(self) -> str:
        """A name that no other consumer of this broker has or had."""
        with self._core.lock:
            self._consumers += 1
            return f"consumer-{self._core.epoch}-{self._consumers}"

    def fetch(
        self, members: Members, max_messages: int, visibility_s: float | None, partition: int | None = None
    ) -> Fetched:
        """Lease what is ready, topic after topic until there is enough.

        The next call begins with the topic behind the last one that was looked at.
        """
        self.check_open()
        now = self.now()
        found: Fetched = []
        visited = 0
        try:
            for delivery, member in members:
                visited += 1
                picks = delivery.fetch(member, max_messages, visibility_s, now, partition)
                if picks:
                    found.append((delivery, picks))
                    max_messages -= sum(len(pick.offsets) for pick in picks)
                    if max_messages <= 0 or len(found) == _TOPICS_AT_ONCE:
                        break
        except PenstockError:
            if not found:
                raise
            visited -= 1  # what was leased is handed out, and the next call hears what is wrong
        finally:
            if visited % len(members):
                members[:] = members[visited:] + members[:visited]
        if found:
            self._core.meters.fetched(now.monotonic_s)
        return found

    def check_open(self) -> None:
        """Raise if nothing can be delivered or finished."""
        self._core.check_open()

    # Time.

    def tick(self) -> float:
        """Do what has become due everywhere; how many seconds until there is more."""
        assert self._core.lock.held
        now = self.now()
        for number in sorted({*self._wall_alarms.ring(now.wall_us), *self._monotonic_alarms.ring(now.monotonic_s)}):
            topic = self._core.catalog.by_id.get(number)
            delivery = None if topic is None else self.in_use.of(topic)
            if delivery is not None:
                self._attend(delivery, now)
        wait_s = _FOREVER_S
        if self._commits_soon:
            pending = self._core.journal.latest_commit()
            if pending is self._pending:  # nobody has seen to it since the last time
                self._core.journal.wake_flusher()
            self._pending = pending
            self._commits_soon = pending is not None
            wait_s = _COMMIT_S
        wall_us, monotonic_s = self._wall_alarms.next_time(), self._monotonic_alarms.next_time()
        if wall_us is not None:
            wait_s = min(wait_s, (wall_us - now.wall_us) / 1_000_000)
        if monotonic_s is not None:
            wait_s = min(wait_s, monotonic_s - now.monotonic_s)
        return max(0.0, wait_s)

    def _attend(self, delivery: TopicDispatcher, now: Moment) -> None:
        """Do what is due in one topic; whatever goes wrong there, the others are attended to."""
        try:
            delivery.tick(now)
            delivery.serve(now)
        except PenstockError as error:
            _log.warning("what is due in %s will be tried again: %s", delivery.topic.name, error)
        except Exception:  # noqa: BLE001 - not even a bug may keep the others waiting
            _log.exception("keeping time of %s failed", delivery.topic.name)
        finally:
            delivery.time_changed()

    def _arm(self, delivery: TopicDispatcher) -> None:
        """Set the alarm clock for a topic, if it is to ring earlier than it was set for."""
        assert self._core.lock.held
        is_next = self._wall_alarms.set(delivery.topic.id, delivery.next_us)
        if self._monotonic_alarms.set(delivery.topic.id, delivery.next_s) or is_next:
            self.wake_timer()

    # What was committed.

    def _serve_news(self) -> None:
        """A group was committed: what it made ready goes to those who wait."""
        if not self._news:
            return
        assert self._core.lock.held
        now = self.now()
        changed = sorted(self._news, key=lambda delivery: delivery.topic.id)
        self._news.clear()
        for delivery in changed:
            try:
                delivery.serve(now)
            except PenstockError as error:  # what was committed stays so, whatever becomes of those who wait
                _log.warning("nobody was served on %s: %s", delivery.topic.name, error)
            except Exception:  # noqa: BLE001 - not even a bug here may look like a failing disk
                _log.exception("serving %s failed", delivery.topic.name)

    def _log_events(self, topic: Topic, events: Iterable[Logged]) -> None:
        """Log what nobody may be waiting for: the timer sees to it that it is committed."""
        self._core.log_events(topic, self.lease_book.signed(events))
        if not self._commits_soon:
            self._commits_soon = True
            self.wake_timer()

    def _bury_soon(self, delivery: TopicDispatcher, group: Group, dying: Dying) -> None:
        assert self._core.lock.held
        self.dying.append((delivery, group, dying))
        self.wake_timer()

    def drain(self) -> None:
        """Lease no more messages; what is leased can be finished."""
        self.lease_book.is_open = False

    @property
    def leased(self) -> int:
        """How many messages are leased."""
        assert self._core.lock.held
        groups = (active.group for delivery in self.in_use.all() for active in delivery.active_groups.values())
        return sum(group.leases.total for group in groups)

    def close(self) -> None:
        """Nobody waits any longer."""
        for delivery in self.in_use.all():
            delivery.close()
