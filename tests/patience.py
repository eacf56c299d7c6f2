"""Waiting for what other threads and processes do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

PATIENCE_S = 30.0


def until(happened: Callable[[], Any], what: str = "what was waited for", patience_s: float = PATIENCE_S) -> Any:
    """Wait for something that no event tells; what it was."""
    deadline_s = time.monotonic() + patience_s
    while not (found := happened()):
        assert time.monotonic() < deadline_s, f"{what} did not happen"
        time.sleep(0.005)
    return found
