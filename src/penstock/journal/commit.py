"""What waits for the disk: blocks, the group that they are written in, and the commit that publishers wait for."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Generic, Protocol, TypeVar

from penstock.model.errors import PenstockError
from penstock.model.stored import Place


class Lock(AbstractContextManager[object], Protocol):
    """The state lock: callers hold it when they hand blocks in, and it is held when the owner is called."""

    @property
    def held(self) -> bool:
        """Whether this thread holds it."""


class Block(Protocol):
    """Something to be written: a directory entry and a body."""

    kind: int
    flags: int
    topic: int
    partition: int
    base: int
    count: int
    timestamp_us: int

    def encode(self) -> list[bytes]:
        """The body; nothing is added to the block afterwards."""


B = TypeVar("B", bound=Block)
B_contra = TypeVar("B_contra", bound=Block, contravariant=True)


class BlockOwner(Protocol[B_contra]):
    """The owner of the blocks, which is told their outcome; always with the state lock held."""

    def committed(self, placed: Iterable[tuple[B_contra, Place]]) -> None:
        """The blocks of a group were committed, and their bodies are at these places; in order."""

    def refused(self, block: B_contra) -> None:
        """Nothing of the block was written: undo what was done for it; called newest first."""


class Committer(Protocol):
    """Whoever does the work of a commit."""

    @property
    def wake_flusher(self) -> Callable[[], None]:
        """Has another thread do it."""

    def wait(self, commit: Commit) -> None:
        """Return once it is done, and do the work if nobody else does; raise if it failed."""

    def flush(self) -> None:
        """Do the work for everything until now."""


class Commit:
    """The outcome of everything in one group: pending, then committed or failed, once."""

    __slots__ = ("_callbacks", "_committer", "_error", "_lock", "done", "synced")

    def __init__(self, lock: AbstractContextManager[object], committer: Committer) -> None:
        self._lock = lock
        self._committer = committer
        self.done = False  # whether the outcome is known
        self._error: PenstockError | None = None
        self._callbacks: list[Callable[[], object]] | None = None
        self.synced = False  # whether it was on disk when it was acknowledged

    @property
    def failed(self) -> bool:
        """Whether it is known to have failed."""
        return self._error is not None

    def result(self) -> None:
        """Return if it is committed; raise the error otherwise."""
        if self._error is not None:
            raise type(self._error)(*self._error.args) from self._error

    def wait(self) -> None:
        """Return once it is committed, and do the work if nobody else does; raise if it failed."""
        self._committer.wait(self)

    def hurry(self) -> None:
        """Have another thread do the work."""
        self._committer.wake_flusher()

    @property
    def committers(self) -> Sequence[Committer]:
        """Who does the work: one, or several where it is several commits together."""
        joint = self._committer
        return joint.committers if isinstance(joint, _Joint) else (joint,)

    def block(self) -> None:
        """Wait in this thread until the outcome is known."""
        known = threading.Lock()  # a bare lock: Ctrl-C while waiting leaves nothing locked
        known.acquire()
        self.on_done(known.release)
        known.acquire()

    def on_done(self, callback: Callable[[], object]) -> None:
        """Call back once the outcome is known, from the thread that commits; at once if it is known."""
        with self._lock:
            if not self.done:
                if self._callbacks is None:
                    self._callbacks = []
                self._callbacks.append(callback)
                return
        callback()

    def finish(self, error: PenstockError | None, synced: bool) -> None:
        """Set the outcome, and call everybody who waits for it."""
        with self._lock:
            self._error, self.synced, self.done = error, synced, True
            callbacks = self._callbacks
        for callback in callbacks or ():
            callback()


class CommitObserver:
    """Counts what the journal does; this base class counts nothing."""

    def __init__(self, monotonic_s: Callable[[], float] = float) -> None:
        """Commits are timed with this clock; without one, all of it takes no time."""
        self.monotonic_s = monotonic_s

    def synced(self, seconds: float) -> None:
        """A sync took so long; called under the disk lock."""

    def committed(self, size_bytes: int) -> None:
        """A group of this size, header included, was written, and its blocks are folded."""

    def timed(self, moments: list[float]) -> None:
        """A group was begun to be gathered, taken, encoded, written, synced and folded at these times."""

    def refused(self, error: PenstockError) -> None:
        """A group was not written, for this reason."""


class Gathering(Generic[B]):
    """The blocks that will be written together next."""

    __slots__ = ("blocks", "commit", "moments", "open", "placed", "size_bytes")

    def __init__(self, lock: Lock, committer: Committer) -> None:
        self.blocks: list[B] = []
        self.open: dict[object, B] = {}  # those that take more, by what they belong to
        self.placed = 0  # how many of them their owner knows to be committed
        self.size_bytes = 0
        self.moments: list[float] = []  # when it was begun to be gathered, and what followed
        self.commit = Commit(lock, committer)


class _Joint:
    """Does the work of several commits, of different journals."""

    def __init__(self, commits: Sequence[Commit]) -> None:
        self._commits = commits
        self.committers = [committer for commit in commits for committer in commit.committers]

    def wait(self, commit: Commit) -> None:
        for each in self._commits:
            with contextlib.suppress(PenstockError):  # it is the result
                each.wait()
        if not commit.done:  # another thread is about to say so
            commit.block()
        commit.result()

    def wake_flusher(self) -> None:
        for each in self._commits:
            each.hurry()

    def flush(self) -> None:
        for committer in self.committers:
            committer.flush()


def together(commits: Sequence[Commit | None]) -> Commit | None:
    """What is done when all of these are, and fails if one does; None if there is nothing to wait for."""
    pending = list(dict.fromkeys(commit for commit in commits if commit is not None))
    if len(pending) <= 1:
        return pending[0] if pending else None
    lock = threading.Lock()
    joint = Commit(lock, _Joint(pending))
    left = len(pending)

    def count() -> None:
        nonlocal left
        with lock:
            left -= 1
            is_last = not left
        if is_last:
            failed = (each._error for each in pending if each.failed)  # noqa: SLF001
            joint.finish(next(failed, None), all(each.synced for each in pending))

    for commit in pending:
        commit.on_done(count)
    return joint
