"""Charts as SVG, drawn here: nothing is fetched, and a page of them opens anywhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

_WIDTH, _HEIGHT = 640, 200
_LEFT, _BOTTOM, _TOP = 56, 22, 8


def duration(ms: float | None) -> str:
    """A latency as people read it.

    >>> duration(0.25), duration(12), duration(1500), duration(7_200_000), duration(None)
    ('0.25 ms', '12 ms', '1.5 s', '2 h', '–')
    """
    if ms is None:
        return "–"
    for limit, divisor, unit in ((1000, 1, "ms"), (60_000, 1000, "s"), (3_600_000, 60_000, "min")):
        if ms < limit:
            return f"{ms / divisor:.3g} {unit}"
    return f"{ms / 3_600_000:.3g} h"


def lines(named: Sequence[tuple[str, Sequence[tuple[str, float]]]], title: str) -> str:
    """Lines over the same labels, on a logarithmic scale, with a legend."""
    labels = [label for label, _ in named[0][1]] if named else []
    values = [value for _, points in named for _, value in points]
    if not values:
        return ""
    low = math.floor(math.log10(max(min(values), 0.001)))
    high = max(low + 1, math.ceil(math.log10(max(*values, 0.001))))
    inner = _WIDTH - _LEFT - 10

    def x_of(place: int) -> float:
        return _LEFT + (inner / 2 if len(labels) == 1 else inner * place / (len(labels) - 1))

    def y_of(value: float) -> float:
        share = (math.log10(max(value, 10.0**low)) - low) / (high - low)
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _BOTTOM - _TOP)

    drawn = [_grid(y_of(10.0**power), duration(10.0**power)) for power in range(low, high + 1)]
    step = max(1, math.ceil(len(labels) / 6))
    drawn += [_label(x_of(place), labels[place]) for place in range(0, len(labels), step)]
    for number, (name, points) in enumerate(named):
        path = " ".join(f"{x_of(place):.1f},{y_of(value):.1f}" for place, (_, value) in enumerate(points))
        drawn.append(f'<polyline class="line c{number}" points="{path}"/>')
        for place, (label, value) in enumerate(points):
            told = f"{escape(name)}, {escape(label)}: {duration(value)}"
            drawn.append(
                f'<circle class="dot c{number}" cx="{x_of(place):.1f}" cy="{y_of(value):.1f}" r="2.5">'
                f"<title>{told}</title></circle>"
            )
    legend = "".join(f'<span class="key c{number}">{escape(name)}</span>' for number, (name, _) in enumerate(named))
    return f'<div class="legend">{legend}</div>{_svg(drawn, title)}'


def columns(bars: Sequence[tuple[str, int]], title: str) -> str:
    """A histogram."""
    if not bars:
        return ""
    most = max(count for _, count in bars) or 1
    inner = _WIDTH - _LEFT - 10
    width = min(inner / len(bars), 48)
    drawn = [_grid(_HEIGHT - _BOTTOM, "0"), _grid(_TOP, f"{most:,}")]
    step = max(1, math.ceil(len(bars) / 8))
    for place, (label, count) in enumerate(bars):
        x, height = _LEFT + place * width, (_HEIGHT - _BOTTOM - _TOP) * count / most
        drawn.append(
            f'<rect class="bar c0" x="{x + 1:.1f}" y="{_HEIGHT - _BOTTOM - height:.1f}" width="{width - 2:.1f}" '
            f'height="{height:.1f}"><title>{escape(label)}: {count:,}</title></rect>'
        )
        if place % step == 0:
            drawn.append(_label(x + width / 2, label))
    return _svg(drawn, title)


def rows(bars: Sequence[tuple[str, int, str]], title: str, whole: int | None = None) -> str:
    """Bars below each other, each with its name, its number, and the class of its colour."""
    if not bars:
        return ""
    most = whole or max(count for _, count, _ in bars) or 1
    lines_of = []
    for name, count, kind in bars:
        share = 100 * count / most
        lines_of.append(
            f'<div class="row"><span class="name" title="{escape(name)}">{escape(name)}</span>'
            f'<span class="track"><span class="fill {kind}" style="width:{min(share, 100):.2f}%"></span></span>'
            f'<span class="number">{count:,}</span></div>'
        )
    return f'<div class="rows" role="img" aria-label="{escape(title)}">{"".join(lines_of)}</div>'


def _grid(y: float, label: str) -> str:
    return (
        f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - 10}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
    )


def _label(x: float, text: str) -> str:
    anchor = "end" if x > _WIDTH - 40 else "start" if x < _LEFT + 10 else "middle"
    return f'<text x="{x:.1f}" y="{_HEIGHT - 6}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(drawn: Sequence[str], title: str) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}"><title>{escape(title)}</title>'
        f"{''.join(drawn)}</svg>"
    )
