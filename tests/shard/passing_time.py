"""Let time pass for a broker whose clock a test moves, and have what it changes written down."""

from __future__ import annotations

from collections.abc import Iterable

import penstock
from penstock.shard.operations.burying import bury
from penstock.shard.shard import Shard
from penstock.testing import VirtualClock


def keep_time(shards: Iterable[Shard]) -> None:
    """Do what has become due, bury what died of it, and commit that."""
    for shard in shards:
        with shard.lock:
            shard.keep_time()
        if shard.dispatcher.dying:
            bury(shard)
        shard.flush()


def pass_time(broker: penstock.Broker, clock: VirtualClock, seconds: float) -> None:
    """Let so much time pass."""
    clock.advance(seconds)
    keep_time(broker.shards)
