"""The documentation is true: its code runs, its commands work, its tables are complete, its links lead somewhere."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.model.config import BrokerConfig, TopicConfig
from penstock.model.units import parse_duration, parse_size

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks(page: Path, language: str) -> list[str]:
    return [code for found, code in BLOCK.findall(page.read_text()) if found == language]


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=named)
def test_the_python_of_a_page_runs_from_top_to_bottom(page: Path, tmp_path: Path) -> None:
    code = "\n".join(blocks(page, "python"))
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "console")], ids=named)
def test_the_commands_of_a_page_work(page: Path, tmp_path: Path) -> None:
    """Commands run in order in an empty directory, `make` in the project; `$ … # exit 1` says another exit code."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for line in "".join(blocks(page, "console")).splitlines():
        if not line.startswith("$ "):
            continue
        command, _, remark = line[2:].partition("#")
        if command.strip() == "make test":
            command = "make --dry-run test"  # this very test is part of it
        expected = int(match[1]) if (match := re.match(r"\s*exit (\d+)", remark)) else 0
        where = ROOT if command.startswith("make") else tmp_path
        environment = {**os.environ, "PATH": path}
        done = subprocess.run(command, shell=True, cwd=where, capture_output=True, text=True, env=environment)
        assert done.returncode == expected, f"{line}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize(("config", "heading"), [(BrokerConfig, "## Broker"), (TopicConfig, "## Topic")])
def test_the_configuration_page_has_every_option_with_its_default(config: type, heading: str) -> None:
    page = (ROOT / "docs/reference/configuration.md").read_text()
    section = page.split(heading)[1].split("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (?:`([^`]+)`|see below) \|", section, re.MULTILINE))
    fields = {field.name: field.default for field in dataclasses.fields(config)}
    assert list(rows) == list(fields)
    for name, shown in rows.items():
        if shown:
            default = fields[name]
            parse = {float: parse_duration, int: parse_size}.get(type(default), lambda text: text)
            assert parse(shown) == (default if type(default) in (int, float) else str(default)), name


def test_decisions_are_numbered_one_after_the_other() -> None:
    numbers = [int(page.name[:4]) for page in sorted((ROOT / "docs/decisions").glob("*.md"))]
    assert numbers == list(range(1, len(numbers) + 1))
