"""`penstock trace`, `penstock dlq` and `penstock replay`."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest
import yaml

from tests.cli.harness import PENSTOCK, Command
from tests.server.harness import until


@pytest.fixture
def fails(command: Command) -> Command:
    """A topic in which three messages died, two of them for want of milk, and one was acked at the second attempt."""
    with command.open() as broker:
        broker.create_topic("orders", max_deliveries=2, retry_backoff="1ms")
        broker.publish_many("orders", ["latte", "mocha", "tea", "cake"])
        with broker.consumer("orders", "kitchen", name="kim") as consumer:
            left = 4
            while left:
                for message in consumer.receive(wait=5):
                    if message.value == b"cake" and message.failures:
                        message.ack()
                        left -= 1
                        continue
                    left -= message.failures
                    message.fail("No milk" if message.value != b"tea" else "timeout\x1b[31m")
    return command


# Trace.


def test_a_trace_is_drawn_with_gaps_attempts_and_latency(fails: Command) -> None:
    drawn = fails.ok("trace", "orders/0/3")
    rows = [line for line in drawn.splitlines() if "─" in line]
    assert [row.split("─ ")[1].split()[0] for row in rows] == ["PUBLISHED", "DELIVERED", "FAILED", "DELIVERED", "ACKED"]
    assert "kitchen" in rows[1] and "kim" in rows[1] and " +" in rows[1] and "No milk" in rows[2]
    assert rows[-1].split("└─ ")[1].split() == ["ACKED", "kitchen", "kim", "2"]
    assert "attempts: 2 (kitchen 2)" in drawn and "total latency: " in drawn and "retained until 20" in drawn


def test_a_trace_for_programs(fails: Command) -> None:
    answer = json.loads(fails.ok("trace", "orders/0/3", "-o", "json"))
    assert [event["kind"] for event in answer["events"]] == ["published", "delivered", "failed", "delivered", "acked"]
    assert answer["attempts"] == {"kitchen": 2} and answer["message"]["value"] == "cake"
    gaps = [event["since_s"] for event in answer["events"]]
    assert gaps[0] is None and abs(sum(gaps[1:]) - answer["latency_s"]) < 0.001
    assert answer["events"][2]["until"] is not None
    assert yaml.safe_load(fails.ok("trace", "orders/0/3", "-o", "yaml")) == answer
    assert json.loads(fails.ok("trace", "orders/0/0", "-o", "json"))["latency_s"] is None


def test_a_trace_of_a_delayed_message_and_its_parent(command: Command) -> None:
    command.ok("publish", "orders", "x", "--delay", "1h", "--header", "traceparent=00-4bf9-00f0-01", "--key", "alex")
    drawn = command.ok("trace", "orders/0/0")
    assert "SCHEDULED" in drawn and "until 20" in drawn and "traceparent 00-4bf9-00f0-01" in drawn
    assert "key alex" in drawn and "attempts: 0\n" in drawn and "total latency" not in drawn


def test_no_trace_of_what_never_was(fails: Command) -> None:
    assert "is not a message id" in fails.refused("trace", "orders", code=2)
    assert "there is no message orders/0/77" in fails.refused("trace", "orders/0/77")
    assert "orders/9/0" in fails.refused("trace", "orders/9/0")
    assert "did you mean orders?" in fails.refused("trace", "ordes/0/0")


# Dead letters.


def letters(command: Command, *options: object) -> list[str]:
    return [letter["value"] for letter in json.loads(command.ok("dlq", "list", "orders", *options, "-o", "json"))]


def test_dead_letters_are_listed_by_cause_and_group(fails: Command) -> None:
    assert letters(fails) == ["latte", "mocha", "tea"]
    assert letters(fails, "--cause", "MILK") == ["latte", "mocha"]
    assert letters(fails, "--cause", "milk", "--limit", 1) == ["latte"]
    assert letters(fails, "--group", "kitchen") == ["latte", "mocha", "tea"]
    assert letters(fails, "--group", "others") == []
    table = fails.ok("dlq", "list", "orders.dlq")
    assert "orders.dlq/0/0  orders/0/0  kitchen" in table and r"timeout\x1b[31m" in table
    assert fails.ok("dlq", "list", "orders", "--cause", "nothing") == "there are no dead letters\n"


def test_one_dead_letter_with_its_history(fails: Command) -> None:
    shown = fails.ok("dlq", "show", "orders.dlq/0/0")
    assert "origin" in shown and "orders/0/0" in shown and "delivered kim" in shown and shown.endswith("  latte\n")
    answer = json.loads(fails.ok("dlq", "show", "orders.dlq/0/0", "-o", "json"))
    assert (answer["cause"], answer["failures"], answer["encoding"]) == ("No milk", 2, "utf-8")
    assert answer["died_at"].endswith("Z")
    assert "there is no dead letter orders.dlq/0/9" in fails.refused("dlq", "show", "orders.dlq/0/9")
    assert "is not a message id" in fails.refused("dlq", "show", "7", code=2)


def test_redrive_single_letters_by_their_ids(fails: Command) -> None:
    latte, mocha, tea = (f"orders.dlq/0/{offset}" for offset in range(3))
    assert fails.ok("dlq", "redrive", "orders", mocha, "--dry-run") == "1 dead letter would be redriven\n"
    assert fails.ok("dlq", "redrive", "orders", tea, latte) == "2 dead letters chosen: 2 sent back, 0 copied\n"
    assert letters(fails) == ["mocha"]
    assert latte in fails.refused("dlq", "redrive", "orders", mocha, latte)  # and nothing was done
    assert letters(fails) == ["mocha"]
    assert "is no dead letter of orders" in fails.refused("dlq", "redrive", "orders", "others.dlq/0/0", code=2)
    assert "by id, or by --cause" in fails.refused("dlq", "redrive", "orders", mocha, "--cause", "x", code=2)


def test_redrive_some_and_only_once(fails: Command) -> None:
    dry = fails.ok("dlq", "redrive", "orders", "--cause", "milk", "--dry-run")
    assert dry == "2 dead letters would be redriven\n" and len(letters(fails)) == 3
    assert json.loads(fails.ok("dlq", "redrive", "orders", "--cause", "milk", "-o", "json")) == {
        "selected": 2,
        "redriven": 2,
        "copied": 0,
        "skipped": 0,
        "dry_run": False,
    }
    assert letters(fails) == ["tea"]
    assert fails.ok("consume", "orders", "--group", "kitchen", "-o", "raw") == "latte\nmocha\n"
    assert fails.ok("dlq", "redrive", "orders", "--to", "by-hand", "--rate", 100) == (
        "1 dead letter chosen: 0 sent back, 1 copied\n"
    )
    assert fails.ok("consume", "by-hand") == "by-hand/0/0 tea\n"


def test_purge_needs_a_yes(fails: Command) -> None:
    assert "Purge 2 dead letters of orders?" in fails.refused("dlq", "purge", "orders", "--cause", "milk", code=2)
    assert fails.ok("dlq", "purge", "orders", "--cause", "milk", "--yes") == "purged 2 dead letters\n"
    assert letters(fails) == ["tea"]
    assert "'nothing'" in fails.refused("dlq", "list", "nothing")
    assert "rate" in fails.refused("dlq", "redrive", "orders", "--rate", 0, code=2)


# Replay.


def test_replay_into_a_group(fails: Command) -> None:
    told = fails.ok("replay", "orders", "--to-group", "again", "--from-time", "1h ago", "--to-offset", 3)
    assert told == "3 messages for the group again: penstock consume orders --group again\n"
    assert fails.ok("consume", "orders", "--group", "again", "-o", "raw") == "latte\nmocha\ntea\n"
    assert "'again'" in fails.refused("replay", "orders", "--to-group", "again")
    answer = json.loads(
        fails.ok("replay", "orders", "--to-group", "part", "--partition", 0, "--rate", 1000, "-o", "json")
    )
    assert answer == {"topic": "orders", "group": "part", "count": 4}


def test_replay_into_a_file(fails: Command, tmp_path: Path) -> None:
    file = tmp_path / "orders.jsonl"
    assert fails.ok("replay", "orders", "--output-file", file, "--from-offset", 1) == f"3 messages in {file}\n"
    records = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(record["id"], record["value"]) for record in records] == [
        ("orders/0/1", "mocha"),
        ("orders/0/2", "tea"),
        ("orders/0/3", "cake"),
    ]
    done = fails("replay", "orders", "--output-file", "-", "--to-offset", 1)
    assert json.loads(done.out)["value"] == "latte" and done.err == "note: 1 message\n"


def test_a_file_is_there_when_it_is_complete(local: Command, tmp_path: Path) -> None:
    with local.open() as broker:
        broker.publish_many("orders", [str(number) for number in range(1000)])
    file, unfinished = tmp_path / "orders.jsonl", tmp_path / "orders.jsonl.part"
    with local.start("replay", "orders", "--output-file", file, "--rate", 10) as child:
        while not unfinished.exists():
            assert child.poll() is None
        child.send_signal(signal.SIGINT)
        assert child.wait(60) == 130
    assert not file.exists() and not unfinished.exists()


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        ([], "give --to-group or --output-file", 2),
        (["--to-group", "a", "--output-file", "f"], "give --to-group or --output-file", 2),
        (["--to-group", "a b"], "'a b' is not the name of a group", 2),
        (["--to-group", "a", "--from-time", "x"], "'x' is not a point in time", 2),
        (["--to-group", "a", "--from-time", "now", "--to-time", "1h ago"], "ends before it begins", 2),
        (["--to-group", "a", "--partition", "5"], "orders has no partition 5", 2),
        (["--output-file", "/does/not/exist/f"], "No such file or directory", 1),
        (["--output-file", "/proc"], "/proc", 2),
    ],
)
def test_a_replay_to_nowhere_is_refused(local: Command, arguments: list[str], said: str, code: int) -> None:
    local.ok("publish", "orders", "x")
    assert said in local.refused("replay", "orders", *arguments, code=code)


@pytest.fixture
def many_letters(command: Command) -> Command:
    """A topic with thirty dead letters."""
    with command.open() as broker:
        broker.create_topic("orders", max_deliveries=1)
        broker.publish_many("orders", [str(number) for number in range(30)])
        with broker.consumer("orders", "kitchen") as consumer:
            consumer.fail(consumer.receive(100, wait=5), "no milk")
            until(lambda: len(broker.dead_letters("orders")) == 30)
    return command


def test_a_redrive_shows_its_progress_on_a_terminal(many_letters: Command) -> None:
    asked = f"import pty, sys; sys.exit(pty.spawn(['{PENSTOCK}', 'dlq', 'redrive', 'orders', '--rate', '15']) >> 8)"
    done = many_letters.shell(f'python -c "{asked}"')
    assert done.code == 0 and re.search(r"redriving \d+ of 30", done.out), done
    assert "30 dead letters chosen: 30 sent back, 0 copied" in done.out


def test_an_interrupted_redrive_goes_on_where_it_was(many_letters: Command) -> None:
    with many_letters.start("dlq", "redrive", "orders", "--rate", 5) as child:
        assert child.stderr is not None
        until(lambda: many_letters.seen(lambda broker: len(list(broker.dead_letters("orders"))) < 29), "two steps")
        child.send_signal(signal.SIGINT)
        assert child.stderr.read().startswith(b"note: interrupted: what was sent back stays so")
        assert child.wait(60) == 130
    left = len(letters(many_letters))
    assert 0 < left < 30
    report = json.loads(many_letters.ok("dlq", "redrive", "orders", "-o", "json"))
    assert (report["selected"], report["redriven"]) == (left, left)
    assert len(many_letters.ok("consume", "orders", "--group", "kitchen").splitlines()) == 30
