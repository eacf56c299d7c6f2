"""The figures of a run, row by row: medians of the rounds, with their spread."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from rich.table import Table

from benchmarks.peers.catalogue import Row
from benchmarks.peers.rounds import Figure
from benchmarks.peers.systems.system import System
from benchmarks.table import show


def table_of_figures(figures: Sequence[Figure], rows: Sequence[Row], systems: Sequence[System]) -> Table:
    table = Table()
    for column in ("row", "system", "way", "rate", "least", "most", "p50", "p99", "server s/M", "generator s/M"):
        table.add_column(column, justify="left" if column in ("row", "system", "way") else "right")
    for row in rows:
        found = [figure for figure in figures if figure.row == row.name]
        for system, way in dict.fromkeys((figure.system, figure.way) for figure in found):
            rounds = [figure for figure in found if (figure.system, figure.way) == (system, way)]
            rates = [figure.messages / figure.seconds for figure in rounds]
            p50 = [figure.p50_s for figure in rounds if figure.p50_s is not None]
            p99 = [figure.p99_s for figure in rounds if figure.p99_s is not None]
            table.add_row(
                row.name,
                system,
                way,
                *(show(value, "messages/s") for value in (median(rates), min(rates), max(rates))),
                show(median(p50), "s") if p50 else "",
                show(median(p99), "s") if p99 else "",
                f"{median(figure.server_s / figure.messages * 1e6 for figure in rounds):.2f}",
                f"{median(figure.generator_s / figure.messages * 1e6 for figure in rounds):.2f}",
            )
        table.add_section()
    return table
