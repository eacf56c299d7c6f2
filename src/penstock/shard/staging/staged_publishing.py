"""Publishing what is staged: several stages together, exactly once for each producer and sequence.

A publish is one commit, or, beyond 32 MiB, several *steps* of one commit each. In the very group of the journal that
holds the messages of a step stands a block that says how far the publish is (`StagedRecord`): which files it is made
of, and where the next step begins. A group is all or nothing, so after any crash the record tells exactly which
messages are in the log, whatever happened to their topics, to other producers, or to the histories that `publish_many`
uses. It is kept in the checkpoint, one for each producer, so it outlives its journal file.

    crash                                   what the next start finds
    before the first group is on disk       nothing was published, and sealed stages: whoever comes again decides
    between two steps                       a record with files: the broker goes on behind it, with these files
    before the files are removed            a record that is done, with files: they are removed
    later                                   a record that is done

The files are removed, for good, only when the last group is on disk, and the record names files and not stages: a stage
of the same name that was made later is another one.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from penstock.log.fold import stages_removed
from penstock.log.records import StagedRecord, StagedStep
from penstock.model.batch import Batch
from penstock.model.errors import InvalidArgument, PenstockError
from penstock.model.intake import Intake, check_producer, set_producer_name
from penstock.model.names import check_stage_names
from penstock.model.producers import name_of_producer
from penstock.shard.core import Core
from penstock.shard.publishing import Publishing
from penstock.shard.staging.stage_files import FIRST, SealedFile
from penstock.shard.staging.stages import Stages

_log = logging.getLogger("penstock")
STEP_BYTES = 32 << 20


class StagedPublishing:
    """Publishes sealed stages."""

    def __init__(self, core: Core, publishing: Publishing, stages: Stages) -> None:
        self._core, self._publishing, self._stages = core, publishing, stages
        self._turns = threading.Condition()
        self._busy: set[str] = set()  # producers that are publishing
        self._step_bytes = min(STEP_BYTES, core.config.max_unwritten_bytes // 2)

    def publish_staged(self, stages: Sequence[str], producer: str, sequence: int) -> int:
        """Publish sealed stages, once for each producer and sequence; how many messages."""
        names = check_stage_names(stages)
        if producer is None or sequence is None:
            raise InvalidArgument("give the producer and the sequence under which the stages are published")
        check_producer(Batch([]), producer, sequence)
        with self._stages.operation(), self._turn_of(producer):
            known = self._record_of(producer)
            if known is not None and known.files and known.sequence <= sequence:
                known = self._go_on(known)
            if known is None or known.sequence < sequence:
                return self._begin(names, producer, sequence)
            self._stages.drop(names)
            return known.messages if known.sequence == sequence else 0

    def staged_sequence(self, producer: str) -> int | None:
        """The last sequence that a producer published, if it is known."""
        check_producer(Batch([]), producer, 0)
        with self._stages.operation():
            record = self._record_of(producer)
            return None if record is None else record.sequence

    def keep_house(self) -> None:
        """Finish publishes that were interrupted, remove files of finished ones, and drop stages unused for a day."""
        failed: PenstockError | None = None
        with self._stages.operation():
            with self._core.lock:
                unfinished = [record.producer for record in self._core.state.staged.values() if record.files]
            for producer in unfinished:
                if producer in self._busy:  # another thread works on it
                    continue
                try:
                    with self._turn_of(producer):
                        record = self._record_of(producer)
                        if record is not None and record.files:
                            self._go_on(record)
                except PenstockError as error:
                    failed = error
            self._stages.drop_stale()
        if failed is not None:
            raise failed

    # One publish, by one thread at a time for each producer.

    @contextlib.contextmanager
    def _turn_of(self, producer: str) -> Iterator[None]:
        with self._turns:
            self._turns.wait_for(lambda: producer not in self._busy)
            self._busy.add(producer)
        try:
            yield
        finally:
            with self._turns:
                self._busy.discard(producer)
                self._turns.notify_all()

    def _record_of(self, producer: str) -> StagedRecord | None:
        with self._core.lock:
            return self._core.state.staged.get(producer)

    def _begin(self, names: list[str], producer: str, sequence: int) -> int:
        files = self._stages.claim(names)
        try:
            self._check(files)
            return self._go_on(StagedRecord(producer, sequence, 0, files, 0, FIRST)).messages
        except BaseException:
            known = self._record_of(producer)
            is_begun = known is not None and known.sequence == sequence
            if not is_begun and self._core.journal.frozen is None:  # else the next start finds out
                self._stages.unclaim(names)
            raise

    def _check(self, files: tuple[str, ...]) -> None:
        """Find damage before the first of several steps is published; a single step finds it by itself."""
        if self._size_bytes(files) <= self._step_bytes:
            return
        for file in files:
            with SealedFile(self._core.storage, file) as sealed:
                for position, _ in sealed.lengths():
                    self._core.check_not_closed()
                    sealed.check(position)

    def _size_bytes(self, files: tuple[str, ...]) -> int:
        size_bytes = 0
        for file in files:
            with SealedFile(self._core.storage, file) as sealed:
                size_bytes += sealed.end
        return size_bytes

    def _go_on(self, record: StagedRecord) -> StagedRecord:
        """Publish the rest, step by step, and remove the files."""
        core = self._core
        while record.next_file is not None:
            parts, next_file, position = self._next_step(record, record.next_file)
            messages = record.messages + sum(len(intake.batch) for _, intake in parts)
            following = replace(record, messages=messages, next_file=next_file, position=position)
            name = name_of_producer(record.producer)
            if name is not None:
                for _, intake in parts:
                    set_producer_name(intake.batch, name)
            now_us = core.clock.wall_us()
            core.journal.wait(self._publishing.publish_together(parts, StagedStep(following, now_us), now_us))
            record = following
        self._clear_up(record)
        return record

    def _next_step(self, record: StagedRecord, next_file: int) -> tuple[list[tuple[str, Intake]], int | None, int]:
        """The batches of the next commit, and where the one after it begins: in no file, if there is none."""
        parts: list[tuple[str, Intake]] = []
        size_bytes = 0
        position = record.position
        for place in range(next_file, len(record.files)):
            with SealedFile(self._core.storage, record.files[place]) as sealed:
                while position < sealed.end:
                    length = sealed.length_at(position)
                    size_bytes += length
                    if parts and size_bytes > self._step_bytes:
                        return parts, place, position
                    parts.append(sealed.batch(position))
                    position += length
            position = FIRST
        return parts, None, 0

    def _clear_up(self, record: StagedRecord) -> None:
        """Remove the files of published stages; if that fails, housekeeping retries."""
        core = self._core
        core.journal.sync()  # with `sync="interval"` it may not have been
        with core.lock:
            core.journal.check_alive()
        self._stages.forget(record.files)
        try:
            self._stages.remove(record.files)
        except OSError as error:
            _log.warning("stages that are published could not be removed: %s", error)
            return
        with core.lock:
            stages_removed(core.state, record)
