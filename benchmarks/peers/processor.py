"""Processor time: of a server with all its children, from /proc, and of this process."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def of_server(pid: int) -> float:
    """The seconds that a process, its descendants, and those of them that have ended have used."""
    times, parents = {}, {}
    for directory in Path("/proc").iterdir():
        if directory.name.isdecimal():
            with contextlib.suppress(OSError):
                found = int(directory.name)
                parents[found], times[found] = fields_of((directory / "stat").read_text())
    ours = {pid}
    while more := {child for child, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(times.get(found, 0) for found in ours) / _TICKS_PER_S


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
