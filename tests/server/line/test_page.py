"""The page of the text protocol is true: its examples run, and every command is on it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from penstock.server.line import lines
from penstock.server.line.consumers import GROUP, IN_FLIGHT_MAX
from tests.server.harness import PATIENCE_S
from tests.server.line.harness import LineServer

PAGE = (Path(__file__).parents[3] / "docs/reference/text-protocol.md").read_text()
EXAMPLES = re.findall(r"^```sh\n(.*?)^```\n\n```text\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == PAGE.count("```sh\n") >= 4
    assert shutil.which("nc"), "install nc (Debian: netcat-openbsd)"


@pytest.mark.parametrize(("script", "printed"), EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_prints_what_the_page_says(script: str, printed: str, tmp_path: Path) -> None:
    with LineServer(tmp_path) as server:
        script = script.replace("127.0.0.1 3000", f"127.0.0.1 {server.port}")
        script = script.replace("127.0.0.1/3000", f"127.0.0.1/{server.port}")
        done = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, timeout=PATIENCE_S)
        assert (done.returncode, done.stdout) == (0, printed), done.stderr


def test_every_command_is_in_the_table_and_in_the_grammar() -> None:
    table = PAGE.split("## Commands")[1].split("## Lines")[0]
    grammar = PAGE.split("## Lines")[1].split("- Lines are")[0]
    for word in map(bytes.decode, lines._READERS):
        assert f"| `{word}" in table
        assert f'"{word}"' in grammar


def test_the_names_and_limits_are_those_of_the_code() -> None:
    assert f"the group `{GROUP}`" in PAGE
    assert f"at most {IN_FLIGHT_MAX:,} messages of a topic" in PAGE
