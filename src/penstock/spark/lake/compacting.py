"""Fewer or thinner files out of those of a lake: which belong together, and what a task does with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from penstock.spark.lake.layout import LakeFile, Limits
from penstock.spark.lake.writing import LogPlace, rows_of, write_files

KEPT_FILE = "file"
"""The column by which the kept offsets lie in directories: the name of the file that they are in."""


@dataclass(frozen=True)
class Group:
    """Adjacent files of one log that become one, or some if they are large."""

    log: LogPlace
    files: tuple[LakeFile, ...]
    kept: tuple[int, ...]
    """How many rows of each are left."""
    kept_in: str | None
    """The directory with the offsets that are left, of messages with a key; None: all."""

    @property
    def rows(self) -> int:
        """How many rows are left."""
        return sum(self.kept)

    @property
    def thinned(self) -> bool:
        """Whether rows are missing in what becomes of it."""
        return any(file.thinned for file in self.files) or any(map(_loses, self.files, self.kept))

    @property
    def changes(self) -> bool:
        """Whether there is anything to do."""
        return len(self.files) > 1 or _loses(self.files[0], self.kept[0])


def groups_of(
    log: LogPlace, files: Sequence[LakeFile], kept: Mapping[str, int] | None, limit: Limits, kept_in: str | None
) -> list[Group]:
    """Put the files of a log together as far as they go into one; one that loses all its rows goes with the next."""
    found: list[Group] = []
    waiting: list[LakeFile] = []

    def counts(some: Sequence[LakeFile]) -> tuple[int, ...]:
        return tuple(file.rows if kept is None else kept.get(file.name, 0) for file in some)

    for file in files:
        if waiting and not _belongs(waiting, counts(waiting), file, counts([file])[0], limit):
            found.append(Group(log, tuple(waiting), counts(waiting), kept_in))
            waiting = []
        waiting.append(file)
    return [*found, Group(log, tuple(waiting), counts(waiting), kept_in)] if waiting else found


def _belongs(group: Sequence[LakeFile], kept: tuple[int, ...], file: LakeFile, rows: int, limit: Limits) -> bool:
    """Whether a file goes into one with those before it."""
    left = [(one, count) for one, count in zip(group, kept, strict=True) if count]
    if not left:
        return True  # it has no file of its own
    if group[-1].end != file.base:
        return False  # what is between them is lost, and not left out
    if not rows:
        return False  # it begins the next group, whose first file stands for its places too
    last = left[-1][0]
    if last.date != file.date:
        return False
    if any(one.thinned or _loses(one, count) for one, count in [*zip(group, kept, strict=True), (file, rows)]):
        content = sum(one.content_bytes * count // one.rows for one, count in [*left, (file, rows)])
        return sum(kept) + rows <= limit.rows and content <= limit.size_bytes
    return (
        group[0].base // limit.rows == (file.end - 1) // limit.rows
        and sum(one.content_bytes for one in group) < limit.size_bytes
    )


def _loses(file: LakeFile, kept: int) -> bool:
    return kept < file.rows


def compact_group(limit: Limits, group: Group) -> list[LakeFile]:
    """In a task: write what is left of a group to new files; which these are."""
    cover = (group.files[0].base, group.files[-1].end) if group.thinned else None
    return write_files(group.log, _left(group), limit, cover)


def _left(group: Group) -> Iterator[pa.RecordBatch]:
    for file, kept in zip(group.files, group.kept, strict=True):
        if not _loses(file, kept):
            yield from rows_of(group.log, file)
        elif kept:
            assert group.kept_in is not None
            wanted = _offsets(Path(group.kept_in) / f"{KEPT_FILE}={Path(file.name).name}")
            for batch in rows_of(group.log, file):
                unkeyed = pc.is_null(batch.column("key"))
                left = batch.filter(pc.or_(unkeyed, pc.is_in(batch.column("offset"), value_set=wanted)))
                if len(left):
                    yield left


def _offsets(directory: Path) -> pa.Array:
    """The offsets of one file that are left; none if it has only messages without a key."""
    if not directory.is_dir():
        return pa.array([], pa.int64())
    found = ds.dataset(directory, format="parquet").to_table(columns=["offset"])
    return found.column("offset").combine_chunks()
