"""The table that a run prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table

from benchmarks.rows import Row, Target

_SIGNS = {">=": "≥", "<=": "≤", "<": "<"}


def table_of(figures: Mapping[str, Sequence[Row]], *, judged: bool) -> Table:
    """One line a row; where nothing is judged, the last column stays empty."""
    table = Table()
    for column in ("figure", "what", "measured", "baseline", "ratio", "target", "holds"):
        table.add_column(column, justify="right" if column in ("measured", "baseline", "ratio") else "left")
    for name, rows in figures.items():
        for row in rows:
            table.add_row(
                name if row is rows[0] else "",
                row.what + (f"\n({row.note})" if row.note else ""),
                show(row.measured, row.unit),
                "" if row.baseline is None else f"{show(row.baseline, row.unit)}\n[dim]{row.baseline_is}[/dim]",
                "" if row.ratio is None else f"{row.ratio:.2f}",
                " and ".join(_target(target, row.unit) for target in row.targets) or "[dim]for information[/dim]",
                _verdict(row) if judged else "",
            )
        table.add_section()
    return table


def show(value: float, unit: str) -> str:
    """A figure with its unit, as people write it."""
    if unit == "messages/s":
        return f"{value / 1e6:.2f} M/s" if value >= 1e6 else f"{value:,.0f}/s"
    if unit == "s":
        if value >= 1:
            return f"{value:.2f} s"
        return f"{value * 1e3:.3g} ms" if value >= 1e-4 else f"{value * 1e6:.3g} µs"
    if unit == "of a core":
        return f"{value:.1%}"
    if unit in ("bytes", "B"):
        return f"{value / (1 << 20):.0f} MiB" if value >= 1 << 20 else f"{value:,.0f} B"
    return f"{value:,.0f}" if unit else f"{value:.2f}"


def _target(target: Target, unit: str) -> str:
    bound = f"{target.bound:g} ×" if target.of == "ratio" else show(target.bound, unit)
    return f"{_SIGNS[target.sign]} {bound}"


def _verdict(row: Row) -> str:
    return {None: "", True: "[green]yes[/green]", False: "[bold red]no[/bold red]"}[row.holds]
