"""What a benchmark is given: a place on the disk, and how much to do."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.rows import Row

SETTLING_OFF: dict[str, Any] = {"segment_min_bytes": "1GiB", "journal_files_max": 1000, "max_unsettled_bytes": "64GiB"}


@dataclass(frozen=True, slots=True)
class Bench:
    """One run; `quick` only shows that everything works."""

    directory: Path
    quick: bool

    def size(self, full: int, quick: int) -> int:
        """How much to do."""
        return quick if self.quick else full

    def place(self) -> Path:
        """A new directory, kept to the end of the run: removing files changes how fast the next ones sync."""
        return Path(tempfile.mkdtemp(dir=self.directory))

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A new directory for much data, gone afterwards, with nothing of that left to do for the disk."""
        with tempfile.TemporaryDirectory(dir=self.directory) as path:
            yield Path(path)
        os.sync()


Figure = Callable[[Bench], list[Row]]
