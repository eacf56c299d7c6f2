"""How CI runs tests a second time: on a small project of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FINE = """
def test_fine():
    assert True
"""
LUCKY = """
from pathlib import Path

def test_lucky():
    done = Path(__file__).with_name("done")
    was_done = done.exists()
    done.touch()
    assert was_done, "it was too early"
"""
BROKEN = """
def test_broken():
    raise ValueError("never")
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "test_fine.py").write_text(FINE)
    return tmp_path


def run(project: Path) -> tuple[int, str]:
    """The exit code and what was printed."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(
        [sys.executable, "-m", "tests.twice", "-p", "xdist"],
        cwd=project,
        env={**others, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stdout


def last_line(output: str) -> str:
    return output.rstrip().splitlines()[-1]


def test_tests_that_pass_run_once(project: Path) -> None:
    status, output = run(project)
    assert status == 0, output
    assert re.fullmatch(r"=+ 1 passed in .*s =+", last_line(output))
    assert "once more" not in output


def test_what_passes_only_alone_is_named_with_its_reason(project: Path) -> None:
    (project / "test_lucky.py").write_text(LUCKY)
    status, output = run(project)
    assert status == 0, output
    assert re.search(r"=+ 1 failed, 1 passed in .*s =+", output)
    assert re.fullmatch(r"=+ 1 passed in .*s =+", last_line(output))
    table = output.partition("passed only alone")[2]
    assert re.search(r"\d+\.\d\d s  test_lucky.py::test_lucky\n +AssertionError: it was too early\n", table)
    assert re.search(r"note them in tests/flaky.txt:\n\d{4}-\d\d-\d\d test_lucky.py::test_lucky\n", table)


def test_what_fails_alone_too_fails_and_is_not_in_the_table(project: Path) -> None:
    (project / "test_lucky.py").write_text(LUCKY)
    (project / "test_broken.py").write_text(BROKEN)
    status, output = run(project)
    assert status == 1
    assert re.fullmatch(r"=+ 1 failed, 1 passed in .*s =+", last_line(output))
    table = output.partition("passed only alone")[2].partition("short test summary")[0]
    assert "test_lucky" in table
    assert "test_broken" not in table


def test_a_test_that_was_listed_before_fails_when_it_needs_a_second_run_again(project: Path) -> None:
    (project / "test_lucky.py").write_text(LUCKY)
    (project / "tests/flaky.txt").write_text("# a note\n2026-01-02 test_lucky.py::test_lucky\n")
    status, output = run(project)
    assert status == 1
    assert output.endswith("and tests/flaky.txt has them already):\n  test_lucky.py::test_lucky\n")
    status, output = run(project)  # now it passes beside others
    assert status == 0, output


def test_a_test_that_is_listed_twice_fails_before_anything_runs(project: Path) -> None:
    (project / "tests/flaky.txt").write_text("2026-01-02 test_fine.py::test_fine\n2026-01-05 test_fine.py::test_fine\n")
    status, output = run(project)
    assert status == 1
    assert output == "\nMend or remove these tests (listed twice in tests/flaky.txt):\n  test_fine.py::test_fine\n"


@pytest.mark.parametrize(("written", "status"), [("def test_x(:", 2), ("", 5)], ids=["no Python", "no tests"])
def test_what_is_no_failure_of_a_test_is_told_by_the_exit_code_of_pytest(
    project: Path, written: str, status: int
) -> None:
    (project / "test_fine.py").write_text(written)
    found, output = run(project)
    assert found == status, output


def test_a_test_that_ends_its_process_runs_once_more(project: Path) -> None:
    (project / "test_ends.py").write_text(LUCKY.replace("assert was_done", "import os; was_done or os._exit(3)"))
    status, output = run(project)
    assert status == 0, output
    assert re.search(r"s  test_ends.py::test_lucky\n +.*crashed", output)


def test_the_list_of_this_project_is_one_date_and_one_test_a_line() -> None:
    lines = (ROOT / "tests/flaky.txt").read_text().splitlines()
    assert all(re.fullmatch(r"#.*|\d{4}-\d\d-\d\d \S.*::.*", line) for line in lines)
