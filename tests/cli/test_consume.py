"""`penstock consume`: from the log, and for a group, with readers that leave and people who press Ctrl-C."""

from __future__ import annotations

import base64
import json
import signal
import time
from pathlib import Path

import pytest
import yaml

from tests.cli.harness import TARGETS, Command, check_snapshots, publish_on_three_days


@pytest.fixture
def orders(command: Command) -> Command:
    """A topic with a hundred messages."""
    with command.open() as broker:
        broker.publish_many("orders", [f"order {number}" for number in range(100)])
    return command


def lag(command: Command, group: str = "kitchen") -> int:
    with command.open() as broker:
        return int(broker.group("orders", group).lag)


# The log.


def test_without_a_group_the_log_is_printed_and_nothing_changes(orders: Command) -> None:
    for _ in range(2):
        assert orders.ok("consume", "orders").splitlines() == [f"orders/0/{n} order {n}" for n in range(100)]
    with orders.open() as broker:
        assert broker.groups() == []


def test_a_window_of_the_log(orders: Command) -> None:
    assert orders.ok("consume", "orders", "--from-offset", 98) == "orders/0/98 order 98\norders/0/99 order 99\n"
    assert orders.ok("consume", "orders", 0, "--max", 1, "--from-offset", 7) == "orders/0/7 order 7\n"
    assert orders.ok("consume", "orders", "--from-time", "now") == ""
    assert orders.ok("consume", "orders", "--to-time", "1h ago") == ""
    assert len(orders.ok("consume", "orders", "--from-time", "1h ago", "--to-time", "now").splitlines()) == 100
    assert len(orders.ok("consume", "orders", "--from-time", time.time() - 60).splitlines()) == 100


def test_what_retention_moved_to_the_archive_comes_on_request(local: Command) -> None:
    with local.open() as broker:
        broker.create_topic("orders", retention_age="0s", archive="../cold")
        broker.publish("orders", "old")
        broker.settle()
        broker.retain()
        broker.publish("orders", "new")
    assert local.ok("consume", "orders") == "orders/0/1 new\n"
    assert local.ok("consume", "orders", "--include-deleted") == "orders/0/0 old\norders/0/1 new\n"
    assert local.ok("consume", "orders", "--group", "audit", "--include-deleted") == "orders/0/0 old\norders/0/1 new\n"


@pytest.mark.parametrize("place", ["directory", "server", "archive"])
def test_a_topic_is_printed_as_it_was_at_the_end_of_a_day(tmp_path: Path, place: str) -> None:
    publish_on_three_days(tmp_path / "data")
    target, path = ("directory", "cold") if place == "archive" else (place, "data")
    with TARGETS[target](tmp_path / path) as command:
        check_snapshots(command)
        if place == "archive":
            said = command.refused("consume", "orders", "-g", "again", "--from-snapshot", "2026-01-14", code=2)
            assert "an archive has no groups" in said
        else:
            again = command.ok("consume", "orders", "-g", "again", "--from-snapshot", "2026-01-14", "-o", "raw")
            assert sorted(again.splitlines()) == ["of 13", "of 13", "of 14", "of 14"]


def test_a_date_is_a_time_wherever_times_are_taken(command: Command) -> None:
    command.ok("publish", "orders", "x")
    assert command.ok("consume", "orders", "--from-time", "2026-01-14", "--to-time", "2999-12-31", "-o", "raw") == "x\n"
    assert command.ok("consume", "orders", "--to-time", "2026-01-14") == ""
    command.ok("replay", "orders", "--to-group", "again", "--from-time", "2026-01-14")
    assert "not a point in time" in command.refused("consume", "orders", "--from-time", "2026-02-30", code=2)


def test_the_log_is_followed_until_ctrl_c(orders: Command) -> None:
    with orders.start("consume", "orders", "--follow", "--from-offset", "98") as child:
        assert child.stdout is not None and child.stderr is not None
        lines = [child.stdout.readline() for _ in range(2)]
        child.send_signal(signal.SIGINT)
        assert child.wait(60) == 130
        assert lines == [b"orders/0/98 order 98\n", b"orders/0/99 order 99\n"]
        assert (child.stdout.read(), child.stderr.read()) == (b"", b"")


def test_following_the_log_sees_what_others_publish(remote: Command) -> None:
    remote.ok("topic", "create", "orders", "--partitions", 2)
    with remote.start("consume", "orders", "--follow", "--max", 3, "--from-time", "1m ago", "-o", "raw") as child:
        assert child.stdout is not None
        for number in range(3):
            remote.ok("publish", "orders", number, "--partition", number % 2)
            assert child.stdout.readline() == f"{number}\n".encode()
        assert child.wait(60) == 0


# Formats.


def test_every_format(command: Command) -> None:
    with command.open() as broker:
        broker.publish("orders", "café\x1b[31m", key=b"\xff", headers={"till": "7"}, priority=3)
        broker.publish("orders", b"\xff\x00", key="kim")
    assert command.shell("penstock consume orders -o raw | od -An -tx1").out.split() == [
        f"{byte:02x}" for byte in "café\x1b[31m\n".encode() + b"\xff\x00\n"
    ]
    first, second = map(json.loads, command.ok("consume", "orders", "-o", "json").splitlines())
    assert (first["value"], first["encoding"], first["headers"]) == ("café\x1b[31m", "utf-8", {"till": "7"})
    assert (first["key"], first["key_encoding"]) == (base64.b64encode(b"\xff").decode(), "base64")
    assert (second["value"], second["encoding"]) == (base64.b64encode(b"\xff\x00").decode(), "base64")
    assert second["id"] == "orders/0/1" and second["timestamp"].endswith("Z") and second["key"] == "kim"
    assert list(yaml.safe_load_all(command.ok("consume", "orders", "-o", "yaml"))) == [first, second]
    heading, *rows = command.ok("consume", "orders", "-o", "table").splitlines()
    assert heading.split() == ["time", "id", "pri", "key", "value"]
    assert rows[0].endswith(r"café\x1b[31m") and "base64:/w==" in rows[0] and rows[1].endswith("base64:/wA=")
    assert command.ok("consume", "orders").splitlines()[1] == "orders/0/1 base64:/wA="


def test_the_environment_chooses_the_format(orders: Command) -> None:
    done = orders.shell("PENSTOCK_OUTPUT=json penstock consume orders --max 1")
    assert json.loads(done.out)["value"] == "order 0"


# Groups.


def test_a_group_gets_each_message_once(orders: Command) -> None:
    assert orders.ok("consume", "orders", "--group", "kitchen", "--max", 3) == (
        "orders/0/0 order 0\norders/0/1 order 1\norders/0/2 order 2\n"
    )
    assert lag(orders) == 97
    rest = orders.ok("consume", "orders", "-g", "kitchen", "-o", "json").splitlines()
    assert [json.loads(line)["offset"] for line in rest] == list(range(3, 100))
    assert {json.loads(line)["deliveries"] for line in rest} == {1}
    assert orders.ok("consume", "orders", "-g", "kitchen") == ""
    assert lag(orders) == 0


def test_the_best_lanes_come_first(command: Command) -> None:
    command.ok("publish", "orders", "slow", "--priority", "low")
    command.ok("publish", "orders", "quick", "--priority", "high")
    assert command.ok("consume", "orders", "-g", "kitchen", "-o", "raw") == "quick\nslow\n"


def test_no_ack_looks_and_gives_back(orders: Command) -> None:
    assert len(orders.ok("consume", "orders", "-g", "kitchen", "--no-ack").splitlines()) == 100
    assert orders.ok("consume", "orders", "-g", "kitchen", "--no-ack", "-n", 1, "-o", "raw") == "order 0\n"
    assert lag(orders) == 100
    (line,) = orders.ok("consume", "orders", "-g", "kitchen", "-n", 1, "-o", "json").splitlines()
    assert (json.loads(line)["deliveries"], json.loads(line)["failures"]) == (3, 0)


def test_a_window_with_a_group_is_a_replay_into_a_new_group(orders: Command) -> None:
    orders.ok("consume", "orders", "--group", "kitchen")
    window = ("--from-time", "1h ago", "--to-time", "now")
    assert len(orders.ok("consume", "orders", "--group", "replay-test", *window).splitlines()) == 100
    assert "replay-test" in orders.refused("consume", "orders", "--group", "replay-test", *window)
    assert orders.ok("consume", "orders", 0, "-g", "end", "--from-offset", 99) == "orders/0/99 order 99\n"
    assert lag(orders) == 0


def test_following_waits_for_what_falls_due(command: Command) -> None:
    command.ok("publish", "orders", "now")
    command.ok("publish", "orders", "soon", "--delay", "1s")
    done = command.shell("penstock consume orders --group kitchen --follow --max 2 -o raw")
    assert (done.code, done.out) == (0, "now\nsoon\n"), done


# Readers that leave, Ctrl-C.


@pytest.mark.parametrize("count", [1, 7])
def test_a_reader_that_leaves_takes_only_what_it_read(orders: Command, count: int) -> None:
    done = orders.shell(f"penstock consume orders --group kitchen -o raw | head -{count}")
    assert (done.code, done.err) == (0, ""), done
    assert done.out.splitlines() == [f"order {number}" for number in range(count)]
    rest = orders.ok("consume", "orders", "--group", "kitchen", "-o", "json").splitlines()
    first = json.loads(rest[0])
    assert (len(rest), first["offset"], first["failures"]) == (100 - count, count, 0)


def test_a_reader_that_leaves_at_once_takes_nothing(orders: Command) -> None:
    done = orders.shell("penstock consume orders --group kitchen | true")
    assert (done.code, done.err) == (0, ""), done
    assert lag(orders) == 100


@pytest.mark.parametrize("line", ["consume orders", "consume orders -o json", "topic list", "status"])
def test_a_closed_pipe_is_no_error(orders: Command, line: str) -> None:
    done = orders.shell(f"penstock {line} | true")
    assert (done.code, done.err) == (0, ""), done


def test_ctrl_c_loses_nothing_and_repeats_only_what_was_not_taken(orders: Command) -> None:
    with orders.start("consume", "orders", "--group", "kitchen", "--follow", bufsize=0) as child:
        assert child.stdout is not None and child.stderr is not None
        taken = child.stdout.read(20)  # the first message, and no more is written before it was taken
        child.send_signal(signal.SIGINT)
        taken += child.stdout.read()
        assert (child.wait(60), child.stderr.read()) == (130, b"")
    seen = [int(line.rsplit(b" ", 1)[1]) for line in taken.splitlines()]
    rest = [int(line.rsplit(" ", 1)[1]) for line in orders.ok("consume", "orders", "-g", "kitchen").splitlines()]
    assert seen == list(range(len(seen))) and set(seen) | set(rest) == set(range(100))
    assert len(set(seen) & set(rest)) <= 1


def test_ctrl_c_while_waiting_leaves_the_group_in_order(orders: Command) -> None:
    with orders.start("consume", "orders", "--group", "kitchen", "--follow", "-o", "raw") as child:
        assert child.stdout is not None
        assert [child.stdout.readline() for _ in range(100)][-1] == b"order 99\n"
        time.sleep(0.5)
        child.send_signal(signal.SIGINT)
        assert child.wait(60) == 130
    assert lag(orders) == 0


def test_a_slow_reader_does_not_make_messages_come_again(command: Command) -> None:
    with command.open() as broker:
        broker.create_topic("orders", visibility_timeout="500ms", max_deliveries=1)
        broker.publish_many("orders", ["one", "two"])
    done = command.shell("penstock consume orders --group kitchen -o raw | (sleep 2; cat)")
    assert (done.code, done.out, done.err) == (0, "one\ntwo\n", ""), done
    assert lag(command) == 0


def test_a_full_disk_behind_standard_output_acks_nothing(orders: Command) -> None:
    done = orders.shell("penstock consume orders --group kitchen > /dev/full")
    assert done.code == 1 and done.err.startswith("error: No space left on device"), done
    assert lag(orders) == 100


def test_only_the_name_that_was_asked_for_is_likened_to_others(command: Command) -> None:
    command.ok("topic", "create", "vis")  # as the `is` of an error
    said = command.refused("consume", "nosuch")
    assert "'nosuch'" in said and "did you mean" not in said


def test_unknown_topics_are_refused_and_the_nearest_name_is_told(orders: Command) -> None:
    assert "'nothing'" in orders.refused("consume", "nothing")
    assert "did you mean orders?" in orders.refused("consume", "order")
    assert "did you mean orders?" in orders.refused("consume", "order", "--group", "kitchen")
    assert "orders has no partition 7" in orders.refused("consume", "orders", 7)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["x"], "'PARTITION'"),
        (["--from-time", "yesterday"], "'yesterday' is not a point in time"),
        (["--to-time", "3x ago"], "'3x' is not a duration"),
        (["--from-offset", "-1"], "--from-offset"),
        (["--max", "0"], "--max"),
        (["--group", "a b"], "'a b' is not the name of a group"),
        (["--no-ack"], "--no-ack is for groups"),
        (["--follow", "--to-time", "now"], "--follow never ends"),
        (["-g", "k", "--follow", "--no-ack"], "--follow is for a group that goes on"),
        (["-g", "k", "--follow", "--from-time", "now"], "--follow is for a group that goes on"),
        ([0, "-g", "k"], "a group gets messages of all partitions"),
        (["-o", "xml"], "--output"),
        (["--folow"], "did you mean --follow?"),
    ],
)
def test_what_makes_no_sense_is_refused(local: Command, arguments: list[object], said: str) -> None:
    local.ok("publish", "orders", "x")
    assert said in local.refused("consume", "orders", *arguments, code=2)


def test_reading_the_log_tells_what_is_cancelled_or_not_due_yet(command: Command) -> None:
    with command.open() as broker:
        broker.create_topic("mail", partitions=2)
        for partition in (0, 1):
            broker.publish("mail", "now", partition=partition)
            broker.cancel_delayed(broker.publish("mail", "never", delay="1h", partition=partition))
        broker.publish("mail", "later", delay="1h", partition=1)
        broker.publish("mail", "long due", deliver_at=time.time() - 60)
    done = command("consume", "mail", "-o", "raw")
    assert sorted(done.out.split("\n")) == ["", "later", "long due", "never", "never", "now", "now"]
    assert "2 messages of these cancelled: no group gets them" in done.err
    assert "1 message of these not due yet: no group gets them before" in done.err
    assert command("consume", "mail", "--max", 1, "-o", "raw").err == ""
