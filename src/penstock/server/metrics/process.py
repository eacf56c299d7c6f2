"""What the process takes from its machine."""

from __future__ import annotations

import os
import time
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_STATM = Path("/proc/self/statm")
_DESCRIPTORS = "/proc/self/fd"


def resident_bytes() -> int:
    """Memory in use; 0 where the system does not tell."""
    try:
        return int(_STATM.read_bytes().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0


def cpu_seconds() -> float:
    """Processor time, of the user and of the system."""
    return time.process_time()


def open_files() -> int:
    """File descriptors in use; 0 where the system does not tell."""
    try:
        return len(os.listdir(_DESCRIPTORS)) - 1  # without the one that lists them
    except OSError:
        return 0
