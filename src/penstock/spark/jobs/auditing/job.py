"""Prove that a data directory, a server, an archive or a lake is whole."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cluster.snapshots import Snapshots
from penstock.model.errors import InvalidArgument, TopicNotFound
from penstock.spark.buckets import root_at
from penstock.spark.jobs.auditing.closer import check_counts, tell_difference
from penstock.spark.jobs.auditing.conservation import Folds, fold
from penstock.spark.jobs.auditing.duplicates import WAYS, find_duplicates
from penstock.spark.jobs.auditing.events import EventLog, events_of, read_logs
from penstock.spark.jobs.auditing.files import CHUNK_BITS, check_files
from penstock.spark.jobs.auditing.problems import Findings, Key
from penstock.spark.jobs.auditing.sides import Groups, LogView, Run, Side, inside, joined, look_at_once, without
from penstock.spark.jobs.auditing.sums import Sum, Sums, sum_up
from penstock.spark.jobs.auditing.verdicts import check_events, check_folds, check_holes, compare_groups, cuts_of
from penstock.spark.jobs.failing import told_clearly
from penstock.spark.jobs.outcome import SILENCE, Outcome, Progress
from penstock.spark.jobs.place import Place
from penstock.spark.origins import DirectoryOrigin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NOTES_MAX = 200
COLUMNS = ("topic", ">partition", ">first", ">end", ">messages", ">gaps", ">in lake", "hash", ">groups", "verdict")


@dataclass(frozen=True)
class _Expected:
    """What an earlier audit said of a partition."""

    run: Run
    sums: Sum


@dataclass(frozen=True)
class _Line:
    """What this one found out about a partition."""

    first: int
    end: int
    sums: Sum
    gaps: int
    in_lake: int


def audit(
    spark: SparkSession,
    place: Place,
    topics: Sequence[str] | None = None,
    *,
    lake: str | None = None,
    expect: str | None = None,
    duplicates: str = "none",
    dry_run: bool = False,
    progress: Progress = SILENCE,
) -> Outcome:
    """Look over topics (None: all): files, messages, events and groups; `whole` tells whether all is as it should be.

    With `lake`, the messages of the place and of the lake are put together, and have to agree where both have them.
    `expect` is the JSON of an earlier audit: what that one saw has to be there still, unchanged. `duplicates` looks
    for a `key` or a `dedupe-id` that is there more than once.
    """
    with told_clearly():
        return _Audit(spark, place, lake, expect, duplicates, progress).run(topics, dry_run)


class _Audit:
    def __init__(
        self,
        spark: SparkSession,
        place: Place,
        lake: str | None,
        expect: str | None,
        duplicates: str,
        progress: Progress,
    ) -> None:
        if duplicates not in WAYS:
            raise InvalidArgument(f"duplicates: {duplicates!r} is none of {', '.join(WAYS)}")
        self._spark, self._place, self._duplicates, self._progress = spark, place, duplicates, progress
        self._expected = {} if expect is None else _read_expected(expect)
        self._findings = Findings()
        self._home = Side("", place, self._findings)
        self._lake = None if lake is None else Side("in the lake, ", Place(path=lake), self._findings)
        if self._lake is not None and not self._lake.is_lake:
            raise InvalidArgument(f"lake: {lake} is no lake (with <topic>/_log); `penstock job archive` makes one")
        self._sides = [side for side in (self._home, self._lake) if side is not None]
        self._ids: dict[str, int] = {}
        self._all = False  # whether no topics were named
        self._keys: list[Key] = []

    def run(self, topics: Sequence[str] | None, dry_run: bool) -> Outcome:
        """Audit, or tell what would be looked at."""
        chosen, self._all = self._choose(topics), topics is None
        self._ids = {topic: number for number, topic in enumerate(chosen)}
        self._progress.step("looking at what there is")
        groups = look_at_once(self._home, chosen, self._findings)
        if self._lake is not None:
            self._lake.look(chosen)
        counts = {topic: max(side.partitions(topic) for side in self._sides) for topic in chosen}
        self._keys = [(topic, number) for topic in chosen for number in range(counts[topic])]
        if dry_run:
            return self._plan()
        self._progress.step("checking files")
        files = [check_files(self._spark, side, self._findings) for side in self._sides]
        self._progress.step("folding events")
        logs, folds = self._check_events(groups)
        self._progress.step("summing up messages")
        lines = self._check_messages(logs)
        doubled = self._find_duplicates()
        summary: dict[str, Any] = {
            "files": sum(count for count, _ in files),
            "bytes": sum(size for _, size in files),
            "events": sum(log.count for log in logs.values()),
            "groups": len({(topic, group) for topic, _, group in folds}),
        }
        if doubled is not None:
            summary["duplicates"] = doubled
        return self._outcome(lines, folds, summary)

    def _choose(self, topics: Sequence[str] | None) -> list[str]:
        known = sorted({name for side in self._sides for name in side.origin.topic_names()})
        if topics is None:
            return known
        if missing := [topic for topic in topics if topic not in known]:
            raise TopicNotFound(f"there is no topic {', '.join(map(repr, missing))} at {self._place}")
        return sorted(set(topics))

    def _views(self, table: str, key: Key) -> list[LogView]:
        return [view for side in self._sides if (view := side.log(table, key)) is not None]

    # Events.

    def _check_events(self, groups: Groups | None) -> tuple[dict[Key, EventLog], Folds]:
        events = events_of(self._spark, self._home, self._lake, self._ids)
        logs = {} if events is None else read_logs(events, self._ids)
        ends = {key: max(view.end for view in self._views("messages", key)) for key in self._keys}
        unproved = {
            key[0]
            for key in self._keys
            if (views := self._views("events", key))
            and not check_events(views, logs.get(key), ends[key], self._findings)
        }
        if events is None:
            folds: Folds = {}
        else:
            proved = {key: log for key, log in logs.items() if key[0] not in unproved}
            folds = fold(self._spark, events, proved, ends, self._ids, self._findings)
        check_folds(folds, self._findings)
        if groups is not None:
            mine = {key: group for key, group in groups.items() if key[0] in self._ids}
            compare_groups(mine, folds, unproved, self._findings)
        return logs, folds

    # Messages.

    def _check_messages(self, logs: Mapping[Key, EventLog]) -> dict[Key, _Line]:
        runs = {key: expected.run for key, expected in self._expected.items()}
        cuts = {key: found for key in self._keys if (found := cuts_of(key, self._sides, runs))}
        sums = [sum_up(self._spark, side, self._ids, cuts) for side in self._sides]
        for side, mine in zip(self._sides, sums, strict=True):
            check_counts(self._spark, side, mine, self._ids, self._findings)
        if self._lake is not None:
            self._compare_sides(sums)
        lines = {}
        for key in self._keys:
            views = self._views("messages", key)
            gaps = check_holes(views, logs.get(key), self._findings)
            lines[key] = self._line(key, views, sums, gaps)
            if (expected := self._expected.get(key)) is not None:
                self._compare_with_earlier(key, expected, sums, logs.get(key))
        for key in self._expected.keys() - set(self._keys):
            if self._all or key[0] in self._ids:
                self._findings.problem(*key, None, "the earlier audit saw this partition, and it is not there")
        return lines

    def _only_in_lake(self, key: Key) -> list[Run]:
        home, lake = self._home.log("messages", key), None if self._lake is None else self._lake.log("messages", key)
        return [] if lake is None else without(lake.runs(), [] if home is None else home.runs())

    def _together(self, key: Key, sums: Sequence[Sums], runs: Sequence[Run] | None = None) -> Sum:
        """What both sides have, each message once."""
        if runs is None:
            found = sums[0].total(key)
        else:
            home = self._home.log("messages", key)
            found = Sum() if home is None else sums[0].total(key, inside(runs, home.runs()))
        if self._lake is not None:
            alone = self._only_in_lake(key)
            found += sums[1].total(key, alone if runs is None else inside(runs, alone))
        return found

    def _line(self, key: Key, views: Sequence[LogView], sums: Sequence[Sums], gaps: int) -> _Line:
        first = min(view.first for view in views if view.runs() or view is views[0])
        in_lake = 0 if self._lake is None else sums[1].total(key).count
        return _Line(first, max(view.end for view in views), self._together(key, sums), gaps, in_lake)

    def _compare_sides(self, sums: Sequence[Sums]) -> None:
        """Where both have messages, they have to be the same; what compaction left out is not compared."""
        differ: dict[Key, list[int]] = defaultdict(list)
        shared: dict[Key, list[Run]] = {}
        for key in self._keys:
            views = self._views("messages", key)
            if len(views) == len(self._sides):
                shared[key] = _same_runs(views)
                for run in shared[key]:
                    one, other = (found.between(key, run) for found in sums)
                    differ[key] += [chunk for chunk in sorted({*one, *other}) if one.get(chunk) != other.get(chunk)]
        wrong = {key: sorted(set(chunks)) for key, chunks in differ.items() if chunks}
        if not wrong:
            return
        offsets = tell_difference(self._spark, self._sides, self._ids, wrong, shared)
        for (topic, partition), chunks in wrong.items():
            for chunk in chunks:
                found = offsets.get((topic, partition, chunk), [])
                at = found[0] if found else chunk << CHUNK_BITS
                many = f"{len(found)} messages" if found else "messages"
                what = f"{many} from here to {found[-1] if found else (chunk + 1 << CHUNK_BITS) - 1}"
                self._findings.problem(topic, partition, at, f"{what} are not the same in the lake")

    def _compare_with_earlier(self, key: Key, expected: _Expected, sums: Sequence[Sums], log: EventLog | None) -> None:
        runs = joined(run for view in self._views("messages", key) for run in view.runs())
        gone = without([expected.run], runs)
        if gone and log is not None and not without(gone, joined(log.removed)):
            what = f"{gone[-1][1] - gone[0][0]} messages were removed since the earlier audit, which cannot be compared"
            self._findings.remark(*key, gone[0][0], what)
            return
        found = self._together(key, sums, [expected.run])
        if found != expected.sums:
            start, end = expected.run
            had, has = (f"{one.count} messages with hash {one.hash:016x}" for one in (expected.sums, found))
            self._findings.problem(
                *key, start, f"from here to {end - 1} the earlier audit saw {had}; now there are {has}"
            )

    # Duplicates.

    def _find_duplicates(self) -> int | None:
        if self._duplicates == "none":
            return None
        self._progress.step("looking for duplicates")
        sides: list[tuple[Side, Mapping[Key, int]]] = [(self._home, {})]
        if self._lake is not None:  # of which what the place has too is not counted again
            homes = {key: self._home.log("messages", key) for key in self._keys}
            firsts = {key: home.first for key, home in homes.items() if home is not None and home.runs()}
            sides.append((self._lake, firsts))
        windows = self._dedupe_windows_us()
        return find_duplicates(self._spark, self._duplicates, sides, self._ids, windows, self._findings)

    def _dedupe_windows_us(self) -> dict[str, int]:
        if self._place.servers is not None:
            infos = self._place.client("an audit").topics()
        elif isinstance(self._home.origin, DirectoryOrigin):
            assert self._place.path is not None
            with Snapshots(root_at(self._place.path)) as snapshots:
                infos = snapshots.topics()
        else:
            return {}
        return {info.name: round(info.config.dedupe_window * 1_000_000) for info in infos}

    # What is told.

    def _plan(self) -> Outcome:
        rows = []
        for key in self._keys:
            views = self._views("messages", key)
            messages = sum(sum(one.rows for one in view.segments) + view.end - view.source_from for view in views)
            size = sum(one.size_bytes for view in [*views, *self._views("events", key)] for one in view.segments)
            files = sum(len(view.segments) for view in [*views, *self._views("events", key)])
            end = max(view.end for view in views)
            rows.append((*key, min(view.first for view in views), end, messages, files, size))
        summary = {
            **self._where(),
            "messages": sum(row[4] for row in rows),
            "files": sum(row[5] for row in rows),
            "bytes": sum(row[6] for row in rows),
        }
        columns = ("topic", ">partition", ">first", ">end", ">messages", ">files", ">bytes")
        return Outcome("audit", summary, columns, rows, dry_run=True)

    def _where(self) -> dict[str, Any]:
        lake = {} if self._lake is None else {"lake": str(self._lake.place)}
        return {"place": str(self._place), **lake, "topics": len(self._ids), "partitions": len(self._keys)}

    def _outcome(self, lines: Mapping[Key, _Line], folds: Folds, figures: Mapping[str, Any]) -> Outcome:
        problems, counts = self._findings.problems, self._findings.counts()
        groups: dict[Key, int] = defaultdict(int)
        for topic, partition, _ in folds:
            groups[topic, partition] += 1
        rows = []
        for key, line in lines.items():
            wrong = counts.get(key, 0) + counts.get((key[0], -1), 0)
            verdict = "whole" if not wrong else f"{wrong} problem{'s' if wrong > 1 else ''}"
            seen = (line.first, line.end, line.sums.count, line.gaps, line.in_lake, f"{line.sums.hash:016x}")
            rows.append((*key, *seen, groups[key], verdict))
        total = sum((line.sums for line in lines.values()), Sum())
        summary = {
            **self._where(),
            "messages": total.count,
            "hash": f"{total.hash:016x}",
            **figures,
            "problems": len(problems),
        }
        notes = [f"problem at {problem}" for problem in problems[:_NOTES_MAX]]
        if len(problems) > _NOTES_MAX:
            notes.append(f"and {len(problems) - _NOTES_MAX} more problems")
        notes += [str(remark) for remark in self._findings.remarks[:_NOTES_MAX]]
        return Outcome("audit", summary, COLUMNS, rows, notes, whole=not problems)


def _same_runs(views: Sequence[LogView]) -> list[Run]:
    """What all of them have, whole."""
    runs = views[0].runs()
    for view in views:
        full = [(one.base, one.end) for one in view.segments if one.rows == one.end - one.base]
        runs = inside(runs, joined([*full, (view.source_from, view.end)]))
    return runs


def _read_expected(name: str) -> dict[Key, _Expected]:
    """What an earlier audit saw, from its JSON."""
    try:
        found = json.loads(Path(name).read_text())
        rows = [] if found["job"] != "audit" or found["dry_run"] else found["rows"]
        known = {
            (str(row["topic"]), int(row["partition"])): _Expected(
                (int(row["first"]), int(row["end"])), Sum(int(row["messages"]), int(row["hash"], 16))
            )
            for row in rows
        }
    except FileNotFoundError:
        raise InvalidArgument(f"expect: there is no file {name}") from None
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise InvalidArgument(
            f"expect: {name} is not what `penstock job audit --output json` printed: {error}"
        ) from error
    if not known:
        raise InvalidArgument(f"expect: {name} has no partition in it: it is of another job, or of a dry run")
    return known
