"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
from datetime import datetime
from typing import Any


def machine() -> dict[str, Any]:
    """The facts that do not change during a run."""
    return {
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
    }


def moment() -> dict[str, Any]:
    """The time, and how busy the machine is: the load averages of 1, 5 and 15 minutes."""
    return {"date": datetime.now().astimezone().isoformat(timespec="seconds"), "load": os.getloadavg()}
