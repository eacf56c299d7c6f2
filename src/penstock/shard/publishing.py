"""Publishing: messages get their offsets and are gathered for the next commit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from zlib import crc32

from penstock.journal import Commit
from penstock.log.partition_log import Log
from penstock.log.records import SingleMessages, StagedStep
from penstock.log.reservations import reserve_batch, reserve_run, reserve_single
from penstock.log.topics import Topic
from penstock.model.batch import Batch
from penstock.model.errors import InvalidArgument, LimitExceeded, Overloaded
from penstock.model.intake import Intake, check_message, check_messages, check_producer, set_producer_name
from penstock.model.message import IdRun, Message, MessageId, MessageIds
from penstock.model.names import DEAD_LETTERS, check_topic_name
from penstock.model.schedules import SCHEDULES
from penstock.model.singles import Single, SingleRun
from penstock.shard.core import MESSAGE_BYTES, Core
from penstock.shard.flow import check_delay, check_flow
from penstock.shard.routing import ids_in_order, route
from penstock.shard.topics import Topics


class Publishing:
    """Takes messages in."""

    def __init__(self, core: Core, topics: Topics) -> None:
        self._core, self._topics = core, topics
        self._lock, self._journal, self._catalog, self._config = core.lock, core.journal, core.catalog, core.config

    def publish(self, topic_name: str, message: Message, name: str | None = None) -> tuple[MessageId, Commit | None]:
        """Publish one message; it is merged with the others of its commit."""
        now_us = self._core.clock.wall_us()
        single = check_message(message, self._config, now_us)
        return self.publish_single(topic_name, single, message.partition, now_us, name=name)

    def publish_single(
        self,
        topic_name: str,
        single: Single,
        partition: int | None,
        now_us: int,
        producer: str | None = None,
        sequence: int = 0,
        name: str | None = None,
    ) -> tuple[MessageId, Commit | None]:
        """Publish one message that was checked; with a producer and a sequence, only once. Traces show the name."""
        size_bytes = single.size_bytes() + MESSAGE_BYTES
        with self._lock:
            self._core.check_writable(size_bytes, now_us)
            topic = self._catalog.by_name.get(topic_name)
            if topic is None or topic.deleting or topic.reserved or partition is not None:
                topic = self._topics.to_publish(topic_name, (partition,), now_us)
            if single.dedupe_id is not None:
                found = self._find_duplicate(topic, single.dedupe_id, now_us)
                if found is not None:
                    return MessageId(topic.name, *found), self._journal.latest_commit()
            if producer is not None and topic.producers is not None:
                known = topic.producers.find(producer, sequence)
                if known is not None:
                    return self._published_before(topic, known, producer, sequence)
            if single.deliver_at_us or topic.config.max_backlog is not None:
                check_flow(topic, 1, single.deliver_at_us, now_us)
            if partition is None:
                partition = topic.next_partition() if single.key is None else topic.partition_of_key(single.key)
            else:
                partition = int(partition)
            topic.check_own(partition)
            log = topic.partitions[partition].messages
            offset = reserve_single(log, self._singles_record(log, now_us), single, producer, sequence, name)
            return MessageId(topic.name, partition, offset), self._journal.grow(size_bytes)

    def publish_runs(self, runs: Sequence[SingleRun], now_us: int) -> tuple[list[tuple[int, int]], Commit]:
        """Publish single messages of many producers to many topics: partition and first offset of each run, in order.

        They end before a run that has to be published message by message: one of them may have been published before
        or have no room, or the topic is to be made. Whoever calls does that, and goes on with the next one.
        """
        size_bytes = _size_of(runs)
        places: list[tuple[int, int]] = []
        with self._lock:
            self._core.check_writable(size_bytes, now_us)
            topics, gathering = self._catalog.by_name, self._journal.gathering
            opened, blocks = gathering.open, gathering.blocks
            for run in runs:
                topic = topics.get(run.topic)
                if topic is None or topic.deleting or topic.reserved:
                    break
                if topic.config.max_backlog is not None and not _has_room(topic, len(run.values), now_us):
                    break
                partition = topic.next_partition() if len(topic.partitions) > 1 else 0
                log = topic.partitions[partition].messages
                base, known = log.next_offset, opened.get(log)
                record = reserve_run(log, known, run, now_us)  # type: ignore[arg-type]  # a log of messages
                if record is None:
                    break
                if known is None:
                    opened[log] = record
                    blocks.append(record)
                places.append((partition, base))
            if places:
                self._journal.grow(size_bytes if len(places) == len(runs) else _size_of(runs[: len(places)]))
            return places, gathering.commit

    def _singles_record(self, log: Log, now_us: int) -> SingleMessages:
        """The record that takes single messages of a partition until the next commit."""
        record = self._journal.gathering.open.get(log)
        if record is None:
            record = self._journal.gathering.open[log] = SingleMessages(log, now_us)
            self._journal.gather(record, 0)
        assert isinstance(record, SingleMessages)
        return record

    def publish_many(
        self,
        topic_name: str,
        messages: Iterable[Message | bytes | str],
        producer: str | None = None,
        sequence: int | None = None,
    ) -> tuple[MessageIds, Commit | None]:
        """Publish a batch: all of it or nothing is committed, whatever partitions it goes to."""
        now_us = self._core.clock.wall_us()
        intake = check_messages(messages, self._config, now_us)
        check_producer(intake.batch, producer, sequence)
        return self.publish_intake(topic_name, intake, now_us)

    def publish_intake(
        self, topic_name: str, intake: Intake, now_us: int, name: str | None = None
    ) -> tuple[MessageIds, Commit | None]:
        """Publish a batch that was checked; it knows its producer and sequence. Traces show the name."""
        intake = _with_overhead(intake)
        if name is not None:
            set_producer_name(intake.batch, name)
        with self._lock:
            self._core.check_writable(intake.size_bytes, now_us)
            if not intake.batch.values:
                return MessageIds(check_topic_name(topic_name), []), None
            return self._take_in(topic_name, intake, now_us)

    def _take_in(self, topic_name: str, intake: Intake, now_us: int) -> tuple[MessageIds, Commit | None]:
        """Publish a batch for which there is room."""
        assert self._lock.held
        topic = self._topics.to_publish(topic_name, intake.partitions or (), now_us)
        if intake.batch.producer is not None:
            return self._publish_once(topic, intake, now_us)
        if intake.batch.dedupe_ids is not None:
            return self._publish_new(topic, intake, now_us)
        _check_flow(topic, intake.batch, now_us)
        if len(topic.partitions) == 1 and intake.partitions is None:
            return self._append(topic, intake.batch, intake.size_bytes, 0, now_us)
        return self._append_routed(topic, intake, topic.next_partition(), now_us)

    def publish_together(self, parts: Sequence[tuple[str, Intake]], note: StagedStep, now_us: int) -> Commit:
        """Publish batches, and a note of it, in one commit; where one of them is refused, nothing was done."""
        batches = [(topic_name, _with_overhead(intake)) for topic_name, intake in parts if intake.batch.values]
        with self._lock:
            self._core.check_writable(sum(intake.size_bytes for _, intake in batches), now_us)
            before = len(self._journal.gathering.blocks), self._journal.gathering.size_bytes
            try:
                for topic_name, intake in batches:
                    self._take_in(topic_name, intake, now_us)
            except BaseException:
                self._journal.take_back(*before)
                raise
            return self._journal.gather(note, MESSAGE_BYTES)

    def check_to_stage(self, topic_name: str, intake: Intake, now_us: int) -> None:
        """Raise what publishing the batch now would raise, but for a backlog, which may be another one later."""
        with self._lock:
            self._core.check_open()
            self._core.guard.check_room(_with_overhead(intake).size_bytes, now_us)
            _, config = self._topics.find(topic_name, intake.partitions or ())
            if intake.batch.deliver_at is not None:
                check_delay(topic_name, config, max(intake.batch.deliver_at), now_us)

    def _append(
        self, topic: Topic, batch: Batch, size_bytes: int, partition: int, now_us: int
    ) -> tuple[MessageIds, Commit]:
        log = topic.partitions[partition].messages
        self._journal.gathering.open.pop(log, None)
        record = reserve_batch(log, batch, now_us)
        commit = self._journal.gather(record, size_bytes)
        return MessageIds(topic.name, [IdRun(partition, record.base, record.count)]), commit

    def append_internal(self, topic_name: str, batch: Batch, now_us: int) -> tuple[MessageIds, Commit | None]:
        """Publish for clients what the broker makes itself, with no limit but the disk's."""
        assert self._lock.held
        self._journal.check_alive()
        return self._append_unlimited(self._topics.to_publish(topic_name, (), now_us), batch, now_us)

    def append_schedules(self, batch: Batch, now_us: int) -> tuple[MessageIds, Commit | None]:
        """As `append_internal`, to the broker's own topic of schedules: this is the only way in."""
        assert self._lock.held
        self._journal.check_alive()
        if SCHEDULES not in self._catalog.by_name:
            self._topics.make(SCHEDULES, self._topics.default_config(SCHEDULES), now_us)
        return self._append_unlimited(self._catalog.by_name[SCHEDULES], batch, now_us)

    def _append_unlimited(self, topic: Topic, batch: Batch, now_us: int) -> tuple[MessageIds, Commit | None]:
        size_bytes = sum(map(len, batch.values)) + MESSAGE_BYTES * len(batch)
        asked: list[int | None] | None = None
        if topic.config.spread > 1 and topic.name.endswith(DEAD_LETTERS):  # they stay in the slice where they died
            asked = [None if key is None else topic.own_partition_of_key(key) for key in batch.keys or ()] or None
        return self._append_routed(topic, Intake(batch, asked, size_bytes), topic.next_partition(), now_us)

    def _append_routed(
        self, topic: Topic, intake: Intake, keyless: int, now_us: int
    ) -> tuple[MessageIds, Commit | None]:
        rows = route(topic, intake, keyless)
        if len(rows) == 1:
            return self._append(topic, intake.batch, intake.size_bytes, next(iter(rows)), now_us)
        commit: Commit | None = None
        runs: list[IdRun] = []
        for partition, places in rows.items():
            part = intake.batch.select(places)
            ids, commit = self._append(topic, part, intake.size_bytes // len(rows), partition, now_us)
            runs += ids.runs
        return ids_in_order(topic, runs, rows, len(intake.batch)), commit

    def _publish_once(self, topic: Topic, intake: Intake, now_us: int) -> tuple[MessageIds, Commit | None]:
        """Publish the batch of a producer, or find where it went the first time."""
        producer, sequence = intake.batch.producer, intake.batch.sequence
        assert producer is not None
        known = None if topic.producers is None else topic.producers.find(producer, sequence)
        own = topic.own_partitions
        keyless = own[crc32(f"{producer}/{sequence}".encode()) % len(own)]
        if known is None:
            _check_flow(topic, intake.batch, now_us)
            return self._append_routed(topic, intake, keyless, now_us)
        rows = route(topic, intake, keyless)
        if {run.partition: run.count for run in known} != {number: len(places) for number, places in rows.items()}:
            raise _other_messages(producer, sequence)
        return ids_in_order(topic, known, rows, len(intake.batch)), self._journal.latest_commit()

    def _published_before(
        self, topic: Topic, known: list[IdRun], producer: str, sequence: int
    ) -> tuple[MessageId, Commit | None]:
        if len(known) > 1 or known[0].count > 1:
            raise _other_messages(producer, sequence)
        return MessageId(topic.name, known[0].partition, known[0].base), self._journal.latest_commit()

    def _publish_new(self, topic: Topic, intake: Intake, now_us: int) -> tuple[MessageIds, Commit | None]:
        """Publish those messages of a batch whose dedupe ids are new, once each."""
        places: list[tuple[int, int] | None] = []
        new_rows: list[int] = []
        first_row: dict[str, int] = {}
        for row, identity in enumerate(intake.batch.dedupe_ids or ()):
            place = None
            if identity is not None and identity not in first_row:
                place = self._find_duplicate(topic, identity, now_us, coming=len(first_row))
                if place is None:
                    first_row[identity] = row
                    new_rows.append(row)
            elif identity is None:
                new_rows.append(row)
            places.append(place)
        commit = self._journal.latest_commit()
        if new_rows:
            asked = None if intake.partitions is None else [intake.partitions[row] for row in new_rows]
            part = Intake(intake.batch.select(new_rows), asked, intake.size_bytes)
            _check_flow(topic, part.batch, now_us)
            ids, commit = self._append_routed(topic, part, topic.next_partition(), now_us)
            for row, message_id in zip(new_rows, ids, strict=True):
                places[row] = (message_id.partition, message_id.offset)
        whole = [
            places[first_row[identity]] if place is None and identity is not None else place
            for place, identity in zip(places, intake.batch.dedupe_ids or (), strict=True)
        ]
        known = [place for place in whole if place is not None]
        return MessageIds(topic.name, [IdRun(partition, offset, 1) for partition, offset in known], known), commit

    def _find_duplicate(self, topic: Topic, identity: str, now_us: int, coming: int = 0) -> tuple[int, int] | None:
        if topic.dedupe is None:
            return None
        found = topic.dedupe.find(identity, now_us)
        if found is None and not topic.dedupe.has_room(self._config.max_dedupe_ids - coming, now_us):
            raise Overloaded(
                f"{topic.name} remembers {len(topic.dedupe)} dedupe ids already (max_dedupe_ids): publish again when "
                "its dedupe window has moved on"
            )
        return found


def _size_of(runs: Sequence[SingleRun]) -> int:
    """What messages count against the limits of buffers."""
    return sum([len(value) + MESSAGE_BYTES for run in runs for value in run.values])


def _has_room(topic: Topic, count: int, now_us: int) -> bool:
    """Whether a topic takes so many messages."""
    try:
        check_flow(topic, count, 0, now_us)
    except (LimitExceeded, Overloaded):
        return False
    return True


def _check_flow(topic: Topic, batch: Batch, now_us: int) -> None:
    """Raise if the topic has no room for new messages; what was published before needs none."""
    if batch.deliver_at is not None or topic.config.max_backlog is not None:
        check_flow(topic, len(batch), max(batch.deliver_at or (0,)), now_us)


def _with_overhead(intake: Intake) -> Intake:
    """The batch with what its messages count against the limits of buffers, beside what is in them."""
    return Intake(intake.batch, intake.partitions, intake.size_bytes + MESSAGE_BYTES * len(intake.batch.values))


def _other_messages(producer: str, sequence: int) -> InvalidArgument:
    return InvalidArgument(
        f"sequence {sequence} of producer {producer!r} was published with other messages; "
        "a sequence number may only be repeated with the same batch"
    )
