"""One log of a topic, found for whoever reads it page by page."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.delivery.offsets import Offsets
from penstock.log.partition_log import Log, first_offset
from penstock.model.errors import BrokerClosed

if TYPE_CHECKING:
    from penstock.shard.shard import Shard


class FoundLog(NamedTuple):
    """A log as it is now."""

    log: Log | None
    """None where nothing has ever happened to the messages of a partition."""
    first: int
    end: int
    withdrawn: Offsets
    """What was cancelled, purged or redriven: a replay leaves it out."""


def find_log(shard: Shard, topic_name: str, partition: int, *, events: bool, replay: bool) -> FoundLog:
    """The messages of a partition, or its events; for a `replay` with what it leaves out."""
    with shard.lock:
        if shard.closed:
            raise BrokerClosed("the broker is closed")
        found = shard.topic(topic_name).partition(partition)
        withdrawn = Offsets(found.state.withdrawn) if replay and found.state is not None else Offsets()
        log = found.events if events else found.messages
        if log is None:
            return FoundLog(None, 0, 0, withdrawn)
        return FoundLog(log, first_offset(log), log.committed_end, withdrawn)
