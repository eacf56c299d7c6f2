"""Measuring one figure: in a directory that is removed afterwards, with the load of the machine before and after."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.bench import Bench
from benchmarks.figures import FIGURES
from benchmarks.load import values
from benchmarks.machine import moment
from benchmarks.rows import Row


def measure(name: str, directory: Path, *, quick: bool) -> tuple[list[Row], dict[str, Any]]:
    """One figure: its rows, and what to keep of it."""
    values()
    before, start_s = moment(), perf_counter()
    directory.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(dir=directory) as place:
            rows = FIGURES[name](Bench(Path(place).resolve(), quick))
        os.sync()
    finally:
        with contextlib.suppress(OSError):
            directory.rmdir()
    lines = [row.as_json(judged=not quick) for row in rows]
    return rows, {"seconds": round(perf_counter() - start_s, 1), "start": before, "end": moment(), "rows": lines}
