"""The pages of all figures, made from the results: `docs/benchmarks/*.md`, and a picture of Spark's."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.table import show

_PLAIN, _BASE = "#457b9d", "#c9ccd1"
_HEAD = """# Benchmarks: {title}

Measured by `python -m benchmarks {names}`
on {cores} shared virtual cores, {how}.
{date}; the load average was {before} at the start and {after} at the end (including the run itself).{rounds}

| | measured | baseline, in the same run | ratio | target | met |
| --- | --- | --- | --- | --- | --- |
"""
_MEDIANS = "\nEach figure is the median of its rounds, which are in `benchmarks/results/latest.json`."


@dataclass(frozen=True)
class Page:
    """One page: some figures, how they were measured, and what is to be known of them."""

    title: str
    figures: tuple[str, ...]
    how: str
    foot: str
    rounds: str = _MEDIANS
    draw: Callable[[Path, list[dict[str, Any]]], None] | None = None


def write(directory: Path, results: dict[str, Any]) -> None:
    """Write those of which something was measured."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        figures = [results["figures"][figure] for figure in page.figures if figure in results["figures"]]
        if not figures:
            continue
        head = _HEAD.format(
            title=page.title,
            names=" ".join(page.figures),
            cores=results["machine"]["cores"],
            how=page.how,
            date=figures[0]["start"]["date"][:10],
            before=_load(figures[0]["start"]),
            after=_load(figures[-1]["end"]),
            rounds=page.rounds,
        )
        rows = [row for figure in figures for row in figure["rows"]]
        lines = [*map(_line, rows), "", *(f"- {_name(row)}: {row['note']}." for row in rows if row.get("note"))]
        (directory / f"{name}.md").write_text(head + "\n".join(lines).rstrip() + "\n" + page.foot)
        if page.draw is not None:
            page.draw(directory / f"{name}.png", rows)


def _name(row: dict[str, Any]) -> str:
    return re.sub(r"^(Spark|Jobs|server): ", "", str(row["what"]))


def _line(row: dict[str, Any]) -> str:
    beside = "" if row["baseline"] is None else f"{show(row['baseline'], row['unit'])} ({row['baseline_is']})"
    ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
    targets = ", ".join(
        f"{sign} {bound:g} ×" if of == "ratio" else f"{sign} {show(bound, row['unit'])}"
        for of, sign, bound in row["targets"]
    )
    held = {True: "yes", False: "**no**", None: ""}[row["holds"]]
    return f"| {_name(row)} | {show(row['measured'], row['unit'])} | {beside} | {ratio} | {targets} | {held} |"


def _load(when: dict[str, Any]) -> str:
    return f"{when['load'][0]:.2f}"


def _draw(path: Path, rows: list[dict[str, Any]]) -> None:
    try:
        import matplotlib as mpl
    except ImportError:
        return
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    rates = [row for row in rows if row["unit"] == "messages/s"]
    growth = [row for row in rows if row["what"].startswith("Spark: time for each of ")]
    figure, (left, right) = plt.subplots(1, 2, figsize=(13, 5), layout="constrained")
    places = range(len(rates))
    left.barh(
        [place - 0.2 for place in places], [row["measured"] for row in rates], 0.4, color=_PLAIN, label="measured"
    )
    left.barh([p + 0.2 for p in places], [row["baseline"] or 0 for row in rates], 0.4, color=_BASE, label="baseline")
    left.set_yticks(places, [row["what"].removeprefix("Spark: ") for row in rates], fontsize=8)
    left.invert_yaxis()
    left.set_xscale("log")
    left.set_xlabel("messages/s (log scale)")
    left.legend()
    if growth:
        sizes = [_size(growth[0]["baseline_is"]), *(_size(row["what"]) for row in growth)]
        times = [growth[0]["baseline"], *(row["measured"] for row in growth)]
        right.plot(sizes, [time * 1e6 for time in times], marker="o", color=_PLAIN)
        right.set_xscale("log")
        right.set_ylim(bottom=0)
        right.set_xlabel("messages in the topic (log scale)")
        right.set_ylabel("µs for each message, all columns")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _size(text: str) -> int:
    return int("".join(character for character in text if character.isdigit()))


PAGES = {
    "broker": Page(
        "the broker",
        ("batches", "singles", "topics", "settle", "recovery", "read_arrow", "consume", "delayed", "holes"),
        "inside one process, messages of\n100 bytes, every publish synced before it is acknowledged",
        """
- *Bare* is a loop that only writes and syncs the same bytes.
- *8 on the way*: all tasks wake together after a commit, so processor and disk take turns; bare has no tasks to wake.
- Sixty-four *threads* switch the interpreter for every message: use asyncio, or batches.
""",
    ),
    "server": Page(
        "a server",
        ("server", "http"),
        "load and server in two\nprocesses, messages of 100 bytes, every publish synced before it is acknowledged",
        """
- *Bare* is a round trip over loopback to a process that only writes and syncs the same bytes, one at a time. To
  measure these figures on your machine: [`penstock bench`](../how-to/measure.md).
- *One message at a time* uses the minimum of system calls; the rest is Python, on both sides.
- *Receive + ack* is from the journal, where consumers that keep up find their messages.
- The HTTP load generator is `wrk`; the baseline is uvicorn reading the same JSON and doing nothing.
""",
    ),
    "processes": Page(
        "several shards and processes",
        ("shards", "processes"),
        "messages of 100 bytes, every\npublish synced before it is acknowledged",
        """
- *Shards* without processes are shards of one broker, inside one process. Each has a journal, so there are four syncs
  where there was one, and this disk does one after the other: a bare loop that writes the same bytes to four files
  and syncs each has 0.26 of the rate of one file with 64 single messages, and 0.53 with eight batches. In memory
  (`/dev/shm`) four shards have 0.96 of one with batches, 0.66 with single messages.
- *Processor time* is that of all processes of the server together, which has a core to itself; the load has the
  other. The same load is divided by four there, so fewer messages share a commit; with four times the load, each
  process has what the one has. Throughput is measured with load and server on both cores, which one process and its
  load keep busy already.
- *Forwarded* requests come, over kept connections, to a process that does not have their topic.
- *Unacked*: one of ten messages was acked, so that the group has as many gaps. The shard moves there and back while
  a publisher of each of eight shards is at work, 100 messages a second; those that are late are measured from when
  they were due. Nobody loses a message.
""",
    ),
    "bucket": Page(
        "a bucket",
        ("bucket",),
        "one shard on SeaweedFS on\nthe same machine, which syncs every object, messages of 100 bytes",
        """
- *Bare* requests are made in turn with what they are compared to, by the same process.
- *Requests of 45 ms* go through a proxy that passes on what is sent 45 ms later. A message waits for the next commit,
  which is at most 100 ms away, and for its request.
- *Idle*: an empty piece was put as a proof before, so that what nobody needed could go.
""",
    ),
    "takeovers": Page(
        "taking over and moving shards",
        ("brokers",),
        "three brokers on SeaweedFS on\nthe same machine, which syncs every object, with all of their load",
        """
- *Kill*: others claim a shard when nothing was heard of its broker for 2.5 s. A message counts that was sent after the
  kill; one that is sent once all is well again takes 0.1 s, for that is the interval of commits.
- *Moved*: between two acknowledgements of one publisher, which waits for each, are usually 0.1 s.
""",
    ),
    "spark": Page(
        "Spark",
        ("spark",),
        "`local[2]`, values of 100 bytes\nwith keys, Unix sockets between Python and Java (see below)",
        """
![Rates and their baselines, and time per message by the size of the topic](spark.png)

- *All columns* moves ten columns from Python to the JVM, row by row; `topic` and `message_id`, which are not in the
  files, take about a sixth of the time. `read_topic` stays in the JVM for settled messages.
- Unix sockets (`spark.python.unix.domain.socket.enabled`) made it about a seventh faster here. They are not the default
  of `session()`, because Spark's workers then print a harmless traceback whenever a query takes only the first rows.
- *A micro-batch with nothing to do* asks a Python process, which asks the server; the rate source asks nothing. Spark
  counts whole milliseconds; anything below one counts as one.
- The growth starts with a job that is mostly start-up: 100,000 messages are too few to keep Spark busy.
""",
        rounds=_MEDIANS[:-1] + "; the times for each message are the best of three.",
        draw=_draw,
    ),
    "jobs": Page(
        "jobs and pipelines",
        ("jobs",),
        "`local[2]`, values of 100 bytes;\nthe baseline is a bare Spark job on the same data",
        """- *load* reads the CSV, checks every row, and publishes it part by part, each once and synced to disk; the
  baseline only parses it.
- The pipeline parses JSON, computes a column, and writes JSON with a key; rows that do not parse would become dead
  letters. The load generator, the server, Java and its Python workers share the two cores. Seven earlier runs, on a
  slower machine, gave 79,800 (with other work on it) to 118,600/s, four of them more than 100,000.
- The audits on clusters are medians of four, after two that warm Java up; earlier runs gave 1.13 to 1.61.
  With both workers busy, the same tasks take a fifth to a quarter more CPU time, and there is no core left for the
  driver and the cluster's own processes. Pinning each worker to a core changed nothing.
""",
    ),
}
"""Every page, by the name of its file."""
