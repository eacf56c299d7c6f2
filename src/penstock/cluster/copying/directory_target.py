"""A copy in a directory."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Collection
from pathlib import Path

from penstock.cluster.copying.targets import refuse_other
from penstock.cluster.directory import Step, copying, part_name, read_division, settle_division, write_division
from penstock.journal.layout import file_name
from penstock.log.checkpoint import Checkpoint
from penstock.model.errors import InvalidArgument
from penstock.model.stored import STAGES
from penstock.shard.checkpoint_files import COPIES, write_checkpoint
from penstock.storage import FileStorage, put_file
from penstock.storage.buckets import is_bucket
from penstock.storage.read_only import ReadOnlyStorage

_LOCK = "LOCK"


class DirectoryTarget:
    """A directory that holds nothing but the copy."""

    def __init__(self, path: str | os.PathLike[str], readable_by: str = "owner") -> None:
        self._root = FileStorage(path, readable_by)
        self._shards = 1
        self._root.lock()

    @property
    def address(self) -> str:
        return self._root.path

    def begin(self, source: str, shards: int) -> None:
        self._shards = shards
        division = read_division(self._root)
        if division == copying(source, shards):
            return
        if set(self._root.list("")) - {_LOCK}:
            refuse_other(self.address, division)
        write_division(self._root, shards, Step.COPYING, source=source)

    def check_archive(self, archive: str) -> None:
        if is_bucket(archive):
            raise InvalidArgument(
                f"segments are archived in {archive}, which a broker on a directory does not use: copy it to a bucket"
            )

    def shard(self, number: int) -> DirectoryShard:
        return DirectoryShard(self._root if self._shards == 1 else self._root.part(part_name(number)))

    def finish(self) -> None:
        settle_division(self._root, self._shards)

    def close(self) -> None:
        self._root.close()


class DirectoryShard:
    """A shard in a directory."""

    def __init__(self, storage: FileStorage) -> None:
        self._storage = storage

    def begin(self, epoch: int) -> None:
        self.clear()

    def clear(self) -> None:
        for name in (*COPIES, *(f"journal/{name}" for name in self._storage.list("journal"))):
            self._storage.remove(name)

    def put_journal(self, sequence: int, data: bytes, is_newest: bool) -> None:
        put_file(self._storage, file_name(sequence), [data])

    def put_checkpoint(self, checkpoint: Checkpoint) -> None:
        write_checkpoint(self._storage, checkpoint)

    def files(self) -> set[str]:
        root = Path(self._storage.path)
        found = (file for top in ("topics", STAGES) for file in root.glob(f"{top}/**/*") if file.is_file())
        return {str(file.relative_to(root)) for file in found}

    def put_file(self, archive: str | None, name: str, data: bytes) -> None:
        put_file(self._storage if archive is None else self._storage.elsewhere(archive), name, [data])

    def remove(self, names: Collection[str]) -> None:
        for name in names:
            self._storage.remove(name)
        for directory in {posixpath.dirname(name) for name in names}:
            self._storage.sync_directory(directory)

    def open(self) -> ReadOnlyStorage:
        return ReadOnlyStorage(self._storage.path, self._storage.base_path)
