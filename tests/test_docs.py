"""The documentation is true: its code runs, its commands work, its tables are complete, its links lead somewhere."""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.model.config import BrokerConfig, TopicConfig
from penstock.model.units import parse_duration, parse_size

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
NAMED = re.compile(r"# (\w+\.py)\n")  # the first line of a program that the commands of its page run
LASTING = re.compile(r"penstock (serve|worker) ")
SERVER = "127.0.0.1:9000"  # where the server of a page is; here it is on a free port


def blocks(page: Path, language: str) -> list[str]:
    return [code for found, code in BLOCK.findall(page.read_text()) if found == language]


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


class Shell:
    """Runs commands in a directory; a server or a worker runs beside the others, until Ctrl-C or the next one."""

    def __init__(self, directory: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = str(free.getsockname()[1])
        self.address = f"127.0.0.1:{port}"
        self._directory = directory
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._environment = {**os.environ, "PATH": path, "PENSTOCK_SERVER": self.address}
        self._serving = {**self._environment, "PENSTOCK_NATIVE_PORT": port}
        self._beside: dict[str, subprocess.Popen[str]] = {}

    def run(self, command: str, where: Path | None = None) -> subprocess.CompletedProcess[str]:
        if lasting := LASTING.match(command):
            self._start(lasting[1], shlex.split(command))
            return subprocess.CompletedProcess(command, 0, "", "")
        return subprocess.run(
            command,
            shell=True,
            cwd=where or self._directory,
            capture_output=True,
            text=True,
            env=self._environment,
        )

    def _start(self, kind: str, command: list[str]) -> None:
        self.press_ctrl_c(kind)
        process = self._beside[kind] = subprocess.Popen(
            command,
            cwd=self._directory,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=self._serving,
        )
        assert process.stderr is not None
        told = "listening" if kind == "serve" else "started"
        assert any(told in line for line in process.stderr), command

    def press_ctrl_c(self, *kinds: str) -> None:
        for process in [self._beside.pop(kind) for kind in kinds if kind in self._beside]:
            process.send_signal(signal.SIGINT)  # nothing happens if it has ended
            _, said = process.communicate(timeout=60)
            assert process.returncode in (0, -signal.SIGKILL), said  # some pages kill it


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    shell.press_ctrl_c("worker", "serve")


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=named)
def test_the_python_of_a_page_runs_from_top_to_bottom(page: Path, tmp_path: Path, shell: Shell) -> None:
    """One program for each page, with a server if it connects to one; named ones are for the commands of the page."""
    code = "\n".join(code for code in blocks(page, "python") if not NAMED.match(code))
    if "connect(" in code:
        shell.run("penstock serve served")
    code = code.replace(SERVER, shell.address)
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "console")], ids=named)
def test_the_commands_of_a_page_work(page: Path, tmp_path: Path, shell: Shell) -> None:
    """Commands run in order in an empty directory, `make` in the project; `$ … # exit 1` says another exit code."""
    for code in blocks(page, "python"):
        if name := NAMED.match(code):
            (tmp_path / name[1]).write_text(code.replace(SERVER, shell.address))
    for line in "".join(blocks(page, "console")).splitlines():
        if not line.startswith("$ "):
            continue
        command, _, remark = line[2:].partition("#")
        if command.strip() == "make test":
            command = "make --dry-run test"  # this very test is part of it
        expected = int(match[1]) if (match := re.match(r"\s*exit (\d+)", remark)) else 0
        done = shell.run(command, ROOT if command.startswith("make") else None)
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
