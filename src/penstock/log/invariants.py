"""What must always be true of the state, whoever folded it: cheap enough to ask after every step of a simulation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from penstock.delivery.progress import Progress
from penstock.log.partition_log import Log
from penstock.log.state import State
from penstock.log.topics import Topic
from penstock.model.schedules import SCHEDULES


class Broken(AssertionError):
    """The state contradicts itself; with the id of the promise."""


def check(state: State) -> None:
    """Raise if the state contradicts itself."""
    found = list(violations(state))
    if found:
        raise Broken("; ".join(found))


def violations(state: State) -> Iterator[str]:
    """Everything that is wrong with the state."""
    yield from _catalog(state)
    for topic in state.catalog.by_id.values():
        for log in topic.logs():
            yield from (f"{problem} ({topic.name}/{log.partition} {log.table})" for problem in _log(log))
        yield from _groups(topic)
        yield from _producers(state, topic)
    yield from _usage(state)
    yield from _staged(state)
    yield from _schedules(state)


def _catalog(state: State) -> Iterator[str]:
    catalog = state.catalog
    if {topic.id for topic in catalog.by_name.values()} != set(catalog.by_id):
        yield "F3: the catalog knows other topics by name than by number"
    if catalog.by_id and max(catalog.by_id) >= catalog.next_id:
        yield "L3: the number of a topic would be given again"
    if state.deleted & set(catalog.by_id):
        yield "F3: a topic is there, and was deleted"
    for name, floor in catalog.floors.items():
        topic = catalog.by_name.get(name)
        if topic is not None and min(partition.messages.next_offset for partition in topic.partitions) < floor:
            yield f"L3: {name} would give offsets below {floor} again"


def _log(log: Log) -> Iterator[str]:
    if not log.settled_end <= log.committed_end <= log.next_offset:
        yield f"F3: its ends are out of order: {log.settled_end}, {log.committed_end}, {log.next_offset}"
    blocks = list(log.blocks())
    ranges = [(segment.base, segment.end) for segment in log.segments] + [(block.base, block.end) for block in blocks]
    if any(first[1] > second[0] for first, second in pairwise(ranges)):
        yield "F3: an offset is in two places"
    if any(segment.end > log.settled_end for segment in log.segments):
        yield "F3: a segment ends behind what is settled"
    if any(block.base < log.settled_end for block in blocks):
        yield "F3: a block is settled, and needed"
    if ranges and ranges[-1][1] > log.committed_end:
        yield "F3: something is placed that is not committed"
    if log.live_bytes != sum(block.length for block in blocks):
        yield "F3: the bytes of its blocks are counted wrongly"


def _groups(topic: Topic) -> Iterator[str]:
    for number, partition in enumerate(topic.partitions):
        if partition.state is not None:
            end = partition.messages.committed_end
            for name, progress in partition.state.groups.items():
                for problem in _progress(progress, end):
                    yield f"{problem} (group {name} of {topic.name}/{number})"


def _progress(progress: Progress, end: int) -> Iterator[str]:
    tally = progress.tally
    done = sum((tally.acked, tally.dead, tally.lapsed, tally.withdrawn, tally.skipped, tally.lost))
    if progress.done and progress.done.min() <= progress.floor:
        yield "Q1: something below the first that is not done is kept as done"
    if progress.touched & progress.done:
        yield "Q1: something is under way, and done"
    if done + progress.backlog(end) != progress.published(end):
        yield f"Q1: {done} done and {progress.backlog(end)} not are not {progress.published(end)}"


def _producers(state: State, topic: Topic) -> Iterator[str]:
    if topic.producers is not None and len(topic.producers) > state.config.max_producers:
        yield f"F1: {topic.name} remembers more producers than it may"


def _usage(state: State) -> Iterator[str]:
    needed: Counter[int] = Counter()
    for topic in state.catalog.by_id.values():
        for log in topic.logs():
            for block in log.blocks():
                needed[block.sequence] += block.length
    for sequence, size_bytes in state.usage.live_bytes().items():
        if needed[sequence] != size_bytes:
            yield f"F3: {needed[sequence]} bytes of journal file {sequence} are needed, and {size_bytes} counted"


def _staged(state: State) -> Iterator[str]:
    unfinished = sum(bool(record.files) for record in state.staged.values())
    if len(state.staged) > state.config.max_producers + unfinished:
        yield "F1: more staged publishes are remembered than may be"


def _schedules(state: State) -> Iterator[str]:
    topic = state.catalog.by_name.get(SCHEDULES)
    if state.schedules is None or topic is None:
        return
    partition = topic.partitions[0]
    for name, (_, offsets) in state.schedules.known.items():
        if partition.state is not None and offsets & partition.state.withdrawn:
            yield f"T3: the schedule {name} was withdrawn, and is there"
        if offsets.max() >= partition.messages.committed_end:
            yield f"T3: the schedule {name} is there before it is committed"
