"""A directory as a bucket: for tests, and for file systems that several machines share.

An object is written aside, synced, and then linked (create) or renamed (put) to its name: it is there as a whole or not
at all, and a link refuses a name that is taken.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from penstock.storage.interface import inside
from penstock.storage.objects import Outcome, Range, StoreUnavailable

_ASIDE = ".tmp"


class DirectoryObjects:
    """Objects as files. Failures of the disk are StoreUnavailable, as those of a bucket are."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._root = Path(path).absolute()
        self._numbers = itertools.count()

    @property
    def address(self) -> str:
        return self._root.as_uri()

    def create(self, name: str, data: bytes) -> Outcome:
        path = self._root / inside(name)
        if path.exists():
            return Outcome.EXISTS
        try:
            aside = self._write_aside(path, data)
            try:
                path.hardlink_to(aside)
            finally:
                aside.unlink()
            _sync_directory(path.parent)
        except FileExistsError:
            return Outcome.EXISTS
        except OSError:  # it may be there, and not on the disk yet
            return Outcome.UNKNOWN
        return Outcome.DONE

    def put(self, name: str, data: bytes) -> None:
        path = self._root / inside(name)
        with _as_unavailable():
            self._write_aside(path, data).replace(path)
            _sync_directory(path.parent)

    def _write_aside(self, path: Path, data: bytes) -> Path:
        """Write bytes that are on the disk then, under a name that nobody looks at."""
        aside = path.with_name(f"{path.name}.{os.getpid()}-{next(self._numbers)}{_ASIDE}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            fd = os.open(aside, flags, 0o600)
        except FileNotFoundError:
            self._make(path.parent)
            fd = os.open(aside, flags, 0o600)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
                file.flush()
                os.fdatasync(fd)
        except OSError:
            aside.unlink(missing_ok=True)
            raise
        return aside

    def _make(self, directory: Path) -> None:
        """Make a directory, and those above it, for good."""
        missing = [each for each in (directory, *directory.parents) if not each.exists()]
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for each in missing:
            _sync_directory(each.parent)

    def get(self, name: str) -> bytes | None:
        with _as_unavailable(), contextlib.suppress(FileNotFoundError):
            return (self._root / inside(name)).read_bytes()
        return None

    def get_many(self, names: Sequence[str]) -> list[bytes | None]:
        return [self.get(name) for name in names]

    def get_range(self, name: str, start: int, length: int) -> bytes | None:
        with _as_unavailable(), contextlib.suppress(FileNotFoundError), (self._root / inside(name)).open("rb") as file:
            return os.pread(file.fileno(), length, start)
        return None

    def get_ranges(self, ranges: Sequence[Range]) -> list[bytes | None]:
        return [self.get_range(*one) for one in ranges]

    def list_folder(self, prefix: str) -> list[str]:
        """Folders too that hold nothing any more, as directories do."""
        with _as_unavailable(), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return sorted(name for name in os.listdir(self._root / inside(prefix)) if not name.endswith(_ASIDE))
        return []

    def list(self, prefix: str, after: str = "") -> list[str]:
        found: list[str] = []
        for directory, _, names in os.walk(self._root / prefix.rpartition("/")[0]):
            inner = os.path.relpath(directory, self._root)
            found += [name if inner == "." else f"{inner}/{name}" for name in names if not name.endswith(_ASIDE)]
        return sorted(name for name in found if name.startswith(prefix) and name > after)

    def delete(self, names: Sequence[str]) -> None:
        paths = [self._root / inside(name) for name in names]
        with _as_unavailable():
            for path in paths:
                path.unlink(missing_ok=True)
            for directory in {path.parent for path in paths if path.parent.exists()}:
                _sync_directory(directory)

    def part(self, prefix: str) -> DirectoryObjects:
        return DirectoryObjects(self._root / inside(prefix))


@contextlib.contextmanager
def _as_unavailable() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StoreUnavailable(*error.args) from error


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
