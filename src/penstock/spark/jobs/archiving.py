"""Copy or move the history of topics into a lake."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from penstock.model.errors import InvalidArgument, TopicNotFound
from penstock.model.schedules import SCHEDULES
from penstock.spark.errors import DataLoss
from penstock.spark.jobs.auditing.sides import joined
from penstock.spark.jobs.failing import told_clearly
from penstock.spark.jobs.outcome import SILENCE, Outcome, Progress
from penstock.spark.jobs.place import Place
from penstock.spark.lake.copying import LogPlan, Piece, TopicPlan, copy_pieces, holes, plan_topic
from penstock.spark.lake.layout import LakeFile, limits
from penstock.spark.lake.log import Gap, LakeWriter, read_state
from penstock.spark.lake.origin import is_lake, lake_root
from penstock.spark.lake.writing import read_back
from penstock.spark.origins import Origin
from penstock.spark.paths import path_of
from penstock.spark.spreading import bundled, spread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TASK_ROWS = 1 << 18
_TASKS_AT_ONCE = 16
"""The results of this many tasks, or of four per core if that is more, go into one commit."""
COLUMNS = ("topic", ">partition", ">from", ">to", ">messages", ">events", ">files", ">bytes", ">moved")


@dataclass
class _Copied:
    """What became of a partition: its columns of the table."""

    start: int
    end: int
    messages: int = 0
    events: int = 0
    files: int | None = 0
    size_bytes: int | None = 0
    moved: int | None = None


def archive(
    spark: SparkSession,
    place: Place,
    topics: Sequence[str] | None,
    lake: str,
    *,
    move: bool = False,
    allow_gaps: bool = False,
    dry_run: bool = False,
    progress: Progress = SILENCE,
) -> Outcome:
    """Copy messages and events of topics (None: of all) that are not in the lake yet; what is there stays as it is.

    With `move`, the topic then lets go of the settled segments that are in the lake. What is gone from the topic and
    not in the lake is an error, unless gaps are allowed.
    """
    with told_clearly():
        return _Archiving(spark, place, lake, move, allow_gaps, progress).run(topics, dry_run)


class _Archiving:
    def __init__(
        self, spark: SparkSession, place: Place, lake: str, move: bool, allow_gaps: bool, progress: Progress
    ) -> None:
        self._spark, self._place, self._progress = spark, place, progress
        self._move, self._allow_gaps = move, allow_gaps
        self._root = lake_root(lake)
        self._limits = limits()
        if place.path is not None and is_lake(path_of(place.path)):
            raise InvalidArgument(f"{place.path} is a lake itself: copy the directory, or replay from it")
        self._client = place.client("moving what was archived") if move else None
        self._copied: dict[tuple[str, int], _Copied] = {}
        self._notes: list[str] = []

    def run(self, topics: Sequence[str] | None, dry_run: bool) -> Outcome:
        origin = self._place.origin()
        chosen = self._chosen(origin, topics)
        self._progress.step("planning")
        for topic in chosen:  # all that is wrong is told before anything is done
            plan = self._plan(origin, topic)
            if dry_run:
                self._foresee(plan)
        if not dry_run:
            for topic in chosen:
                self._archive(origin, topic)
        return self._outcome(chosen, dry_run)

    def _chosen(self, origin: Origin, topics: Sequence[str] | None) -> list[str]:
        known = origin.topic_names()
        if topics is None:
            return [name for name in known if name != SCHEDULES]
        missing = [name for name in dict.fromkeys(topics) if name not in known]
        if missing:
            raise TopicNotFound(f"there is no topic {', '.join(map(repr, missing))} in {self._place}")
        return list(dict.fromkeys(topics))

    def _plan(self, origin: Origin, topic: str) -> TopicPlan:
        state = read_state(self._root, topic)
        return plan_topic(self._place.options, origin, self._root, state, self._limits, allow_gaps=self._allow_gaps)

    def _foresee(self, plan: TopicPlan) -> None:
        for log in plan.logs:
            copied = self._of(log)
            copied.files = copied.size_bytes = None
            if self._move:
                going = sum(segment.end <= log.end for segment in log.live)
                copied.moved = (copied.moved or 0) + going
            self._count(log, log.count)
        self._note(plan.topic, plan.gaps)

    def _of(self, log: LogPlan) -> _Copied:
        where = (log.log.topic, log.log.partition)
        return self._copied.setdefault(where, _Copied(log.start, log.end))

    def _count(self, log: LogPlan, rows: int) -> None:
        copied = self._of(log)
        if log.log.table == "messages":
            copied.start, copied.end, copied.messages = log.start, log.end, copied.messages + rows
        else:
            copied.events += rows

    def _archive(self, origin: Origin, topic: str) -> None:
        with LakeWriter(self._root, topic) as writer:
            plan = self._plan(origin, topic)
            writer.tidy()
            self._copy(writer, plan)
            if self._move:
                self._let_go(writer, plan)

    def _copy(self, writer: LakeWriter, plan: TopicPlan) -> None:
        by_log = {(log.log.table, log.log.partition): log for log in plan.logs}
        for log in plan.logs:
            self._count(log, 0)
        total = sum(log.count for log in plan.logs)
        self._progress.step(f"copying {plan.topic}", total)
        copying = partial(copy_pieces, plan.options, self._limits)
        pieces = (piece for log in plan.logs for piece in log.pieces(self._limits))
        work = iter(bundled(pieces, lambda piece: piece.span.count, _TASK_ROWS))
        at_once = max(_TASKS_AT_ONCE, 4 * self._spark.sparkContext.defaultParallelism)
        gaps = plan.gaps
        while tasks := list(islice(work, at_once)):
            added: list[LakeFile] = []
            removed: list[LakeFile] = []
            done = spread(self._spark, tasks, copying)
            for piece, files in zip(chain.from_iterable(tasks), chain.from_iterable(done), strict=True):
                found = holes(piece, files)
                if found and not self._allow_gaps:
                    raise DataLoss(f"of {piece.span}, some are gone: {found[0].start} to {found[0].end - 1}")
                gaps += found
                added += files
                removed += [] if piece.tail is None else [piece.tail]
                self._tally(by_log[piece.log.table, piece.log.partition], piece, files)
            writer.commit("archive", added, removed, partitions=plan.partitions, gaps=gaps)
            self._note(plan.topic, gaps)
            gaps = []
            self._progress.advance(sum(piece.span.count for pieces in tasks for piece in pieces))
        if gaps or not writer.state.commits or writer.state.partitions < plan.partitions:
            writer.commit("archive", [], [], partitions=plan.partitions, gaps=gaps)
            self._note(plan.topic, gaps)

    def _tally(self, log: LogPlan, piece: Piece, files: Sequence[LakeFile]) -> None:
        known = 0 if piece.tail is None else piece.tail.rows
        self._count(log, sum(file.rows for file in files) - known)
        copied = self._of(log)
        written = [file for file in files if piece.tail is None or file.name != piece.tail.name]
        copied.files = (copied.files or 0) + len(written)
        copied.size_bytes = (copied.size_bytes or 0) + sum(file.size_bytes for file in written)

    def _note(self, topic: str, gaps: Sequence[Gap]) -> None:
        self._notes += [
            f"{topic}/{gap.partition}: {gap.table} from {gap.start} to {gap.end - 1} are gone, and not in the lake"
            for gap in gaps
        ]

    def _let_go(self, writer: LakeWriter, plan: TopicPlan) -> None:
        """Have the topic let go of the segments that are wholly in the lake, once that was read back from the disk."""
        assert self._client is not None
        bounds: dict[str, dict[int, int]] = {"messages": {}, "events": {}}
        to_read, known = [], writer.state.logs()
        for log in plan.logs:
            files = known.get((log.log.table, log.log.partition), [])
            end = movable(log, files)
            bounds[log.log.table][log.log.partition] = end
            if log.live and end < log.live[-1].end:
                self._notes.append(
                    f"{plan.topic}/{log.log.partition}: {log.log.table} from {end} on stay, as the lake has only a part"
                )
            lowest = min((segment.base for segment in log.live), default=end)
            to_read += [(log.log, file) for file in files if file.base < end and file.end > lowest]
        self._progress.step(f"reading back {plan.topic}", sum(file.rows for _, file in to_read))
        for rows in spread(self._spark, to_read, read_back):
            self._progress.advance(rows)
        lost = {group.name: group.lost for group in self._client.groups(plan.topic)}
        for number in range(plan.partitions):
            messages, events = ({number: of_table[number]} for of_table in bounds.values())
            moved = self._client.trim(plan.topic, messages, events=events)
            self._copied[plan.topic, number].moved = moved
        for group in self._client.groups(plan.topic):
            if missed := group.lost - lost.get(group.name, 0):
                self._notes.append(
                    f"{plan.topic}: {missed} messages that the group {group.name} had not finished with have gone with "
                    "the others; protect_unacked of the topic keeps such messages"
                )

    def _outcome(self, topics: list[str], dry_run: bool) -> Outcome:
        order = {topic: number for number, topic in enumerate(topics)}
        found = sorted(self._copied.items(), key=lambda item: (order[item[0][0]], item[0][1]))
        rows = [(topic, number, *astuple(copied)) for (topic, number), copied in found]
        summary: dict[str, Any] = {
            "from": str(self._place),
            "lake": str(self._root),
            "topics": len(topics),
            "messages": sum(copied.messages for _, copied in found),
            "events": sum(copied.events for _, copied in found),
        }
        if not dry_run:
            summary["files"] = sum(copied.files or 0 for _, copied in found)
            summary["bytes"] = sum(copied.size_bytes or 0 for _, copied in found)
        if self._move:
            summary["moved_segments"] = sum(copied.moved or 0 for _, copied in found)
        return Outcome("archive", summary, COLUMNS, rows, self._notes, dry_run=dry_run)


def movable(log: LogPlan, files: Sequence[LakeFile]) -> int:
    """Up to where every live segment of a log is in the lake, whole."""
    runs, end = joined((file.base, file.end) for file in files if not file.thinned), 0
    for segment in log.live:
        if not any(start <= segment.base and segment.end <= stop for start, stop in runs):
            break
        end = segment.end
    return end
