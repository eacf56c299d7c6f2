"""The benchmarks run: every figure once, with small numbers, each checking what it reads back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.figures import FIGURES
from tests.spark.class_data import java_options

ROOT = Path(__file__).parent.parent
ON_SPARK = ("spark", "jobs")
NAMES = [[name for name in FIGURES if name not in ON_SPARK], *([name] for name in ON_SPARK)]


@pytest.mark.parametrize("names", NAMES, ids=["without Spark", *ON_SPARK])
def test_every_figure_runs_and_verifies_what_it_reads_back(tmp_path: Path, names: list[str]) -> None:
    command = [sys.executable, "-m", "benchmarks", *names, "--quick", "--dir", str(tmp_path / "data")]
    quick = {**os.environ, "JAVA_TOOL_OPTIONS": java_options()}
    done = subprocess.run([*command, "--results", str(tmp_path)], cwd=ROOT, env=quick, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    figures = json.loads((tmp_path / "quick.json").read_text())["figures"]
    assert set(figures) == set(names) and all(figure["rows"] for figure in figures.values())
