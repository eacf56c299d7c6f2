"""Runs a command in its own place, tied to the process that started it: it is killed when that one is gone.

    python -m examples.orders.tied PARENT COMMAND…

Linux keeps the promise, however the parent ends; it outlasts the `exec` below.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Tie, look whether the parent is still there, and become the command."""
    parent, *command = sys.argv[1:]
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):
        sys.exit("the process that wanted this is gone")
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
