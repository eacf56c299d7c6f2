"""Processor time of processes, and the cores that they may use."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PARENT, _TIMES = 1, slice(11, 15)  # in the fields of /proc/PID/stat behind the name


def processor_s(pid: int) -> float:
    """What a process has used, with all of its threads."""
    fields = _fields(pid)
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def family_processor_s(pid: int) -> float:
    """What a process and its descendants have used, those that have ended included."""
    return sum(sum(map(int, _fields(each)[_TIMES])) for each in family(pid)) / _TICKS_PER_S


def family(pid: int) -> list[int]:
    """A process and its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it has just ended
                children.setdefault(int(_fields(int(entry.name))[_PARENT]), []).append(int(entry.name))
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found


@contextlib.contextmanager
def on_cores(cores: Collection[int]) -> Iterator[None]:
    """Keep this thread on some cores, and the processes that it starts meanwhile for good."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def cores_apart() -> tuple[set[int], set[int]]:
    """A core for the load, and the others for the server; the same one for both where there is but one."""
    first, *others = sorted(os.sched_getaffinity(0))
    return {first}, set(others) or {first}


def _fields(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
