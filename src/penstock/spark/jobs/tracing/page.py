"""The report as one self-contained HTML file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from penstock.model.units import to_datetime
from penstock.spark.jobs.tracing.charts import columns, duration, lines, rows
from penstock.spark.jobs.tracing.tables import Report

_CHARTS = 24
"""How many groups have their own charts; the tables have all groups."""
_LINES = 20
_COLOURS = {"acked": "good", "dead": "bad", "lapsed": "bad", "lost": "bad", "held": "warn", "waiting": "warn"}
_METRICS = {"wait": "published to first delivered", "work": "first delivered to acked", "total": "published to acked"}
_CAUSES = {"failed": "failed", "expired": "the lease ran out", "released": "released"}
Group = tuple[str, str]
Rows = list[tuple[Any, ...]]
ByGroup = Mapping[str, Mapping[Group, Rows]]
"""The rows of each table, by topic and group."""


def page(report: Report, facts: Mapping[str, str]) -> str:
    """The whole page; `facts` are shown at the top."""
    by_group = {name: _by_group(report.rows[name]) for name in report.rows}
    groups = sorted(by_group["funnel"], key=lambda group: (-_published(by_group["funnel"][group]), group))
    head = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts.items())
    body = [f"<header><h1>Trace report</h1><dl>{head}</dl></header>", _overview(groups, by_group)]
    body += [_section(group, by_group) for group in groups[:_CHARTS]]
    if len(groups) > _CHARTS:
        body.append(f"<p>{len(groups) - _CHARTS} smaller groups are in the tables only.</p>")
    if not groups:
        body.append("<p>No group has got any of these messages.</p>")
    style = files("penstock.spark.jobs.tracing").joinpath("page.css").read_text()
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f'<link rel="icon" href="data:,"><title>Trace report</title><style>\n{style}</style></head>\n'
        f"<body><main>\n{chr(10).join(body)}\n</main></body></html>\n"
    )


def time_of(time_us: int) -> str:
    """A moment, in UTC."""
    return to_datetime(time_us).strftime("%Y-%m-%d %H:%M:%S UTC")


def _by_group(found: Iterable[tuple[Any, ...]]) -> dict[Group, Rows]:
    grouped: dict[Group, Rows] = defaultdict(list)
    for topic, group, *rest in found:
        grouped[topic, group].append(tuple(rest))
    return dict(grouped)


def _published(funnel: Sequence[tuple[Any, ...]]) -> int:
    return next((count for stage, count in funnel if stage == "published"), 0)


def _overall(group: Group, by_group: ByGroup, metric: str) -> list[float | None]:
    """p50, p95 and p99 of all messages of a group."""
    for name, lane, hour, _, *percentiles in by_group["latencies"].get(group, ()):
        if name == metric and lane is None and hour is None:
            return percentiles[:3]
    return [None] * 3


def _overview(groups: Sequence[Group], by_group: ByGroup) -> str:
    lines_of = []
    for topic, name in groups:
        counts: dict[str, int] = dict(by_group["funnel"][topic, name])
        stuck = sum(row[3] for row in by_group["stuck"].get((topic, name), ()))
        figures = [duration(value) for value in _overall((topic, name), by_group, "total")]
        numbers = [counts[stage] for stage in ("published", "acked", "dead", "held", "waiting")]
        lines_of.append([topic, name, *(f"{number:,}" for number in numbers), f"{stuck:,}", *figures])
    heads = ["topic", "group", ">published", ">acked", ">dead", ">held", ">waiting", ">stuck", ">p50", ">p95", ">p99"]
    return f"<section><h2>Groups</h2>{_table('Groups', heads, lines_of)}</section>"


def _section(group: Group, by_group: ByGroup) -> str:
    found = {name: mine.get(group, []) for name, mine in by_group.items()}
    figures = [_figure(title, chart) for title, chart in _charts(found)]
    tables = []
    if consumers := found["consumers"]:
        shown = [
            [row[0] or "–", *(f"{number:,}" for number in row[1:6]), *(duration(value) for value in row[6:9])]
            for row in consumers[:_LINES]
        ]
        heads = ["consumer", ">delivered", ">acked", ">failed", ">expired", ">released", ">p50", ">p95", ">p99"]
        tables.append(f"<h3>Slowest consumers</h3>{_table('Slowest consumers', heads, shown)}")
    if stuck := found["stuck"]:
        oldest = sorted(stuck, key=lambda row: (-row[5], row[1], row[2]))[:_LINES]
        shown = [
            [
                f"{group[0]}/{row[1]}/{row[2]}",
                f"{row[3]:,}",
                row[0],
                row[6] or "–",
                duration(row[5] * 1000),
                time_of(row[4]),
            ]
            for row in oldest
        ]
        heads = ["first message", ">messages", "state", "consumer", ">for", "since"]
        tables.append(f"<h3>Stuck messages</h3>{_table('Stuck messages', heads, shown)}")
    title = f"{escape(group[0])} <small>group {escape(group[1])}</small>"
    return f'<section><h2>{title}</h2><div class="figures">{"".join(figures)}</div>{"".join(tables)}</section>'


def _charts(found: Mapping[str, Rows]) -> Iterable[tuple[str, str]]:
    whole = _published(found["funnel"])
    stages = [(stage, count, _COLOURS.get(stage, "plain")) for stage, count in found["funnel"]]
    yield "What became of the messages", rows(stages, "funnel of states", whole)
    for metric, told in (("total", _METRICS["total"]), ("wait", _METRICS["wait"])):
        hours = [row for row in found["latencies"] if row[0] == metric and row[1] is None and row[2] is not None]
        named = [
            (name, [(to_datetime(row[2]).strftime("%m-%d %H:00"), row[4 + place]) for row in hours])
            for place, name in enumerate(("p50", "p95", "p99"))
        ]
        yield f"Latency by hour, {told}", lines(named, f"latency by hour, {told}") if hours else ""
    bars = [(f"< {duration(row[2])}" if row[2] else "more", row[3]) for row in found["histogram"] if row[0] == "total"]
    yield f"Latencies, {_METRICS['total']}", columns(bars, "histogram of latencies")
    lanes = [row for row in found["latencies"] if row[0] == "total" and row[1] is not None and row[2] is None]
    if len(lanes) > 1:
        shown = [[str(row[1]), f"{row[3]:,}", *(duration(value) for value in row[4:7])] for row in lanes]
        yield "By lane (priority)", _table("By lane", [">lane", ">messages", ">p50", ">p95", ">p99"], shown)
    causes = [
        (f"{_CAUSES[cause]}: {detail}" if detail else _CAUSES[cause], count, "bad" if cause != "released" else "plain")
        for cause, detail, count in sorted(found["causes"], key=lambda row: (-row[2], row[0], row[1] or ""))[:_LINES]
    ]
    yield "Why messages came back", rows(causes, "causes of redelivery")


def _figure(title: str, drawn: str) -> str:
    return f"<figure><figcaption>{escape(title)}</figcaption>{drawn}</figure>" if drawn else ""


def _table(name: str, heads: Sequence[str], found: Sequence[Sequence[str]]) -> str:
    right = [head.startswith(">") for head in heads]

    def cells(tag: str, texts: Sequence[str]) -> str:
        each = (
            f"<{tag}{' class=n' if side else ''}>{escape(text)}</{tag}>"
            for text, side in zip(texts, right, strict=True)
        )
        return f"<tr>{''.join(each)}</tr>"

    head = cells("th", [text.removeprefix(">") for text in heads])
    body = "".join(cells("td", row) for row in found)
    whole = f"<thead>{head}</thead><tbody>{body}</tbody>"
    return f'<div class="scroll"><table aria-label="{escape(name)}">{whole}</table></div>'
