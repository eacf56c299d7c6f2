"""After a crash: removing the files that settling had written and no checkpoint ever named.

What they hold is in the journal, and is settled again; until then other readers of the directory would see it twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.model.errors import BrokerClosed
from penstock.model.stored import segment_name

if TYPE_CHECKING:
    from penstock.shard.shard import Shard


def tidy(shard: Shard) -> int:
    """Remove every file below `topics/` that is no segment of a topic; how many there were."""
    removed = 0
    with shard.upkeep_lock:
        if shard.closed:
            raise BrokerClosed("the broker is closed")
        for topic in shard.storage.list("topics"):
            known = _segment_names(shard, topic)
            for table in ("messages", "events"):
                for partition in shard.storage.list(f"topics/{topic}/{table}"):
                    directory = f"topics/{topic}/{table}/{partition}"
                    for name in shard.storage.list(directory):
                        if f"{directory}/{name}" not in known:
                            shard.storage.remove(f"{directory}/{name}")
                            removed += 1
        shard.untidy = False
    return removed


def _segment_names(shard: Shard, name: str) -> set[str]:
    with shard.lock:
        topic = shard.catalog.by_name.get(name)
        return {
            segment_name(name, log.table, log.partition, segment.base)
            for log in (topic.logs() if topic is not None else ())
            for segment in log.segments
            if not segment.archived
        }
