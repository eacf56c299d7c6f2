"""Processor time: of a server with all its children, from /proc, and of this process."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def of_server(pid: int) -> float:
    """The seconds that a process, its descendants, and those of them that have ended have used."""
    known = _processes()
    return sum(ticks for _, ticks in (known[found] for found in _tree(pid, known))) / _TICKS_PER_S


def tree_of(pid: int) -> set[int]:
    """A process that runs, and its descendants."""
    return _tree(pid, _processes())


def _tree(pid: int, known: dict[int, tuple[int, int]]) -> set[int]:
    ours = {pid} & known.keys()
    while more := {child for child, (parent, _) in known.items() if parent in ours} - ours:
        ours |= more
    return ours


def _processes() -> dict[int, tuple[int, int]]:
    """The parent and the ticks of every process."""
    known = {}
    for directory in Path("/proc").iterdir():
        if directory.name.isdecimal():
            with contextlib.suppress(OSError):
                known[int(directory.name)] = fields_of((directory / "stat").read_text())
    return known


def of_this_process() -> float:
    """The seconds that the generator has used, in all of its threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def fields_of(stat: str) -> tuple[int, int]:
    """The parent, and the ticks of itself and of children that it waited for, in a line of /proc/PID/stat.

    >>> fields_of("7 (a b) c) S 3 7 7 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0")
    (3, 100)
    """
    fields = stat.rpartition(")")[2].split()  # the name may contain anything
    return int(fields[1]), sum(map(int, fields[11:15]))
