"""Objects as the files of a directory: an archive of segments, and what a shard on a bucket has beside its journal."""

from __future__ import annotations

import errno
import threading
from collections.abc import Sequence

from penstock.journal.bucket_files import SegmentFile, WholeFile
from penstock.model.stored import is_inside
from penstock.storage.buckets import is_bucket, open_objects
from penstock.storage.counted import BucketMeter
from penstock.storage.interface import TEMPORARY, File, Storage, inside
from penstock.storage.object_cache import ObjectCache
from penstock.storage.objects import ObjectStore, StoreUnavailable
from penstock.storage.persistent import Pause, PersistentObjects

_SEGMENT = ".parquet"
_ROOM_BYTES = 1 << 60
_ATTEMPTS = 5


class ObjectFolder:
    """Each file is an object of its name. What has a temporary name is in memory until it gets another one."""

    path: str | None = None
    base_path: str | None = None
    epoch = 0
    remote = True

    def __init__(self, objects: ObjectStore, cache: ObjectCache) -> None:
        """`objects`: asked again when they do not answer, as often as is good here."""
        self._objects, self._cache = objects, cache
        self._written: dict[str, WholeFile] = {}

    def create(self, name: str) -> File:
        file = self._written[name] = WholeFile(self._objects, None if inside(name).endswith(TEMPORARY) else name)
        return file

    def open(self, name: str) -> File:
        if name in self._written:
            return self._written[name]
        if inside(name).endswith(_SEGMENT):
            return SegmentFile(self._cache, self._objects, name)
        return WholeFile(self._objects, name, self.content(name))

    def take(self, name: str) -> bytes:
        """The content of a file that is about to have another name."""
        file = self._written.pop(name, None)
        return self.content(name) if file is None else bytes(file.content)

    def content(self, name: str) -> bytes:
        """All of an object."""
        data = self._objects.get(inside(name))
        if data is None:
            raise FileNotFoundError(errno.ENOENT, "no such object", name)
        return data

    def rename(self, old: str, new: str) -> None:
        self._objects.put(inside(new), self.take(old))
        self.remove(old)

    def forget(self, name: str) -> bool:
        """Let go of what is in memory of a file; whether there is no more of it."""
        self._written.pop(name, None)
        return name.endswith(TEMPORARY)

    def remove(self, name: str) -> None:
        if not self.forget(name):
            self._objects.delete([inside(name)])

    def outdate(self, names: Sequence[str]) -> None:
        """They are removed one by one."""

    def remove_due(self) -> bool:
        return False

    def walk(self, directory: str) -> Sequence[str]:
        return self._objects.list(f"{inside(directory)}/")

    def list(self, directory: str) -> list[str]:
        prefix = f"{inside(directory)}/" if directory else ""
        written = {name.removeprefix(prefix) for name in list(self._written) if name.startswith(prefix)}
        return sorted(written.union(self._objects.list_folder(prefix)))

    def sync_directory(self, directory: str) -> None:
        """What is put is there."""

    def free_bytes(self) -> int:
        """Nobody knows; more than anybody asks for."""
        return _ROOM_BYTES

    def elsewhere(self, path: str) -> Storage:
        return ObjectFolder(self._objects.part(f"{inside(path)}/"), self._cache)

    def part(self, name: str) -> Storage:
        return self.elsewhere(name)

    def lock(self) -> None:
        """Names tell who wrote what; nobody has all of it for himself."""

    def close(self) -> None:
        """There is nothing to let go."""

    def prove(self) -> None:
        """It belongs to nobody."""

    def abandon(self) -> Storage:
        return self


class Archives:
    """Places outside of shards, by what people call them; for all shards of a process."""

    def __init__(self, base: ObjectStore, meter: BucketMeter | None = None) -> None:
        """`base`: where relative names start, which is the whole bucket; `meter`: hears of requests to others."""
        self._base, self._meter = base, meter
        self._opened: dict[str, ObjectStore] = {}
        self._lock = threading.Lock()

    def open(self, path: str, cache: ObjectCache, pause: Pause) -> ObjectFolder:
        """A place below the base, or at an address of its own; requests that fail are made again a few times."""
        with self._lock:
            if path not in self._opened:
                self._opened[path] = self._find(path)
            objects = self._opened[path]

        def pause_a_few_times(attempt: int) -> None:  # what waits for an archive may not hold up the rest
            if attempt > _ATTEMPTS:
                raise StoreUnavailable(errno.EIO, f"{objects.address} does not answer")
            pause(attempt)

        return ObjectFolder(PersistentObjects(objects, pause_a_few_times), cache)

    def _find(self, path: str) -> ObjectStore:
        if is_bucket(path):
            return open_objects(path, self._meter)
        if not path.strip("/") or not is_inside(path):
            told = "an archive is inside the bucket (a relative path), or at an address (s3://…), where all brokers are"
            raise PermissionError(errno.EACCES, f"{told}: not", path)
        return self._base.part(f"{path.strip('/')}/")
