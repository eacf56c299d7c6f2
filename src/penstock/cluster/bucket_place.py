"""The bucket of a broker: opened, tried, and with what all its members share."""

from __future__ import annotations

import hashlib
import random
import secrets
import threading
import time
from dataclasses import dataclass

from penstock.cluster.directory import DIVISION, encode_division, read_division, shards_of
from penstock.cluster.registry import Registry
from penstock.journal.bucket_root import BucketRoot
from penstock.model.errors import BrokerClosed, InvalidArgument
from penstock.storage.buckets import open_objects
from penstock.storage.counted import BucketMeter
from penstock.storage.object_trial import check_creates

SHARDS = 4
"""Of a new bucket, unless somebody says how many."""
_SECRET = "secret"
_SECRET_BYTES = 32
_PAUSE_S, _PAUSE_MAX_S = 0.05, 2.0
_HEARTBEAT_TIMEOUT_S = 2.0


class Patience:
    """Waits before a request is made again, the longer the more often it failed; until it is told to end."""

    def __init__(self) -> None:
        self._ended = threading.Event()

    def __call__(self, attempt: int) -> None:
        longest_s = min(_PAUSE_MAX_S, _PAUSE_S * 2.0**attempt)
        if self._ended.wait(longest_s * random.uniform(0.5, 1.0)):
            raise BrokerClosed("the broker is being closed, and the bucket does not answer")

    def end(self) -> None:
        """Nobody waits any longer."""
        self._ended.set()


@dataclass(slots=True)
class BucketPlace:
    """A bucket that this process is about to be a member of."""

    root: BucketRoot
    registry: Registry
    meter: BucketMeter
    patience: Patience
    secret: bytes
    """By which members know one another."""
    broker_id: str
    shards: int


def boottime_s() -> float:
    """Seconds that go on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def open_place(address: str, shards: int | None) -> BucketPlace:
    """Open a bucket; a new one is divided into so many shards, for good. Raises InvalidArgument if it is not fit."""
    meter, patience = BucketMeter(), Patience()
    objects = open_objects(address, meter)
    incarnation = secrets.token_bytes(16)
    root = BucketRoot(objects, incarnation, meter.counting(patience), time.monotonic, meter)
    check_creates(objects, incarnation, at_once=read_division(root) is None)
    found = _divided(root, shards)
    secret = bytes.fromhex(root.made_once(_SECRET, secrets.token_hex(_SECRET_BYTES).encode()).decode())
    registry = Registry(open_objects(address, meter, _HEARTBEAT_TIMEOUT_S), boottime_s)
    broker_id = hashlib.blake2b(secret, digest_size=16, person=b"penstock-broker").hexdigest()
    return BucketPlace(root, registry, meter, patience, secret, broker_id, found)


def _divided(root: BucketRoot, wanted: int | None) -> int:
    """How many shards it has."""
    root.made_once(DIVISION, encode_division(wanted or SHARDS))
    found = shards_of(root)
    assert found is not None
    if wanted not in (None, found):
        raise InvalidArgument(f"this bucket was made with {found} shards, not with {wanted}: their number is fixed")
    return found
