"""Which message of a batch goes to which partition, and the ids that come of it."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.broker.topics import Topic
from penstock.model.batch import Batch
from penstock.model.errors import InvalidArgument
from penstock.model.intake import Intake, is_text, plain_text
from penstock.model.message import IdRun, MessageIds

PRODUCER_BYTES_MAX = 1024


def check_partition(topic: str, partitions: int, partition: object) -> None:
    """Raise if the topic has no such partition."""
    if not isinstance(partition, int) or isinstance(partition, bool) or not 0 <= partition < partitions:
        raise InvalidArgument(f"{topic} has no partition {partition!r}: it has 0 to {partitions - 1}")


def check_producer(batch: Batch, producer: object, sequence: object) -> None:
    """Note the producer in the batch; both of its parts are given, or neither."""
    if producer is None and sequence is None:
        return
    if not is_text(producer, PRODUCER_BYTES_MAX) or not _is_sequence(sequence):
        raise InvalidArgument(
            f"give producer (text of 1 to {PRODUCER_BYTES_MAX} bytes) and sequence (a whole number that grows) together"
        )
    if batch.dedupe_ids is not None:
        raise InvalidArgument("give a producer with a sequence, or dedupe ids, not both")
    batch.producer, batch.sequence = plain_text(producer), int(sequence)  # type: ignore[call-overload]


def _is_sequence(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def route(topic: Topic, intake: Intake, keyless: int) -> dict[int, list[int]]:
    """The rows that go to each partition: as asked, else by key, else all to `keyless`."""
    rows: dict[int, list[int]] = {}
    keys = intake.batch.keys
    for row in range(len(intake.batch)):
        asked = intake.partitions[row] if intake.partitions is not None else None
        key = keys[row] if keys is not None else None
        if asked is None:
            asked = keyless if key is None else topic.partition_of_key(key)
        rows.setdefault(int(asked), []).append(row)
    return rows


def ids_in_order(topic: Topic, runs: Sequence[IdRun], rows: dict[int, list[int]], count: int) -> MessageIds:
    """The ids of a routed batch in the order of its messages."""
    if len(rows) == 1:
        return MessageIds(topic.name, runs)
    places: list[tuple[int, int]] = [(0, 0)] * count
    for run in runs:
        for offset, row in enumerate(rows[run.partition], run.base):
            places[row] = (run.partition, offset)
    return MessageIds(topic.name, runs, places)
