"""The real file system."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import filecmp
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from penstock.model.errors import DirectoryLocked
from penstock.storage.interface import Buffer, inside

READABLE_BY = {"owner": (0o600, 0o700), "group": (0o640, 0o750), "all": (0o644, 0o755)}
"""The modes of files and of directories, by who may read them; the umask may restrict them further."""
_NO_LINKS = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS)
_BUFFERS_MAX = 1024  # the most that one pwritev takes (IOV_MAX on Linux)
_JOIN_BYTES_MAX = 64 * 1024  # below this, copying is cheaper than a long vector


class OpenFile:
    """A file by its descriptor."""

    overwrites = True
    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def write(self, position: int, buffers: Sequence[Buffer]) -> int:
        for start in range(0, len(buffers), _BUFFERS_MAX):
            part = buffers[start : start + _BUFFERS_MAX]
            length = sum(map(len, part))
            if length <= _JOIN_BYTES_MAX:
                part = [b"".join(part)]
            written = os.pwritev(self._fd, part, position)
            if written < length:
                self._write_rest(position + written, memoryview(b"".join(part))[written:])
            position += length
        return position

    def _write_rest(self, position: int, rest: memoryview) -> None:
        while rest:
            written = os.pwrite(self._fd, rest, position)
            if written == 0:
                raise OSError(errno.EIO, "the disk took no bytes")
            rest = rest[written:]
            position += written

    def read(self, position: int, length: int) -> bytes:
        data = os.pread(self._fd, length, position)
        while 0 < len(data) < length:
            more = os.pread(self._fd, length - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def truncate(self, length: int) -> None:
        os.ftruncate(self._fd, length)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class FileStorage:
    """A directory on this machine, created if it is missing. Existing files keep their mode."""

    epoch = 0
    remote = False

    def __init__(
        self, path: str | os.PathLike[str], readable_by: str = "owner", base: str | os.PathLike[str] | None = None
    ) -> None:
        self._root = Path(path).absolute()
        self._base = self._root if base is None else Path(base).absolute()
        self._readable_by = readable_by
        self._file_mode, self._directory_mode = READABLE_BY[readable_by]
        self._lock_fd: int | None = None
        self._make(self._root)

    @property
    def path(self) -> str:
        return str(self._root)

    @property
    def base_path(self) -> str:
        return str(self._base)

    def create(self, name: str) -> OpenFile:
        path = self._root / inside(name)
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        try:
            return OpenFile(os.open(path, flags, self._file_mode))
        except FileNotFoundError:
            self._make(path.parent)
            return OpenFile(os.open(path, flags, self._file_mode))

    def open(self, name: str) -> OpenFile:
        return OpenFile(os.open(self._root / inside(name), os.O_RDWR | os.O_CLOEXEC))

    def rename(self, old: str, new: str) -> None:
        os.rename(self._root / inside(old), self._root / inside(new))

    def adopt(self, source: str | os.PathLike[str], name: str) -> None:
        """Have a file of another directory here too: the same file, or a synced copy where the disk has no links."""
        path = self._root / inside(name)
        self._make(path.parent)
        try:
            os.link(source, path)
        except FileExistsError:
            if not filecmp.cmp(source, path, shallow=False):
                raise
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            shutil.copy2(source, path)
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._root / inside(name))

    def outdate(self, names: Sequence[str]) -> None:
        """They are removed one by one."""

    def remove_due(self) -> bool:
        return False

    def walk(self, directory: str) -> Sequence[str]:
        return walk_directory(self._root, directory)

    def list(self, directory: str) -> list[str]:
        try:
            return sorted(os.listdir(self._root / inside(directory)))
        except FileNotFoundError:
            return []

    def sync_directory(self, directory: str) -> None:
        _sync_path(self._root / inside(directory))

    def free_bytes(self) -> int:
        status = os.statvfs(self._root)
        return status.f_bavail * status.f_frsize

    def elsewhere(self, path: str) -> FileStorage:
        if "://" in path:
            raise OSError(
                errno.EINVAL, "brokers on a bucket archive to buckets, those on a directory to directories", path
            )
        return FileStorage(self._base / path, self._readable_by)

    def part(self, name: str) -> FileStorage:
        return FileStorage(self._root / inside(name), self._readable_by, self._base)

    def lock(self) -> None:
        fd = os.open(self._root / "LOCK", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, self._file_mode)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(fd, 32, 0).decode(errors="replace").strip()
            os.close(fd)
            raise DirectoryLocked(
                f"{self._root} is in use by another broker"
                + (f" (process {owner})" if owner else "")
                + ": a data directory has one owner at a time; close that broker, or talk to it"
            ) from None
        self._lock_fd = fd
        with contextlib.suppress(OSError):  # the number is for the error message above only
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)

    def close(self) -> None:
        fd, self._lock_fd = self._lock_fd, None
        if fd is not None:
            os.close(fd)

    def prove(self) -> None:
        """No other process takes the lock of one that runs."""

    def abandon(self) -> FileStorage:
        self.close()
        return self

    def _make(self, path: Path) -> None:
        """Create a directory and its parents, each durable before the next."""
        if not path.is_dir():
            self._make(path.parent)
            with contextlib.suppress(FileExistsError):
                path.mkdir(self._directory_mode)
            _sync_path(path.parent)


def walk_directory(root: Path, directory: str) -> list[str]:
    """The names of all files below a directory, from the root, sorted."""
    found = os.walk(root / inside(directory))
    return sorted(os.path.relpath(os.path.join(path, name), root) for path, _, names in found for name in names)


def _sync_path(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
