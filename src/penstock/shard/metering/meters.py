"""Counters of a broker, updated where things happen: for each commit or run of messages, never for each message.

These are plain numbers that only grow, starting when the broker is opened. What the state already has (backlogs, sizes)
is not counted again: `figures` reads it on request.

The number of series is bounded. The oldest topics have their own meters, and all others share one. When a topic is
deleted, its place goes to a topic without a meter, but never to one that was counted among the others: counts stay
where they are, so that no counter ever goes down. Groups have as many places, for all topics together.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Sequence
from operator import sub
from typing import TYPE_CHECKING

from penstock.journal.commit import CommitObserver
from penstock.log.effects import Happened, Published, TopicDeleted
from penstock.log.records import SingleMessages
from penstock.model.errors import DiskFull, PenstockError
from penstock.model.events import Event, EventKind
from penstock.model.histograms import BYTES, COUNT, QUICK_S, WAIT_S, WORK_S, Histogram
from penstock.shard.metering.ages import published

if TYPE_CHECKING:
    from penstock.log.folding import Folding
    from penstock.log.partition_log import Log
    from penstock.log.topics import Topic
    from penstock.model.clock import Clock

OTHER = "_other"
"""The name of all topics, or groups, that have no series of their own."""
COUNTED = ("delivered", "redelivered", "acked", "failed", "expired", "released", "dead", "lapsed", "redriven")
"""What is counted for each group, in the order of `GroupMeter.counts`."""
DELIVERED, REDELIVERED, ACKED, FAILED, EXPIRED, RELEASED, DEAD, LAPSED, REDRIVEN = range(len(COUNTED))
_PLACES = {EventKind(name): place for place, name in enumerate(COUNTED) if name != "redelivered"}
CAUSES = ("waiting", "encoding", "writing", "syncing", "folding")
"""What a commit spends its time on, in this order."""
TOPICS_MAX = 2000
_STRETCH_S = 5.0
_SHORTEST_S = 1.0  # a rate over less than that says little
_NAMED_MAX = 200
_TELL_AGAIN_S = 10.0
_RECENT_S = 10.0
_log = logging.getLogger("penstock")


class GroupMeter:
    """What happened to the messages of a group, by their number."""

    __slots__ = ("acked_bytes", "counts", "end_to_end_s", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.counts = [0] * len(COUNTED)
        self.acked_bytes = 0
        self.end_to_end_s = 0.0  # the sum of all that were acked

    def add(self, other: GroupMeter) -> None:
        """Add the counts of another meter."""
        self.counts = [own + more for own, more in zip(self.counts, other.counts, strict=True)]
        self.acked_bytes += other.acked_bytes
        self.end_to_end_s += other.end_to_end_s


class TopicMeter:
    """What was published to a topic, and its groups."""

    __slots__ = ("groups", "name", "others", "published", "published_bytes")

    def __init__(self, name: str) -> None:
        self.name = name
        self.published = 0
        self.published_bytes = 0
        self.groups: dict[str, GroupMeter] = {}  # by the names of groups; many may have the same meter
        self.others = GroupMeter(OTHER)


class SpaceRefusals:
    """Counts what was refused because the disk is full, and logs it, but not too often; from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_s = self._told_s = float("-inf")
        self._untold = 0

    def note(self, error: DiskFull) -> DiskFull:
        """Note a refusal; the error, to be raised."""
        self._last_s = now_s = self._clock.monotonic_s()
        self._untold += 1
        if now_s - self._told_s >= _TELL_AGAIN_S:
            refusals, self._untold, self._told_s = self._untold, 0, now_s
            _log.warning("refused for lack of space: %s", error, extra={"refusals": refusals})
        return error

    def recent(self) -> bool:
        """Whether something was refused within the last seconds."""
        return self._clock.monotonic_s() - self._last_s < _RECENT_S


class Traffic:
    """Messages that were published lately, by topic: counted by block, so that whoever looks finds it at once.

    Two stretches of five seconds are kept, the one that goes on and the one before. Each counts 2,000 topics at the
    most: where there are more, the half that least was published to is forgotten. So both take well under a megabyte,
    and a block costs one update of a dict, whatever the number of topics.
    """

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._begun_s = monotonic_s()  # of the stretch that goes on
        self._counts: dict[str, int] = {}
        self._before_s = self._begun_s  # of the one before
        self._before: dict[str, int] = {}

    def look_at_clock(self) -> None:
        """Begin another stretch if it is time; called once for a commit."""
        if self._monotonic_s() - self._begun_s >= _STRETCH_S:
            self._turn()

    def add(self, topic: str, messages: int) -> None:
        """Count messages that were committed."""
        counts = self._counts
        known = counts.get(topic)
        if known is None:
            if len(counts) >= TOPICS_MAX:
                counts = self._counts = dict(heapq.nlargest(TOPICS_MAX // 2, counts.items(), key=lambda each: each[1]))
            known = 0
        counts[topic] = known + messages

    def rates(self) -> dict[str, float]:
        """Messages a second, by topic, over the last five to ten seconds; topics with none are left out."""
        self.look_at_clock()
        elapsed_s = max(self._monotonic_s() - self._before_s, _SHORTEST_S)
        whole = dict(self._before)
        for topic, count in self._counts.items():
            whole[topic] = whole.get(topic, 0) + count
        return {topic: count / elapsed_s for topic, count in whole.items()}

    def _turn(self) -> None:
        """Begin another stretch; a stretch that ended long ago no longer counts."""
        now_s = self._monotonic_s()
        if now_s - self._begun_s < 2 * _STRETCH_S:
            self._before_s, self._before = self._begun_s, self._counts
        else:
            self._before_s, self._before = now_s - _STRETCH_S, {}
        self._begun_s, self._counts = now_s, {}


class Meters(CommitObserver):
    """All counters of one broker. Those guarded by another lock than that of the state say so."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock.monotonic_s)
        self._wall_us = clock.wall_us
        self.named_max = _NAMED_MAX
        self._named_topics = 0
        self._named_groups = 0
        self.others = TopicMeter(OTHER)
        self._of_topics: dict[int, TopicMeter] = {}
        self.published = 0
        self.published_bytes = 0
        self.traffic = Traffic(clock.monotonic_s)
        self.totals = [0] * len(COUNTED)
        self._commit_messages = self._commit_bytes = 0  # of the group that is being taken in
        self._taken_us = 0  # when the last publishes of it were taken in
        self._waiting = 0  # how many publishes that are
        self.commits = 0
        self.refused_commits = 0
        self.written_bytes = 0
        self.publish_s = Histogram(WAIT_S)
        self.fsync_s = Histogram(QUICK_S)  # under the disk lock
        self.commit_s = {cause: Histogram(WAIT_S) for cause in CAUSES}  # by what took longest
        self.commit_bytes = Histogram(BYTES)
        self.commit_messages = Histogram(COUNT)
        self.fetch_s = Histogram(QUICK_S)
        self.content_read_s = Histogram(QUICK_S)  # under the lock of the contents
        self.end_to_end_s = Histogram(WAIT_S)
        self.due_lateness_s = Histogram(WAIT_S)
        self.settle_s = Histogram(WORK_S)  # these under the upkeep lock
        self.settled_segments = 0
        self.settled_bytes = 0
        self.carried_bytes = 0
        self.retained = {"archived": 0, "removed": 0}
        self.upkeep_failures = dict.fromkeys(("settling", "retention", "tidying", "staging"), 0)  # by one thread
        self.checkpoint_s = Histogram(WORK_S)  # under the checkpoint lock
        self.space = SpaceRefusals(clock)

    def listen_to(self, folding: Folding) -> None:
        """Count the effects of commits."""
        folding.listen(Published, self.count_published)
        folding.listen(Happened, self.count_events)
        folding.listen(TopicDeleted, lambda effect: self.topic_gone(effect.topic))

    # The journal.

    def synced(self, seconds: float) -> None:
        self.fsync_s.observe(seconds)

    def committed(self, size_bytes: int) -> None:
        try:
            self.commits += 1
            self.written_bytes += size_bytes
            self.commit_bytes.observe(size_bytes)
            self.commit_messages.observe(self._commit_messages)
            if self._commit_messages:
                self._observe_waits()
                self.published += self._commit_messages
                self.published_bytes += self._commit_bytes
        except Exception:  # noqa: BLE001 - not even a bug here may look like a failing disk
            _log.exception("a commit was not counted")
        self._commit_messages = self._commit_bytes = 0

    def timed(self, moments: list[float]) -> None:
        parts = list(map(sub, moments[1:], moments))
        self.commit_s[CAUSES[parts.index(max(parts))]].observe(moments[-1] - moments[0])

    def count_published(self, effect: Published) -> None:
        """Count committed messages."""
        try:
            topic, record, size_bytes = effect.topic, effect.record, effect.size_bytes
            count = record.count
            if not self._commit_messages:
                self.traffic.look_at_clock()
            if record.timestamp_us != self._taken_us:
                self._observe_waits()
                self._taken_us = record.timestamp_us
            self._waiting += count if type(record) is SingleMessages else 1
            self._commit_messages += count
            self._commit_bytes += size_bytes
            meter = self._of_topics.get(topic.id) or self.meter_of(topic)
            meter.published += count
            meter.published_bytes += size_bytes
            self.traffic.add(topic.name, count)
        except Exception:  # noqa: BLE001 - not even a bug here may look like a failing disk
            _log.exception("a commit was not counted")

    def _observe_waits(self) -> None:
        """Count how long publishes took that were taken in at one time: most of those of a commit."""
        if self._waiting:
            waited_s = max(0, self._wall_us() - self._taken_us) / 1_000_000
            self.publish_s.observe(waited_s, self._waiting)
            self._waiting = 0

    def refused(self, error: PenstockError) -> None:
        self.refused_commits += 1
        if isinstance(error, DiskFull):
            self.space.note(error)

    # Delivery.

    def count_events(self, effect: Happened) -> None:
        """Count events of messages."""
        try:
            topic, partition, events, _ = effect
            meter = self._of_topics.get(topic.id) or self.meter_of(topic)
            for event in events:
                if event.group is not None:
                    self._count_event(meter, partition.messages, event, event.group)
        except Exception:  # noqa: BLE001 - not even a bug here may look like a failing disk
            _log.exception("an event was not counted")

    def _count_event(self, meter: TopicMeter, log: Log, event: Event, name: str) -> None:
        place = _PLACES.get(event.kind)
        if place is None:
            if event.kind == EventKind.FORGOTTEN and meter.groups.pop(name, None) is not None:
                self._named_groups -= 1
            return
        group = meter.groups.get(name) or self.group_of(meter, name)
        group.counts[place] += event.count
        self.totals[place] += event.count
        if place == ACKED:
            self._acked(log, event, group)
        elif event.attempt > 1 and place == DELIVERED:
            group.counts[REDELIVERED] += event.count
            self.totals[REDELIVERED] += event.count

    def _acked(self, log: Log, event: Event, group: GroupMeter) -> None:
        for time_us, messages, size_bytes in published(log, event.offset, event.last, event.offsets):
            seconds = max(0, event.time_us - time_us) / 1_000_000
            self.end_to_end_s.observe(seconds, messages)
            group.end_to_end_s += seconds * messages
            group.acked_bytes += size_bytes

    def fetched(self, started_s: float) -> None:
        """A consumer that asked at this time got messages."""
        self.fetch_s.observe(self.monotonic_s() - started_s)

    def fell_due(self, now_us: int, due_us: list[int]) -> None:
        """Delayed messages were made ready; they were due at these times, ascending."""
        self.due_lateness_s.observe_sorted([(now_us - time_us) / 1_000_000 for time_us in reversed(due_us)])

    # Which topics and groups have their own meters.

    def meter_of(self, topic: Topic) -> TopicMeter:
        """The meter of a topic: its own if there is a place left."""
        meter = self._of_topics.get(topic.id)
        if meter is None:
            meter = self.others
            if self._named_topics < self.named_max and topic.name != OTHER:
                self._named_topics += 1
                meter = TopicMeter(topic.name)
            self._of_topics[topic.id] = meter
        return meter

    def group_of(self, topic: TopicMeter, name: str) -> GroupMeter:
        """The meter of a group: its own while there are places left, and its topic has one too."""
        found = topic.groups.get(name)
        if found is None:
            if topic is self.others or self._named_groups >= self.named_max or name == OTHER:
                return topic.others  # and nothing is kept for it
            self._named_groups += 1
            found = topic.groups[name] = GroupMeter(name)
        return found

    def limit(self, named_max: int, topics: Sequence[Topic]) -> None:
        """Limit how many topics, and groups, have their own meters: the first of these topics."""
        self.named_max = named_max
        for topic in reversed(topics):
            meter = self._of_topics.get(topic.id)
            if meter is not None and meter is not self.others and self._named_topics > named_max:
                self.others.published += meter.published
                self.others.published_bytes += meter.published_bytes
                for group in (*meter.groups.values(), meter.others):
                    self.others.others.add(group)
                self.topic_gone(topic)
                self._of_topics[topic.id] = self.others
        for topic in topics:
            self.meter_of(topic)

    def topic_gone(self, topic: Topic) -> None:
        """A topic was deleted: its place is free."""
        meter = self._of_topics.pop(topic.id, None)
        if meter is not None and meter is not self.others:
            self._named_topics -= 1
            self._named_groups -= len(meter.groups)
