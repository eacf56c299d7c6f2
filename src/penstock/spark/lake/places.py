"""Where a lake may be."""

from __future__ import annotations

from pathlib import Path

from penstock.model.errors import InvalidArgument
from penstock.spark.lake.log import lake_topics
from penstock.spark.lake.origin import is_lake


def lake_root(lake: str) -> Path:
    """The directory of a lake that is written to, which need not be there yet; never one that is something else."""
    if "://" in lake:
        raise InvalidArgument(f"a lake is a directory that all machines of the cluster see, not an address: {lake!r}")
    root = Path(lake).absolute()
    if root.exists() and not root.is_dir():
        raise InvalidArgument(f"{root} is a file: a lake is a directory")
    if is_lake(root):  # a topic may be called as a file of a data directory is
        return root
    if any((root / name).exists() for name in ("checkpoint-a", "checkpoint-b", "journal")):
        raise InvalidArgument(f"{root} is a data directory of a broker: give another one for the lake")
    if any(root.glob("*/messages")):
        raise InvalidArgument(f"{root} is an archive of a broker, which still reads it: give another one for the lake")
    return root


def known_lake(lake: str) -> Path:
    """The directory of a lake that must be there."""
    root = Path(lake).absolute()
    if root.is_dir() and is_lake(root) and lake_topics(root):
        return root
    if any(root.glob("*/messages")) or any((root / name).exists() for name in ("checkpoint-a", "checkpoint-b")):
        raise InvalidArgument(
            f"{root} is no lake: a broker reads these segments by its own list of them, so that they must stay as they "
            "are; archive the topics into a lake first (`penstock job archive`)"
        )
    raise InvalidArgument(f"{root} is no lake: it has no <topic>/_log; `penstock job archive` makes one")
