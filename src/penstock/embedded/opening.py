"""Opening a broker inside this process: on a directory, on a bucket, or on a storage of one's own."""

from __future__ import annotations

import os
from typing import Any

from penstock.embedded.broker import Broker
from penstock.embedded.presence import Presence
from penstock.model.clock import Clock, to_shard_clock
from penstock.model.config import BrokerConfig
from penstock.model.errors import InvalidArgument
from penstock.storage import FileStorage, Storage
from penstock.storage.buckets import is_bucket


def open_broker(
    path: str | os.PathLike[str] | None = None,
    *,
    shards: int | None = None,
    storage: Storage | None = None,
    clock: Clock | None = None,
    **config: Any,
) -> Broker:
    """Open the broker of a directory, which is made if it is new; options are those of `BrokerConfig`.

    Or of a bucket (`s3://bucket/place`), which this program has to itself then. A new directory may be divided into
    several `shards`, which is for good: each is a log of its own, and a topic lives in one of them.
    """
    checked = BrokerConfig.parse(config)
    if (path is None) == (storage is None):
        raise InvalidArgument("give the path of a data directory, or a storage")
    if isinstance(path, str) and is_bucket(path):
        return _open_on_bucket(path, checked, clock, shards)
    if path is not None:
        storage = FileStorage(path, checked.readable_by)
    assert storage is not None
    return Broker(storage, checked, clock, shards=shards)


def _open_on_bucket(address: str, config: BrokerConfig, clock: Clock | None, shards: int | None) -> Broker:
    presence = Presence(address, shards, to_shard_clock(clock))
    root = presence.place.root
    root.on_close = presence.end
    root.keep_near(config)
    try:
        broker = Broker(root, config, clock, held=range(presence.place.shards))
    except BaseException:
        presence.end()
        raise
    presence.begin(broker.shards)
    return broker
