"""The embedded broker: shards with threads of their own, in plain calls that return when it is done."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from penstock.cluster import gathering, publishing, spreading, topics
from penstock.cluster.shards import open_shards
from penstock.cluster.slices import find_existing
from penstock.embedded.administration import Administration
from penstock.embedded.consumer import Consumer
from penstock.log.partition_log import Log
from penstock.model.clock import Clock
from penstock.model.config import BrokerConfig
from penstock.model.errors import NotOwner
from penstock.model.events import Event
from penstock.model.info import RecoveryReport, TopicInfo
from penstock.model.layout import TopicLayout
from penstock.model.message import Data, Message, MessageId, MessageIds, StoredMessage
from penstock.model.names import Priority
from penstock.model.options import check_limit
from penstock.model.units import Duration, Time, parse_time_us
from penstock.segments.window import Window, parse_window
from penstock.shard.interrupts import Uninterrupted
from penstock.shard.reading.log_reader import LogReader
from penstock.shard.shard import Shard
from penstock.shard.upkeep.background import Background
from penstock.shard.upkeep.flushing import Flusher
from penstock.shard.upkeep.retention import retain
from penstock.shard.upkeep.segment_process import SegmentProcess
from penstock.storage import Storage

if TYPE_CHECKING:
    import pyarrow as pa


class Broker(Administration):
    """A message broker inside this process, on one directory. Safe to use from any number of threads.

    >>> import tempfile, penstock
    >>> with penstock.open(tempfile.mkdtemp()) as broker:
    ...     identity = broker.publish("orders", "two coffees", key="alex", priority="high")
    ...     [message.value for message in broker.read("orders")]
    [b'two coffees']
    """

    def __init__(
        self,
        storage: Storage,
        config: BrokerConfig,
        clock: Clock | None = None,
        segment_process: SegmentProcess | None = None,
        shards: int | None = None,
        held: Collection[int] | None = None,
    ) -> None:
        """`held`: the shards that are open here, of a directory that is kept for several processes; None: all."""
        self.shards = open_shards(storage, config, clock, shards, held)
        self._segment_process = segment_process
        self._flusher = Flusher(config)
        self._backgrounds: list[Background] = []  # never changed, but replaced
        for shard in self.shards:
            self._look_after(shard)

    def _look_after(self, shard: Shard) -> None:
        self._flusher.add(shard)
        self._backgrounds = [*self._backgrounds, Background(shard, self._segment_process)]

    def _let_go(self, number: int) -> None:
        shard = self.shards.let_go(number)
        shard.refuse_work()
        for background in self._forget(shard):
            background.stop()
        shard.close()

    def _lose(self, number: int, error: NotOwner) -> None:
        for background in self._forget(self.shards.lose(number, error)):
            background.end()

    def _forget(self, shard: Shard) -> list[Background]:
        """Look after a shard no more; what is still at work for it."""
        self._flusher.remove(shard)
        own = [background for background in self._backgrounds if background.shard is shard]
        self._backgrounds = [background for background in self._backgrounds if background.shard is not shard]
        return own

    @property
    def shard(self) -> Shard:
        """The shard of a broker that has but one."""
        return self.shards.only

    @property
    def engine(self) -> Shard:
        """Deprecated: the name that `shard` had in 0.1."""
        warnings.warn("Broker.engine is called Broker.shard now", DeprecationWarning, stacklevel=2)
        return self.shard

    def publish(
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
        """Publish one message; returns when it is durable (see the `sync` option). The topic is made if it is new."""
        message = Message(value, key, headers, priority, delay, deliver_at, partition, dedupe_id, expires_in)
        with Uninterrupted():
            identity, commit = publishing.publish(self.shards, topic, message)
            if commit is not None:
                commit.wait()
        return identity

    def publish_many(
        self,
        topic: str,
        messages: Iterable[Message | bytes | str],
        *,
        producer: str | None = None,
        sequence: int | None = None,
    ) -> MessageIds:
        """Publish a batch in one durable step: after a crash all of it is there, or nothing.

        With `producer` and a growing `sequence`, publishing the same batch again returns the same ids and
        changes nothing.
        """
        if not isinstance(messages, list | bytes | str):
            messages = list(messages)
        with Uninterrupted():
            ids, commit = publishing.publish_many(self.shards, topic, messages, producer, sequence)
            if commit is not None:
                commit.wait()
        return ids

    def stage_many(self, stage: str, topic: str, messages: Iterable[Message | bytes | str]) -> int:
        """Hand in a part of what is to be published together later: checked as by `publish_many`, seen by nobody.

        The stage is made by its first batch; it is durable when `seal_stage` has returned. How many messages.
        """
        if not isinstance(messages, list | bytes | str):
            messages = list(messages)
        with Uninterrupted():
            return publishing.stage_many(self.shards, stage, topic, messages)

    def seal_stage(self, stage: str) -> int:
        """Put what was staged on disk; it takes no more from now on. How many messages; none if there is no stage."""
        with Uninterrupted():
            return gathering.seal_stage(self.shards, stage)

    def publish_staged(self, stages: Sequence[str], *, producer: str, sequence: int) -> int:
        """Publish what sealed stages hold, in their order, once for each producer and sequence; how many messages.

        If this sequence or a higher one of the producer was published before, these stages are dropped, and nothing
        else happens: the number is that of the first time, or 0 if it was an older sequence than its newest. What was
        begun before a crash is finished with the stages of the first time.
        """
        with Uninterrupted():
            return gathering.publish_staged(self.shards, stages, producer, sequence)

    def staged_sequence(self, producer: str) -> int | None:
        """The sequence that `publish_staged` knows of a producer as its newest; None if it knows none.

        So work that publishes in numbered parts goes on where it was, after whatever ended it.
        """
        with Uninterrupted():
            return gathering.staged_sequence(self.shards, producer)

    def drop_staged(self, stages: Sequence[str]) -> None:
        """Forget stages that will not be published; any that is not there, or is being published, is left alone."""
        with Uninterrupted():
            gathering.drop_staged(self.shards, stages)

    def consumer(
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
    ) -> Consumer:
        """A consumer of one topic or of several, working for a group, which is made at `start` if it is new.

        In `shared` mode any number of consumers get messages of all partitions; in `assigned` mode each partition
        belongs to one of them. `autoack` acks messages as they are handed out: at most once instead of at least.
        """
        with Uninterrupted():
            return Consumer(
                self.shards,
                topic,
                group,
                mode=mode,
                max_in_flight=max_in_flight,
                visibility_timeout=visibility_timeout,
                autoack=autoack,
                start=start,
                session_timeout=session_timeout,
                name=name,
            )

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
    ) -> Iterator[StoredMessage]:
        """The messages of a topic up to now, partition after partition, each in the order of its offsets.

        `offset` skips what is before it; `from_time` and `to_time` bound a window of time (the first inside, the
        second outside). `include_deleted` also finds what retention moved to the archive.
        """
        check_limit(limit)
        window = parse_window(offset, from_time, to_time)
        readers = self._readers(topic, partition, include_deleted)
        messages = itertools.chain.from_iterable(reader.messages(window) for reader in readers)
        return itertools.islice(messages, limit)

    def read_arrow(
        self,
        topic: str,
        partition: int | None = None,
        *,
        offset: int | None = None,
        from_time: Time | None = None,
        to_time: Time | None = None,
        include_deleted: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """The same messages as Arrow record batches: the fast way to read many."""
        window = parse_window(offset, from_time, to_time)
        readers = self._readers(topic, partition, include_deleted)
        return itertools.chain.from_iterable(reader.arrow(window) for reader in readers)

    def events(self, topic: str, partition: int | None = None) -> Iterator[Event]:
        """What happened to the messages of a topic, partition after partition."""
        logs = [(shard, log) for shard, log in self._logs(topic, partition, events=True) if log is not None]
        return itertools.chain.from_iterable(LogReader(shard, log).events(Window()) for shard, log in logs)

    def offset_at(self, topic: str, time: Time, partition: int = 0) -> int:
        """The offset of the first message with a timestamp at or after `time`; the end if there is none."""
        readers = self._readers(topic, partition, include_deleted=False)
        return max((reader.first_at(parse_time_us(time)) for reader in readers), default=0)

    def topics(self) -> list[TopicInfo]:
        """Every topic, by name, with its partitions."""
        return gathering.topics(self.shards)

    def layout(self, topic: str, *, segments: bool = True) -> TopicLayout:
        """Where the messages and events of a topic lie: how far they reach, and the segment files, if wanted."""
        return topics.layout(self.shards, topic, segments=segments)

    def create_topic(self, name: str, **config: Any) -> TopicInfo:
        """Make a topic with options of its own: `partitions`, `spread`, `retention_age`, `retention_bytes`, …."""
        with Uninterrupted():
            return topics.create_topic(self.shards, name, config)

    def configure_topic(self, name: str, **options: Any) -> TopicInfo:
        """Change options of a topic, such as `retention_age` or `visibility_timeout`; `partitions` and `order` stay.

        Consumers that are at work follow at once: what they hold stays as it was leased to them.
        """
        with Uninterrupted():
            return topics.configure_topic(self.shards, name, options)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its messages; a topic made later under this name goes on with higher offsets."""
        with Uninterrupted():
            topics.delete_topic(self.shards, name)

    def settle(self) -> None:
        """Turn what is in the journal into Parquet segments now (very many tiny topics stay: docs/decisions/0003)."""
        with Uninterrupted():
            for background in self._backgrounds:
                background.settler.settle(everything=True)

    def retain(self) -> int:
        """Apply retention now; how many segments were removed or archived."""
        with Uninterrupted():
            return sum(retain(shard) for shard in self.shards)

    def trim(self, topic: str, before: Mapping[int, int], *, events: Mapping[int, int] | None = None) -> int:
        """Remove the segments that lie wholly before these offsets (by partition), for good; how many went.

        For whoever has copied them. What is leased, delayed and not due, or unacked where the topic protects it stays,
        and so does what is not settled. With `events` (numbers of events, by partition), segments of events go too, if
        all messages that they speak of are gone.
        """
        with Uninterrupted():
            return spreading.trim(self.shards, topic, before, events=events)

    @property
    def recovery(self) -> RecoveryReport:
        """What was found when the directory was opened."""
        return gathering.recovery([shard.recovery for shard in self.shards])

    def close(self) -> None:
        """Finish what is under way and let the directory go; closing twice is harmless."""
        with Uninterrupted():
            if self.shards.refuse_work():
                self._flusher.stop()
                for background in self._backgrounds:
                    background.stop()
                if self._segment_process is not None:
                    self._segment_process.close()
                self.shards.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def _readers(self, topic: str, partition: int | None, include_deleted: bool) -> list[LogReader]:
        logs = self._logs(topic, partition)
        return [LogReader(shard, log, include_deleted) for shard, log in logs if log is not None]

    def _logs(self, topic: str, partition: int | None, *, events: bool = False) -> list[tuple[Shard, Log | None]]:
        """The logs of a topic, or of one partition of it, each with its shard."""
        name, slices = find_existing(self.shards, topic)
        found: dict[int, tuple[Shard, Log | None]] = {}
        for shard in slices:
            with shard.lock:
                shard.check_not_closed()
                known = shard.topic(name)
                if partition is not None:
                    known.partition(partition)
                for number in known.own_partitions:
                    if partition is None or number == partition:
                        part = known.partitions[number]
                        found[number] = shard, part.events if events else part.messages
        return [found[number] for number in sorted(found)]


def take_shard(broker: Broker, number: int) -> Shard:
    """Open a shard that is for this process from now on."""
    shard = broker.shards.open(number)
    broker._look_after(shard)  # noqa: SLF001 - a part of it, but no operation
    return shard


def release_shard(broker: Broker, number: int) -> None:
    """Let a shard go to another process: whoever asks for it hears that it is elsewhere, and it is closed."""
    lost = broker.shards[number].frozen
    if isinstance(lost, NotOwner):
        lose_shard(broker, number, lost)
    else:
        broker._let_go(number)  # noqa: SLF001


def lose_shard(broker: Broker, number: int, error: NotOwner) -> None:
    """Let a shard go that another process has taken: at once, without a last write, and without waiting for any."""
    broker._lose(number, error)  # noqa: SLF001
