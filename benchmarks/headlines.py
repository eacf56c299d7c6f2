"""The table of figures in the README: a few rows of the results, in words for people who have not read the rest."""

from __future__ import annotations

from typing import Any, NamedTuple

from benchmarks.table import show

_BEGIN, _END = "<!-- figures: written by `python -m benchmarks` -->\n", "<!-- end of figures -->\n"
_HEAD = "| | measured | baseline, in the same run |\n| --- | --- | --- |\n"


class Headline(NamedTuple):
    """A row of the results, and what the README calls it and its baseline."""

    figure: str
    row: str
    name: str
    beside: str = ""


HEADLINES = (
    Headline("batches", "batches of 1000, one at a time", "publish, batches of 1,000", "only write and sync them"),
    Headline("singles", "one publisher alone: p50", "publish, one at a time: p50", "only write and sync"),
    Headline("singles", "single messages, 64 tasks", "publish, one at a time in 64 tasks", "only write and sync them"),
    Headline("consume", "receive + ack, batches of 1000", "receive + ack, batches of 1,000", "publishing them"),
    Headline("topics", "batches of 100 to 10,000 topics in turn", "publish to 10,000 topics in turn", "to one topic"),
    Headline("topics", "memory of an idle topic", "memory of an idle topic"),
    Headline("delayed", "restart with 1,000,000 delayed messages", "open with a million delayed messages"),
    Headline(
        "recovery", "open after kill -9: 5,000,000 in batches", "open after `kill -9` with 5 million in the journal"
    ),
    Headline("server", "server: publish, batches of 1,000", "server: publish, batches of 1,000"),
    Headline("server", "server: publish, one message a request, 64", "server: publish, 64 connections, one at a time"),
    Headline(
        "server",
        "server: publish, one message at a time, one",
        "server: publish, one at a time: p50",
        "bare round trip",
    ),
    Headline("server", "server: receive + ack", "server: receive + ack, batches of 1,000", "publishing them"),
    Headline("server", "server: end to end at 50,000/s", "server: from publish to receive at 50,000/s: p99"),
    Headline("http", "HTTP, one message", "HTTP: publish, one message per request", "uvicorn that does nothing"),
    Headline("http", "HTTP, batches", "HTTP: publish, batches of 1,000", "uvicorn that does nothing"),
    Headline("spark", "Spark: read_topic, groupBy", "Spark: `read_topic`, groupBy(key)", "Spark on the same Parquet"),
    Headline(
        "spark", "Spark: 10,000,000 settled", 'Spark: `format("penstock")`, all columns', "Spark on the same Parquet"
    ),
    Headline("spark", "Spark: stream", "Spark: a stream, `availableNow`"),
    Headline("spark", "Spark: write", "Spark: write, exactly once"),
    Headline("jobs", "Jobs: load", "`penstock job load`, from CSV", "Spark only parses it"),
    Headline("jobs", "Pipeline", "a pipeline, JSON from topic to topic"),
)


def with_figures(readme: str, results: dict[str, Any]) -> str:
    """The README with the figures of these results."""
    before, _, rest = readme.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    lines = [_line(headline, _find(headline, results)) for headline in HEADLINES]
    return f"{before}{_BEGIN}{_HEAD}{''.join(lines)}{_END}{after}"


def _find(headline: Headline, results: dict[str, Any]) -> dict[str, Any]:
    rows: list[dict[str, Any]] = results["figures"][headline.figure]["rows"]
    return next(row for row in rows if row["what"].startswith(headline.row))


def _line(headline: Headline, row: dict[str, Any]) -> str:
    beside = f"{headline.beside}: {show(row['baseline'], row['unit'])}" if headline.beside else ""
    return f"| {headline.name} | {show(row['measured'], row['unit'])} | {beside} |\n"
