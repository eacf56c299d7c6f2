"""Figures as people read them."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.bench.figures import Beside, Conditions, Figure

_SYNCS = {
    "always": "acknowledged means on disk",
    "interval": "acknowledged means written, on disk a little later",
    "never": "acknowledged means written, on disk when the system likes",
}


def details(figure: Figure) -> list[tuple[str, str]]:
    """Everything about one figure, line by line."""
    latency = figure.latency
    lines = [
        ("messages/s", f"{figure.messages_per_s:,.0f}"),
        ("MB/s", f"{figure.mb_per_s:,.3g}"),
        ("measured", f"{figure.messages:,} messages of {figure.message_bytes:,} bytes in {figure.seconds:.3g} s"),
        ("latency of", figure.latency_of),
        ("  p50", milliseconds(latency.p50_s)),
        ("  p90", milliseconds(latency.p90_s)),
        ("  p99", milliseconds(latency.p99_s)),
        ("  p99.9", milliseconds(latency.p999_s)),
        ("  max", milliseconds(latency.max_s)),
    ]
    beside = figure.beside
    if beside is not None:
        p50 = "" if beside.latency is None else f", p50 {milliseconds(beside.latency.p50_s)}"
        lines += [
            ("beside it", beside.what),
            ("", f"{beside.messages_per_s:,.0f} messages/s{p50}"),
            ("", ratio(beside)),
        ]
    lines += [("verified" if number == 0 else "", text) for number, text in enumerate(figure.verified)]
    return lines


def ratio(beside: Beside) -> str:
    """How the figure stands to what was measured beside it."""
    if beside.of_times:
        return f"{beside.ratio:.2f} × its time (p50)"
    return f"{beside.ratio:.2f} × its rate"


def milliseconds(seconds: float) -> str:
    """A latency: `0.412 ms`, `12.3 ms`, `1,200 ms`."""
    thousandths = seconds * 1e3
    if thousandths < 10:
        return f"{thousandths:.3f} ms"
    return f"{thousandths:,.1f} ms" if thousandths < 1000 else f"{thousandths:,.0f} ms"


def summary(figures: Sequence[tuple[str, Figure]]) -> list[list[str]]:
    """A line for each figure, by its name."""
    lines = []
    for name, figure in figures:
        beside = figure.beside
        lines.append(
            [
                name,
                f"{figure.messages_per_s:,.0f}",
                milliseconds(figure.latency.p50_s),
                milliseconds(figure.latency.p99_s),
                "" if beside is None else f"{ratio(beside)}: {beside.what.partition(':')[0]}",
            ]
        )
    return lines


def surroundings(conditions: Conditions) -> list[tuple[str, str]]:
    """What it was measured on."""
    server = conditions.version if conditions.own_server else f"{conditions.version} at {conditions.server}"
    before, after = (
        " ".join(f"{average:.2f}" for average in load) for load in (conditions.load_before, conditions.load_after)
    )
    warning = " (in memory: nothing here is durable)" if conditions.file_system in ("tmpfs", "ramfs") else ""
    return [
        ("server", server + (", started for this, as a process of its own" if conditions.own_server else "")),
        ("sync", f"{conditions.sync}: {_SYNCS.get(conditions.sync, 'see the configuration')}"),
        ("disk", f"{conditions.directory}, {conditions.file_system}{warning}"),
        ("machine", f"{conditions.cores} cores, Python {conditions.python}"),
        ("load average", f"{before} before, {after} after"),
    ]
