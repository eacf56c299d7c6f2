"""Copies one shard: its state, and then the files that this state needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import NamedTuple, TypeVar

from penstock.cluster.copying.needed_files import (
    NeededFiles,
    NeededSegment,
    check_stages,
    files_of,
    is_listed,
    is_same,
    read_listed,
)
from penstock.cluster.copying.shard_cut import Cut, SourceMoved, Tell, take_cut
from penstock.cluster.copying.targets import ShardTarget
from penstock.cluster.resharding.stored_shard import StoredShard
from penstock.journal.chain import Restless
from penstock.model.clock import ShardClock
from penstock.model.errors import CorruptData
from penstock.model.placement import Place
from penstock.model.stored import STAGES
from penstock.shard.checkpoint_files import read_checkpoint
from penstock.shard.staging.stage_files import HEADER, OPEN
from penstock.storage import Storage, read_file
from penstock.storage.read_only import ReadableStorage

Item = TypeVar("Item")

_ATTEMPTS, _PAUSE_S = 5, 0.05  # to read a state that does not change, and seems to be damaged
_RESTLESS_MAX = 50  # to read one that is noted again and again meanwhile
_AT_ONCE = 4


class ShardCopied(NamedTuple):
    """What a shard of the copy has."""

    cut: Cut
    files: NeededFiles
    copied_bytes: int
    """Of segments that were not there yet."""


class ShardCopy:
    """One shard, and where it is copied to."""

    def __init__(
        self,
        open_source: Callable[[], ReadableStorage],
        target: ShardTarget,
        place: Place,
        clock: ShardClock,
        until_us: int | None,
    ) -> None:
        """`open_source`: the shard as it is at the moment of the call."""
        self._open_source, self.target, self.place, self.clock = open_source, target, place, clock
        self._until_us = until_us

    def source(self) -> ReadableStorage:
        """The shard as it is now."""
        return self._open_source()

    def copy(self, check_archive: Callable[[str], None], tell: Tell) -> ShardCopied | None:
        """Have all of it in the target; None if no broker ever had the shard."""
        attempts: Counter[int] = Counter()  # by the checkpoint that was read
        restless = 0
        while True:
            try:
                return self._copy_from(self.source(), check_archive, tell)
            except (SourceMoved, Restless):
                restless += 1
                if restless == _RESTLESS_MAX:
                    raise
            except (CorruptData, FileNotFoundError) as error:  # or its owner has changed it while it was read
                checkpoint = read_checkpoint(self.source())
                number = 0 if checkpoint is None else checkpoint.number
                attempts[number] += 1
                if attempts[number] == _ATTEMPTS:
                    if isinstance(error, CorruptData):
                        raise
                    raise CorruptData(str(error.filename), 0, "it is missing") from error
            self.clock.sleep_s(_PAUSE_S)

    def _copy_from(
        self, source: ReadableStorage, check_archive: Callable[[str], None], tell: Tell
    ) -> ShardCopied | None:
        cut = take_cut(source, self.target, tell, self._until_us)
        if cut is None:
            return None
        stages = source.list(STAGES)
        copy = StoredShard(self.place, self.target.open(), self.clock)
        copy.close()
        if self._until_us is not None:
            check_stages(copy.state, stages)
        files = files_of(cut.checkpoint, copy.state, stages)
        for archive in files.elsewhere:
            check_archive(archive)
        for name in files.stages:
            is_open = name.endswith(OPEN)  # it is lost, as after any stop of a broker: nobody reads it
            self.target.put_file(None, name, HEADER if is_open else read_file(source, name))
        missing = self._clear(files)
        done, total = files.size_bytes - sum(segment.info.size_bytes for segment in missing), files.size_bytes
        copied_bytes = total - done
        for segment in in_parallel(lambda segment: self._copy_segment(source, segment), missing):
            done += segment.info.size_bytes
            tell(f"copying {segment.name}", done, total)
        return ShardCopied(cut, files, copied_bytes)

    def _clear(self, files: NeededFiles) -> list[NeededSegment]:
        """Remove what is not needed, and find out what is missing."""
        there, storage = self.target.files(), self.target.open()
        needed = {segment.name for segment in files.segments if segment.archive is None} | set(files.stages)
        self.target.remove(there - needed)
        asked = [segment for segment in files.segments if segment.archive is not None or segment.name in there]
        same: set[tuple[str, str]] = set()

        def ask(segment: NeededSegment) -> None:
            if is_same(storage_of(storage, segment), segment.name, segment.info):
                same.add(segment.key)

        for _ in in_parallel(ask, asked):
            pass
        return [segment for segment in files.segments if segment.key not in same]

    def _copy_segment(self, source: Storage, segment: NeededSegment) -> None:
        data = read_listed(storage_of(source, segment), segment.name, segment.info)
        if not is_listed(data, segment.info):
            raise CorruptData(segment.name, 0, "it is not the segment that the checkpoint knows")
        self.target.put_file(segment.archive, segment.name, data)


def storage_of(storage: Storage, segment: NeededSegment) -> Storage:
    """Where a segment is."""
    return storage if segment.archive is None else storage.elsewhere(segment.archive)


def in_parallel(work: Callable[[Item], None], items: Sequence[Item]) -> Iterable[Item]:
    """Do something with each of them, several at a time; they come as they are done, and what fails ends it."""
    threads = ThreadPoolExecutor(_AT_ONCE, "penstock-copy")
    try:
        futures = {threads.submit(work, item): item for item in items}
        for future in as_completed(futures):
            future.result()
            yield futures[future]
    finally:
        threads.shutdown(cancel_futures=True)
