"""Which topics and schedules each of the new shards gets, and the state that it begins with."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from penstock.cluster.resharding.stage_plan import StagePlan
from penstock.cluster.resharding.stored_shard import UNLIMITED, KnownSchedule, StoredShard
from penstock.delivery.offsets import Offsets
from penstock.log.checkpoint import VERSION, Checkpoint, LogState, TopicState, restore, topic_state
from penstock.log.records import StagedRecord
from penstock.log.topics import Topic
from penstock.model.clock import ShardClock
from penstock.model.config import TopicConfig
from penstock.model.errors import InvalidArgument
from penstock.model.placement import Place, shard_of, shards_of
from penstock.model.schedules import SCHEDULES, Schedule
from penstock.shard.recovery import Recovered, new_broker_id


class TopicMove(NamedTuple):
    """A topic of an old shard, and its name in the new one: another one only if two shards had one of that name."""

    shard: StoredShard
    topic: Topic
    name: str


@dataclass
class ShardPlan:
    """What one of the new shards gets."""

    place: Place
    broker: bytes
    epoch: int
    checkpoint_number: int
    staged: list[StagedRecord]
    moves: list[TopicMove] = field(default_factory=list)
    floors: dict[str, int] = field(default_factory=dict)
    schedules: list[Schedule] = field(default_factory=list)
    """Those that are written here, because they come from another shard than their topic did."""
    withdrawn: Offsets = field(default_factory=Offsets)
    """Messages of schedules that come with their topic, and are written elsewhere."""
    schedules_config: TopicConfig | None = None
    """How the topic of schedules was kept."""

    def begin(self) -> Recovered:
        """A broker that has all of this, and no journal yet."""
        topics = [replace(topic_state(move.topic), id=number, name=move.name) for number, move in self._numbered()]
        if self.schedules and all(topic.name != SCHEDULES for topic in topics):
            assert self.schedules_config is not None
            config = dataclasses.asdict(self.schedules_config)
            topics.append(TopicState(len(topics) + 1, SCHEDULES, config, [LogState(0, 0, [])], [None], [], []))
        checkpoint = Checkpoint(
            version=VERSION,
            number=self.checkpoint_number,
            broker=self.broker,
            epoch=self.epoch,
            time_us=0,
            journal_files=[],
            next_sequence=1,
            sequence=1,
            position=0,
            synced=0,
            next_topic_id=len(topics) + 1,
            floors=self.floors,
            doomed=[],
            staged=self.staged,
            topics=topics,
        )
        return Recovered(self.broker, self.epoch, self.checkpoint_number, restore(checkpoint, UNLIMITED, self.place))

    def _numbered(self) -> Iterator[tuple[int, TopicMove]]:
        return enumerate(sorted(self.moves, key=lambda move: (move.topic.id, move.shard.number)), 1)


def plan_shards(originals: Sequence[StoredShard], count: int, stages: StagePlan, clock: ShardClock) -> list[ShardPlan]:
    """What each of so many new shards gets of the old ones; raises where there would be too few for a topic."""
    _check_spread(originals, count)
    brokers = [shard.broker for shard in originals[:count]]
    brokers += [new_broker_id(clock) for _ in range(count - len(brokers))]
    epoch = max(shard.epoch for shard in originals)
    checkpoint_number = max(shard.checkpoint_number for shard in originals)
    plans = [
        ShardPlan(Place(number, count), broker, epoch, checkpoint_number, stages.records(number))
        for number, broker in enumerate(brokers)
    ]
    for move in _moves(originals):
        plans[shards_of(move.name, move.topic.config.spread, count)[move.topic.slice]].moves.append(move)
    for shard in originals:
        for name, floor in shard.catalog.floors.items():
            home = originals[shard_of(name, len(originals))]
            if shard is home or name not in home.catalog.by_name:  # else one of this name has begun there
                floors = plans[shard_of(name, count)].floors
                floors[name] = max(floor, floors.get(name, 0))
    _plan_schedules(originals, plans)
    return plans


def _check_spread(originals: Sequence[StoredShard], count: int) -> None:
    """Raise if a topic is spread over more shards than there will be."""
    most = max((topic for shard in originals for topic in shard.topics()), key=_spread_of, default=None)
    if most is not None and _spread_of(most) > count:
        raise InvalidArgument(
            f"the topic {most.name} is spread over {_spread_of(most)} shards: {count} would be too few; give "
            f"{_spread_of(most)} or more, or move its messages to a topic with a smaller spread and delete it"
        )


def _spread_of(topic: Topic) -> int:
    return topic.config.spread


def _moves(originals: Sequence[StoredShard]) -> Iterator[TopicMove]:
    """Every topic, slice by slice; one that a repair left in another shard gets a new name if its name is taken."""
    found = [(shard, topic) for shard in originals for topic in shard.topics()]
    taken: set[tuple[str, int]] = set()
    for shard, topic in sorted(found, key=lambda entry: not _is_at_home(entry[0], entry[1], len(originals))):
        name = topic.name
        while (name, topic.slice) in taken:
            name = f"{name}-{shard.number}"
        taken.add((name, topic.slice))
        yield TopicMove(shard, topic, name)


def _is_at_home(shard: StoredShard, topic: Topic, count: int) -> bool:
    return shards_of(topic.name, topic.config.spread, count)[topic.slice] == shard.number


def _plan_schedules(originals: Sequence[StoredShard], plans: Sequence[ShardPlan]) -> None:
    """Each shard has a topic of schedules. The one that is shown goes on in the new shard that shows its own."""
    shown = originals[shard_of(SCHEDULES, len(originals))]
    home = plans[shard_of(SCHEDULES, len(plans))]
    topics = [shard.catalog.by_name[SCHEDULES] for shard in originals if SCHEDULES in shard.catalog.by_name]
    for plan in plans:
        plan.schedules_config = topics[0].config if topics else None
    if SCHEDULES in shown.catalog.by_name:
        home.moves.append(TopicMove(shown, shown.catalog.by_name[SCHEDULES], SCHEDULES))
    newest = newest_schedules(known for shard in originals for known in shard.schedules)
    for shard in originals:
        for known in shard.schedules:
            plan = plans[shard.new_place(known.schedule.topic, len(plans))]
            is_kept = known is newest[known.schedule.name]
            if shard is shown and not (is_kept and plan is home):
                home.withdrawn |= known.offsets
            if is_kept and not (shard is shown and plan is home):
                plan.schedules.append(known.schedule)


def newest_schedules(found: Iterable[KnownSchedule]) -> dict[str, KnownSchedule]:
    """Schedules by name; of two, which an interrupted change of its topic may leave, the one written last."""
    return {known.schedule.name: known for known in sorted(found, key=lambda known: known.written_us)}
