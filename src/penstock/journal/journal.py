"""One journal for everything: blocks gather while the disk is busy, and one sync commits them all.

Anyone may call `flush`: a thread that waits for its commit does it itself if nobody else does (so a
lone publisher needs no thread switch), and the background thread does it for all others. Two locks:
the *state lock*, shared with the broker, held only for memory work; and the *disk lock*, held by whoever
writes. The disk lock is always taken first.

If the disk is full, or the process has no file descriptor left for the next file, the group and everything after it
are refused; what was written of it is cut off, and the journal stays usable. Any other failure of a write or a sync
freezes the journal: what is on the disk is not known until it is read again.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Generic

from penstock.journal.commit import B, BlockOwner, Commit, CommitObserver, Gathering, Lock
from penstock.journal.encoded import Encoded
from penstock.journal.files import JournalDirectory, JournalFile, JournalFiles
from penstock.journal.layout import FILE_HEADER_BYTES, encode_head
from penstock.model.config import BrokerConfig
from penstock.model.errors import (
    DiskFull,
    InvalidArgument,
    NotOwner,
    Overloaded,
    PenstockError,
    ShardLost,
    StorageFailed,
)
from penstock.model.units import format_size
from penstock.storage import Storage
from penstock.storage.refusals import refusal_of

_REMOTE_INTERVAL_S = 0.1
_FULL_BYTES = 8 << 20
_REMOTE_FILE_BYTES, _REMOTE_GROUPS = 16 << 20, 255  # each group, and the file's head, is read alone (C20)
_TICK_S = 1e-6  # no clock sleeps less


class Journal(JournalFiles, Generic[B]):
    """Gathers blocks and writes them in groups; knows which files are still needed."""

    def __init__(
        self,
        storage: Storage,
        config: BrokerConfig,
        broker: bytes,
        lock: Lock,
        owner: BlockOwner[B],
        files: dict[int, JournalFile],
        current: JournalFile | None,
        next_sequence: int,
    ) -> None:
        super().__init__(files)
        self._config = config
        self.file_bytes = min(config.journal_file_bytes, _REMOTE_FILE_BYTES if storage.remote else sys.maxsize)
        """A file is sealed at this size."""
        self._groups_max = _REMOTE_GROUPS if storage.remote else sys.maxsize
        self._is_synced = storage.remote or config.sync == "always"  # whether a group is on disk before it counts
        default_s = _REMOTE_INTERVAL_S if storage.remote else 0.0
        self._interval_s = default_s if config.commit_interval is None else config.commit_interval
        self._taken_s = float("-inf")  # when the last group was taken
        self._is_remote = storage.remote
        self.is_slow = storage.remote or self._interval_s > 0
        self.has_own_thread = False
        """Whether a thread commits for this journal alone: then nobody else does before a group is due."""
        self._lock = lock
        self._owner = owner
        self._disk_lock = threading.Lock()
        self._directory = JournalDirectory(storage, broker, config.journal_file_bytes)
        self.gathering: Gathering[B] = Gathering(lock, self)
        self._writing: Gathering[B] | None = None
        self.next_sequence = next_sequence  # of the next file
        self.current = current  # the file being written
        self.frozen: StorageFailed | NotOwner | None = None  # why nothing can be written any more
        self.closed = False
        self.commits = 0
        self.observer = CommitObserver()
        self.wake_flusher: Callable[[], None] = lambda: None
        self.on_sealed: Callable[[], None] = lambda: None
        self.on_committed: Callable[[], None] = lambda: None  # with the state lock held

    # Gathering: with the state lock held. Whoever publishes or logs has asserted it, once for all its blocks.

    def check_writable(self, size_bytes: int) -> None:
        """Raise if a block of this size cannot be taken now; nothing has been done yet."""
        self.check_alive()
        waiting = self.unwritten_bytes
        if waiting and waiting + size_bytes > self._config.max_unwritten_bytes:
            raise Overloaded(
                f"{format_size(waiting)} wait for the disk already; the limit is "
                f"{format_size(self._config.max_unwritten_bytes)} (max_unwritten_bytes): publish again later"
            )

    @property
    def unwritten_bytes(self) -> int:
        """What waits for the disk, gathered or being written."""
        return self.gathering.size_bytes + (self._writing.size_bytes if self._writing else 0)

    def check_alive(self) -> None:
        """Raise if nothing can be written any more."""
        if self.frozen is not None:
            raise type(self.frozen)(*self.frozen.args)

    def gather(self, block: B, size_bytes: int) -> Commit:
        """Add a block to the next group."""
        self.gathering.blocks.append(block)
        return self.grow(size_bytes)

    def grow(self, size_bytes: int) -> Commit:
        """Count what was added to a block of the next group."""
        gathering = self.gathering
        gathering.size_bytes += size_bytes
        if not gathering.moments:
            gathering.moments.append(self.observer.monotonic_s())
        return gathering.commit

    def take_back(self, blocks: int, size_bytes: int) -> None:
        """Undo everything gathered after this many blocks and bytes; nobody waits for it yet."""
        assert self._lock.held
        while len(self.gathering.blocks) > blocks:
            self._owner.refused(self.gathering.blocks.pop())
        self.gathering.open.clear()
        self.gathering.size_bytes = size_bytes

    def latest_commit(self) -> Commit | None:
        """The commit after which everything gathered so far is on disk; None if it is already."""
        if self.gathering.blocks:
            return self.gathering.commit
        return self._writing.commit if self._writing else None

    # Committing: no lock held by the caller.

    def wait(self, commit: Commit) -> None:
        """Return once the commit is done, and do the work if nobody else does; raise if it failed."""
        if not commit.done:
            may_commit = not (self._interval_s and self.has_own_thread)
            if may_commit and self._disk_lock.acquire(blocking=False):
                try:
                    while not commit.done:
                        self._commit_gathered()
                finally:
                    self._disk_lock.release()
            else:
                self.wake_flusher()  # the holder of the lock may have written its last group
                commit.block()
        commit.result()

    def due_in_s(self) -> float:
        """How long what is gathered may wait for company: until an interval after the group before, or it is full."""
        gathering, is_over = self.gathering, self.closed or self.frozen is not None
        if is_over or not gathering.blocks or gathering.size_bytes >= _FULL_BYTES:
            return 0.0
        due_s = self._taken_s + self._interval_s - self.observer.monotonic_s()
        return due_s if due_s >= _TICK_S else 0.0

    def stalled_s(self, now_s: float) -> float:
        """How long the oldest group has waited or been written; takes no lock, and may miss one for a moment."""
        oldest = self._writing or self.gathering
        return now_s - oldest.moments[0] if oldest.moments else 0.0

    def flush(self) -> None:
        """Commit everything gathered so far, and nothing that comes later."""
        with self._lock:
            commit = self.latest_commit()
        while commit is not None and not commit.done:
            with self._disk_lock:
                if not commit.done:
                    self._commit_gathered()

    def sync(self) -> None:
        """Sync what was written without one (`sync="interval"` and `"never"`)."""
        with self._disk_lock:
            file = self.current
            if file is not None and self.frozen is None and file.synced_end < file.end:
                try:
                    self._sync(file)
                except OSError as error:
                    self._freeze(error)

    def prove(self) -> None:
        """Return if the journal is this process's still; raises NotOwner if another one has it."""
        with self._disk_lock:
            self.check_alive()
            try:
                self._directory.prove()
            except NotOwner as error:
                self._freeze(error)
                raise
            except Exception as error:
                raise self._freeze(error) from error

    def seal(self) -> None:
        """End the current file, unless it is empty: its blocks can then be settled."""
        with self._disk_lock:
            file = self.current
            if file is None or file.end <= FILE_HEADER_BYTES or self.frozen is not None:
                return
            try:
                self._sync(file)
            except OSError as error:
                self._freeze(error)
                return
            with self._lock:
                self.current = None

    def remove(self, file: JournalFile) -> None:
        """Remove a sealed file that nothing needs any more."""
        with self._lock:
            del self.files[file.sequence]
            reusable = file.retire()
        with self._disk_lock:
            self._directory.remove(file.sequence, file.end, reusable)

    def sealed_files(self) -> list[JournalFile]:
        """All files but the one being written, oldest first."""
        assert self._lock.held
        return [file for file in self.files.values() if file is not self.current]

    def position(self) -> tuple[int, int, int]:
        """How far the journal is written: (sequence, end, synced end)."""
        if self.current is not None:
            return self.current.sequence, self.current.end, self.current.synced_end
        return self.next_sequence, 0, 0

    def abandon(self, error: NotOwner) -> None:
        """Another process owns the journal: nothing is written any more, and nobody is waited for.

        What is being written is answered by whoever writes it, when its outcome is known.
        """
        with self._lock:
            self.frozen = self.frozen or error
            self.closed = True
            waiting, self.gathering = self.gathering, Gathering(self._lock, self)
            self._refuse(waiting.blocks, error)
        waiting.commit.finish(error, synced=False)

    def disown(self) -> None:
        """This is a forked process: the files belong to the parent, and nothing is ever written here."""
        self._disk_lock = threading.Lock()
        self.gathering, self._writing = Gathering(self._lock, self), None
        self.frozen = StorageFailed("this is a forked process: the broker belongs to its parent")

    def close(self) -> None:
        """Commit what came until now, and close the files: nothing is taken any more."""
        with self._disk_lock:
            while not self.closed:
                self._commit_gathered()
                with self._lock:
                    self.closed = not self.gathering.blocks
        with self._lock:
            for file in self.files.values():
                file.handle.close()

    # With the disk lock held.

    def _commit_gathered(self) -> None:
        with self._lock:
            group = self.gathering
            if not group.blocks:
                return
            self.gathering = Gathering(self._lock, self)
            self._writing = group
            self._taken_s = self.observer.monotonic_s()
            group.moments.append(self._taken_s)
        try:
            encoded = Encoded(group.blocks)
            group.moments.append(self.observer.monotonic_s())
        except Exception as error:  # noqa: BLE001 - nothing is written yet: whatever it is, only this group fails
            self._fail(group, InvalidArgument(f"it cannot be encoded: {error}"))
            return
        except BaseException:
            self._fail(group, InvalidArgument("the process was interrupted before it was written"))
            raise
        try:
            file, end = self._write(group, encoded)
            with self._lock:
                self._place(group, encoded, file, end)
        except (DiskFull, Overloaded) as error:
            self._fail(group, error)
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait must be told
            self._fail(group, self._freeze(error))
        except BaseException as error:  # a signal handler raised: it is not known what is on disk
            self._fail(group, self._freeze(error))
            raise
        else:
            group.commit.finish(None, synced=file.synced_end == file.end)

    def _place(self, group: Gathering[B], encoded: Encoded, file: JournalFile, end: int) -> None:
        """Tell the owner where the blocks are, and move the end of the file, with no checkpoint in between."""
        placed = zip(group.blocks, encoded.places(file.sequence, end), strict=True)
        try:
            self._owner.committed(placed)
        finally:
            group.placed = len(group.blocks) - sum(1 for _ in placed)
        written_bytes, file.end = end - file.end, end
        file.groups += 1
        if self._is_synced:
            file.synced_end = end
        self._writing = None
        self.commits += 1
        self.observer.committed(written_bytes)
        self.on_committed()
        group.moments.append(self.observer.monotonic_s())
        self.observer.timed(group.moments)

    def _write(self, group: Gathering[B], encoded: Encoded) -> tuple[JournalFile, int]:
        self.check_alive()
        self._seal_if_full(group.size_bytes)
        try:
            file = self.current or self._begin_file()
            head = encode_head(file.mark, file.end, file.synced_end, encoded.size_bytes, encoded.lines)
            end = file.handle.write(file.end, [head, *encoded.buffers])
            file.reserve(end)
        except OSError as error:
            refusal = refusal_of(error, "nothing of this was written; try again when there is room")
            if refusal is None:
                raise
            self._cut_unfinished()
            raise refusal from error
        group.moments.append(self.observer.monotonic_s())
        if self._is_synced:
            self._sync_handle(file)
        group.moments.append(self.observer.monotonic_s())
        return file, end

    def _cut_unfinished(self) -> None:
        """Cut off what was written of a group: the next recovery must not find a refused message."""
        if self.current is not None:
            self.current.handle.truncate(self.current.end)
            self.current.handle.sync()
            self.current.reserved_end = self.current.end

    def _seal_if_full(self, size_bytes: int) -> None:
        file = self.current
        if file is None or file.end <= FILE_HEADER_BYTES:
            return
        if file.end + size_bytes > self.file_bytes or file.groups >= self._groups_max:
            self._sync(file)
            with self._lock:
                self.current = None
            self.on_sealed()

    def _begin_file(self) -> JournalFile:
        previous = self.files[max(self.files)] if self.files else None
        file = self._directory.create(self.next_sequence, previous)
        with self._lock:
            self.next_sequence += 1
            self.files[file.sequence] = file
            self.current = file
        if self._is_remote:  # the one before is complete from now on: it can be a bundle
            self.on_sealed()
        return file

    def _sync(self, file: JournalFile) -> None:
        if file.synced_end < file.end:
            self._sync_handle(file)
            file.synced_end = file.end

    def _sync_handle(self, file: JournalFile) -> None:
        started_s = self.observer.monotonic_s()
        file.handle.sync()
        self.observer.synced(self.observer.monotonic_s() - started_s)

    def _fail(self, group: Gathering[B], error: PenstockError) -> None:
        """Refuse a group and everything gathered after it, so that no offset is skipped."""
        with self._lock:
            behind, self.gathering, self._writing = self.gathering, Gathering(self._lock, self), None
            self._refuse(group.blocks[group.placed :] + behind.blocks, error)
        for failed in (group, behind):
            failed.commit.finish(error, synced=False)

    def _refuse(self, blocks: Sequence[B], error: PenstockError) -> None:
        assert self._lock.held
        for block in reversed(blocks):
            self._owner.refused(block)
        self.observer.refused(error)
        self.on_committed()  # somebody may wait for what was released

    def _freeze(self, error: BaseException) -> StorageFailed | NotOwner | ShardLost:
        """Write nothing any more; what those hear who wait for what was being written."""
        if isinstance(self.frozen, NotOwner) and not isinstance(error, NotOwner):
            return ShardLost(f"{self.frozen}: what was being written ({error}) may or may not be there")
        if not isinstance(error, StorageFailed | NotOwner):  # that say already what became of it
            error = StorageFailed(
                f"the disk failed ({error}): writes are frozen until the broker is opened again; "
                "what was being published may or may not be there then"
            )
        self.frozen = self.frozen or error
        return error
