"""Stages: many clients hand in messages, in parts; these stay invisible until they are published together.

A stage takes batches (`stage_many`, written but not synced), is sealed (then it is on disk, and takes no more), and is
published or dropped. A stage that was not sealed when the broker stopped is lost as a whole, and using it is an error:
clients would otherwise go on with a part of it. The files: `stage_files`; publishing: `staged_publishing`.

One lock guards everything here. It is held for memory work and for writes to the page cache, never for a sync.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence

from penstock.model.bounds import shown
from penstock.model.errors import (
    DiskFull,
    InvalidArgument,
    Overloaded,
    PenstockError,
    StageNotFound,
    StorageFailed,
)
from penstock.model.intake import Intake, check_messages, is_text
from penstock.model.message import Message
from penstock.model.names import STAGE_NAME, check_stage_name, check_stage_names
from penstock.model.stored import STAGES
from penstock.shard.core import Core
from penstock.shard.publishing import Publishing
from penstock.shard.staging.stage_files import (
    HEADER,
    OPEN,
    SEALED,
    SealedFile,
    Stage,
    encode_record,
    encode_seal,
    name_of,
    new_file,
    path_of,
)
from penstock.storage import File
from penstock.storage.refusals import lacks_descriptors, refusal_of, told_as_refusals

STAGES_MAX = 10_000
_HANDLES_MAX = 64
_WRITERS_MAX = 1000  # of one stage
_WRITER_BYTES_MAX = 64
_STALE_S = 86_400.0
_PUT_BYTES, _UNPUT_BYTES_MAX = 8 << 20, 256 << 20  # on a bucket, of a stage and of all of them, in memory


class Stages:
    """The stages of a broker, and their files."""

    def __init__(self, core: Core, publishing: Publishing) -> None:
        self._core, self._publishing = core, publishing
        self._changed = threading.Condition()
        self._stages: dict[str, Stage] = {}
        self._handles: OrderedDict[str, File] = OrderedDict()  # of stages that are being filled, last used last
        self._under_way = 0
        self._closed = False
        records = core.state.staged.values()
        begun = {file for record in records if record.next_file is not None for file in record.files}
        done = {file for record in records if record.next_file is None for file in record.files}
        self._find(begun, done)

    def __len__(self) -> int:
        return len(self._stages)

    def _find(self, claimed: set[str], published: set[str]) -> None:
        """Find the stages that the broker left at its last stop; some are being published, and some were."""
        now_s = self._core.clock.monotonic_s()
        for entry in self._core.storage.list(STAGES):
            file, dot, ending = entry.rpartition(".")
            name = name_of(file)
            if dot + ending not in (OPEN, SEALED) or not STAGE_NAME.fullmatch(name) or file in published:
                continue
            stage = Stage(name, file, now_s)
            stage.sealed, stage.messages, stage.claimed = ending == SEALED[1:], -1, file in claimed
            other = self._stages.get(name)
            if not stage.sealed:
                stage.lost = "it was not sealed when the broker stopped"
            elif other is not None:  # an old one that could not be removed
                stage.lost = "there are two of this name"
            if other is None or not other.claimed:
                self._stages[name] = stage

    # Filling.

    def stage_many(self, name: str, topic: str, messages: Iterable[Message | bytes | str]) -> int:
        """Add a batch to a stage, which is created if it is new; how many messages."""
        now_us = self._core.clock.wall_us()
        return self.stage_intake(name, topic, check_messages(messages, self._core.config, now_us), now_us)

    def stage_intake(
        self,
        name: str,
        topic: str,
        intake: Intake,
        now_us: int,
        writer: str | None = None,
        number: int = 0,
        *,
        is_part: bool = False,
    ) -> int:
        """Add a checked batch; a batch that its writer numbers is added once, however often it is sent.

        Other shards have the numbers that are missing here if it `is_part` of a stage: sealing all of them tells.
        """
        check_stage_name(name)
        if writer is not None and not (is_text(writer, _WRITER_BYTES_MAX) and 0 <= number < 1 << 63):
            raise InvalidArgument(f"a writer is text of 1 to {_WRITER_BYTES_MAX} bytes, and counts from 0")
        if intake.batch.producer is not None:
            raise InvalidArgument("what is staged gets its producer and sequence when it is published")
        count = len(intake.batch)
        if writer is not None and self._was_done(name, writer, number, is_part):
            return count  # before further checks: it was staged already
        self._publishing.check_to_stage(topic, intake, now_us)
        if not count and writer is None:
            return 0
        buffers = encode_record(topic, intake) if count else []
        with self._changed:
            stage = self._stage_to_fill(name)
            if writer is not None and stage.writers.get(writer, 0) > number:
                return count
            if buffers:
                stage.end = self._write(stage, buffers)
            stage.messages += count
            if writer is not None:
                stage.writers[writer] = number + 1
            most_bytes = min(_PUT_BYTES, _UNPUT_BYTES_MAX // len(self._stages))
            is_much = self._core.storage.remote and stage.begin_put(most_bytes)
            handle = self._handles.get(stage.file) if is_much else None
        if handle is not None:
            with self._lost_if_it_fails(stage):
                handle.sync()
        return count

    def _was_done(self, name: str, writer: str, number: int, is_part: bool) -> bool:
        """Whether a request was done before; raises if an earlier one is missing."""
        with self._changed:
            self._check_open()
            stage = self._stages.get(name)
            if stage is not None:
                stage.check_kept()
            done = 0 if stage is None else stage.writers.get(writer, 0)
            if number > done and not is_part:
                raise StageNotFound(
                    f"the stage {name!r} has {done} requests of this writer, and this is the one behind {number}: what "
                    "was staged before is not there any more; stage it again under another name"
                )
            if stage is not None and writer not in stage.writers and len(stage.writers) >= _WRITERS_MAX:
                raise Overloaded(f"the stage {shown(name)} has {_WRITERS_MAX} writers already")
            return number < done

    def _stage_to_fill(self, name: str) -> Stage:
        self._check_open()
        stage = self._stages.get(name) or self._new_stage(name)
        stage.check_kept()
        if stage.sealed or stage.sealing:
            raise InvalidArgument(f"the stage {shown(name)} is sealed: it takes no more")
        stage.touched_s = self._core.clock.monotonic_s()
        return stage

    def _new_stage(self, name: str) -> Stage:
        if len(self._stages) >= STAGES_MAX:
            raise Overloaded(f"there are {STAGES_MAX:,} stages already: publish or drop some first")
        clock = self._core.clock
        stage = Stage(name, new_file(name, clock.random_bytes(8)), clock.monotonic_s())
        try:
            handle = self._core.storage.create(path_of(stage.file, OPEN))
            self._keep_open(stage, handle)
            handle.write(0, [HEADER])
        except OSError as error:
            self._close_handle(stage)
            with contextlib.suppress(OSError):
                self._core.storage.remove(path_of(stage.file, OPEN))
            raise self._failure(error, f"the stage {name!r} could not be made") from error
        self._stages[name] = stage
        return stage

    def _write(self, stage: Stage, buffers: list[bytes]) -> int:
        """Append to the file; the new end. A refusal leaves the stage as it was, any other error loses it."""
        unchanged = f"nothing was added to the stage {stage.name!r}"
        with self._lost_if_it_fails(stage):
            handle = self._handles.get(stage.file)
            if handle is None:
                with told_as_refusals(unchanged):
                    handle = self._core.storage.open(path_of(stage.file, OPEN))
            self._keep_open(stage, handle)
            try:
                return handle.write(stage.end, buffers)
            except OSError as error:
                if refusal_of(error, unchanged) is None:
                    raise
                handle.truncate(stage.end)
                raise self._failure(error, unchanged) from error

    @contextlib.contextmanager
    def _lost_if_it_fails(self, stage: Stage) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            stage.lost = f"the disk failed ({error})"
            raise self._failure(error, f"the stage {stage.name!r} is lost: stage again under another name") from error

    def _failure(self, error: OSError, what: str) -> PenstockError:
        """The error that callers get for an error of the disk."""
        refusal = refusal_of(error, what)
        if isinstance(refusal, DiskFull):
            self._core.meters.space.note(refusal)
        return refusal or StorageFailed(f"the disk failed ({error}): {what}")

    def _keep_open(self, stage: Stage, handle: File) -> None:
        self._handles[stage.file] = handle
        self._handles.move_to_end(stage.file)
        if len(self._handles) > _HANDLES_MAX:
            self._handles.popitem(last=False)[1].close()

    def _close_handle(self, stage: Stage) -> None:
        handle = self._handles.pop(stage.file, None)
        if handle is not None:
            handle.close()

    # Sealing.

    def seal_stage(self, name: str, staged: int = 0) -> int:
        """Sync everything that was staged; how many messages. Raises if there are fewer than `staged`."""
        check_stage_name(name)
        with self.operation():
            with self._changed:
                stage = self._stages.get(name)
                if stage is None and staged:
                    raise StageNotFound(f"there is no stage {shown(name)} any more: stage again under another name")
                stage = stage or self._new_stage(name)
                while stage.sealing:
                    self._changed.wait()
                stage.check_kept()
                stage.touched_s = self._core.clock.monotonic_s()
                handle = None if stage.sealed else self._begin_seal(stage, staged)
            if handle is not None:
                self._seal(stage, handle)
            return self._count(stage, staged)

    def _begin_seal(self, stage: Stage, staged: int) -> File:
        """Accept no more messages; the file, which is to be synced."""
        if stage.messages < staged:
            stage.lost = f"it has {stage.messages} of {staged} messages"
            stage.check_kept()
        self._write(stage, encode_seal(stage.messages, stage.end))
        stage.sealing = True
        return self._handles.pop(stage.file)

    def _seal(self, stage: Stage, handle: File) -> None:
        sealed = False
        try:
            with self._lost_if_it_fails(stage):
                try:
                    handle.sync()
                finally:
                    handle.close()
                self._name_sealed(stage)
            sealed = True
        finally:
            with self._changed:
                stage.sealed, stage.sealing = sealed, False
                self._changed.notify_all()

    def _name_sealed(self, stage: Stage) -> None:
        """Rename the file as sealed; if there is no descriptor left to sync that, undo it."""
        storage, old, new = self._core.storage, path_of(stage.file, OPEN), path_of(stage.file, SEALED)
        storage.rename(old, new)
        try:
            storage.sync_directory(STAGES)
        except OSError as error:
            if not lacks_descriptors(error):
                raise
            storage.rename(new, old)
            raise self._failure(error, f"the stage {stage.name!r} was not sealed; seal it again later") from error

    def _count(self, stage: Stage, staged: int) -> int:
        if stage.messages < 0:  # it was sealed before the broker was started
            with SealedFile(self._core.storage, stage.file) as sealed:
                stage.messages = sealed.messages
        if stage.messages < staged:
            told = f"the stage {stage.name!r} was sealed with {stage.messages} messages, without the rest"
            raise StageNotFound(f"{told}: stage it again under another name")
        return stage.messages

    # Dropping.

    def drop_staged(self, names: Sequence[str]) -> None:
        """Drop stages that exist and are not being published."""
        checked = check_stage_names(names)
        with self.operation():
            self.drop(checked)

    def drop(self, names: Iterable[str]) -> None:
        """Drop stages that are not being published, with their files."""
        files: list[str] = []
        with self._changed:
            for name in names:
                stage = self._stages.get(name)
                if stage is None:
                    continue
                while stage.sealing:
                    self._changed.wait()
                if not stage.claimed and self._stages.get(name) is stage:
                    self._close_handle(stage)
                    del self._stages[name]
                    files.append(stage.file)
        try:
            self.remove(files)
        except OSError as error:
            raise self._failure(error, "stages could not be removed, and will be there after a restart") from error

    def remove(self, files: Iterable[str]) -> None:
        """Remove files and sync that: one that returns after a power cut might be taken for a later stage."""
        removed = False
        for file in files:
            for ending in (OPEN, SEALED):
                self._core.storage.remove(path_of(file, ending))
            removed = True
        if removed:
            self._core.storage.sync_directory(STAGES)

    def drop_stale(self) -> None:
        """Drop stages that nobody touched for a day."""
        limit_s = self._core.clock.monotonic_s() - _STALE_S
        with self._changed:
            stale = [stage.name for stage in self._stages.values() if stage.touched_s < limit_s and not stage.claimed]
        self.drop(stale)

    # Publishing.

    def claim(self, names: Sequence[str]) -> tuple[str, ...]:
        """Reserve sealed stages for publishing; their files."""
        with self._changed:
            for name in names:
                stage = self._stages.get(name)
                if stage is None:
                    raise StageNotFound(f"there is no stage {shown(name)}, or not any more: nothing was published")
                stage.check_kept()
                if not stage.sealed or stage.claimed:
                    why = "is being published already" if stage.claimed else "is not sealed"
                    raise InvalidArgument(f"the stage {shown(name)} {why}: nothing was published")
            for name in names:
                self._stages[name].claimed = True
            return tuple(self._stages[name].file for name in names)

    def unclaim(self, names: Iterable[str]) -> None:
        """Undo `claim`: they were not published."""
        with self._changed:
            for name in names:
                self._stages[name].claimed = False

    def forget(self, files: Iterable[str]) -> None:
        """Forget the stages of these files: they are published."""
        with self._changed:
            for file in files:
                name = name_of(file)
                if name in self._stages and self._stages[name].file == file:
                    del self._stages[name]

    # Opening and closing.

    def _check_open(self) -> None:
        if self._closed or self._core.closed:
            raise self._core.closing()

    @contextlib.contextmanager
    def operation(self) -> Iterator[None]:
        """An operation that uses the disk without the lock: `close` waits for it."""
        with self._changed:
            self._check_open()
            self._under_way += 1
        try:
            yield
        finally:
            with self._changed:
                self._under_way -= 1
                self._changed.notify_all()

    def close(self) -> None:
        """Accept nothing more, and return when nothing is under way: another broker may own the directory then."""
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: not self._under_way)
            while self._handles:
                self._handles.popitem()[1].close()

    def disown(self) -> None:
        """This is a forked process: the files belong to the parent."""
        self._changed = threading.Condition()
        self._under_way, self._closed = 0, True
