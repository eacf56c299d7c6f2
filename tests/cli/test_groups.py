"""`penstock group`, `penstock delayed` and `penstock schedule`."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime

import pytest

from tests.cli.harness import Command


@pytest.fixture
def orders(command: Command) -> Command:
    """A topic of two partitions with ten messages in each, of which a group has acked four."""
    with command.open() as broker:
        broker.create_topic("orders", partitions=2)
        for number in range(20):
            broker.publish("orders", str(number), partition=number % 2)
    command.ok("consume", "orders", "--group", "kitchen", "--max", 4)
    return command


# Groups.


def shown(command: Command, *arguments: object) -> dict[str, object]:
    answer: dict[str, object] = json.loads(command.ok("group", *arguments, "-o", "json"))
    return answer


def test_show_tells_what_retention_took_from_a_group(command: Command) -> None:
    with command.open() as broker:
        broker.create_topic("orders", retention_age=0)
        broker.create_group("orders", "kitchen")
        broker.publish_many("orders", ["x"] * 3)
        broker.settle()
        time.sleep(0.001)  # which makes them older than no time at all
        assert broker.retain() == 2  # and the events
    lines = command.ok("group", "show", "orders", "kitchen").splitlines()
    assert lines[0] == "group kitchen of orders: lag 0 of 3"
    assert lines[1] == "3 of them were removed before they were acked, and are in no lag"
    assert shown(command, "show", "orders", "kitchen")["lost"] == 3


def test_a_group_is_paused_and_resumed_and_says_so(orders: Command) -> None:
    before = orders.ok("group", "list").splitlines()[0]
    lines = orders.ok("group", "pause", "orders", "kitchen").splitlines()
    assert lines[1] == "settings: paused"
    assert orders.ok("group", "list").splitlines()[0].split() == [*before.split(), "settings"]
    assert orders.ok("group", "list").splitlines()[1].split()[-1] == "paused"
    assert orders.ok("consume", "orders", "--group", "kitchen", "--max", 1).strip() == ""
    assert shown(orders, "resume", "orders", "kitchen")["settings"] == {}
    assert orders.ok("consume", "orders", "--group", "kitchen", "--max", 1).strip() != ""
    assert "settings" not in orders.ok("group", "list")
    assert "no group 'nope'" in orders.refused("group", "pause", "orders", "nope")


def test_list_and_show_tell_the_lag(orders: Command) -> None:
    orders.ok("publish", "mail", "x")
    orders.ok("consume", "mail", "--group", "sender")
    rows = [line.split()[:5] for line in orders.ok("group", "list").splitlines()[1:]]
    assert rows == [["mail", "sender", "0", "0", "0"], ["orders", "kitchen", "0", "16", "16"]]
    assert [group["name"] for group in json.loads(orders.ok("group", "list", "orders", "-o", "json"))] == ["kitchen"]
    group = shown(orders, "show", "orders", "kitchen")
    assert (group["lag"], group["acked"], group["published"], group["members"]) == (16, 4, 20, [])
    assert "group kitchen of orders: lag 16 of 20" in orders.ok("group", "show", "orders", "kitchen")


def test_S6_list_and_show_tell_the_lag_of_a_reader_that_keeps_its_own_position(orders: Command) -> None:
    with orders.open() as broker:
        broker.checkpoint_group("orders", "spark", {0: 9, 1: 3})
    rows = [line.split()[:5] for line in orders.ok("group", "list").splitlines()[1:]]
    assert rows == [["orders", "kitchen", "0", "16", "16"], ["orders", "spark", "checkpoint", "8", "8"]]
    group = shown(orders, "show", "orders", "spark")
    assert (group["kind"], group["lag"], group["positions"]) == ("checkpoint", 8, [9, 3])
    assert "no consumers: it shows how far a reader is" in orders.ok("group", "show", "orders", "spark")


@pytest.mark.parametrize(
    ("to", "lag"), [("earliest", 20), ("latest", 0), ("7", 6), ("1h ago", 20), ("now", 0), ("2020-01-01T00:00Z", 20)]
)
def test_seek_to_every_kind_of_position(local: Command, to: str, lag: int) -> None:
    with local.open() as broker:
        broker.create_topic("orders", partitions=2)
        for number in range(20):
            broker.publish("orders", str(number), partition=number % 2)
        broker.create_group("orders", "kitchen")
    assert shown(local, "seek", "orders", "kitchen", "--to", to)["lag"] == lag


def test_seek_one_partition(orders: Command) -> None:
    orders.ok("group", "seek", "orders", "kitchen", "--to", "latest")
    assert shown(orders, "seek", "orders", "kitchen", "--to", "3", "--partition", 1)["lag"] == 7
    assert "position" in orders.ok("group", "seek", "orders", "kitchen", "--to", "earliest")


def test_delete_forgets_a_group(orders: Command) -> None:
    assert orders.ok("group", "delete", "orders", "kitchen") == "the group kitchen of orders is forgotten\n"
    assert orders.ok("group", "list") == "there are no groups\n"
    assert "kitchen" in orders.refused("group", "show", "orders", "kitchen")


def test_a_group_with_consumers_is_shown_with_them_and_not_deleted(remote: Command) -> None:
    remote.ok("publish", "orders", "x")
    with remote.open() as broker, broker.consumer("orders", "kitchen", name="kim"):
        assert "kim" in remote.ok("group", "show", "orders", "kitchen")
        assert "kitchen" in remote.refused("group", "delete", "orders", "kitchen")
    remote.ok("group", "delete", "orders", "kitchen")


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (["seek", "orders", "kitchen", "--to", "sometime"], "'sometime' is not a point in time", 2),
        (["seek", "orders", "kitchen", "--to", "999"], "offset 999 is not in orders/0", 2),
        (["seek", "orders", "kitchen"], "Missing option '--to'", 2),
        (["seek", "orders", "kitchen", "--to", "latest", "--partition", "9"], "orders has no partition 9", 2),
        (["seek", "orders", "nobody", "--to", "latest"], "nobody", 1),
        (["show", "nothing", "kitchen"], "'nothing'", 1),
        (["list", "nothing"], "'nothing'", 1),
    ],
)
def test_what_cannot_be_done_to_a_group_is_refused(local: Command, arguments: list[str], said: str, code: int) -> None:
    local.ok("publish", "orders", "x")
    local.ok("consume", "orders", "--group", "kitchen")
    assert said in local.refused("group", *arguments, code=code)


# Delayed messages.


def test_delayed_messages_are_listed_moved_and_cancelled(command: Command) -> None:
    command.ok("publish", "later", "b", "--delay", "2h")
    command.ok("publish", "later", "a", "--delay", "1h")
    command.ok("publish", "later", "now")
    assert [row["id"] for row in json.loads(command.ok("delayed", "list", "later", "-o", "json"))] == [
        "later/0/1",
        "later/0/0",
    ]
    assert command.ok("delayed", "list", "later", "--limit", 1).splitlines()[1].startswith("later/0/1  ")
    answer = json.loads(command.ok("delayed", "reschedule", "later/0/0", "--delay", "10m", "-o", "json"))
    assert abs(datetime.fromisoformat(answer["due_at"]).timestamp() - time.time() - 600) < 60
    when = datetime.fromtimestamp(int(time.time()) + 60, UTC).isoformat()
    assert when[:19].replace("T", " ") in command.ok("delayed", "reschedule", "later/0/1", "--at", when)
    assert command.ok("delayed", "cancel", "later/0/0", "later/0/1") == (
        "later/0/0 is cancelled\nlater/0/1 is cancelled\n"
    )
    assert command.ok("delayed", "list", "later") == "nothing is delayed\n"


def test_what_is_not_delayed_cannot_be_cancelled_or_moved(command: Command) -> None:
    command.ok("publish", "orders", "now")
    assert "penstock trace orders/0/0" in command.refused("delayed", "cancel", "orders/0/0")
    assert "is not delayed" in command.refused("delayed", "reschedule", "orders/0/0", "--delay", "1s")
    assert "is not a message id" in command.refused("delayed", "cancel", "orders", code=2)
    assert "orders/0/7" in command.refused("delayed", "cancel", "orders/0/7")
    assert "give --delay or --at" in command.refused("delayed", "reschedule", "orders/0/0", code=2)


# Schedules.


def test_schedules_are_added_listed_paused_resumed_and_removed(command: Command) -> None:
    command.ok("publish", "orders", "so that the directory is there")
    assert command.ok("schedule", "list") == "there are no schedules\n"
    made = command.ok(
        "schedule", "add", "menu", "30 8 * * *", "kitchen", "print the menu", "--zone", "Asia/Tokyo", "--key", "k"
    )
    assert made.startswith("menu fires next at ") and made.endswith(" 23:30:00.000Z\n")
    (listed,) = json.loads(command.ok("schedule", "list", "-o", "json"))
    assert (listed["name"], listed["cron"], listed["zone"]) == ("menu", "30 8 * * *", "Asia/Tokyo")
    assert (listed["message"]["value"], listed["message"]["key"]) == ("print the menu", "k")
    assert command.ok("schedule", "pause", "menu") == "menu is paused\n"
    assert "paused" in command.ok("schedule", "list")
    assert json.loads(command.ok("schedule", "resume", "menu", "-o", "json"))["paused"] is False
    assert command.ok("schedule", "remove", "menu") == "menu is removed\n"
    assert "there is no schedule 'menu'" in command.refused("schedule", "remove", "menu")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["menu", "every day", "kitchen", "x"], "every day"),
        (["menu", "* * * * *", "kitchen", "x", "--zone", "Mars/Base"], "Mars/Base"),
        (["a b", "* * * * *", "kitchen", "x"], "'a b' is not the name of a schedule"),
        (["menu", "* * * * *", "kitchen", "x", "--priority", "top"], "'top' is not a priority"),
        (["menu", "* * * * *", "kitchen"], "Missing argument 'VALUE'"),
    ],
)
def test_a_schedule_that_can_never_fire_is_refused(local: Command, arguments: list[str], said: str) -> None:
    local.ok("publish", "orders", "x")
    assert said in local.refused("schedule", "add", *arguments, code=2)
