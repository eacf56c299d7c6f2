"""The files of stages, divided by the topics of what is in them."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.cluster.resharding.stage_plan import StageMove, StagePlan
from penstock.model.stored import STAGES
from penstock.shard.staging.stage_files import (
    FIRST,
    HEADER,
    OPEN,
    SEALED,
    SealedFile,
    encode_record,
    encode_seal,
    path_of,
)
from penstock.storage import Storage


class _StageFile:
    """A file that is being written; it is open only while something is added, for there may be many."""

    def __init__(self, storage: Storage, file: str, ending: str) -> None:
        self._storage, self._name = storage, path_of(file, ending)
        handle = storage.create(self._name)
        handle.write(0, [HEADER])
        handle.close()
        self._end, self._messages = FIRST, 0

    def add(self, buffers: list[bytes], messages: int) -> None:
        handle = self._storage.open(self._name)
        try:
            self._end = handle.write(self._end, buffers)
        finally:
            handle.close()
        self._messages += messages

    def seal(self) -> None:
        handle = self._storage.open(self._name)
        try:
            handle.write(self._end, encode_seal(self._messages, self._end))
            handle.sync()
        finally:
            handle.close()


def write_stages(plan: StagePlan, places: Sequence[Storage]) -> int:
    """Write the stages of all new shards; how many messages wait in them."""
    messages = sum(_write(move, places) for move in plan.moves)
    for place in places:
        for file in plan.lost:
            _StageFile(place, file, OPEN)
        if plan.moves or plan.lost:
            place.sync_directory(STAGES)
    return messages


def _write(move: StageMove, places: Sequence[Storage]) -> int:
    messages = 0
    files = [_StageFile(place, move.file, SEALED) for place in places]
    for source in move.sources:
        with SealedFile(source.shard.storage, source.file) as sealed:
            position = source.position
            while position < sealed.end:
                topic, intake = sealed.batch(position)
                files[source.shard.new_place(topic, len(places))].add(encode_record(topic, intake), len(intake.batch))
                messages += len(intake.batch)
                position += sealed.length_at(position)
    for file in files:
        file.seal()
    return messages


def staged_messages(plan: StagePlan, places: Sequence[Storage]) -> int:
    """How many messages wait in the stages of all shards; everything that is read is checked."""
    count = 0
    for move in plan.moves:
        for place in places:
            with SealedFile(place, move.file) as sealed:
                for position, _ in sealed.lengths():
                    sealed.check(position)
                count += sealed.messages
    return count
