"""Buckets in the processes of Spark: one client for each in every process, and who they are to the store.

What the driver's environment says of a store is in the environment of the workers too: it goes with the data source
when that is registered, and is in no option, no plan and no page of Spark.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping

from penstock.journal.bucket_reading import ReadOnlyBucket, ReadOnlyObjects, open_to_read
from penstock.storage.buckets import is_bucket
from penstock.storage.objects import ObjectStore
from penstock.storage.read_only import ReadableStorage, ReadOnlyStorage

_HANDED_OVER = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
)
_S3 = "s3://"
_clients: dict[tuple[int, str, tuple[str | None, ...]], ObjectStore] = {}
_lock = threading.Lock()


def of_the_store(environment: Mapping[str, str]) -> dict[str, str]:
    """What an environment says of a store: where it is, and who asks."""
    return {name: environment[name] for name in _HANDED_OVER if name in environment}


def objects_at(address: str) -> ObjectStore:
    """The bucket, or the place in one, of an address."""
    if not address.startswith(_S3):
        return open_to_read(address)
    bucket, _, place = address.removeprefix(_S3).partition("/")
    key = (os.getpid(), bucket, tuple(map(os.environ.get, _HANDED_OVER)))  # a fork needs its own
    with _lock:
        if key not in _clients:
            _clients[key] = open_to_read(_S3 + bucket)
        client = _clients[key]
    place = place.strip("/")
    return client.part(f"{place}/") if place else client


def root_at(path: str) -> ReadableStorage:
    """A data directory, or a bucket, as a whole."""
    return ReadOnlyBucket(objects_at(path)) if is_bucket(path) else ReadOnlyStorage(path)


def directory_at(path: str) -> ReadableStorage:
    """Files, or objects, for whoever knows their names."""
    return ReadOnlyObjects(objects_at(path)) if is_bucket(path) else ReadOnlyStorage(path)
