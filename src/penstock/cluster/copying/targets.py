"""What a copy is written to."""

from __future__ import annotations

from collections.abc import Collection
from typing import NoReturn, Protocol

from penstock.cluster.copying.shard_cut import StateTarget
from penstock.cluster.directory import Division
from penstock.model.errors import InvalidArgument
from penstock.storage.read_only import ReadableStorage


class ShardTarget(StateTarget, Protocol):
    """One shard of a copy, which nobody has open."""

    def files(self) -> set[str]:
        """The names of the segments and stages that are there."""

    def put_file(self, archive: str | None, name: str, data: bytes) -> None:
        """Write a segment or a stage, in the directory or in an archive of it; it is complete, or not there."""

    def remove(self, names: Collection[str]) -> None:
        """Remove segments and stages."""

    def open(self) -> ReadableStorage:
        """What is there now."""


class Target(Protocol):
    """A directory or a place in a bucket."""

    @property
    def address(self) -> str:
        """Where it is, as people write it."""

    def begin(self, source: str, shards: int) -> None:
        """Begin a copy with so many shards, or go on with it; raises if there is anything else."""

    def check_archive(self, archive: str) -> None:
        """Raise if a broker here could not reach this archive, which is no part of the source."""

    def shard(self, number: int) -> ShardTarget:
        """One of the shards."""

    def finish(self) -> None:
        """Declare the copy complete."""

    def close(self) -> None:
        """Let others use it."""


def refuse_other(address: str, division: Division | None) -> NoReturn:
    """Raise because something else is there than the copy that is to be made."""
    other = f", but for an unfinished copy of {division.source}" if division is not None and division.source else ""
    raise InvalidArgument(f"{address} is not empty{other}: give a place that is new")
