"""Reads the copy as a broker would find it, every byte of it, and compares it with the original."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from penstock.cluster.resharding.shard_plan import ShardPlan, TopicMove, newest_schedules
from penstock.cluster.resharding.stored_shard import KnownSchedule, StoredShard
from penstock.log.checkpoint import topic_state
from penstock.log.invariants import violations
from penstock.log.partition_log import BlockRef
from penstock.log.topics import Topic
from penstock.model.clock import ShardClock
from penstock.model.errors import CorruptData, PenstockError
from penstock.model.schedules import SCHEDULES, Schedule
from penstock.shard.checking import check_directory
from penstock.shard.operations.groups import group_names
from penstock.storage.read_only import ReadOnlyStorage

Tell = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""


class CopyDiffers(PenstockError):
    """The copy is not what the original is: nothing was changed there."""


@dataclass
class Compared:
    """What was found to be the same."""

    topics: int = 0
    partitions: int = 0
    messages: int = 0
    """How many the logs hold, in segments, archives and the journal."""
    groups: int = 0
    schedules: int = 0


def compare(
    plans: Sequence[ShardPlan],
    originals: Sequence[StoredShard],
    places: Sequence[ReadOnlyStorage],
    clock: ShardClock,
    tell: Tell,
) -> Compared:
    """Compare all new shards with all old ones; raises where anything differs, or is damaged."""
    same = Compared()
    scheduled: list[KnownSchedule] = []
    for plan, place in zip(plans, places, strict=True):
        _check(place, tell)
        copy = StoredShard(plan.place, place, clock)
        try:
            _compare_shard(plan, copy)
            scheduled += copy.schedules
        finally:
            copy.close()
        for move in plan.moves:
            if move.name != SCHEDULES:
                _count(move.topic, same)
    before = newest_schedules(known for shard in originals for known in shard.schedules)
    _expect("the schedules", _by_name(before.values()), _by_name(scheduled))
    same.schedules = len(scheduled)
    return same


def _count(topic: Topic, same: Compared) -> None:
    same.topics += 1
    same.partitions += len(topic.partitions)
    same.groups += len(group_names(topic))
    for partition in topic.partitions:
        log = partition.messages
        same.messages += sum(segment.rows for segment in log.segments) + sum(block.count for block in log.blocks())


def _by_name(known: Iterable[KnownSchedule]) -> list[Schedule]:
    return sorted((entry.schedule for entry in known), key=lambda schedule: schedule.name)


def _check(place: ReadOnlyStorage, tell: Tell) -> None:
    """Read every byte that a shard needs; raises at the first damage."""
    report = check_directory(place, lambda name, done, total: tell(f"checking {name}", done, total))
    for problem in report.problems:
        raise CorruptData(problem.file, problem.position, problem.wrong)


def _compare_shard(plan: ShardPlan, copy: StoredShard) -> None:
    where = f"shard {plan.place.number}"
    names = {move.name for move in plan.moves} | ({SCHEDULES} if plan.schedules else set())
    _expect(f"the topics of {where}", names, set(copy.catalog.by_name))
    _expect(f"the deleted topics of {where}", plan.floors, copy.catalog.floors)
    _expect(f"the staged publishes of {where}", plan.staged, list(copy.state.staged.values()))
    _expect(f"the state of {where}", [], list(violations(copy.state)))
    for move in plan.moves:
        if move.name != SCHEDULES:
            _compare_topic(move, copy.catalog.topic(move.name))


def _compare_topic(move: TopicMove, topic: Topic) -> None:
    """What a checkpoint says of a topic is all that there is to it, beside the blocks that are in the journal."""
    before, after = topic_state(move.topic), topic_state(topic)
    for name in before.__struct_fields__:
        if name not in ("id", "name"):
            _expect(f"{move.name} ({name})", getattr(before, name), getattr(after, name))
    for old, new in zip(move.topic.logs(), topic.logs(), strict=True):
        _expect(f"{move.name}/{old.partition} (unsettled {old.table})", _blocks(old.blocks()), _blocks(new.blocks()))


def _blocks(blocks: Iterable[BlockRef]) -> list[BlockRef]:
    """What is in blocks, wherever they lie."""
    return [block._replace(sequence=0, position=0) for block in blocks]


def _expect(what: str, before: object, after: object) -> None:
    if before != after:
        raise CopyDiffers(f"{what}: the copy is not as the original")
