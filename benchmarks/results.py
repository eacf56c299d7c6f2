"""The file that keeps the figures; each figure with the time and the load of its own run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.machine import machine


def keep(path: Path, figures: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Write the figures to the file; those that it has and that were not measured now stay."""
    path.parent.mkdir(parents=True, exist_ok=True)
    known: dict[str, Any] = json.loads(path.read_text())["figures"] if path.exists() else {}
    results = {"machine": machine(), "figures": known | figures}
    path.write_text(json.dumps(results, indent=1) + "\n")
    return results
