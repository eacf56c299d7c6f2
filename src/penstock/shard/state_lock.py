"""The lock of a shard's state, which can tell that it is held: what must be done under it asserts so."""

from __future__ import annotations

import threading
from threading import get_ident


class StateLock:
    """Held for memory work only, by one thread at a time, and never twice."""

    __slots__ = ("_lock", "_owner")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = 0

    def __enter__(self) -> None:
        assert self._owner != get_ident(), "this thread holds the state lock already"
        self._lock.acquire()
        self._owner = get_ident()

    def __exit__(self, *_: object) -> None:
        self._owner = 0
        self._lock.release()

    @property
    def held(self) -> bool:
        """Whether this thread holds it."""
        return self._owner == get_ident()

    def disown(self) -> None:
        """This is a forked process: the thread that held it may not be here."""
        self._lock = threading.Lock()
        self._owner = 0
