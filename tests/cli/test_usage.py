"""What holds for all commands: help that teaches, completion, targets, errors, exit codes, the reference page."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import penstock
from penstock.cli import errors
from penstock.cli.lazy import LazyCommand
from penstock.cli.main import Commands, app
from penstock.cli.output import show_duration
from penstock.model import errors as model_errors
from penstock.model.units import format_duration, parse_duration
from tests.cli.harness import PENSTOCK, Command, on_directory

DOCS = Path(__file__).parents[2] / "docs/reference"
REFERENCE = DOCS / "command-line.md"
OTHERS = ("serve", "worker", "bench", "config", "pipeline")
"""Commands that are described on pages of their own."""


def commands() -> Iterator[tuple[str, Any]]:
    """Every command with its name, those of groups too."""
    for name, stand_in in get_command(app).commands.items():  # type: ignore[attr-defined]
        command = stand_in.load()
        yield name, command
        for part, inner in getattr(command, "commands", {}).items():
            yield f"{name} {part}", inner.load() if isinstance(inner, LazyCommand) else inner


OURS = {name: command for name, command in commands() if name.split()[0] not in OTHERS}
LEAVES = {name: command for name, command in OURS.items() if not hasattr(command, "commands")}


# Help.


def test_the_table_of_commands_says_what_the_commands_say_themselves() -> None:
    said = {name: command.help.partition("\n\n")[0].replace("\n", " ") for name, command in commands()}
    for entry in Commands.entries:
        if entry.name in said:
            assert said[entry.name].startswith(entry.help.removesuffix(".")), entry.name


def test_help_imports_no_command_and_nothing_heavy() -> None:
    code = """
import sys
from typer.testing import CliRunner
from penstock.cli.main import app
result = CliRunner().invoke(app, ["--help"])
assert result.exit_code == 0 and "redrive" in result.output, result
ours = ("penstock.embedded", "penstock.shard", "penstock.client", "penstock.cli.")
print([name for name in sys.modules if name.startswith(ours)])
print([name for name in ("pyarrow", "numpy", "asyncio", "msgspec", "yaml") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    ours, heavy = map(ast.literal_eval, done.stdout.splitlines())
    assert set(ours) == {f"penstock.cli.{name}" for name in ("main", "lazy", "errors", "terminal")} and heavy == []


@pytest.mark.parametrize("name", LEAVES)
def test_every_help_has_examples_of_its_command(name: str) -> None:
    result = CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    assert len(re.findall(rf"^  .*penstock {name}", result.output, re.MULTILINE)) >= 2, result.output


def test_every_option_has_a_help() -> None:
    for name, command in OURS.items():
        for parameter in command.params:
            assert parameter.help, (name, parameter.name)


@pytest.mark.parametrize("arguments", [[], ["topic"], ["dlq"]])
def test_without_arguments_help_is_shown(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2 and "Usage: penstock" in result.output and "error:" not in result.output


# Completion.


def complete(line: str, **environment: str) -> list[str]:
    done = subprocess.run(
        [PENSTOCK],
        env={
            **os.environ,
            "_PENSTOCK_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(line.split(" ")) - 1),
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_completion_of_commands_and_options() -> None:
    assert complete("penstock con") == ["consume", *(["config"] if "config" in dict(commands()) else [])]
    assert complete("penstock topic cr") == ["create"]
    assert "--include-deleted" in complete("penstock consume orders --inc")
    assert complete("penstock status -o y") == ["yaml"]


def test_completion_of_topics_and_groups(command: Command) -> None:
    command.ok("publish", "orders", "x")
    command.ok("publish", "orchids", "x")
    command.ok("consume", "orders", "--group", "kitchen")
    assert complete("penstock consume or", **command.environment) == ["orchids", "orders"]
    assert complete("penstock topic show ord", **command.environment) == ["orders"]
    assert complete("penstock group show orders k", **command.environment) == ["kitchen"]
    assert complete("penstock group show orchids k", **command.environment) == []


def test_completion_never_fails(nobody: str) -> None:
    assert complete("penstock consume or", PENSTOCK_DIR="/does/not/exist") == []
    assert complete("penstock consume or", PENSTOCK_SERVER=nobody) == []
    assert complete("penstock consume or", PENSTOCK_SERVER="nonsense") == []


# Targets.


@pytest.mark.parametrize("arguments", [["status"], ["topic", "list"], ["consume", "orders"], ["trace", "orders/0/0"]])
def test_only_publishing_makes_a_directory(tmp_path: Path, arguments: list[str]) -> None:
    for name, flaw in (("missing", "does not exist"), ("file", "is not a directory"), ("empty", "not a Penstock")):
        path = tmp_path / name
        if name == "file":
            path.write_text("")
        elif name == "empty":
            path.mkdir()
        with on_directory(path) as command:
            assert flaw in command.refused(*arguments, code=2)
    assert not (tmp_path / "missing").exists() and list((tmp_path / "empty").iterdir()) == []


@pytest.mark.parametrize(
    "arguments", [["publish", "orders", "x"], ["produce", "orders", "0", "x"], ["topic", "create", "orders"]]
)
def test_publishing_and_creating_make_a_directory(local: Command, arguments: list[str]) -> None:
    local.ok(*arguments)
    assert local.ok("topic", "list").splitlines()[1].startswith("orders ")


def test_a_directory_in_use_is_exit_3(local: Command) -> None:
    with local.open() as broker:
        broker.publish("orders", "x")
        line = local.refused("status", code=3)
    assert "is in use by another broker (process " in line and "--server" in line


def test_a_server_that_is_not_there_is_exit_3(local: Command, nobody: str) -> None:
    line = local.refused("status", "--server", nobody, code=3)
    assert nobody in line and "penstock serve" in line
    assert "127.0.0.1:x" in local.refused("status", "--server", "127.0.0.1:x", code=2)


def test_the_command_line_goes_before_the_environment(local: Command, nobody: str, tmp_path: Path) -> None:
    local.ok("publish", "orders", "x")
    local.environment["PENSTOCK_SERVER"] = nobody
    assert "orders" in local.ok("topic", "list")  # of the two in the environment, the directory
    local.refused("topic", "list", "--server", nobody, code=3)
    assert "exclude each other" in local.refused("topic", "list", "--server", "a:1", "--dir", tmp_path, code=2)
    del local.environment["PENSTOCK_DIR"]
    assert "orders" in local.ok("topic", "list", "--dir", tmp_path / "data")


# Errors.


def test_every_error_of_penstock_has_a_hint_and_an_exit_code() -> None:
    kinds = [kind for kind in vars(model_errors).values() if isinstance(kind, type)]
    for kind in kinds:
        error = kind("name", 7, "torn") if kind is penstock.CorruptData else kind("what is wrong")
        told = errors.explain(error, "penstock status")
        assert told.text and told.hint and told.code in (1, 2, 3), kind


@pytest.mark.parametrize("arguments", [["--nothing"], ["nothing"], ["status", "extra"], ["topic", "nothing"]])
def test_mistakes_are_one_line_and_exit_2(local: Command, arguments: list[str]) -> None:
    assert "--help`" in local.refused(*arguments, code=2)


def test_a_wrong_format_in_the_environment_is_told(local: Command) -> None:
    local.ok("publish", "orders", "x")
    local.environment["PENSTOCK_OUTPUT"] = "xml"
    assert "PENSTOCK_OUTPUT" in local.refused("topic", "list", code=2)


@pytest.mark.parametrize("seconds", [0.0, 0.00025, 0.25, 1.0, 5400.0, 604800.0, 90061.001002])
def test_durations_are_shown_as_they_can_be_written(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds)


def test_durations_for_people() -> None:
    shown = [show_duration(seconds) for seconds in (0.000_25, 0.12, 3.21, 59.97, 600.4, 180_000)]
    assert shown == ["0.25 ms", "0.12 s", "3.21 s", "1m", "10m", "2d 2h"]


# The reference.


def sections() -> dict[str, tuple[str, str]]:
    """What the page says of each command: its arguments, and all below."""
    pages = f"{REFERENCE.read_text()}\n## `penstock job`\n{(DOCS / 'jobs.md').read_text()}"
    parts = re.split(r"^#{2,3} `penstock ([a-z -]+)([^`]*)`$", pages, flags=re.MULTILINE)[1:]
    return {
        name.strip(): (arguments, text)
        for name, arguments, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    }


def written(argument: Any) -> str:
    """An argument as the reference has it."""
    return (argument.metavar if argument.required else f"[{argument.metavar}]") + ("..." if argument.nargs < 0 else "")


def test_the_reference_has_every_command_and_no_other() -> None:
    assert set(sections()) - {"job"} == set(LEAVES)
    for entry in Commands.entries:
        assert f"penstock {entry.name}" in REFERENCE.read_text()


@pytest.mark.parametrize("name", LEAVES)
def test_the_reference_has_every_option_and_no_other(name: str) -> None:
    arguments, text = sections()[name]
    given = [parameter for parameter in LEAVES[name].params if parameter.param_type_name == "argument"]
    assert arguments == " ".join(map(written, given))
    rows = re.findall(r"^\| (`-[^|]+) \|", text, re.MULTILINE)
    told = {option.split()[0] for row in rows for option in re.findall(r"`([^`]+)`", row)}
    known = {option for parameter in LEAVES[name].params for option in parameter.opts if parameter not in given}
    common = {"--server", "--token", "--tls", "--ca", "--cert", "--cert-key", "--dir", "--output", "-o", "--help", "-h"}
    common |= {"--dry-run", "--master", "--conf"} if name.startswith("job ") else set()
    assert told - common == known - common


def test_the_reference_tells_the_exit_codes() -> None:
    rows = re.findall(r"^\| (\d+) \|", REFERENCE.read_text(), re.MULTILINE)
    codes = [0, errors.REFUSED, errors.USAGE, errors.UNREACHABLE, errors.INTERRUPTED]
    assert rows == list(map(str, codes))
