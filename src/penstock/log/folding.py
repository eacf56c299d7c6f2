"""Folds what the journal committed, takes back what it refused, and tells those who listen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from penstock.journal.commit import Lock
from penstock.log.effects import Effect
from penstock.log.fold import apply
from penstock.log.records import Record
from penstock.log.reservations import undo
from penstock.log.state import State
from penstock.model.stored import Place

E = TypeVar("E", bound=Effect)


class Folding:
    """The owner of the journal's blocks: the only one who lets the state change."""

    def __init__(self, state: State, lock: Lock) -> None:
        self.state, self._lock = state, lock
        self._listeners: dict[type, tuple[Callable[[Any], object], ...]] = {}

    def listen(self, kind: type[E], listener: Callable[[E], object]) -> None:
        """Have somebody told of all effects of a kind, after those who came before."""
        self._listeners[kind] = (*self._listeners.get(kind, ()), listener)

    def ignore(self, kind: type[E], listener: Callable[[E], object]) -> None:
        """Have somebody told no longer."""
        self._listeners[kind] = tuple(other for other in self._listeners.get(kind, ()) if other != listener)

    def committed(self, block: Record, place: Place) -> None:
        """A record is on disk."""
        assert self._lock.held
        self._tell(apply(self.state, block, place))

    def refused(self, block: Record) -> None:
        """A record was not written."""
        assert self._lock.held
        self._tell(undo(self.state, block))

    def _tell(self, effects: Sequence[Effect]) -> None:
        listeners = self._listeners
        for effect in effects:
            for listener in listeners.get(type(effect), ()):
                listener(effect)
