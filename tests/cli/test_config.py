"""`penstock config`: what is in force and why, what is wrong with a file, and the example."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from penstock.cli.config import app
from penstock.server.config import ServerConfig, load_config
from penstock.server.settings.table import SETTINGS

PAGES = Path(__file__).parent.parent.parent / "docs"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("PENSTOCK_SEED", "PENSTOCK_OUTPUT", "PENSTOCK_CONFIG"):
        monkeypatch.delenv(name, raising=False)


def run(*arguments: str, **environment: str) -> tuple[int, str, str]:
    """The exit code, what was written to standard output, and what to standard error."""
    result = CliRunner().invoke(app, list(arguments), env=environment)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def rows(table: str) -> dict[str, list[str]]:
    return {cells[0]: cells[1:] for cells in map(str.split, table.splitlines())}


def test_show_tells_every_value_and_where_it_is_from() -> None:
    Path("penstock.yaml").write_text("server:\n  native_port: 9001\n  max_frame_bytes: 1MiB\n")
    code, table, notes = run("show", "--config", "penstock.yaml", PENSTOCK_NATIVE_PORT="9002")
    assert (code, notes) == (0, "")
    shown = rows(table)
    assert list(shown) == ["option", *SETTINGS]
    assert shown["server.native_port"] == ["9002", "PENSTOCK_NATIVE_PORT"]
    assert shown["server.max_frame_bytes"] == ["1MiB", "penstock.yaml:3"]
    assert shown["topic_defaults.retention_age"] == ["7d", "default"]


def test_show_finds_the_file_in_the_environment() -> None:
    Path("penstock.yaml").write_text("topic_defaults: {lane_weights: {high: 5}, retention_age: null}")
    code, text, _ = run("show", "-o", "json", PENSTOCK_CONFIG="penstock.yaml")
    answer = {entry["option"]: (entry["value"], entry["from"]) for entry in json.loads(text)}
    assert code == 0
    assert answer["topic_defaults.lane_weights"] == ({"64": 5}, "penstock.yaml:1")
    assert answer["topic_defaults.retention_age"] == (None, "penstock.yaml:1")
    assert answer["server.idle_timeout"] == (90.0, "default")


def test_show_as_yaml_is_a_file_that_gives_the_same_configuration() -> None:
    variables = {
        "PENSTOCK_DATA_DIR": "/a b #c",
        "PENSTOCK_TOPIC_LANE_WEIGHTS": "high=5",
        "PENSTOCK_IDLE_TIMEOUT": "1.5",
    }
    code, text, _ = run("show", "-o", "yaml", **variables)
    Path("again.yaml").write_text(text)
    assert code == 0
    assert load_config(Path("again.yaml"), {}, {}).config == load_config(None, {**os.environ, **variables}, {}).config
    assert yaml.safe_load(text)["server"]["data_dir"] == "/a b #c"
    assert 'data_dir: "/a b #c"  # PENSTOCK_DATA_DIR\n' in text


def test_show_tells_every_problem_and_every_note_on_standard_error() -> None:
    Path("wrong.yaml").write_text("server: {native_port: x}\nbrokers: {}\n")
    code, text, told = run("show", "--config", "wrong.yaml")
    assert (code, text) == (2, "")
    assert told.splitlines() == [
        "error: wrong.yaml:1:23: server.native_port: 'x' is not a whole number from 0 to 65535",
        "error: wrong.yaml:2:1: brokers: unknown key, did you mean broker?",
    ]
    Path("right.yaml").write_text("broker: {nodeId: a}")
    code, text, told = run("show", "--config", "right.yaml", "-o", "json")
    assert code == 0 and told == "note: right.yaml:1:10: broker.nodeId: one broker needs no node id: it is not used\n"
    assert len(json.loads(text)) == len(SETTINGS)


def test_check_looks_at_the_file_alone_and_tells_every_problem() -> None:
    Path("wrong.yaml").write_text("server: {native_port: x}\nbrokers: {}\n\x1b: 1")
    code, text, _ = run("check", "wrong.yaml", PENSTOCK_NATIVE_PORT="y")
    assert (code, text) == (2, "wrong.yaml:3:1: a file of text has no character like '\\x1b'\n")
    Path("wrong.yaml").write_text('server: {native_port: x}\n"\\e[2J": {}\n')
    code, text, _ = run("check", "wrong.yaml", PENSTOCK_NATIVE_PORT="y")
    assert (code, text.splitlines()) == (
        2,
        [
            "wrong.yaml:1:23: server.native_port: 'x' is not a whole number from 0 to 65535",
            r"wrong.yaml:2:1: \x1b[2J: unknown key",
        ],
    )
    assert run("check", "nowhere.yaml")[:2] == (2, "nowhere.yaml: there is no such file\n")


def test_check_of_a_right_file_tells_its_notes() -> None:
    Path("right.yaml").write_text("broker: {nodeId: a}")
    code, text, _ = run("check", "right.yaml")
    assert code == 0
    assert text == "note: right.yaml:1:10: broker.nodeId: one broker needs no node id: it is not used\nfine\n"


def test_the_example_passes_its_own_check_and_is_all_defaults() -> None:
    code, text, _ = run("example")
    Path("example.yaml").write_text(text)
    assert code == 0
    assert run("check", "example.yaml")[:2] == (0, "fine\n")
    assert load_config(Path("example.yaml"), {}, {}).config == ServerConfig()
    written = yaml.safe_load(text)
    assert [f"{section}.{name}" for section, options in written.items() for name in options] == list(SETTINGS)


def test_the_files_of_the_documentation_are_right() -> None:
    page = (PAGES / "how-to/configure-a-server.md").read_text()
    files = [code for language, code in BLOCK.findall(page) if language == "yaml"]
    assert len(files) == 2
    for text in files:
        Path("goqueue.yaml").write_text(text)
        code, told, _ = run("check", "goqueue.yaml")
        assert code == 0, told
    notes = page.split("note: ")[1].split("…")[0]
    assert notes.splitlines()[0] in told


def test_the_answers_of_the_documentation_are_what_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line below a command stands in what the command writes, whatever its columns are wide."""
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    blocks = BLOCK.findall((PAGES / "how-to/configure-a-server.md").read_text())
    written: list[list[str]] = []
    for line in "".join(code for language, code in blocks if language == "console").splitlines():
        if line.startswith("$ "):
            done = subprocess.run(line[2:], shell=True, capture_output=True, text=True, timeout=60)
            written = [row.split() for row in done.stdout.splitlines()]
        else:
            assert line.split() in written, line


def test_importing_the_command_loads_no_yaml_and_no_arrow() -> None:
    code = "import sys, penstock.cli.config; print([name for name in ('yaml', 'pyarrow') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
