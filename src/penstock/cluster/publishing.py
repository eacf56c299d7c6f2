"""Publishing to the shard of a topic, or to the shards of its slices: whichever port a message comes by, it goes here.

A message of a topic that is spread goes to the slice of its partition: the one that was asked for, that of its key, or
one that follows from its dedupe id. Others go to a slice together: any, or for a batch with a producer one that follows
from producer and sequence, so that repeating it finds it. A batch is all or nothing in each slice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from penstock.cluster.slices import find, find_slice, of_slice, spread_of
from penstock.journal import Commit, together
from penstock.model.errors import InvalidArgument, NotOwner, TopicSpread
from penstock.model.intake import Intake, check_message, check_messages, check_producer
from penstock.model.message import IdRun, Message, MessageId, MessageIds
from penstock.model.placement import Spread, is_slice, rows_of_slices

if TYPE_CHECKING:
    from penstock.cluster.shards import Shards
    from penstock.model.singles import Single
    from penstock.shard.shard import Shard


def publish(shards: Shards, topic: str, message: Message, name: str | None = None) -> tuple[MessageId, Commit | None]:
    """Publish one message. Traces show the name."""
    now_us = shards.clock.wall_us()
    single = check_message(message, shards.config, now_us)
    return publish_single(shards, topic, single, message.partition, now_us, name=name)


def publish_single(
    shards: Shards,
    topic: str,
    single: Single,
    partition: int | None,
    now_us: int,
    producer: str | None = None,
    sequence: int = 0,
    name: str | None = None,
) -> tuple[MessageId, Commit | None]:
    """Publish one message that was checked; with a producer and a sequence, only once. Traces show the name."""
    if shards.count == 1:
        return shards.only.publish_single(topic, single, partition, now_us, producer, sequence, name)
    topic, shard = _shard_of(shards, topic, single, partition, producer, sequence)
    return shard.publish_single(topic, single, partition, now_us, producer, sequence, name)


def publish_many(
    shards: Shards,
    topic: str,
    messages: Iterable[Message | bytes | str],
    producer: str | None = None,
    sequence: int | None = None,
) -> tuple[MessageIds, Commit | None]:
    """Publish a batch: all of it or nothing is committed, in each slice."""
    now_us = shards.clock.wall_us()
    intake = check_messages(messages, shards.config, now_us)
    check_producer(intake.batch, producer, sequence)
    return publish_intake(shards, topic, intake, now_us)


def publish_intake(
    shards: Shards, topic: str, intake: Intake, now_us: int, name: str | None = None
) -> tuple[MessageIds, Commit | None]:
    """Publish a batch that was checked; it knows its producer and sequence. Traces show the name."""
    spread = spread_of(shards, topic)
    if spread is None:
        topic, shard = one_shard(shards, topic)
        return shard.publish_intake(topic, intake, now_us, name)
    rows = rows_of(topic, spread, intake, next(shards.turns))
    # All of them are looked up before anything is published.
    parts = [(of_slice(shards, topic, spread, number), places) for number, places in rows.items()]
    published = [shard.publish_intake(topic, part_of(intake, places), now_us, name) for shard, places in parts]
    ids = ids_of_slices(topic, [ids for ids, _ in published], [places for _, places in parts], len(intake.batch))
    return ids, together([commit for _, commit in published])


def publish_anywhere(shards: Shards, topic: str, messages: list[Message]) -> tuple[Sequence[MessageId], Commit | None]:
    """Publish a batch also to other processes, in a thread; what they have is durable, and not waited for."""
    try:
        return publish_many(shards, topic, messages)
    except (NotOwner, TopicSpread):
        if shards.publish_elsewhere is None:
            raise
        return shards.publish_elsewhere(topic, messages), None


def lives_in(shards: Shards, topic: str, shard: Shard) -> bool:
    """Whether a shard has all of a topic."""
    try:
        return list(find(shards, topic)[1]) == [shard]
    except (NotOwner, TopicSpread):
        return False


def stage_many(shards: Shards, stage: str, topic: str, messages: Iterable[Message | bytes | str]) -> int:
    """Add a batch to a stage, which has a part in each shard; how many messages."""
    now_us = shards.clock.wall_us()
    return stage_intake(shards, stage, topic, check_messages(messages, shards.config, now_us), now_us)


def stage_intake(
    shards: Shards,
    stage: str,
    topic: str,
    intake: Intake,
    now_us: int,
    writer: str | None = None,
    number: int = 0,
) -> int:
    """Add a checked batch to a stage; a batch that its writer numbers is added once, however often it is sent."""
    is_part = shards.count > 1
    spread = spread_of(shards, topic)
    if spread is None:
        topic, shard = one_shard(shards, topic)
        return shard.stages.stage_intake(stage, topic, intake, now_us, writer, number, is_part=is_part)
    if intake.batch.producer is not None:
        raise InvalidArgument("what is staged gets its producer and sequence when it is published")
    rows = rows_of(topic, spread, intake, number if writer is not None else next(shards.turns))
    parts = [(of_slice(shards, topic, spread, slice_), places) for slice_, places in rows.items()]
    for shard, places in parts:
        part = part_of(intake, places)
        shard.stages.stage_intake(stage, topic, part, now_us, writer, number, is_part=is_part)
    return len(intake.batch)


def one_shard(shards: Shards, topic: str) -> tuple[str, Shard]:
    """The shard of a topic that is not spread, or of the slice that is named."""
    return find_slice(shards, topic) if is_slice(topic) and shards.count > 1 else (topic, shards.of(topic))


def _shard_of(
    shards: Shards, topic: str, single: Single, partition: int | None, producer: str | None, sequence: int
) -> tuple[str, Shard]:
    spread = spread_of(shards, topic)
    if spread is None:
        return one_shard(shards, topic)
    origin = None if producer is None else f"{producer}/{sequence}"
    number = spread.of_message(topic, partition, single.key, single.dedupe_id, origin)
    return topic, of_slice(shards, topic, spread, next(shards.turns) % spread.slices if number is None else number)


def rows_of(topic: str, spread: Spread, intake: Intake, turn: int) -> dict[int, Sequence[int]]:
    """The rows of a batch that go to each slice."""
    batch = intake.batch
    origin = None if batch.producer is None else f"{batch.producer}/{batch.sequence}"
    count = len(batch.values)
    return rows_of_slices(topic, spread, count, intake.partitions, batch.keys, batch.dedupe_ids, origin, turn)


def part_of(intake: Intake, rows: Sequence[int]) -> Intake:
    """Some rows of a batch."""
    if len(rows) == len(intake.batch.values):
        return intake
    batch = intake.batch.select(rows)
    asked = None if intake.partitions is None else [intake.partitions[row] for row in rows]
    return Intake(batch, asked, sum(map(len, batch.values)))


def ids_of_slices(topic: str, ids: Sequence[MessageIds], rows: Sequence[Sequence[int]], count: int) -> MessageIds:
    """The ids of a batch in the order of its messages, by what each slice gave its rows."""
    if len(ids) == 1:
        return ids[0]
    places: list[tuple[int, int]] = [(0, 0)] * count
    runs: list[IdRun] = []
    for some, own in zip(ids, rows, strict=True):
        runs += some.runs
        for row, identity in zip(own, some, strict=True):
            places[row] = (identity.partition, identity.offset)
    return MessageIds(topic, runs, places)
