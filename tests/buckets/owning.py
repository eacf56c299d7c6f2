"""What tests of a shard on a bucket share: processes that own it in turn, each with a broker."""

from __future__ import annotations

import itertools
from typing import Any

from penstock.embedded.broker import Broker
from penstock.journal.bucket_storage import BucketStorage
from penstock.journal.chain import Chain
from penstock.journal.object_folder import Archives
from penstock.model.config import BrokerConfig
from penstock.shard.upkeep.segment_process import SegmentProcess
from penstock.storage.counted import BucketMeter, CountedObjects
from penstock.storage.object_cache import ObjectCache
from penstock.storage.objects import ObjectStore
from penstock.testing import VirtualClock

MIB = 1 << 20
_numbers = itertools.count(1)


class Owners:
    """A bucket with one shard, and those who own it."""

    def __init__(self, clock: VirtualClock, objects: ObjectStore) -> None:
        self.clock, self.objects = clock, objects

    def storage(self, cache_bytes: int = 256 * MIB) -> tuple[BucketStorage, BucketMeter]:
        """The directory of the shard for a process of its own, and what that asks of the bucket."""
        meter = BucketMeter()
        whole = CountedObjects(self.objects, meter)
        chain = Chain(0, next(_numbers).to_bytes(16), "somewhere:9000")
        cache, archives = ObjectCache(cache_bytes, meter=meter), Archives(whole, meter)
        place, clock = whole.part("shards/0/"), self.clock
        return BucketStorage(place, chain, lambda _: None, clock.monotonic_s, cache=cache, archives=archives), meter

    def config(self, **options: Any) -> BrokerConfig:
        """Of a broker that settles nothing by itself."""
        quiet = {"min_free_bytes": 0, "settle_after": 3600, "segment_min_bytes": "1GiB", "journal_files_max": 24}
        return BrokerConfig.parse({**quiet, **options})

    def open(
        self, cache_bytes: int = 256 * MIB, process: SegmentProcess | None = None, **options: Any
    ) -> tuple[Broker, BucketMeter]:
        """A broker as a process of its own, and what it asks of the bucket."""
        storage, meter = self.storage(cache_bytes)
        return Broker(storage, self.config(**options), self.clock, process), meter
