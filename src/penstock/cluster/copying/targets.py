"""What a copy is written to."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from penstock.cluster.copying.shard_cut import StateTarget
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

    def begin(self, source: str, shards: int | None) -> None:
        """Begin a copy, or go on with one; raises if there is anything else. `shards`: None if it is undivided."""

    def check_archive(self, archive: str) -> None:
        """Raise if a broker here could not reach this archive, which is no part of the source."""

    def shard(self, number: int) -> ShardTarget:
        """One of the shards."""

    def finish(self) -> None:
        """Declare the copy complete."""

    def close(self) -> None:
        """Let others use it."""
