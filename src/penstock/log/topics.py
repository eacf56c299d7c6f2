"""Topics and their partitions in memory: folded from the journal, small enough for thousands of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from penstock.delivery.partition import PartitionState
from penstock.log.dedupe import DedupeWindow
from penstock.log.partition_log import Log, first_offset
from penstock.log.pieces import Pieces
from penstock.log.producers import ProducerHistories
from penstock.model.bounds import shown
from penstock.model.config import TopicConfig
from penstock.model.errors import TopicNotFound, TopicSpread
from penstock.model.events import Event, EventKind
from penstock.model.names import check_topic_name
from penstock.model.placement import Place, partition_of_key, share
from penstock.model.schedules import SCHEDULES


class Partition:
    """One partition: its messages, and what happened to them."""

    __slots__ = ("events", "messages", "state")

    def __init__(self, topic: Topic, number: int, first_offset: int) -> None:
        self.messages = Log(topic, "messages", number, first_offset)
        self.events: Log | None = None
        self.state: PartitionState | None = None  # what its events say about delivery

    def delivery_state(self) -> PartitionState:
        """What its events say about delivery, made when first needed."""
        if self.state is None:
            self.state = PartitionState()
        return self.state

    def apply(self, event: Event) -> None:
        """Take in what an event says about delivery."""
        if self.state is not None or event.kind not in (EventKind.ARCHIVED, EventKind.REMOVED):
            self.delivery_state().apply(event)

    def event_log(self, first: int) -> Log:
        """The log of events, made when the first one comes, which gets the number `first`."""
        if self.events is None:
            self.events = Log(self.messages.topic, "events", self.messages.partition, first)
        return self.events

    def logs(self) -> tuple[Log, ...]:
        """The logs that exist."""
        return (self.messages,) if self.events is None else (self.messages, self.events)


class Topic:
    """A named stream with its partitions."""

    __slots__ = (
        "_turn",
        "changes",
        "committed",
        "config",
        "dedupe",
        "deleting",
        "id",
        "name",
        "noted",
        "partitions",
        "producers",
        "reserved",
        "slice",
    )

    def __init__(self, topic_id: int, name: str, config: TopicConfig, first_offset: int = 0) -> None:
        self.id = topic_id
        self.name = name
        self.config = config
        self.partitions = [Partition(self, number, first_offset) for number in range(config.partitions)]
        self.dedupe: DedupeWindow | None = None
        self.producers: ProducerHistories | None = None
        self.reserved = name == SCHEDULES  # the broker's own: clients only read it
        self.committed = False  # whether its creation is on disk
        self.deleting = False  # its deletion is on the way to the disk
        self.changes: tuple[TopicConfig, ...] = ()  # options that are on the way to the disk, oldest first
        self.noted: Pieces | None = None  # as the last checkpoint has it, until it changes
        self.slice = self._turn = 0  # which part of it is here, if it is spread

    @property
    def own_partitions(self) -> range:
        """The partitions that are here: all but where the topic is spread; others stay empty."""
        return range(self.slice, len(self.partitions), self.config.spread)

    def widen(self, partitions: int) -> None:
        """Give it more partitions, empty ones."""
        known = len(self.partitions)
        self.partitions += [Partition(self, number, 0) for number in range(known, partitions)]
        self.config = replace(self.config, partitions=partitions)

    def configure(self, config: TopicConfig) -> None:
        """Keep it by other options from now on."""
        if config.partitions > len(self.partitions):  # only where a repair lost its beginning
            self.widen(config.partitions)
        partitions = len(self.partitions)
        self.config = config if config.partitions == partitions else replace(config, partitions=partitions)
        if self.dedupe is not None:
            self.dedupe.window_us = round(config.dedupe_window * 1_000_000)

    def partition(self, number: int) -> Partition:
        """One partition by its number."""
        if not (isinstance(number, int) and 0 <= number < len(self.partitions)):
            raise TopicNotFound(f"{self.name} has no partition {shown(number)}: it has 0 to {len(self.partitions) - 1}")
        return self.partitions[number]

    def partition_of_key(self, key: bytes) -> int:
        """The partition that owns the key."""
        return partition_of_key(key, len(self.partitions))

    def own_partition_of_key(self, key: bytes) -> int:
        """The partition that owns the key among those that are here."""
        return self.own_partitions[partition_of_key(key, len(self.own_partitions))]

    def next_partition(self) -> int:
        """A partition for messages without a key: each that is here in turn."""
        if len(self.partitions) == 1:
            return 0
        self._turn += self.config.spread
        if self._turn >= len(self.partitions):
            self._turn = self.slice
        return self._turn

    @property
    def partitions_before(self) -> int:
        """How many partitions the slices before this one have."""
        return sum(len(range(number, len(self.partitions), self.config.spread)) for number in range(self.slice))

    def share(self, limit: int) -> int:
        """What a limit of the whole topic is for the part of it that is here, which has room for one at least."""
        return share(limit, self.slice, self.config.spread)

    def check_own(self, partition: int) -> None:
        """Raise if a partition is in another shard."""
        if self.config.spread > 1 and (partition - self.slice) % self.config.spread:
            raise TopicSpread(
                f"partition {partition} of {self.name} is in another shard: the topic is spread over "
                f"{self.config.spread} of them, and nothing was done here",
                self.name,
                self.config.spread,
                len(self.partitions),
            )

    def lie_in(self, place: Place) -> None:
        """Be the slice that is in a shard, if it is spread."""
        self.slice = self._turn = place.slice_of(self.name, self.config.spread) if self.config.spread > 1 else 0

    def offset_floor(self) -> int:
        """Where the offsets of a topic of the same name must begin if this one is deleted."""
        return max(log.next_offset for log in self.logs())

    def lowest_offset(self) -> int:
        """The lowest offset that is kept, or that the first message gets."""
        return min(first_offset(partition.messages) for partition in self.partitions)

    def logs(self) -> Iterator[Log]:
        """Every log of the topic."""
        for partition in self.partitions:
            yield from partition.logs()


class Catalog:
    """All topics, by name and by number, and what must be remembered of deleted ones."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[int, Topic] = {}
        self.floors: dict[str, int] = {}  # of deleted topics: offsets are never used twice
        self.next_id = 1

    def topic(self, name: str) -> Topic:
        """The topic of a name."""
        found = self.by_name.get(name) if isinstance(name, str) else None
        if found is None:
            raise TopicNotFound(f"there is no topic {check_topic_name(name)!r}")
        return found

    def add(self, topic: Topic) -> None:
        """Take a topic in."""
        topic.lie_in(self.place)
        self.by_name[topic.name] = topic
        self.by_id[topic.id] = topic
        self.next_id = max(self.next_id, topic.id + 1)

    def remove(self, topic: Topic) -> None:
        """Let a topic go."""
        del self.by_name[topic.name]
        del self.by_id[topic.id]
