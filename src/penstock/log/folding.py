"""Folds what the journal committed, takes back what it refused, and tells those who listen."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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

    def committed(self, placed: Iterable[tuple[Record, Place]]) -> None:
        """Records are on disk."""
        assert self._lock.held
        state, listeners = self.state, self._listeners
        for record, place in placed:
            for effect in apply(state, record, place):
                for listener in listeners.get(type(effect), ()):
                    listener(effect)

    def refused(self, block: Record) -> None:
        """A record was not written."""
        assert self._lock.held
        for effect in undo(self.state, block):
            for listener in self._listeners.get(type(effect), ()):
                listener(effect)
