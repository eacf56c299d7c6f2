"""The whole of a bucket as one of its members has it: each shard has a chain, and what all share is made once.

Nobody owns the whole: `lock` does nothing. What members share (how many shards there are, the secret by which they know
one another) is an object that the first of them creates, and nobody changes.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Sequence
from typing import NoReturn

from penstock.journal.bucket_storage import GRACE_S, BucketStorage
from penstock.journal.chain import Chain
from penstock.journal.object_folder import Archives
from penstock.model.config import CACHE_BYTES, BrokerConfig
from penstock.model.errors import InvalidArgument
from penstock.storage.counted import BucketMeter
from penstock.storage.interface import File, Storage, inside
from penstock.storage.object_cache import ObjectCache
from penstock.storage.objects import ObjectStore, Outcome
from penstock.storage.persistent import Pause, PersistentObjects
from penstock.storage.read_only import ReadOnlyContent

_PART = re.compile(r"shards/(\d{1,4})")
_ROOM_BYTES = 1 << 60


class BucketRoot:
    """A bucket, or a place in one, that several brokers share."""

    epoch = 0
    remote = True

    def __init__(
        self,
        objects: ObjectStore,
        incarnation: bytes,
        pause: Pause,
        monotonic_s: Callable[[], float],
        meter: BucketMeter | None = None,
    ) -> None:
        """`incarnation`: of this process, and of no other one ever; `meter`: hears of the cache, and of archives."""
        self._objects, self._persistent = objects, PersistentObjects(objects, pause)
        self.incarnation, self._pause, self._monotonic_s = incarnation, pause, monotonic_s
        self._meter, self._archives = meter, Archives(objects, meter)
        self._cache = ObjectCache(CACHE_BYTES, meter=meter)
        self._chains: list[Chain] = []
        self.on_close: Callable[[], None] = lambda: None

    def keep_near(self, config: BrokerConfig) -> None:
        """Have a cache as it is configured, for all shards; before they are opened."""
        assert not self._chains
        self._cache = ObjectCache(config.cache_bytes, config.cache_dir, self._meter)

    def advertise(self, address: str) -> None:
        """Where this process is reached, for those who meet its seals."""
        for chain in self._chains:
            chain.address = address

    @property
    def path(self) -> str:
        """Where it is, as people write it."""
        return self._objects.address

    @property
    def base_path(self) -> str:
        """The same: relative archives begin there."""
        return self.path

    def made_once(self, name: str, content: bytes) -> bytes:
        """The content of what all share, which is this if nobody has made it yet."""
        attempt = 0
        while True:
            there = self._persistent.get(inside(name))
            if there is not None:
                return there
            if self._objects.create(name, content) == Outcome.DONE:
                return content
            attempt += 1
            self._pause(attempt)

    def open(self, name: str) -> File:
        data = self._persistent.get(inside(name))
        if data is None:
            raise FileNotFoundError(errno.ENOENT, "no such object", name)
        return ReadOnlyContent(bytearray(data))

    def part(self, name: str) -> BucketStorage:
        found = _PART.fullmatch(name)
        if found is None:
            raise InvalidArgument(f"{name!r} is no shard of a bucket")
        chain = Chain(int(found[1]), self.incarnation, "")
        self._chains.append(chain)
        place, shared = self._objects.part(f"{name}/"), (self._cache, self._archives)
        return BucketStorage(place, chain, self._pause, self._monotonic_s, GRACE_S, *shared)

    def lock(self) -> None:
        """Each shard is owned for itself."""

    def close(self) -> None:
        """There is nothing to let go, but perhaps somebody to tell."""
        self.on_close()

    def prove(self) -> None:
        """Each shard is proven for itself."""

    def abandon(self) -> BucketRoot:
        return self

    def walk(self, directory: str) -> Sequence[str]:
        return self._persistent.list(f"{directory}/" if directory else "")

    def list(self, directory: str) -> list[str]:
        return self._persistent.list_folder(f"{directory}/" if directory else "")

    def outdate(self, names: Sequence[str]) -> None:
        """What is shared stays."""

    def remove_due(self) -> bool:
        return False

    def sync_directory(self, directory: str) -> None:
        """What was put is there."""

    def free_bytes(self) -> int:
        return _ROOM_BYTES

    def elsewhere(self, path: str) -> Storage:
        _refuse(path)

    def create(self, name: str) -> File:
        _refuse(name)

    def rename(self, old: str, _: str) -> None:
        _refuse(old)

    def remove(self, name: str) -> None:
        _refuse(name)


def _refuse(name: str) -> NoReturn:
    raise InvalidArgument(f"{name!r}: what all members of a bucket share is not changed")
