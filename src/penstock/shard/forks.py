"""A forked process must not write to the directory of its parent's broker: it would give offsets twice."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Owner(Protocol):
    """Something that owns a directory."""

    def disown(self) -> None:
        """This is a forked process: let go without touching anything."""


_owners: weakref.WeakSet[Owner] = weakref.WeakSet()


def disown_in_forks(owner: Owner) -> None:
    """Have `disown` called in every process that is forked from this one."""
    _owners.add(owner)


def _disown_all() -> None:
    for owner in list(_owners):
        owner.disown()


os.register_at_fork(after_in_child=_disown_all)
