"""`penstock topic` and `penstock status`."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.cli.harness import PENSTOCK, Command


def config(command: Command, topic: str) -> dict[str, object]:
    shown: dict[str, object] = json.loads(command.ok("topic", "show", topic, "-o", "json"))["config"]
    return shown


def test_create_with_flags_and_any_other_option(command: Command) -> None:
    command.ok(
        "topic", "create", "orders", "--partitions", 4, "--retention", "7d", "--retention-bytes", "10GB",
        "--visibility-timeout", "1m", "--max-deliveries", 5, "--lanes", "weighted", "--order", "key",
        "--set", "lane_weights=high=5,192=2", "--set", "protect-unacked=yes", "--set", "max_backlog=1000",
        "--set", "dedupe_window=90",
    )  # fmt: skip
    made = config(command, "orders")
    assert made["partitions"] == 4 and made["retention_age"] == 604800.0 and made["retention_bytes"] == 10**10
    assert made["visibility_timeout"] == 60.0 and made["max_deliveries"] == 5
    assert made["lanes"] == "weighted" and made["order"] == "key" and made["lane_weights"] == [[64, 5], [192, 2]]
    assert made["protect_unacked"] is True and made["max_backlog"] == 1000 and made["dedupe_window"] == 90.0


def test_options_are_shown_as_they_are_written(command: Command) -> None:
    command.ok("topic", "create", "orders", "--set", 'lane_weights={"high": 5}')
    shown = [line.split() for line in command.ok("topic", "show", "orders").splitlines()]
    for option in (["retention_age", "7d"], ["lane_weights", "64=5"], ["archive", "none"], ["order", "lane"]):
        assert option in shown
    assert ["0", "0", "0", "0", "0", "B"] in shown


def test_set_changes_and_none_turns_off(command: Command) -> None:
    command.ok("topic", "create", "orders", "--retention", "1h")
    command.ok("topic", "set", "orders", "retention_age=30d", "max_deliveries=7", "max-backlog=5")
    assert (config(command, "orders")["retention_age"], config(command, "orders")["max_deliveries"]) == (2592000.0, 7)
    command.ok("topic", "set", "orders", "retention_age=none", "max_backlog=None")
    assert (config(command, "orders")["retention_age"], config(command, "orders")["max_backlog"]) == (None, None)


def test_list_counts_what_topics_hold(command: Command) -> None:
    with command.open() as broker:
        assert broker.topics() == []
    assert command.ok("topic", "list") == "there are no topics\n"
    command.ok("topic", "create", "orders", "-p", 3)
    command.ok("publish", "orders", "x", "--count", 1234)
    command.ok("publish", "mail", "y")
    assert [line.split()[:3] for line in command.ok("topic", "list").splitlines()] == [
        ["topic", "partitions", "messages"],
        ["mail", "1", "1"],
        ["orders", "3", "1,234"],
    ]
    listed = json.loads(command.ok("topic", "list", "-o", "json"))
    assert [(topic["name"], topic["partitions"], topic["messages"]) for topic in listed] == [
        ("mail", 1, 1),
        ("orders", 3, 1234),
    ]


def test_delete_takes_all_messages_and_needs_a_yes(command: Command) -> None:
    command.ok("publish", "orders", "x")
    assert "add --yes" in command.refused("topic", "delete", "orders", code=2)
    assert command.ok("topic", "delete", "orders", "--yes") == "orders is deleted, with 1 message\n"
    assert "'orders'" in command.refused("topic", "show", "orders")


@pytest.mark.parametrize(("answer", "code", "left"), [("n", 1, 1), ("y", 0, 0)])
def test_delete_asks_on_a_terminal(local: Command, answer: str, code: int, left: int) -> None:
    local.ok("publish", "orders", "x")
    asked = f"import pty, sys; sys.exit(pty.spawn(['{PENSTOCK}', 'topic', 'delete', 'orders']) >> 8)"
    done = local.shell(f'(sleep 1; echo {answer}) | python -c "{asked}"')
    assert done.code == code and "Delete orders with 1 message?" in done.out, done
    with local.open() as broker:
        assert len(broker.topics()) == left


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (["create", "orders"], "'orders' exists already", 1),
        (["create", "a/b"], "'a/b' is not a topic name", 2),
        (["create", "new", "--partitions", "0"], "partitions: '0' is not a whole number", 2),
        (["create", "new", "--retention", "soon"], "retention_age: 'soon' is not a duration", 2),
        (["create", "new", "--lanes", "round"], "'round' is not one of strict, weighted", 2),
        (["create", "new", "--set", "partitions"], "'partitions' is not an option: write name=value", 2),
        (["create", "new", "--set", "max_backlok=3"], "did you mean max_backlog?", 2),
        (["create", "new", "--set", "lane_weights=high=x"], "is not a mapping of priorities to weights", 2),
        (["create", "new", "--set", "lane_weights={"], "is not a mapping of priorities to weights", 2),
        (["create", "new", "--set", "order=up", "--set", "lanes=down"], "lanes: 'down' is not one of", 2),
        (["set", "orders"], "NAME=VALUE", 2),
        (["set", "orders", "partitions=2"], "partitions", 2),
        (["set", "order", "max_deliveries=2"], "did you mean orders?", 1),
        (["set", "orders", "max_deliverys=2"], "did you mean max_deliveries?", 2),
        (["show", "ordres"], "did you mean orders?", 1),
        (["shw", "orders"], "Did you mean 'show'?", 2),
        (["delete", "nothing", "--yes"], "there is no topic 'nothing'", 1),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_hint(local: Command, arguments: list[str], said: str, code: int) -> None:
    local.ok("publish", "orders", "x")
    assert said in local.refused("topic", *arguments, code=code)


# Status.


def test_status_shows_backlog_and_lag_the_worst_first(command: Command) -> None:
    command.ok("publish", "mail", "x", "--count", 3)
    command.ok("publish", "orders", "x", "--count", 2000)
    command.ok("consume", "mail", "--group", "sender", "--max", 1)
    command.ok("consume", "orders", "--group", "kitchen", "--max", 1)
    lines = [line.split() for line in command.ok("status").splitlines()]
    assert ["sync", "always"] in lines
    assert ["holds", "2", "topics,", "2", "partitions,", "2", "groups"] in lines
    topics = [line[0] for line in lines if line and line[-1] in ("1,999", "2")]
    assert topics == ["orders", "mail"]
    groups = [line[:4] for line in lines if line[1:2] in (["kitchen"], ["sender"])]
    assert groups == [["orders", "kitchen", "0", "1,999"], ["mail", "sender", "0", "2"]]
    answer = json.loads(command.ok("status", "-o", "json"))
    assert answer["broker"]["frozen"] is None and answer["broker"]["uptime_s"] >= 0
    assert [(topic["name"], topic["backlog"]) for topic in answer["topics"]] == [("orders", 1999), ("mail", 2)]
    assert [(group["name"], group["lag"]) for group in answer["groups"]] == [("kitchen", 1999), ("sender", 2)]
    assert yaml.safe_load(command.ok("status", "-o", "yaml"))["topics"] == answer["topics"]


def test_status_of_many_topics_stays_on_one_screen(local: Command) -> None:
    with local.open() as broker:
        for number in range(30):
            broker.publish(f"topic-{number:02}", "x")
    shown = local.ok("status")
    assert len(shown.splitlines()) < 40 and "and 18 topics more" in shown
    assert len(json.loads(local.ok("status", "-o", "json"))["topics"]) == 30
