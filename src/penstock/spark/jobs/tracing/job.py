"""Latencies, causes and stuck messages of topics, out of their events: one page, and tables."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.model.errors import InvalidArgument, TopicNotFound
from penstock.model.schedules import SCHEDULES
from penstock.model.units import Duration, Time, parse_duration, parse_time_us
from penstock.spark.files.whole import sync, write_whole, written_whole
from penstock.spark.jobs.failing import told_clearly
from penstock.spark.jobs.outcome import SILENCE, Outcome, Progress
from penstock.spark.jobs.place import Place
from penstock.spark.jobs.tracing.gathering import gather
from penstock.spark.jobs.tracing.page import page, time_of
from penstock.spark.jobs.tracing.planning import Logs, Surveyed, chunks_of, logs_of, survey
from penstock.spark.jobs.tracing.tables import SCHEMAS, Report, report_of
from penstock.spark.origins import Origin
from penstock.spark.paths import AnyPath, path_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = (
    *("topic", "group", ">published", ">acked", ">dead", ">held", ">waiting", ">stuck"),
    *(">p50 ms", ">p95 ms", ">p99 ms"),
)
_NEW = ".new"


def trace_report(
    spark: SparkSession,
    place: Place,
    topics: Sequence[str] | None,
    out: str,
    *,
    from_time: Time | None = None,
    to_time: Time | None = None,
    stuck_after: Duration = "5m",
    dry_run: bool = False,
    progress: Progress = SILENCE,
) -> Outcome:
    """Report on topics (None: all) into a directory: `report.html`, and `tables/*.parquet`.

    It is about the messages that were published from one time to before the other, and all that happened to them. What
    is open for longer than `stuck_after`, seen from the newest thing in the logs, counts as stuck.
    """
    with told_clearly():
        window = tuple(None if time is None else parse_time_us(time) for time in (from_time, to_time))
        if window[0] is not None and window[1] is not None and window[0] >= window[1]:
            raise InvalidArgument(f"from_time {from_time} is not before to_time {to_time}: there is nothing in between")
        stuck_after_us = round(parse_duration(stuck_after) * 1_000_000)
        directory = _check_out(out)
        progress.step("looking at what there is")
        origin = place.origin()
        chosen = _choose(place, origin, topics)
        logs = logs_of(place, origin, chosen, *window)
        if dry_run:
            return _plan(logs, directory, chosen)
        progress.step("looking over events")
        surveyed = survey(spark, logs)
        progress.step("following messages")
        found = gather(spark, chunks_of(logs, surveyed))
        as_of_us = max([logs.latest_us, *(one.latest_us for one in surveyed.values())])
        report = report_of(found, as_of_us, stuck_after_us)
        facts = _facts(place, chosen, logs, surveyed, window, report)
        progress.step("writing the report")
        _write(directory, report, page(report, facts))
        return _outcome(report, directory, logs, surveyed, chosen)


def _choose(place: Place, origin: Origin, topics: Sequence[str] | None) -> list[str]:
    known = origin.topic_names()
    if not known:
        raise TopicNotFound(f"there is no topic at {place} yet")
    if topics is None:
        return [name for name in sorted(known) if name != SCHEDULES]
    if missing := [topic for topic in topics if topic not in known]:
        raise TopicNotFound(f"there is no topic {', '.join(map(repr, missing))} at {place}")
    return sorted(set(topics))


def _check_out(out: str) -> AnyPath:
    directory = path_of(out)
    if directory.exists() and not directory.is_dir():
        raise InvalidArgument(f"out: {out} is a file: give a directory, which is made if it is not there")
    return directory


def _facts(
    place: Place,
    topics: Sequence[str],
    logs: Logs,
    surveyed: Mapping[Any, Surveyed],
    window: tuple[int | None, ...],
    report: Report,
) -> dict[str, str]:
    """What the head of the page says; of the data, never of the moment at which it was made."""
    told = {
        "topics": ", ".join(topics[:20]) + (f" and {len(topics) - 20} more" if len(topics) > 20 else ""),
        "messages": f"{sum(span.count for span in logs.messages.values()):,}",
        "events": f"{sum(one.count for one in surveyed.values()):,}",
    }
    hours = [row[4] for row in report.rows["latencies"] if isinstance(row[4], int)]
    if window[0] is not None or window[1] is not None:
        ends = ["the beginning" if window[0] is None else time_of(window[0])]
        ends.append("the end" if window[1] is None else time_of(window[1]))
        told["published"] = f"from {ends[0]} to before {ends[1]}"
    elif hours:
        told["published"] = f"from the hour of {time_of(min(hours))} to that of {time_of(max(hours))}"
    if report.as_of_us:
        told["as of"] = f"{time_of(report.as_of_us)}, the newest thing in the logs"
    return told


def _write(directory: AnyPath, report: Report, html: str) -> None:
    """Write all files under other names, then rename them, the page last; on a bucket put them, the page last."""
    import pyarrow.parquet as pq

    if not isinstance(directory, Path):
        for name in SCHEMAS:
            with written_whole(directory / f"tables/{name}.parquet") as file:
                pq.write_table(report.table(name), file)
        write_whole(directory / "report.html", html.encode())
        return
    new = directory / _NEW
    shutil.rmtree(new, ignore_errors=True)
    try:
        (new / "tables").mkdir(parents=True)
        (directory / "tables").mkdir(exist_ok=True)
        names = [f"tables/{name}.parquet" for name in SCHEMAS]
        for name, place in zip(SCHEMAS, names, strict=True):
            pq.write_table(report.table(name), new / place)
        (new / "report.html").write_text(html)
        for place in [*names, "report.html"]:
            sync(new / place)
        for place in [*names, "report.html"]:
            (new / place).replace(directory / place)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _plan(logs: Logs, directory: AnyPath, topics: Sequence[str]) -> Outcome:
    rows = []
    for key, span in sorted(logs.messages.items()):
        events = logs.events.get(key)
        rows.append((*key, span.start, span.end, span.count, 0 if events is None else events.count))
    summary = {
        "directory": str(directory),
        "topics": len(topics),
        "messages": sum(row[4] for row in rows),
        "events": sum(row[5] for row in rows),
    }
    columns = ("topic", ">partition", ">first", ">end", ">messages", ">events")
    return Outcome("trace-report", summary, columns, rows, dry_run=True)


def _outcome(
    report: Report, directory: AnyPath, logs: Logs, surveyed: Mapping[Any, Surveyed], topics: Sequence[str]
) -> Outcome:
    counts: dict[tuple[Any, Any], dict[Any, Any]] = {}
    for topic, group, stage, messages in report.rows["funnel"]:
        counts.setdefault((topic, group), {})[stage] = messages
    stuck: dict[tuple[Any, Any], int] = {}
    for row in report.rows["stuck"]:
        stuck[row[0], row[1]] = stuck.get((row[0], row[1]), 0) + int(row[5])  # type: ignore[call-overload]
    overall = {(row[0], row[1]): row[6:9] for row in report.rows["latencies"] if row[2:5] == ("total", None, None)}
    stages = ("published", "acked", "dead", "held", "waiting")
    rows = [
        (*key, *(mine[stage] for stage in stages), stuck.get(key, 0), *overall.get(key, (None,) * 3))
        for key, mine in sorted(counts.items())
    ]
    summary = {
        "report": str(directory / "report.html"),
        "tables": str(directory / "tables"),
        "topics": len(topics),
        "messages": sum(span.count for span in logs.messages.values()),
        "events": sum(one.count for one in surveyed.values()),
        "stuck": sum(stuck.values()),
    }
    return Outcome("trace-report", summary, COLUMNS, rows)
