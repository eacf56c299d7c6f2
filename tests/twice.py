"""Run tests in several processes; what fails there runs once more, alone, and is named in a table at the end.

    python -m tests.twice [arguments of pytest]

A busy machine fails tests that are right, and a test that depends on luck fails on any machine: the table tells both,
and `tests/flaky.txt` remembers. A test that is in that file has had its second chance: when it needs another, this
fails. The module is also the plugin of pytest that takes notes of both runs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

FLAKY = Path("tests/flaky.txt")
BESIDE_OTHERS = ("-n", str(min(4, (os.cpu_count() or 1) + 1)))  # tests wait for half of their time
ALONE = ("-n", "0", "--last-failed", "--last-failed-no-failures", "none", "--maxfail", "8", "--verbose")
_REASON_MAX = 100


def main(arguments: list[str]) -> int:
    """The exit code of pytest, of the second run if there was one; 1 as well if a test needs it once too often."""
    flaky = read_flaky()
    twice = [name for name, count in Counter(flaky).items() if count > 1]
    if twice:
        return _complain(twice, f"listed twice in {FLAKY}")
    with tempfile.TemporaryDirectory() as folder:
        first, second = Path(folder, "first.json"), Path(folder, "second.json")
        status = _pytest(*BESIDE_OTHERS, *arguments, f"--notes={first}")
        if status != pytest.ExitCode.TESTS_FAILED:
            return status
        print("\nThese tests failed beside others. They run once more, alone:", flush=True)
        status = _pytest(*ALONE, *arguments, f"--notes={second}", f"--notes-before={first}")
        alone = Notes.read(second).passed_alone(Notes.read(first)) if second.exists() else []
    again = [name for name in alone if name in flaky]
    return _complain(again, f"they passed only alone, and {FLAKY} has them already") if again else status


def read_flaky() -> list[str]:
    """The tests that are listed; a line is a date and a test."""
    lines = FLAKY.read_text().splitlines() if FLAKY.exists() else []
    return [line.partition(" ")[2].strip() for line in lines if line.strip() and not line.startswith("#")]


def _pytest(*arguments: str) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", "-p", "tests.twice", *arguments]).returncode


def _complain(tests: list[str], why: str) -> int:
    print(f"\nMend or remove these tests ({why}):", *tests, sep="\n  ", flush=True)
    return int(pytest.ExitCode.TESTS_FAILED)


class Notes:
    """What one run tells of its tests: why they failed, and how long they took."""

    def __init__(self, failed: dict[str, str] | None = None, seconds: dict[str, float] | None = None) -> None:
        self.failed = failed or {}
        self.seconds = seconds or {}

    @classmethod
    def read(cls, path: Path) -> Notes:
        """The notes of a run that is over."""
        return cls(**json.loads(path.read_text()))

    def write(self, path: Path) -> None:
        """Keep them for `read`."""
        path.write_text(json.dumps(vars(self)))

    def passed_alone(self, before: Notes) -> list[str]:
        """The tests that passed in this run, and failed in one before."""
        return [name for name in before.failed if name in self.seconds and name not in self.failed]

    def add(self, report: pytest.TestReport) -> None:
        """Take note of a part of a test: its set-up, its call or its end."""
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration
        if report.failed:
            self.failed.setdefault(report.nodeid, _reason(report))


def _reason(report: pytest.TestReport) -> str:
    """Why a test failed, in a line."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(report.longrepr if crash is None else crash.message).strip() or "no reason was told"
    line = text.splitlines()[-1 if crash is None else 0].strip()
    return line if len(line) <= _REASON_MAX else f"{line[:_REASON_MAX]}…"


class NoteTaker:
    """Takes notes while pytest runs, and shows what passed only alone."""

    def __init__(self, place: Path, before: Notes) -> None:
        self._place = place
        self._before = before
        self._notes = Notes()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._notes.add(report)

    def pytest_sessionfinish(self) -> None:
        self._notes.write(self._place)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        alone = self._notes.passed_alone(self._before)
        if not alone:
            return
        today = datetime.now(UTC).date().isoformat()
        terminalreporter.section("passed only alone")
        terminalreporter.line("alone     test, and why it failed beside others")
        for name in alone:
            terminalreporter.line(f"{self._notes.seconds[name]:6.2f} s  {name}")
            terminalreporter.line(f"          {self._before.failed[name]}")
        terminalreporter.line(f"Find out why, or note them in {FLAKY}:")
        for name in alone:
            terminalreporter.line(f"{today} {name}")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--notes", metavar="FILE", help="where to note what failed, and how long tests took")
    parser.addoption("--notes-before", metavar="FILE", help="the notes of the run before")


def pytest_configure(config: pytest.Config) -> None:
    place, before = config.getoption("--notes"), config.getoption("--notes-before")
    if place is not None and not hasattr(config, "workerinput"):  # xdist's workers report to the one who notes
        known = Notes() if before is None else Notes.read(Path(before))
        config.pluginmanager.register(NoteTaker(Path(place), known))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
