"""Packages that load what they offer when it is first used, so that importing them costs next to nothing (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_names(
    package: str, offered: Mapping[str, tuple[str, ...]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package that offers these names of each module, or one `as` another.

    A module that offers no names is offered itself.
    """
    homes: dict[str, tuple[str, str]] = {
        module.rpartition(".")[2]: (module, "") for module, names in offered.items() if not names
    }
    for module, entries in offered.items():
        for entry in entries:
            original, _, name = entry.partition(" as ")
            homes[name or original] = (module, original)

    def load(name: str) -> object:
        this = sys.modules[package]
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=this)
        module, original = homes[name]
        home = import_module(module)
        found: object = getattr(home, original) if original else home
        setattr(this, name, found)  # the next time nobody asks here
        return found

    return load, lambda: sorted({*vars(sys.modules[package]), *homes})
