"""What has to agree: logs with themselves, events with messages, groups with events, two places, two audits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.spark.jobs.auditing.conservation import ENDS, Folds, standings
from penstock.spark.jobs.auditing.events import EventLog
from penstock.spark.jobs.auditing.problems import Findings, Key
from penstock.spark.jobs.auditing.sides import Groups, LogView, Run, Side, gaps_of, joined, length, without

_COMPARED = ("published", *(kind for kind in ENDS if kind != "lapsed"), "lag")
"""Of groups. A server counts as lapsed what is about to be; all others being equal, that follows from the rest."""


def check_holes(views: Sequence[LogView], log: EventLog | None, findings: Findings) -> int:
    """Tell what is missing of the messages of a partition, at all places together; how many are missing rightly."""
    together = joined(run for view in views for run in (*view.runs(), *view.broken))
    told = joined([*(log.removed if log is not None else ()), *(run for view in views for run in view.given)])
    holes = gaps_of(together)
    topic, partition = views[0].key
    for start, end in without(holes, told):
        moved = log is not None and without([(start, end)], joined(log.archived)) != [(start, end)]
        why = "the events say that they were moved to an archive" if moved else "no event says that they were removed"
        what = f"{end - start} messages are missing, from here to {end - 1}: no file has them, and {why}"
        findings.problem(topic, partition, start, what)
    left_out = sum(one.end - one.base - one.rows for view in views for one in view.segments)
    return length(holes) - length(without(holes, told)) + left_out


def check_events(views: Sequence[LogView], log: EventLog | None, end: int, findings: Findings) -> bool:
    """Tell what is wrong with the events of a partition; whether all that there should be are there."""
    runs = joined(run for view in views for run in view.runs())
    broken = joined(run for view in views for run in view.broken)
    given = joined(run for view in views for run in view.given)
    topic, partition = views[0].key
    whole = not broken
    for start, behind in without(gaps_of(joined([*runs, *broken])), given):
        whole = False
        findings.problem(topic, partition, None, f"the events {start} to {behind - 1} are missing")
    count = 0 if log is None else log.count
    if count != length(runs):
        whole = False
        findings.problem(topic, partition, None, f"there are {count} events instead of {length(runs)}")
    if log is not None and log.highest >= end:
        findings.problem(topic, partition, log.highest, f"an event speaks of it, but the messages end with {end - 1}")
    if log is not None and log.lowest < 0:
        findings.problem(topic, partition, log.lowest, "an event speaks of it, but offsets begin with 0")
    return whole


def compare_groups(groups: Groups, folds: Folds, unproved: set[str], findings: Findings) -> None:
    """Tell where the broker's figures of a group are not those of the events."""
    folded = standings(folds)
    for (topic, name), group in sorted(groups.items()):
        if topic in unproved:
            continue
        standing = folded.pop((topic, name), None)
        if standing is None:
            findings.remark(topic, None, None, f"group {name}: its beginning is not in the events any more: not proved")
            continue
        differ = [kind for kind in _COMPARED if getattr(standing, kind) != getattr(group, kind)]
        if differ:
            said = ", ".join(
                f"{getattr(standing, kind)} {kind} (the broker: {getattr(group, kind)})" for kind in differ
            )
            findings.problem(topic, None, None, f"group {name}: its events add up to {said}")
    for topic, name in sorted(folded):
        if topic not in unproved:
            findings.problem(topic, None, None, f"group {name}: it is in the events, and the broker does not know it")


def check_folds(folds: Folds, findings: Findings) -> None:
    """Tell where more messages were settled than there are."""
    for (topic, partition, group), one in folds.items():
        if one.open < 0:
            settled = sum(one.ends.values())
            what = f"group {group}: {settled} messages are settled, of {one.published}"
            findings.problem(topic, partition, None, what)


def cuts_of(key: Key, sides: Sequence[Side], expected: Mapping[Key, Run]) -> list[int]:
    """Where sums of a log are kept apart: wherever a side begins or stops having it, and at the ends of a known run."""
    views = [view for side in sides if (view := side.log("messages", key)) is not None]
    found = {place for view in views for run in view.runs() for place in run} if len(views) > 1 else set()
    return sorted({*found, *expected.get(key, ())})
