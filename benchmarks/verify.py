"""Every benchmark reads back what it published: a figure over lost or changed messages is no figure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from benchmarks.load import value_at
from penstock import Broker

if TYPE_CHECKING:
    import pyarrow as pa


class Wrong(Exception):
    """What was read back is not what was published."""


def check_count(what: str, found: int, expected: int) -> None:
    """Raise unless the two are the same."""
    if found != expected:
        raise Wrong(f"{what}: {found:,} instead of {expected:,}")


def check_topic(broker: Broker, topic: str, count: int) -> None:
    """Raise unless the topic holds this many messages of the common load, in order."""
    check_batches(broker.read_arrow(topic), topic, count)


def check_batches(batches: Iterable[pa.RecordBatch], topic: str, count: int) -> None:
    """The same for batches that were read; the values of every tenth batch are compared."""
    place = 0
    for number, found in enumerate(batches):
        offsets = found.column("offset")
        if offsets[0].as_py() != place or offsets[-1].as_py() != place + len(found) - 1:
            raise Wrong(f"{topic}: the offsets behind {place:,} are not the next ones")
        if number % 10 == 0:
            expected = [value_at(offset) for offset in range(place, place + len(found))]
            if found.column("value").to_pylist() != expected:
                raise Wrong(f"{topic}: the values behind offset {place:,} are not those that were published")
        place += len(found)
    check_count(f"messages read back from {topic}", place, count)


def check_values(broker: Broker, topic: str, expected: list[bytes]) -> None:
    """Raise unless the topic holds exactly these values, in any order."""
    found = [value for found in broker.read_arrow(topic) for value in found.column("value").to_pylist()]
    check_count(f"messages read back from {topic}", len(found), len(expected))
    if sorted(found) != sorted(expected):
        raise Wrong(f"{topic}: the values are not those that were published")


def count_of(broker: Broker) -> int:
    """How many messages all topics have together."""
    return sum(part.end_offset - part.first_offset for topic in broker.topics() for part in topic.partitions)
