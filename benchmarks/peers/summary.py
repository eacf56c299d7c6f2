"""The figures of a run, row by row and system by system: medians of the rounds, with their spread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from rich.table import Table

from benchmarks.peers.catalogue import Row
from benchmarks.peers.rounds import Figure
from benchmarks.table import show


@dataclass(frozen=True, slots=True)
class Cell:
    """What all rounds of a row on a system, in one way, came to."""

    row: str
    system: str
    way: str
    rate: float
    """Messages a second."""
    least: float
    most: float
    p50_s: float | None
    p99_s: float | None
    server_us: float
    """Processor time for each message, which is also seconds for a million."""
    generator_us: float


def cells(figures: Iterable[Figure]) -> list[Cell]:
    """One for each row, system and way, in the order in which they were first measured."""
    found: dict[tuple[str, str, str], list[Figure]] = {}
    for figure in figures:
        found.setdefault((figure.row, figure.system, figure.way), []).append(figure)
    return [_cell(rounds) for rounds in found.values()]


def _cell(rounds: Sequence[Figure]) -> Cell:
    rates = [figure.messages / figure.seconds for figure in rounds]
    return Cell(
        rounds[0].row,
        rounds[0].system,
        rounds[0].way,
        median(rates),
        min(rates),
        max(rates),
        _median(figure.p50_s for figure in rounds),
        _median(figure.p99_s for figure in rounds),
        median(figure.server_s / figure.messages * 1e6 for figure in rounds),
        median(figure.generator_s / figure.messages * 1e6 for figure in rounds),
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def table_of_cells(found: Sequence[Cell], rows: Sequence[Row]) -> Table:
    """What a run prints."""
    table = Table()
    for column in ("row", "system", "way", "rate", "least", "most", "p50", "p99", "server s/M", "generator s/M"):
        table.add_column(column, justify="left" if column in ("row", "system", "way") else "right")
    for row in rows:
        for cell in (cell for cell in found if cell.row == row.name):
            table.add_row(
                row.name,
                cell.system,
                cell.way,
                *(show(value, "messages/s") for value in (cell.rate, cell.least, cell.most)),
                *("" if value is None else show(value, "s") for value in (cell.p50_s, cell.p99_s)),
                f"{cell.server_us:.2f}",
                f"{cell.generator_us:.2f}",
            )
        table.add_section()
    return table
