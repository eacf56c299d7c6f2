"""What a run measured, its baseline, and what it verified: for programs, and as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from penstock.bench.histogram import Latency
from penstock.model.errors import PenstockError

_SYNCS = {
    "always": "acknowledged means on disk",
    "interval": "acknowledged means written, on disk a little later",
    "never": "acknowledged means written, on disk when the system likes",
}


class RunFailed(PenstockError):
    """The measurement did not finish."""


class Mismatch(RunFailed):
    """The server does not have what it acknowledged, or did not deliver what it has."""


def check_count(what: str, found: int, expected: int) -> str:
    """The count in words, if it is the expected one; raises Mismatch otherwise."""
    if found != expected:
        raise Mismatch(f"{what}: {found:,} instead of {expected:,}")
    return f"{what}: {found:,}"


@dataclass(frozen=True, slots=True)
class Beside:
    """The baseline of a figure, measured in the same run."""

    what: str
    messages_per_s: float
    latency: Latency | None
    ratio: float
    """Of the times (p50) where messages go one at a time or by a schedule, of the rates otherwise."""
    of_times: bool = False


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured line."""

    what: str
    messages: int
    seconds: float
    message_bytes: int
    latency: Latency
    latency_of: str
    """What the latency is measured of, from when to when."""
    verified: tuple[str, ...]
    beside: Beside | None = None

    @property
    def messages_per_s(self) -> float:
        return self.messages / self.seconds if self.seconds else 0.0

    @property
    def mb_per_s(self) -> float:
        """Millions of bytes a second, counting values only."""
        return self.messages_per_s * self.message_bytes / 1e6

    def as_json(self) -> dict[str, Any]:
        """The figure as JSON objects."""
        return {**asdict(self), "messages_per_s": self.messages_per_s, "mb_per_s": self.mb_per_s}


@dataclass(frozen=True, slots=True)
class Conditions:
    """What the figures were measured on, and how busy the machine was."""

    server: str
    version: str
    sync: str
    """What stands behind an acknowledgement: `always` means that it is on disk."""
    own_server: bool
    directory: str
    """Where the bare round trip writes, and the server if it was started for this."""
    file_system: str
    cores: int
    python: str
    load_before: tuple[float, float, float]
    load_after: tuple[float, float, float]


# As text.


def details(figure: Figure) -> list[tuple[str, str]]:
    """All details of one figure, line by line."""
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
    """The figure relative to its baseline."""
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
    """A line for each figure, with its name."""
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
    """The conditions of the measurement."""
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
