"""The directory of a shard on a bucket: its journal is a chain of objects, and everything else an object by its name.

Journal files have the bytes that they have on a disk. What a sync covers is a piece of the chain; a checkpoint has
first the files that are complete put as bundles, so that the pieces before can go. What is removed is removed when the
chain says that nobody needs it, and a while later, for those who are reading it.
"""

from __future__ import annotations

import errno
import posixpath
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from penstock.journal.bucket_files import BundleFile, PieceFile, WholeFile
from penstock.journal.bucket_reading import open_stage
from penstock.journal.bucket_stages import OpenStage, folder_of, stage_files
from penstock.journal.bucket_state import BUNDLES, BucketState, Bundle, decode_state
from penstock.journal.chain import Chain, Conversation, Fenced, Found, T
from penstock.journal.chain_layout import Mark
from penstock.journal.conversing import carry_out
from penstock.journal.layout import sequence_of
from penstock.journal.object_folder import Archives, ObjectFolder
from penstock.model.config import CACHE_BYTES
from penstock.model.errors import DirectoryLocked, InvalidArgument, NotOwner
from penstock.model.stored import STAGES
from penstock.storage.interface import TEMPORARY, File, Storage, inside
from penstock.storage.object_cache import ObjectCache
from penstock.storage.objects import ObjectStore, StoreUnavailable
from penstock.storage.persistent import Pause, PersistentObjects

_JOURNAL = "journal"
_CHECKPOINT, _SECOND_COPY = "checkpoint-a", "checkpoint-b"
_STAGES = f"{STAGES}/"
GRACE_S = 600.0
_ROOM_BYTES = 1 << 60
_ATTEMPTS = 5


class Identity(Protocol):
    """Of a process that owns chains."""

    @property
    def incarnation(self) -> bytes:
        """Of that process, and of no other one ever."""

    @property
    def address(self) -> str:
        """Where it is."""


class BucketStorage:
    """A directory that belongs to whoever owns the chain: locking it is claiming it."""

    path: str | None = None
    base_path: str | None = None
    remote = True

    def __init__(
        self,
        objects: ObjectStore,
        chain: Chain,
        pause: Pause,
        monotonic_s: Callable[[], float],
        grace_s: float = GRACE_S,
        cache: ObjectCache | None = None,
        archives: Archives | None = None,
    ) -> None:
        """`grace_s`: how long readers may need what is removed.

        `cache`, `archives`: of the process, for all shards; or of its own.
        """
        self.dead_epoch: int | None = None
        """Who locks it, does so only while nobody owns a later epoch than this; None: in any case."""
        self._place, self._pause, self._chain = objects, pause, chain
        self._objects = PersistentObjects(objects, self._wait)
        self._monotonic_s, self._grace_s = monotonic_s, grace_s
        self._cache = ObjectCache(CACHE_BYTES) if cache is None else cache
        self._archives = archives or Archives(objects)
        self._folder = ObjectFolder(self._objects, self._cache)  # for all but journal and stages
        self._appending = threading.Lock()  # one piece follows the other
        self._lock = threading.Lock()  # of what follows, and of what the chain has for removal
        self._is_owned = self._is_abandoned = False
        self._is_new = True  # it has put no checkpoint yet
        self._checkpoint: bytes | None = None
        self._bundles: dict[int, Bundle] = {}
        self._files: dict[int, PieceFile] = {}  # that are no bundles yet, by sequence
        self._stages: dict[str, OpenStage] = {}  # that are being filled
        self._removed_stages: list[str] = []  # objects that are there still
        self._outdated: set[int] = set()  # files that the next checkpoint does not need
        self._going: deque[tuple[float, list[str]]] = deque()  # when, and what

    @property
    def epoch(self) -> int:
        """Which it owns; names of files that others could write too carry it."""
        return self._chain.epoch

    # Owning it.

    def lock(self) -> None:
        if self._is_owned:
            raise DirectoryLocked(f"{self._objects.address} is open here already")
        if self._is_abandoned:
            raise DirectoryLocked(f"{self._objects.address} was abandoned, and is locked by what `abandon` returned")
        found: Found = self._talk(self._chain.claim(self.dead_epoch))
        state = decode_state(found.checkpoint, self._objects.address)
        self._checkpoint = state.checkpoint or None
        self._bundles = {bundle.sequence: bundle for bundle in state.bundles}
        self._files, self._stages, self._folder = {}, {}, ObjectFolder(self._objects, self._cache)
        self._is_new = True
        for piece in state.unbundled(found.pieces):
            self._file(piece.sequence).restore(piece)
        self._cache.fetch(
            self._objects, (part for bundle in state.bundles for part in self._bundle_file(bundle).parts())
        )
        self._is_owned = True

    def close(self) -> None:
        """It stays the owner's until somebody else claims it."""
        self._is_owned = False

    def abandon(self) -> BucketStorage:
        """Another process owns it: whatever waits for the bucket ends, and nothing that is done here counts."""
        self._is_owned, self._is_abandoned = False, True
        old = self._chain
        chain = Chain(old.shard, old.incarnation, old.address, old.epoch)
        shared = self._cache, self._archives
        return BucketStorage(self._place, chain, self._pause, self._monotonic_s, self._grace_s, *shared)

    def hand_over(self, identity: Identity) -> None:
        """Make another process the owner, when it is closed; raises StoreUnavailable if the bucket does not answer."""
        assert not self._is_owned, "who still writes hands nothing over"
        self._hold(self._chain.hand_over(identity.incarnation, identity.address), self._wait_a_little)

    def _talk(self, conversation: Conversation[T]) -> T:
        return self._hold(conversation, self._wait)

    def _hold(self, conversation: Conversation[T], pause: Pause) -> T:
        try:
            return carry_out(conversation, self._place, pause)
        except Fenced as fenced:
            seal, told = fenced.seal, f"{fenced}: nothing of this was written"
            raise NotOwner(told, self._chain.shard, seal.next_epoch, seal.address) from fenced

    def _wait(self, attempt: int) -> None:
        """Wait before a request is made again; nobody does who was replaced."""
        self._check_not_abandoned()
        self._pause(attempt)
        self._check_not_abandoned()

    def _wait_a_little(self, attempt: int) -> None:
        if attempt > _ATTEMPTS:
            raise StoreUnavailable(errno.EIO, f"{self._objects.address} does not answer")
        self._pause(attempt)

    def _check_not_abandoned(self) -> None:
        if self._is_abandoned:
            raise StoreUnavailable(errno.EIO, f"{self._objects.address} was abandoned: another process owns it")

    def prove(self) -> None:
        """Return if it is this process's still; raises NotOwner if another one has it."""
        self._append(0, 0, b"")

    @property
    def is_owned(self) -> bool:
        """Whether this process has it, as far as it knows."""
        return self._is_owned

    # Files.

    def create(self, name: str) -> File:
        sequence = _sequence(inside(name))
        if sequence is not None:
            with self._lock:
                self._files.pop(sequence, None)
                return self._file(sequence)
        if name.startswith(_STAGES):
            staged = self._stages[name] = OpenStage(self._objects, name)
            return staged
        return self._folder.create(name)

    def _file(self, sequence: int) -> PieceFile:
        if sequence not in self._files:
            self._files[sequence] = PieceFile(sequence, self._append, lambda: self._chain.end)
        return self._files[sequence]

    def _append(self, sequence: int, position: int, body: bytes) -> Mark:
        """Write what was added to a journal file."""
        with self._appending:
            return self._talk(self._chain.append(sequence, position, body)).mark

    def open(self, name: str) -> File:
        sequence = _sequence(name)
        if sequence is not None:
            with self._lock:
                if sequence in self._files:
                    return self._files[sequence]
                bundle = self._bundles.get(sequence)
            if bundle is None:
                raise FileNotFoundError(errno.ENOENT, "no such journal file", name)
            return self._bundle_file(bundle)
        if name == _CHECKPOINT and self._checkpoint is not None:
            return WholeFile(self._objects, None, self._checkpoint)
        if name in self._stages:
            return self._stages[name]
        if name.startswith(_STAGES):
            data = self._folder.content(name)
            return open_stage(self._objects, name, data) or WholeFile(self._objects, name, data)
        return self._folder.open(name)

    def whereabouts(self, sequence: int, position: int) -> str:
        """Where bytes of the journal are, as people are told."""
        with self._lock:
            file, bundle = self._files.get(sequence), self._bundles.get(sequence)
        if bundle is not None:
            return f"bundle {bundle.sequence} of epoch {bundle.epoch}"
        if file is None or not file.synced > position:
            raise FileNotFoundError(errno.ENOENT, "no such journal file", str(sequence))
        mark = file.piece_at(position)
        return f"piece {mark.n} of epoch {mark.epoch}"

    def _bundle_file(self, bundle: Bundle) -> BundleFile:
        return BundleFile(self._cache, self._objects, bundle.name, bundle.size_bytes)

    def rename(self, old: str, new: str) -> None:
        stage = self._stages.pop(old, None)
        if stage is not None:
            stage.seal(inside(new))
            return
        content = self._folder.take(old)
        if new == _CHECKPOINT:
            self._put_checkpoint(content)
        elif new != _SECOND_COPY:  # a bucket has copies of its own
            self._objects.put(inside(new), content)
        if not old.endswith(TEMPORARY):
            self.remove(old)

    def _put_checkpoint(self, content: bytes) -> None:
        """Put complete files as bundles, and then the state: reading begins with the file that is being written."""
        with self._lock:
            needed = {sequence: file for sequence, file in self._files.items() if sequence not in self._outdated}
            complete = [(sequence, needed[sequence]) for sequence in sorted(needed) if sequence < max(self._files)]
        for sequence, file in complete:
            bundle = Bundle(sequence, self._chain.epoch, file.synced)
            whole, bundled = file.durable(), self._bundle_file(bundle)
            self._objects.put(bundle.name, whole)
            bundled.keep(whole)
            file.become(bundled)
            with self._lock:
                if self._files.pop(sequence, None) is not None:  # else it was removed meanwhile
                    self._bundles[sequence] = bundle
        with self._lock:
            kept = (file for sequence, file in self._files.items() if sequence not in self._outdated)
            starts = [file.first for file in kept if file.first is not None]
            start = min(starts, default=self._chain.end)
            bundles = [bundle for sequence, bundle in self._bundles.items() if sequence not in self._outdated]
            state = BucketState(bundles, content)
        self._talk(self._chain.checkpoint(msgspec.msgpack.encode(state), start))
        self._checkpoint = state.checkpoint
        if not self._is_new:  # a takeover is not kept waiting
            self.remove_due()
        self._is_new = False

    def remove(self, name: str) -> None:
        sequence = _sequence(name)
        parts = self._objects.list(folder_of(inside(name))) if name.startswith(_STAGES) else []
        with self._lock:
            if self._folder.forget(name):
                return
            if name.startswith(_STAGES):
                self._stages.pop(name, None)
                self._removed_stages += [inside(name), *parts]
            elif sequence is None:
                self._chain.doom([inside(name)])
            elif sequence in self._bundles:
                self._chain.doom([self._bundles.pop(sequence).name])
            else:
                self._files.pop(sequence, None)  # its pieces go with the next checkpoint

    def _sweep(self) -> None:
        """Remove what owners before have left, also bundles that no checkpoint ever named; once."""
        if not self._is_new and not self._chain.is_swept:
            there = self._objects.list(BUNDLES)
            with self._lock:
                known = {bundle.name for bundle in self._bundles.values()}
                self._chain.doom([name for name in there if name not in known])
            self._talk(self._chain.sweep())

    def outdate(self, names: Sequence[str]) -> None:
        with self._lock:
            self._outdated = {sequence for name in names if (sequence := _sequence(name)) is not None}

    def remove_due(self) -> bool:
        """Remove what nobody needs, and nobody reads any more; whether something waits for one more piece."""
        self._sweep()
        now_s = self._monotonic_s()
        with self._lock:
            needless = self._chain.take_needless()
            if needless:
                self._going.append((now_s + self._grace_s, needless))
            due = [self._going.popleft()[1] for _ in range(sum(when <= now_s for when, _ in self._going))]
            awaits_proof = self._chain.awaits_proof
        for names in due:
            self._objects.delete(names)
        return awaits_proof

    def walk(self, directory: str) -> Sequence[str]:
        return self._folder.walk(directory)

    def list(self, directory: str) -> list[str]:
        if directory == _JOURNAL:
            with self._lock:
                return [f"{sequence:016d}.journal" for sequence in sorted({*self._files, *self._bundles})]
        if not directory:  # nobody asks for what else there is, and it is much
            return [] if self._checkpoint is None else [_CHECKPOINT]
        there = self._folder.list(directory)
        return stage_files([*there, *map(posixpath.basename, self._stages)]) if directory == STAGES else there

    def sync_directory(self, directory: str) -> None:
        """What is put is there; stages that were removed go now, or they were found again by the next owner."""
        if directory == STAGES:
            with self._lock:
                removed, self._removed_stages = self._removed_stages, []
            if removed:
                self.prove()
                self._objects.delete(removed)

    def free_bytes(self) -> int:
        """Nobody knows; more than anybody asks for."""
        return _ROOM_BYTES

    def elsewhere(self, path: str) -> Storage:
        return self._archives.open(path, self._cache, self._wait)

    def part(self, name: str) -> Storage:
        raise InvalidArgument(f"{name!r}: each shard on a bucket has a chain of its own")


def _sequence(name: str) -> int | None:
    """Of a journal file; None if it is none."""
    directory, _, base = name.rpartition("/")
    return sequence_of(base) if directory == _JOURNAL else None
