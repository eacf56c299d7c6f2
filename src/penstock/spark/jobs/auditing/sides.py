"""What a place says it has: its logs, their files, the runs of offsets that these should hold, and its groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from penstock.cluster.snapshots import Snapshots
from penstock.model.errors import CorruptData, TopicNotFound
from penstock.model.info import GroupInfo
from penstock.model.layout import SegmentPlace
from penstock.spark.buckets import root_at
from penstock.spark.jobs.auditing.problems import Findings, Key
from penstock.spark.jobs.place import Place
from penstock.spark.lake.layout import TABLES
from penstock.spark.lake.log import read_state
from penstock.spark.lake.origin import LakeOrigin
from penstock.spark.origins import DirectoryOrigin, Origin
from penstock.spark.paths import path_of
from penstock.views.snapshot import GroupProgress

_TRIES = 5
Groups = dict[tuple[str, str], GroupInfo | GroupProgress]
"""What is known of groups, by topic and name."""
Run = tuple[int, int]
"""Places from the first to before the second."""


@dataclass
class LogView:
    """The messages or the events of one partition, as the place says."""

    topic: str
    partition: int
    table: str
    segments: list[SegmentPlace]
    """The segments that are read as files."""
    source_from: int
    """From here on rows come through the data source: out of the journal, or from the server."""
    end: int
    given: list[Run] = field(default_factory=list)
    """Gaps that the log of a lake speaks of."""
    broken: list[Run] = field(default_factory=list)
    """Runs in files that cannot be read, which are reported already."""
    rows_of_chunks: dict[int, int] = field(default_factory=dict)
    """Rows by chunk, of files that have fewer rows than places."""

    @property
    def key(self) -> Key:
        return self.topic, self.partition

    @property
    def first(self) -> int:
        """The lowest place that it has."""
        return min([segment.base for segment in self.segments] + [run[0] for run in self.broken] + [self.source_from])

    def runs(self) -> list[Run]:
        """What can be read of it, in order and joined."""
        return joined([*((one.base, one.end) for one in self.segments), (self.source_from, self.end)])


class Side:
    """A place that is audited: the topics themselves, or the lake that they are compared with."""

    def __init__(self, name: str, place: Place, findings: Findings) -> None:
        self.name, self.place, self._findings = name, place, findings
        self.origin: Origin = place.origin()
        self.logs: dict[tuple[str, str, int], LogView] = {}
        """By table, topic and partition."""

    @property
    def is_lake(self) -> bool:
        return isinstance(self.origin, LakeOrigin)

    def look(self, topics: Iterable[str]) -> None:
        """Find out what it has of these topics; of those that it does not know, nothing."""
        known = set(self.origin.topic_names())
        for topic in topics:
            if topic in known:
                for view in self._views(topic):
                    self.logs[view.table, view.topic, view.partition] = view

    def partitions(self, topic: str) -> int:
        """How many partitions it knows of a topic."""
        return max((number + 1 for table, name, number in self.logs if name == topic and table == TABLES[0]), default=0)

    def log(self, table: str, key: Key) -> LogView | None:
        """One of its logs."""
        return self.logs.get((table, *key))

    def of(self, table: str) -> list[LogView]:
        """Its logs of a table, in order."""
        return [view for (kind, _, _), view in sorted(self.logs.items(), key=lambda item: item[0]) if kind == table]

    def _views(self, topic: str) -> Iterator[LogView]:
        try:
            if self.is_lake:
                yield from self._of_lake(topic)
                return
            layout = self.origin.layout(topic)
        except CorruptData as error:
            self._findings.problem(topic, None, None, f"{self.name}{error}")
            return
        except TopicNotFound:  # it was deleted meanwhile
            return
        for table, logs in zip(TABLES, (layout.messages, layout.events), strict=True):
            for log in logs:
                segments = sorted(log.segments, key=lambda segment: segment.base)
                yield LogView(topic, log.partition, table, segments, max(log.settled_end, log.first), log.end)

    def _of_lake(self, topic: str) -> Iterator[LogView]:
        """From the log of the lake alone: a file that is missing is found later, with all others."""
        assert self.place.path is not None
        state = read_state(path_of(self.place.path), topic)
        logs = state.logs()
        for table in TABLES:
            for number in range(state.partitions):
                segments = [file.place(state.topic_root) for file in logs.get((table, number), [])]
                end = segments[-1].end if segments else 0
                gaps = [(gap.start, gap.end) for gap in state.gaps if (gap.table, gap.partition) == (table, number)]
                yield LogView(topic, number, table, segments, end, end, gaps)


def joined(runs: Iterable[Run]) -> list[Run]:
    """Runs in order, with neighbours and those that overlap made one."""
    found: list[Run] = []
    for start, end in sorted(run for run in runs if run[0] < run[1]):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def gaps_of(runs: Sequence[Run]) -> list[Run]:
    """What is between runs that are joined."""
    return [(before[1], after[0]) for before, after in pairwise(runs)]


def without(runs: Sequence[Run], others: Sequence[Run]) -> list[Run]:
    """The runs, less what the others have too; both are joined."""
    left: list[Run] = []
    for start, end in runs:
        at = start
        for low, high in others:
            if low < end and high > at:
                left.append((at, low))
                at = max(at, high)
        left.append((at, end))
    return [run for run in left if run[0] < run[1]]


def inside(runs: Sequence[Run], others: Sequence[Run]) -> list[Run]:
    """What both have."""
    return without(runs, without(runs, others))


def length(runs: Iterable[Run]) -> int:
    """How many places they have."""
    return sum(end - start for start, end in runs)


# A place at one instant.


def look_at_once(side: Side, topics: Iterable[str], findings: Findings) -> Groups | None:
    """Look at the logs of topics, and at their groups at the same moment; None where there is nobody who counts them.

    A server goes on meanwhile. A topic in which something happened between two looks is looked at again, a few times.
    """
    if side.place.servers is None:
        side.look(topics)
        if not isinstance(side.origin, DirectoryOrigin):
            return None
        assert side.place.path is not None
        with Snapshots(root_at(side.place.path)) as snapshots:
            return {(group.topic, group.name): group for group in snapshots.groups()}
    groups: Groups = {}
    for topic in topics:
        found = _look_at_topic(side, topic)
        if found is None:
            findings.remark(topic, None, None, "its groups were at work all the time, and are not compared")
        else:
            groups.update(((topic, group.name), group) for group in found)
    return groups


def _look_at_topic(side: Side, topic: str) -> Sequence[GroupInfo] | None:
    client = side.place.client("an audit of groups")
    for _ in range(_TRIES):
        side.look([topic])
        try:
            groups = client.groups(topic)
            layout = client.layout(topic, segments=False)
        except TopicNotFound:
            return None
        ends: dict[tuple[str, Key], int] = {}
        for table, logs in (("messages", layout.messages), ("events", layout.events)):
            ends.update(((table, (topic, log.partition)), log.end) for log in logs)
        views = {(view.table, view.key): view.end for view in side.logs.values() if view.topic == topic}
        if ends == views:
            return groups
    return None
