"""What the main job has computed, while it runs and when it was stopped. `make results` runs it."""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

import penstock
from examples.orders.parts import ROOT
from examples.orders.run import DIRECTORY, RUNNING
from examples.orders.screen import TOPIC
from examples.orders.shop import PRIORITIES
from penstock.model.errors import PenstockError
from penstock.model.info import GroupInfo
from penstock.model.pipelines import PipelineReport
from penstock.spark.pipelines.control import RunFiles

Source = penstock.Broker | penstock.Client
_MINUTES_MAX = 15
_FATES = ("acked", "ready", "leased", "delayed", "retrying", "dead", "lapsed", "withdrawn", "skipped", "lost")
console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)


def main() -> int:
    """Print it; the exit code."""
    parser = argparse.ArgumentParser("results", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--dir", type=Path, default=ROOT / DIRECTORY, help="that of the main job")
    place = parser.parse_args().dir.resolve()
    if not (place / "data").is_dir():
        print(f"error: there is nothing in {place}: `make run` comes first", file=sys.stderr)
        return 1
    try:
        with _opened(place) as source:
            _show_minutes(place / "tables" / "minutes")
            _show_groups(source)
            _show_dead_letters(source)
            _show_pipelines(place / "checkpoints", source)
    except PenstockError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


@contextlib.contextmanager
def _opened(place: Path) -> Iterator[Source]:
    """The broker of the main job if that runs, else the directory."""
    client = None
    with contextlib.suppress(OSError, ValueError, PenstockError):
        client = penstock.connect(json.loads((place / RUNNING).read_text())["native"], timeout="5s")
    if client is not None:
        with client:
            if client.status().directory == str(place / "data"):
                yield client
                return
    with penstock.open(place / "data") as broker:
        yield broker


# The table of minutes.


def read_minutes(place: Path) -> pa.Table:
    """The table that the pipeline writes, as Spark reads it: the files that its list has, and no others."""
    files = _files_of(place)
    if not files:
        return pa.table({name: [] for name in ("minute", "country", "priority", "orders", "amount")})
    parts = [pq.ParquetFile(file, coerce_int96_timestamp_unit="us").read() for file in files]
    return pa.concat_tables(parts).sort_by("minute")


def _files_of(place: Path) -> list[Path]:
    """What Spark's list of a table has: a file for each batch; now and then one that has all before it, too."""
    lists = {int(file.name.partition(".")[0]): file for file in (place / "_spark_metadata").glob("[0-9]*")}
    whole = max((number for number, file in lists.items() if file.suffix == ".compact"), default=0)
    added = []
    for number in sorted(lists):
        if number >= whole:
            version, *lines = lists[number].read_text().splitlines()
            assert version == "v1", version
            added += [json.loads(line)["path"] for line in lines]
    return [Path(unquote(urlsplit(path).path)) for path in added]


def _show_minutes(place: Path) -> None:
    minutes = read_minutes(place)
    if not len(minutes):
        console.print(f"\nThe pipeline has finished no minute yet ({place} is empty).")
        return
    totals = minutes.group_by("minute").aggregate([("orders", "sum"), ("amount", "sum")]).sort_by("minute")
    shown = [
        (f"{row['minute']:%Y-%m-%d %H:%M}", f"{row['orders_sum']:,}", f"{row['amount_sum']:,}")
        for row in totals.slice(max(0, len(totals) - _MINUTES_MAX)).to_pylist()
    ]
    left_out = f", the last {len(shown)} of {len(totals)}" if len(totals) > len(shown) else ""
    _show(f"Minutes that are over{left_out}", ("minute (UTC)", "orders", "amount"), shown)
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    for row in minutes.select(["country", "priority", "orders"]).to_pylist():
        counts[row["country"], row["priority"]] += row["orders"]
    countries = sorted({country for country, _ in counts})
    rows = [
        (country, *(f"{counts[country, priority]:,}" for priority in PRIORITIES), f"{_of(counts, country):,}")
        for country in countries
    ]
    totals_row = (f"{sum(counts[c, priority] for c in countries):,}" for priority in PRIORITIES)
    rows.append(("all", *totals_row, f"{pc.sum(minutes['orders']).as_py():,}"))
    _show("Orders of these minutes, by country and priority", ("country", *PRIORITIES, "all"), rows)


def _of(counts: dict[tuple[str, str], int], country: str) -> int:
    return sum(count for (found, _), count in counts.items() if found == country)


# The broker.


def _show_groups(source: Source) -> None:
    groups = [group for group in source.groups() if group.kind == "consumers"]
    fates = [fate for fate in _FATES if any(getattr(group, fate) for group in groups)]
    rows = [
        (group.topic, group.name, group.published, *(getattr(group, fate) for fate in fates), _adds_up(group))
        for group in groups
    ]
    _show("Groups: what became of what was published", ("topic", "group", "published", *fates, "adds up"), rows)


def _adds_up(group: GroupInfo) -> str:
    return "yes" if group.published == sum(getattr(group, fate) for fate in _FATES) else "NO"


def _show_dead_letters(source: Source) -> None:
    names = {topic.name for topic in source.topics()}
    letters = source.dead_letters(TOPIC) if f"{TOPIC}.dlq" in names else []
    causes: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
    for letter in letters:
        causes[letter.group, letter.cause].append(str(letter.origin))
    rows = [
        (group, cause, len(ids), ids[0])
        for (group, cause), ids in sorted(causes.items(), key=lambda item: (-len(item[1]), item[0]))
    ]
    _show("Dead letters", ("group", "cause", "how many", "such as"), rows)


def _show_pipelines(checkpoints: Path, source: Source) -> None:
    """What pipelines told last is beside their checkpoints; how far their queries are is what the broker knows."""
    lags = {group.name: group.lag for group in source.groups() if group.kind == "checkpoint"}
    reports = [RunFiles(file.parent).report() for file in sorted(checkpoints.glob("*/run.json"))]
    rows = [
        (query.name, report.state, query.batches, query.rows, lags.get(query.name, ""), report.restarts, _first(report))
        for report in reports
        if report is not None
        for query in report.queries
    ]
    columns = ("query", "state", "batches", "rows", "lag", "restarts", "last error")
    _show("Pipelines, in their last run", columns, rows)


def _first(report: PipelineReport) -> str:
    return (report.error or "").partition("\n")[0]


def _show(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    console.print(f"\n{title}", style="bold")
    if not rows:
        console.print("  none")
        return
    table = Table(box=SIMPLE, show_edge=False)
    for number, column in enumerate(columns):
        is_number = all(isinstance(row[number], int) or str(row[number])[:1].isdecimal() for row in rows)
        table.add_column(column, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(f"{value:,}" if isinstance(value, int) else str(value) for value in row))
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
