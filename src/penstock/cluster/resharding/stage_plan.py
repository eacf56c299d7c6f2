"""What becomes of stages and of publishes of them, which one of a name has in every shard.

| what is found | what the new shards get |
| --- | --- |
| a sealed stage | each a part of it, with the batches of its own topics, or an empty one |
| a stage that was not sealed, at least in one shard | a lost one, as after any stop of the broker |
| a publish that is done | the note that it is done |
| a publish of which some steps are done | the note how far it is, and a stage with the rest of it |
| a publish that is done, or begun, in some shards only | nothing: it is refused |

The last one cannot be divided: a note is about all topics of a shard, and here some of them have it and others do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from penstock.cluster.resharding.stored_shard import StoredShard
from penstock.log.records import StagedRecord
from penstock.model.clock import ShardClock
from penstock.model.errors import InvalidArgument
from penstock.model.names import STAGE_NAME
from penstock.model.stored import STAGES
from penstock.shard.staging.stage_files import FIRST, OPEN, SEALED, name_of, new_file

_SHOWN_MAX = 3


class StageSource(NamedTuple):
    """A sealed file of an old shard, and where what is not published yet begins."""

    shard: StoredShard
    file: str
    position: int


class StageMove(NamedTuple):
    """Sealed files whose batches go to one file in each of the new shards."""

    file: str
    sources: list[StageSource]


@dataclass
class StagePlan:
    """The stages of all shards."""

    moves: list[StageMove] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    """The files of stages that were not sealed, without what is in them."""
    published: list[StagedRecord] = field(default_factory=list)
    """How far the newest publish of each producer is; the one silent for longest first."""

    def records(self, number: int) -> list[StagedRecord]:
        """The same as one shard notes it: they are summed, so the messages of before are counted by the first."""
        return self.published if number == 0 else [replace(known, messages=0) for known in self.published]


def plan_stages(originals: Sequence[StoredShard], clock: ShardClock) -> StagePlan:
    """What becomes of all stages; raises where a publish of them was done in some shards only."""
    _check_same(originals)
    plan = StagePlan()
    for producer in originals[0].state.staged:
        known = [shard.state.staged[producer] for shard in originals]
        done = StagedRecord(producer, known[0].sequence, sum(record.messages for record in known), ())
        left = [source for shard in originals for source in _left_of(shard, shard.state.staged[producer])]
        if left:
            file = _file(name_of(left[0].file), clock)
            plan.moves.append(StageMove(file, left))
            done = replace(done, files=(file,), next_file=0, position=FIRST)
        plan.published.append(done)
    _plan_waiting(originals, plan, clock)
    return plan


def _check_same(originals: Sequence[StoredShard]) -> None:
    """Raise if shards know different things of a producer."""
    known = [{record.producer: record.sequence for record in shard.state.staged.values()} for shard in originals]
    differing = sorted({entry[0] for one in known for other in known for entry in one.items() - other.items()})
    if differing:
        shown = ", ".join(map(repr, differing[:_SHOWN_MAX])) + (" and more" if len(differing) > _SHOWN_MAX else "")
        raise InvalidArgument(
            f"stages of {shown} were published in some shards only: open the directory and publish them again under "
            "the same sequence, or give them up with publish_staged([], producer, sequence)"
        )


def _left_of(shard: StoredShard, record: StagedRecord) -> list[StageSource]:
    """What a publish has still to do in a shard."""
    if record.next_file is None:
        return []
    first, *others = record.files[record.next_file :]
    return [StageSource(shard, first, record.position), *(StageSource(shard, file, FIRST) for file in others)]


def _plan_waiting(originals: Sequence[StoredShard], plan: StagePlan, clock: ShardClock) -> None:
    """Stages that nobody has begun to publish."""
    sealed: dict[str, list[StageSource]] = {}
    lost: dict[str, None] = {}
    for shard in originals:
        taken = {file for record in shard.state.staged.values() for file in record.files}
        for entry in shard.storage.list(STAGES):
            file, dot, ending = entry.rpartition(".")
            name = name_of(file)
            if dot + ending not in (OPEN, SEALED) or not STAGE_NAME.fullmatch(name) or file in taken:
                continue
            sources = sealed.setdefault(name, [])
            if dot + ending == OPEN or any(source.shard is shard for source in sources):  # or two of one name
                lost[name] = None
            sources.append(StageSource(shard, file, FIRST))
    plan.lost += [_file(name, clock) for name in lost]
    plan.moves += [StageMove(_file(name, clock), sources) for name, sources in sealed.items() if name not in lost]


def _file(name: str, clock: ShardClock) -> str:
    return new_file(name, clock.random_bytes(8))
