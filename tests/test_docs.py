"""The documentation is true: its code runs, its commands work, its tables are complete, its links lead somewhere."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

import penstock
from penstock.cli import pipeline
from penstock.cli.jobs import running
from penstock.cli.main import app
from penstock.model.config import BrokerConfig, TopicConfig
from penstock.model.units import parse_duration, parse_size
from penstock.server.access.principal import Scope
from penstock.server.http.description import description
from tests.buckets.conftest import store
from tests.server.harness import free_port
from tests.spark.conftest import spark

__all__ = ["spark", "store"]

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
NAMED = re.compile(r"# (\w+\.(?:py|yaml))\n")  # the first line of a file that the commands of its page use
LASTING = re.compile(r"(?:penstock (serve|worker) |make (run)\b)")
STARTED = {"serve": "listening", "worker": "started", "run": " published "}  # what each says when it is under way
PORTS = {"native": 9000, "http": 8080, "line": 3000}  # of the server of a page; here it is on free ones


def blocks(page: Path, language: str) -> list[str]:
    return [code for found, code in BLOCK.findall(page.read_text()) if found == language]


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


class Shell:
    """Runs commands in a directory; a server, a worker or the main job runs beside the others, until Ctrl-C.

    A server has the ports that its page speaks of, each at a free place. `make` is run in the project, on data here.
    Jobs and pipelines run in this process, on the session of all tests: Spark takes longer to start than they do.
    Pages that speak of a bucket have one, in a store that is started for them.
    """

    def __init__(self, directory: Path, page: str, request: pytest.FixtureRequest) -> None:
        self._request = request
        spoken_of = [port for port, number in PORTS.items() if port == "native" or _place(number).search(page)]
        self._ports = {port: free_port() for port in spoken_of}
        self._directory = directory
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        native = f"127.0.0.1:{self._ports['native']}"
        self._environment = {**os.environ, "PATH": path, "PENSTOCK_SERVER": native, "CURL_HOME": str(directory)}
        if "s3://" in page:
            self._environment |= request.getfixturevalue("store").environment
        (directory / ".curlrc").write_text("fail-with-body\n")  # replies that are errors are failures here
        self._serving = {
            **self._environment,
            **{f"PENSTOCK_{port.upper()}_PORT": str(number) for port, number in self._ports.items()},
        }
        self._beside: dict[str, subprocess.Popen[str]] = {}

    def here(self, text: str) -> str:
        """What a page says, with the ports of this server."""
        for port, number in self._ports.items():
            text = _place(PORTS[port]).sub(rf"\g<host>\g<between>{number}", text)
        return text

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        if command.startswith(("make run", "make results")):
            command = f"{command.strip()} ARGS='--dir {self._directory / 'demo'}'"
        where = ROOT if command.startswith("make") else self._directory
        if lasting := LASTING.match(command):
            self._start(lasting[1] or lasting[2], shlex.split(command), where)
            return subprocess.CompletedProcess(command, 0, "", "")
        if command.startswith(("penstock job ", "penstock pipeline run ")):
            return self._run_here(command)
        return subprocess.run(command, shell=True, cwd=where, capture_output=True, text=True, env=self._environment)

    def _run_here(self, command: str) -> subprocess.CompletedProcess[str]:
        line, _, file = command.partition(" > ")
        spark = self._request.getfixturevalue("spark")
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self._directory)
            patch.setattr(running, "session_for", lambda *_: contextlib.nullcontext(spark))
            patch.setattr(pipeline, "_session", lambda *_: contextlib.nullcontext(spark))
            patch.setattr(pipeline, "_stop_on_signals", lambda *_: None)
            done = CliRunner().invoke(app, shlex.split(line)[1:], env=self._environment)
        if file:
            (self._directory / file.strip()).write_text(done.stdout)
        return subprocess.CompletedProcess(command, done.exit_code, done.stdout, done.stderr)

    def _start(self, kind: str, command: list[str], where: Path) -> None:
        self.press_ctrl_c(kind)
        process = self._beside[kind] = subprocess.Popen(
            command,
            cwd=where,
            stdout=subprocess.PIPE if kind == "run" else subprocess.DEVNULL,
            stderr=subprocess.STDOUT if kind == "run" else subprocess.PIPE,
            text=True,
            env=self._serving,
            start_new_session=True,
        )
        said = process.stdout or process.stderr
        assert said is not None
        assert any(STARTED[kind] in line for line in said), command

    def press_ctrl_c(self, *kinds: str) -> None:
        for process in [self._beside.pop(kind) for kind in kinds if kind in self._beside]:
            with contextlib.suppress(ProcessLookupError):  # nothing happens if it has ended
                os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to make and what it runs
            said = "".join(map(str, process.communicate(timeout=60)))
            expected = (0, -signal.SIGKILL, -signal.SIGINT)  # some pages kill it; make ends with the signal
            assert process.returncode in expected, said


def _place(number: int) -> re.Pattern[str]:
    return re.compile(rf"(?P<host>127\.0\.0\.1|localhost)(?P<between>[: /]){number}\b")


@pytest.fixture
def shell(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Shell]:
    commands = "".join(code for language in ("console", "python", "yaml") for code in blocks(page, language))
    shell = Shell(tmp_path, commands, request)
    yield shell
    shell.press_ctrl_c("run", "worker", "serve")


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=named)
def test_the_python_of_a_page_runs_from_top_to_bottom(page: Path, tmp_path: Path, shell: Shell) -> None:
    """One program for each page, with a server if it connects to one; named ones are for the commands of the page."""
    code = "\n".join(code for code in blocks(page, "python") if not NAMED.match(code))
    if any(word in code for word in ("connect(", "//localhost:")):
        shell.run("penstock serve served")
    code = shell.here(code)
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "console")], ids=named)
def test_the_commands_of_a_page_work(page: Path, tmp_path: Path, shell: Shell) -> None:
    """Commands run in order in an empty directory, `make` in the project; `$ … # exit 1` says another exit code."""
    for code in blocks(page, "python") + blocks(page, "yaml"):
        if name := NAMED.match(code):
            (tmp_path / name[1]).write_text(shell.here(code))
    for line in "".join(blocks(page, "console")).splitlines():
        if not line.startswith("$ "):
            continue
        command, _, remark = line[2:].partition("#")
        if command.strip() == "make test":
            command = "make --dry-run test"  # this very test is part of it
        expected = int(match[1]) if (match := re.match(r"\s*exit (\d+)", remark)) else 0
        done = shell.run(shell.here(command))
        assert done.returncode == expected, f"{line}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("index", [ROOT / "docs/README.md", ROOT / "docs/decisions/README.md"], ids=named)
def test_the_index_of_the_docs_has_every_page(index: Path) -> None:
    linked = {(index.parent / target).resolve() for target in re.findall(r"\]\(([^)#:]+)\)", index.read_text())}
    decisions = set((ROOT / "docs/decisions").glob("[0-9]*.md"))
    pages = decisions if index.parent.name == "decisions" else set((ROOT / "docs").rglob("*.md")) - decisions
    assert pages - linked - {index} == set()


def test_the_site_has_every_page_in_its_navigation() -> None:
    """`make docs` builds the site; it copies the pages at the root of the project to `project/`."""
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    listed = sorted(_leaves(site["nav"]))
    project = ["ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "STYLE.md"]
    pages = [str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")]
    assert listed == sorted([*pages, *(f"project/{page}" for page in project)])


def _leaves(tree: object) -> Iterator[str]:
    """The pages of a navigation: lists of pages, and of sections by their titles."""
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, dict):
        yield from _leaves(list(tree.values()))
    elif isinstance(tree, list):
        for branch in tree:
            yield from _leaves(branch)


def test_the_glossary_defines_every_word_once() -> None:
    page = (ROOT / "docs/glossary.md").read_text().split("## Older names")[0]
    rows = re.findall(r"^\| (\w.*?) \| ", page, re.MULTILINE)
    words = [word for row in rows if row != "word" for word in row.split(", ")]
    assert [word for word in words if words.count(word) > 1] == []
    counts = {field.name for field in dataclasses.fields(penstock.GroupInfo) if field.type == "int"}
    assert counts - set(words) == {"published"}
    assert {scope for scope in Scope if f"`{scope}`" not in page} == set()


def test_the_page_of_the_python_api_has_every_public_name() -> None:
    page = (ROOT / "docs/reference/python.md").read_text()
    shown = set(re.findall(r"^::: penstock\.([\w.]+)$", page, re.MULTILINE))
    aliases = {"connect": "Client", "aio.connect": "aio.AsyncClient"}
    public = {*penstock.__all__, *(f"aio.{name}" for name in penstock.aio.__all__)} - {"aio"}
    assert shown == {aliases.get(name, name) for name in public}


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


def test_the_architecture_names_every_room() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    rooms = {path.parent.name for path in (ROOT / "src/penstock").glob("*/__init__.py")}
    assert rooms - set(re.findall(r"`(\w+)/`", page)) == set()


@pytest.mark.parametrize("room", sorted((ROOT / "src/penstock").rglob("__init__.py")), ids=named)
def test_the_files_that_the_head_of_a_room_names_are_there(room: Path) -> None:
    head = ast.get_docstring(ast.parse(room.read_text())) or ""
    told = set(re.findall(r"`((?:\w+/)*\w+\.py)`", head))
    assert {name for name in told if not (room.parent / name).is_file()} == set()


def test_decisions_are_numbered_one_after_the_other() -> None:
    numbers = [int(page.name[:4]) for page in sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))]
    assert numbers == list(range(1, len(numbers) + 1))


def test_the_page_of_the_http_routes_has_every_route() -> None:
    page = (ROOT / "docs/reference/http.md").read_text()
    told = set(re.findall(r"`(GET|POST|PUT|PATCH|DELETE) (/[^`?]*)", page))
    paths = json.loads(description())["paths"]
    assert told == {(method.upper(), path) for path, methods in paths.items() for method in methods}
