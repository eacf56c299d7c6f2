"""The pages of Spark's figures, made from the results: `docs/benchmarks/spark.md` with a picture, and `jobs.md`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.table import show

_PLAIN, _BASE = "#457b9d", "#c9ccd1"
_HEAD = """# Figures of Spark

Measured by `python -m benchmarks spark` on {cores} shared virtual cores, `local[2]`, values of 100 bytes with keys,
Unix sockets between Python and Java (see below); the baseline is measured in the same run. {date}; the load average was
{before} at the start and {after} at the end (the run adds its own). Each is the median of its rounds, which are in
`benchmarks/results/latest.json`; the times for each message are the best of three.

| | measured | beside it | ratio | target | holds |
| --- | --- | --- | --- | --- | --- |
"""
_FOOT = """
![Rates beside their baselines, and time for each message by the size of the topic](spark.png)

- *All columns* goes from Python to the JVM row by row, ten columns of them; `topic` and `message_id`, which are in no
  file, are about a sixth of its time. `read_topic` stays in the JVM for what is settled.
- Unix sockets (`spark.python.unix.domain.socket.enabled`) made it about a seventh faster here. They are not the default
  of `session()`: Spark's workers then print a harmless traceback whenever a query takes only the first rows.
- *A micro-batch with nothing to do* asks a Python process, and that asks the server; the rate source asks nobody. Spark
  counts whole milliseconds, and here anything below one counts as one.
- The growth begins with a job that is mostly start-up: 100,000 messages are too few to keep Spark busy.
"""


_JOBS_HEAD = """# Figures of jobs and pipelines

Measured by `python -m benchmarks jobs` on {cores} shared virtual cores, `local[2]`, values of 100 bytes; beside each is
a bare Spark job on the same data, in the same run. {date}; the load average was {before} at the start and {after} at
the end (the run adds its own). Each is the median of its rounds, which are in `benchmarks/results/latest.json`.

| | measured | beside it | ratio | target | holds |
| --- | --- | --- | --- | --- | --- |
"""
_JOBS_FOOT = """
- *load* reads the CSV, checks every row, and publishes it part by part, each once and synced to disk; the bare job only
  parses it.
- The pipeline parses JSON, computes a column, and writes JSON with a key; whatever does not parse would go to the dead
  letters. The load, the server, Java and its Python workers share the two cores. Seven earlier runs, on a slower
  machine, gave 79,800 (beside other work) to 118,600/s, four of them more than 100,000.
- The audits on clusters are medians of four, after two that warm Java up; earlier runs gave 1.13 to 1.61.
  With both workers busy, the very same tasks take a fifth to a quarter more processor time, and the driver and the
  cluster's own processes have no core of their own. Pinning each worker to a core changed nothing.
"""


def write(directory: Path, results: dict[str, Any]) -> None:
    """Write those that were measured."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, head, foot in (("spark", _HEAD, _FOOT), ("jobs", _JOBS_HEAD, _JOBS_FOOT)):
        figure = results["figures"].get(name)
        if figure is None:
            continue
        filled = head.format(
            cores=results["machine"]["cores"],
            date=figure["start"]["date"][:10],
            before=_load(figure["start"]),
            after=_load(figure["end"]),
        )
        notes = [f"- {_name(row)}: {row['note']}." for row in figure["rows"] if row.get("note")]
        told = "\n".join(["", *notes]) if notes and name == "jobs" else ""
        lines = "\n".join(map(_line, figure["rows"]))
        (directory / f"{name}.md").write_text(f"{filled}{lines}\n{told}{foot}")
        if name == "spark":
            _draw(directory / "spark.png", figure["rows"])


def _name(row: dict[str, Any]) -> str:
    return str(row["what"]).removeprefix("Spark: ").removeprefix("Jobs: ")


def _line(row: dict[str, Any]) -> str:
    what = _name(row)
    beside = "" if row["baseline"] is None else f"{show(row['baseline'], row['unit'])} ({row['baseline_is']})"
    ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
    targets = ", ".join(
        f"{sign} {bound:g} ×" if of == "ratio" else f"{sign} {show(bound, row['unit'])}"
        for of, sign, bound in row["targets"]
    )
    held = {True: "yes", False: "**no**", None: ""}[row["holds"]]
    return f"| {what} | {show(row['measured'], row['unit'])} | {beside} | {ratio} | {targets} | {held} |"


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
