"""The benchmarks run: every figure once, with small numbers, each checking what it reads back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import pages
from benchmarks.figures import FIGURES
from benchmarks.growth import page as growth_page
from benchmarks.growth.lines import LINES
from benchmarks.headlines import with_figures
from tests.spark.class_data import java_options

ROOT = Path(__file__).parent.parent
ON_SPARK = (["spark", "spark_bucket"], ["jobs"])
NAMES = [[name for name in FIGURES if not any(name in some for some in ON_SPARK)], *ON_SPARK]


@pytest.mark.parametrize("names", NAMES, ids=["without Spark", "Spark", "jobs"])
def test_every_figure_runs_and_verifies_what_it_reads_back(tmp_path: Path, names: list[str]) -> None:
    command = [sys.executable, "-m", "benchmarks", *names, "--quick", "--dir", str(tmp_path / "data")]
    quick = {**os.environ, "JAVA_TOOL_OPTIONS": java_options()}
    done = subprocess.run([*command, "--results", str(tmp_path)], cwd=ROOT, env=quick, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    figures = json.loads((tmp_path / "quick.json").read_text())["figures"]
    assert set(figures) == set(names) and all(figure["rows"] for figure in figures.values())


def test_every_line_of_growth_runs(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.growth", "--quick", "--dir", str(tmp_path / "data")]
    done = subprocess.run([*command, "--results", str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = json.loads((tmp_path / "growth-quick.json").read_text())["lines"]
    assert set(lines) == set(LINES) and all(len(line["points"]) == 2 for line in lines.values())


def test_the_page_of_growth_is_that_of_the_results_and_says_why_a_line_is_not_flat(tmp_path: Path) -> None:
    results = json.loads((ROOT / "benchmarks/results/growth.json").read_text())
    growth_page.write(tmp_path, results)
    text = (ROOT / "docs/benchmarks/growth.md").read_text()
    assert (tmp_path / "growth.md").read_text() == text
    assert "nobody has said why" not in text


def test_growth_is_that_of_the_dearest_point_over_the_cheapest_after_the_first() -> None:
    points = [{"processor": {"publish": seconds}} for seconds in (9.0, 1.0, 1.5, 2.0)]
    assert growth_page.growth_of({"points": points}, "publish") == 2.0


def test_the_figures_in_the_readme_and_the_docs_are_those_of_the_results(tmp_path: Path) -> None:
    results = json.loads((ROOT / "benchmarks/results/latest.json").read_text())
    readme = (ROOT / "README.md").read_text()
    assert with_figures(readme, results) == readme
    pages.write(tmp_path, results)
    measured = {name for name, page in pages.PAGES.items() if set(page.figures) & set(results["figures"])}
    assert {page.stem for page in tmp_path.glob("*.md")} == measured
    for page in tmp_path.glob("*.md"):
        assert page.read_text() == (ROOT / "docs/benchmarks" / page.name).read_text()
