"""The benchmarks run: every figure once, with small numbers, each checking what it reads back."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_every_figure_runs_and_verifies_what_it_reads_back(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "--quick", "--dir", str(tmp_path / "data")]
    done = subprocess.run([*command, "--results", str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "quick.json").read_text())
    names = ("batches", "singles", "topics", "settle", "recovery", "read_arrow", "consume", "delayed", "holes")
    assert set(names) <= set(json.dumps(results).split(chr(34)))
