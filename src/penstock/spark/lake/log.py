"""The log of a topic in a lake: numbered commits. Only files that the commits name are part of the lake."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from itertools import pairwise
from types import TracebackType
from typing import Self

import msgspec
from google_crc32c import value as crc32c

from penstock.model.errors import CorruptData
from penstock.model.names import check_topic_name
from penstock.spark.errors import JobFailed
from penstock.spark.lake.layout import LOG, LakeFile
from penstock.spark.lake.store import check_files, store_of
from penstock.spark.paths import AnyPath


class Gap(msgspec.Struct, frozen=True):
    """Places that were gone before they could be copied."""

    table: str
    partition: int
    start: int
    end: int


class Commit(msgspec.Struct, frozen=True):
    """What a job changed, all of it or nothing."""

    topic: str
    kind: str
    """`archive`; `merge`: the same rows in larger files; `latest`: only the latest row of each key is left."""
    partitions: int
    previous: int
    """The checksum of the commit before; 0 of the first."""
    added: list[LakeFile]
    removed: list[str]
    """Names of files."""
    gaps: list[Gap] = []


class _Sealed(msgspec.Struct, frozen=True):
    """A commit as it lies in its file."""

    checksum: int
    """CRC-32C of the commit, byte for byte."""
    commit: msgspec.Raw


class LakeState:
    """What the commits of a topic add up to."""

    def __init__(self, root: AnyPath, topic: str) -> None:
        self.topic_root = root / topic
        self.topic = topic
        self.commits = 0
        self.partitions = 0
        self.previous = 0
        self.files: dict[str, LakeFile] = {}
        self.gaps: list[Gap] = []

    def logs(self) -> dict[tuple[str, int], list[LakeFile]]:
        """The files of all logs, in order, by table and partition."""
        found: dict[tuple[str, int], list[LakeFile]] = {}
        for file in sorted(self.files.values(), key=_order):
            found.setdefault((file.table, file.partition), []).append(file)
        return found

    def take(self, commit: Commit, checksum: int, place: AnyPath) -> None:
        """Fold a commit in."""
        if commit.topic != self.topic or commit.previous != self.previous:
            raise CorruptData(str(place), 0, "it does not follow the commit before it")
        for name in commit.removed:
            if self.files.pop(name, None) is None:
                raise CorruptData(str(place), 0, f"it removes {name}, which is not in the lake")
        self.files.update((file.name, file) for file in commit.added)
        self.gaps += commit.gaps
        self.partitions = max(self.partitions, commit.partitions)
        self.previous = checksum
        self.commits += 1

    def check(self) -> None:
        """Raise unless its files are there, and none has what another one has."""
        for files in self.logs().values():
            for one, other in pairwise(files):
                if other.base < one.end:
                    raise CorruptData(str(self.topic_root / other.name), 0, f"{one.name} has the same places")
        check_files(self.topic_root, {file.name: file.size_bytes for file in self.files.values()})


def lake_topics(root: AnyPath) -> list[str]:
    """Every topic that a lake has commits of."""
    return sorted({place.parent.parent.name for place in root.glob(f"*/{LOG}/*.json")})


def read_state(root: AnyPath, topic: str) -> LakeState:
    """The lake as it is; of a topic that is not in it, an empty one."""
    state = LakeState(root, topic)
    numbers = sorted(int(place.stem) for place in (root / topic / LOG).glob("*.json") if place.stem.isdigit())
    for number, expected in zip(numbers, range(len(numbers)), strict=True):
        if number != expected:
            raise CorruptData(str(_place(root, topic, expected)), 0, "the commit is missing, and later ones are there")
        commit, checksum = _read(_place(root, topic, number))
        state.take(commit, checksum, _place(root, topic, number))
    return state


def _place(root: AnyPath, topic: str, number: int) -> AnyPath:
    return root / topic / LOG / f"{number:020d}.json"


def _read(place: AnyPath) -> tuple[Commit, int]:
    data = place.read_bytes()
    try:
        sealed = msgspec.json.decode(data, type=_Sealed)
        if crc32c(bytes(sealed.commit)) != sealed.checksum:
            raise CorruptData(str(place), 0, "the commit does not match its checksum")
        return msgspec.json.decode(sealed.commit, type=Commit), sealed.checksum
    except msgspec.DecodeError as error:
        raise CorruptData(str(place), 0, f"not a commit of a lake: {error}") from error


class LakeWriter:
    """A topic of a lake that one job may change; to be entered, and what was not committed is removed behind it."""

    def __init__(self, root: AnyPath, topic: str) -> None:
        self._root, self._topic = root, check_topic_name(topic)
        self._store = store_of(root / topic)
        self.state = LakeState(root, topic)

    def __enter__(self) -> Self:
        self._store.hold()
        try:
            self.state = read_state(self._root, self._topic)
            self.state.check()
        except BaseException:
            self._store.release()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            with contextlib.suppress(OSError):  # the next job does it
                self.tidy()
        finally:
            self._store.release()

    def commit(
        self,
        kind: str,
        added: Sequence[LakeFile],
        removed: Sequence[LakeFile],
        *,
        partitions: int,
        gaps: Sequence[Gap] = (),
    ) -> None:
        """Change the lake: on disk when this returns; then the files that are not in it any more go."""
        old, new = {file.name for file in removed}, {file.name for file in added}
        commit = Commit(
            self._topic,
            kind,
            partitions,
            self.state.previous,
            sorted((file for file in added if self.state.files.get(file.name) != file), key=_order),
            sorted(old - new),
            list(gaps),
        )
        body = msgspec.json.format(msgspec.json.encode(commit), indent=1)
        checksum = crc32c(body)
        name = f"{LOG}/{self.state.commits:020d}.json"
        place = self._root / self._topic / name
        after = read_state(self._root, self._topic)
        if after.commits != self.state.commits:
            raise self._outrun()
        after.take(commit, checksum, place)
        after.check()
        self._put(name, b'{"checksum": %d,\n"commit": %b}\n' % (checksum, body))
        self.state = after
        for file in commit.removed:
            self._store.remove(file)

    def _put(self, name: str, data: bytes) -> None:
        """Write a commit, unless there is one of this number."""
        if not self._store.create(name, data):
            raise self._outrun()

    def _outrun(self) -> JobFailed:
        return JobFailed(
            f"another job has written to {self._root / self._topic} meanwhile, and this one has changed nothing "
            "since then: run it again"
        )

    def tidy(self) -> None:
        """Remove what lies around and is not in the lake: left by a job that was killed, or replaced."""
        if read_state(self._root, self._topic).commits == self.state.commits:  # else it is somebody else's turn
            self._store.tidy(self.state.files)


def _order(file: LakeFile) -> tuple[str, int, int]:
    return file.table, file.partition, file.base
