"""What a terminal gets of values, names and errors of other people: nothing that it would obey."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest
import yaml

import penstock.cli
from tests.cli.harness import Command, on_terminal

HOSTILE = "ok\x1b]52;c;aGk=\x07\x1b[8m\x9b31m\r\u202e\u2066\x7f\x85\u2028end"
OBEYED = ("\x1b]", "\x07", "\x1b[8m", "\x9b", "\r", "\u202e", "\u2066", "\x7f", "\x85", "\u2028")
BAR = re.compile(r"\r?\x1b\[(\?25[lh]|\d*[AK])")
"""What our own bars do: hide the cursor, go up, clear a line."""
WRITTEN = r"\x1b]52;c;aGk=\x07\x1b[8m\x9b31m\r\u202e"


@pytest.fixture
def hostile(local: Command) -> Command:
    """A topic of which everything that clients choose is hostile, and a dead letter of it."""
    with local.open() as broker:
        broker.create_topic("orders", max_deliveries=1)
        broker.publish("orders", HOSTILE, key=HOSTILE, headers={HOSTILE: HOSTILE}, dedupe_id=HOSTILE)
        with broker.consumer("orders", "kitchen") as consumer:
            for message in consumer.receive():
                message.fail(HOSTILE)
        broker.schedule("daily", "0 0 * * *", "orders", HOSTILE, key=HOSTILE)
    return local


def seen(command: Command, *arguments: object) -> str:
    shown = BAR.sub("", on_terminal(*arguments, environment=command.environment))
    obeyed = [sign for sign in OBEYED if sign in shown]
    assert not obeyed, shown
    return shown


@pytest.mark.parametrize(
    "line",
    [
        ["consume", "orders"],
        ["consume", "orders", "-o", "raw"],
        ["consume", "orders", "-o", "table"],
        ["consume", "orders", "--group", "bar"],
        ["consume", "orders", "--group", "bar", "--no-ack"],
        ["consume", "orders", "--follow", "--max", "1"],
        ["trace", "orders/0/0"],
        ["dlq", "list", "orders"],
        ["dlq", "show", "orders.dlq/0/0"],
        ["schedule", "list"],
    ],
)
def test_a_terminal_obeys_nothing_that_a_message_says(hostile: Command, line: list[str]) -> None:
    assert WRITTEN[:10] in seen(hostile, *line)


def test_programs_get_json_and_yaml_from_a_terminal_too(hostile: Command) -> None:
    for line in (["consume", "orders", "-n", "1"], ["dlq", "show", "orders.dlq/0/0"], ["trace", "orders/0/0"]):
        as_json = json.loads(seen(hostile, *line, "-o", "json"))
        assert as_json == yaml.safe_load(seen(hostile, *line, "-o", "yaml"))
        assert as_json.get("value", as_json.get("message", {}).get("value")) == HOSTILE
    replayed = seen(hostile, "replay", "orders", "--output-file", "-", "--to-offset", "1").partition("note:")[0]
    assert json.loads(replayed.partition("\x1b")[0])["value"] == HOSTILE


def test_pipes_and_files_get_the_very_bytes(hostile: Command, tmp_path: Path) -> None:
    with hostile.start("consume", "orders", "-n", "1", "-o", "raw") as child:
        assert child.stdout is not None and child.stdout.read().decode() == HOSTILE + "\n"
    hostile.ok("replay", "orders", "--output-file", tmp_path / "all.jsonl", "--to-offset", "1")
    assert json.loads((tmp_path / "all.jsonl").read_text())["value"] == HOSTILE


def test_text_of_several_lines_and_all_languages_stays_as_it_is_on_a_terminal(local: Command) -> None:
    text = "café\n\t日本語\u3000العربية 🎉"
    with local.open() as broker:
        broker.publish("orders", text)
    assert seen(local, "consume", "orders", "-o", "raw") == text + "\n"


@pytest.mark.parametrize(
    "line",
    [
        ["consume", HOSTILE],
        ["consume", "orders", "--group", HOSTILE],
        ["consume", "orders", "--from-time", HOSTILE],
        ["consume", "orders", f"--{HOSTILE}"],
        [HOSTILE],
        ["publish", "orders", "x", "--header", HOSTILE.replace("=", "")],
        ["topic", "show", HOSTILE],
        ["topic", "delete", HOSTILE],
        ["check", f"/nowhere/{HOSTILE}"],
        ["serve", f"/dev/null/{HOSTILE}"],
        ["serve", "--config", f"/nowhere/{HOSTILE}"],
        ["config", "show", "--config", f"/nowhere/{HOSTILE}"],
        ["config", "check", f"/nowhere/{HOSTILE}"],
        ["worker", HOSTILE],
    ],
)
def test_errors_are_not_obeyed_either(local: Command, line: list[str]) -> None:
    local.ok("publish", "orders", "x")
    assert r"\x1b" in seen(local, *line)


def test_a_check_draws_the_names_of_files_as_they_are(local: Command, tmp_path: Path) -> None:
    with local.open() as broker:
        broker.create_topic("orders", retention_age="0s", archive=str(tmp_path / f"[/red]{HOSTILE}"))
        broker.publish("orders", "old")
        broker.settle()
        broker.retain()
    (segment,) = (tmp_path / f"[/red]{HOSTILE}").rglob("*.parquet")
    segment.write_bytes(b"damaged")
    shown = seen(local, "check", local.environment["PENSTOCK_DIR"])
    assert "[/red]ok" + WRITTEN in shown and "damaged: 1 problem" in shown
    said = json.loads(seen(local, "check", local.environment["PENSTOCK_DIR"], "-o", "json"))
    assert HOSTILE in said["found"]["problems"][0]["file"]


def test_a_worker_logs_what_its_functions_say_without_obeying_it(
    local: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop.py").write_text(
        "import penstock\nworker = penstock.Worker()\n@worker.subscribe('orders', 'kitchen')\n"
        "def cook(message):\n    raise ValueError(message.value.decode())\n"
    )
    local.ok("publish", "orders", HOSTILE)
    monkeypatch.chdir(tmp_path)
    shown = on_terminal("worker", "shop:worker", "--dir", local.environment["PENSTOCK_DIR"], until="x1b")
    assert not [sign for sign in OBEYED if sign in shown] and WRITTEN in shown


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_server_logs_to_a_terminal_without_obeying_what_it_logs(tmp_path: Path, form: str) -> None:
    shown = on_terminal(
        *("serve", tmp_path / HOSTILE, "--log-format", form, "--native-port", "0", "--http-port", "off"),
        *("--line-port", "off"),
        until="Ctrl-C",
    )
    assert not [sign for sign in OBEYED if sign in shown] and WRITTEN in shown
    assert ("\\x9b31m" if form == "text" else "\\u009b31m") in shown


def test_commands_print_through_one_place_only() -> None:
    folder = Path(penstock.cli.__file__).parent
    printing = {
        f"{file.relative_to(folder)}: {ast.unparse(node.func)}"
        for file in folder.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func)
        in ("print", "typer.echo", "typer.secho", "Console", "sys.stdout.write", "sys.stderr.write")
    }
    assert printing == {"terminal.py: typer.echo", "terminal.py: Console", "output.py: typer.echo"}
