"""Which message of a batch goes to which partition, and the ids that come of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.log.topics import Topic
from penstock.model.intake import Intake
from penstock.model.message import IdRun, MessageIds


def route(topic: Topic, intake: Intake, keyless: int) -> dict[int, Sequence[int]]:
    """The rows that go to each partition: as asked, else by key, else all to `keyless`."""
    keys = intake.batch.keys
    if intake.partitions is None and (keys is None or len(topic.partitions) == 1):
        return {keyless: range(len(intake.batch))}
    rows: dict[int, list[int]] = {}
    for row in range(len(intake.batch)):
        asked = intake.partitions[row] if intake.partitions is not None else None
        key = keys[row] if keys is not None else None
        if asked is None:
            asked = keyless if key is None else topic.partition_of_key(key)
        rows.setdefault(int(asked), []).append(row)
    for partition in rows:
        topic.check_own(partition)
    return {**rows}


def ids_in_order(topic: Topic, runs: Sequence[IdRun], rows: Mapping[int, Sequence[int]], count: int) -> MessageIds:
    """The ids of a routed batch in the order of its messages."""
    if len(rows) == 1:
        return MessageIds(topic.name, runs)
    places: list[tuple[int, int]] = [(0, 0)] * count
    for run in runs:
        for offset, row in enumerate(rows[run.partition], run.base):
            places[row] = (run.partition, offset)
    return MessageIds(topic.name, runs, places)
