"""The lock of a shard's state, which can tell that it is held: what must be done under it asserts so."""

from __future__ import annotations

import _thread
from collections.abc import Callable


class StateLock(_thread.RLock):  # type: ignore[misc]  # final for type checkers, made to be inherited by CPython
    """Held for memory work only, by one thread at a time.

    Of the locks that cost nothing (they are taken several times a message), only this kind knows its owner. It could be
    taken twice by one thread; nobody does, and `tests/conftest.py` has every test see to that.
    """

    _is_owned: Callable[[], bool]
    _at_fork_reinit: Callable[[], None]

    @property
    def held(self) -> bool:
        """Whether this thread holds it."""
        return self._is_owned()

    def disown(self) -> None:
        """This is a forked process: the thread that held it may not be here."""
        self._at_fork_reinit()
