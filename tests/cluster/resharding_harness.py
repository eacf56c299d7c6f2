"""What the tests of resharding share."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from penstock.cluster.resharding.reshard import Resharded, reshard
from penstock.testing import VirtualClock
from tests.cluster.rich_directory import Workload, open_at

ONLY: dict[str, Any] = {"min_free_bytes": 0}
"""Options of a broker."""


def quietly(what: str, done: int, total: int) -> None:
    """Nobody is told."""


def to(path: Path, shards: int) -> Resharded:
    return reshard(path, shards, quietly)


def contents(path: Path) -> dict[str, str]:
    """Every file of a directory that matters, by a hash of what is in it."""
    files = sorted(file for file in path.rglob("*") if file.is_file() and not file.name.endswith(("LOCK", ".tmp")))
    return {str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def rich(path: Path, shards: int) -> tuple[Path, VirtualClock]:
    """A directory with some of everything, small enough to be resharded many times, and its clock."""
    workload = Workload(7, str(path.parent / "archive"))
    with open_at(path, workload.clock, shards) as broker:
        workload.fill(broker, 60)
    return path, workload.clock
