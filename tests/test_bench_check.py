"""`make bench-check`: what became slower is named, and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import check
from benchmarks.comparison import Figures, compare_figures, slower_twice
from benchmarks.rows import Target, alone, compare

ROOT = Path(__file__).parent.parent
MORE, LESS = Target("ratio", ">=", 0.5), Target("ratio", "<=", 1.5)


def rate(*rounds: tuple[float, float], target: Target = MORE) -> Figures:
    return {"batches": {"rows": [compare("a rate", "messages/s", rounds, "bare", target).as_json(judged=True)]}}


def time(*rounds: tuple[float, float]) -> Figures:
    return {"singles": {"rows": [compare("a time", "s", rounds, "bare").as_json(judged=True)]}}


RECORDED = rate((90, 100), (80, 100), (100, 100))


@pytest.mark.parametrize(("now", "slower"), [(90, False), (120, False), (81, False), (78, False), (77, True)])
def test_a_rate_is_slower_if_it_is_well_below_the_worst_recorded_round(now: float, slower: bool) -> None:
    (found,) = compare_figures(RECORDED, rate((now, 100)))
    assert (found.recorded, found.worst, found.slower) == (0.9, 0.8, slower)
    assert found.change == pytest.approx(now / 90 - 1)


@pytest.mark.parametrize(("now", "slower"), [(1.0, False), (0.5, False), (1.2, False), (1.23, False), (1.24, True)])
def test_a_time_is_slower_if_it_is_well_above_the_worst_recorded_round(now: float, slower: bool) -> None:
    (found,) = compare_figures(time((1.0, 1.0), (1.2, 1.0), (0.9, 1.0)), time((now, 1.0)))
    assert (found.recorded, found.worst, found.slower) == (1.0, 1.2, slower)


def test_only_the_ratio_counts_and_not_how_fast_the_machine_is() -> None:
    (found,) = compare_figures(RECORDED, rate((9, 10)))
    assert found.change == pytest.approx(0)
    assert not found.slower


def test_a_target_says_which_way_is_better_where_the_unit_does_not() -> None:
    (found,) = compare_figures(rate((1, 1), target=LESS), rate((2, 1), target=LESS))
    assert found.slower


def test_rows_without_a_baseline_or_that_were_not_recorded_are_left_out() -> None:
    new: dict[str, Any] = {"rows": [alone("a size", "B", [3.0]).as_json(judged=True)]}
    assert compare_figures({"batches": new}, {"batches": new, "other": RECORDED["batches"]}) == []


def test_a_recorded_ratio_without_its_rounds_has_no_spread() -> None:
    recorded = rate((90, 100))
    recorded["batches"]["rows"][0]["details"] = {}
    (found,) = compare_figures(recorded, rate((80, 100)))
    assert (found.worst, found.slower) == (0.9, True)


def test_one_recorded_round_has_no_spread() -> None:
    (found,) = compare_figures(rate((100, 100)), rate((96, 100)))
    assert found.slower


def test_what_is_slower_only_once_is_not_named() -> None:
    first, second = compare_figures(RECORDED, rate((50, 100))), compare_figures(RECORDED, rate((90, 100)))
    assert slower_twice(first, second) == []
    assert slower_twice(first, first) == first


@pytest.mark.parametrize(("now", "code"), [(90, 0), (50, 1)])
def test_the_command_fails_and_names_what_is_slower(
    now: float, code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "recorded.json").write_text(json.dumps({"figures": RECORDED}))
    monkeypatch.setattr(sys, "argv", ["check", "batches", "--recorded", str(tmp_path / "recorded.json")])
    monkeypatch.setattr(check, "measure", lambda *_, **__: ([], {**rate((now, 100))["batches"], "seconds": 1.0}))
    assert check.main() == code
    assert ("slower: batches: a rate (-44.4%)" in capsys.readouterr().out) == bool(code)


def test_a_quick_run_compares_and_judges_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.check", "batches", "--quick", "--dir", str(tmp_path / "data")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "batches of 1000, one at a time" in done.stdout
    assert "nothing is judged" in done.stdout
