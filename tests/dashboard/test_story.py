"""What people do with the dashboard, from the first message to its last trace."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from penstock import Message
from penstock.client import Client
from tests.dashboard.harness import Board, Served
from tests.server.harness import until


@pytest.fixture
def client(server: Served) -> Iterator[Client]:
    with server.client() as client:
        yield client


def test_a_message_is_published_seen_failed_redriven_and_its_trace_followed(board: Board, client: Client) -> None:
    client.create_topic("orders", max_deliveries=1)
    board.go("publish")
    board.fill("Topic", "orders")
    board.fill("Value", '{"item": "two coffees"}')
    board.fill("Key", "alex")
    board.click("Add a header")
    board.fill("Header name", "till")
    board.fill("Header value", "7")
    board.page.get_by_label("Priority").select_option("64")
    board.click("Publish", exact=True)
    board.follow("orders/0/0")
    board.see('"two coffees"')
    board.see("alex")

    board.go("topics", "orders", "messages")
    expect(board.rows("Newest messages")).to_have_count(1)
    expect(board.rows("Newest messages").first).to_contain_text("high")

    with client.consumer("orders", "kitchen", name="cook") as consumer:
        (message,) = consumer.receive(1, wait=10)
        assert (message.value, message.headers) == (b'{"item": "two coffees"}', {"till": "7"})
        message.fail("no milk")
        until(lambda: client.dead_letters("orders"))

        board.go("dead-letters")
        board.follow("orders")
        expect(board.rows("Causes")).to_have_count(1)
        expect(board.rows("Causes").first).to_contain_text("no milk")
        board.page.get_by_label("Select orders/0/0").check()
        board.open("Redrive selected")
        board.click("Redrive", exact=True)
        board.see("1 message redriven.")
        board.see("Nothing has died here")
        (again,) = consumer.receive(1, wait=10)
        again.ack()

    board.go("topics", "orders", "messages", "0", "0")
    trace = board.page.get_by_role("region", name="Trace")
    expect(trace.locator(".steps li")).to_contain_text(
        ["published", "delivered", "failed", "dead", "redriven", "delivered", "acked"]
    )
    expect(trace).to_contain_text("no milk")
    expect(trace).to_contain_text("cook")


def test_dead_letters_are_redriven_by_cause_and_the_rest_is_purged(board: Board, client: Client) -> None:
    client.create_topic("letters", max_deliveries=1)
    client.publish_many("letters", [f"{number}" for number in range(6)])
    with client.consumer("letters", "readers") as consumer:
        for number, message in enumerate(consumer.receive(6, wait=10)):
            message.fail("broken pen" if number % 2 else "no stamp")
        until(lambda: len(client.dead_letters("letters")) == 6)
    board.go("topics", "letters", "dead-letters")
    row = board.rows("Causes").filter(has_text="broken pen")
    expect(row).to_contain_text("3")
    row.get_by_role("button", name="Redrive").click()
    expect(board.page.get_by_role("dialog")).to_be_visible()
    board.click("Redrive", exact=True)
    board.see("3 messages redriven.")
    expect(board.rows("Causes")).to_have_count(1)

    board.rows("Dead letters").first.get_by_role("button", name="Show").click()
    board.see("History")
    board.page.keyboard.press("Escape")
    expect(board.page.get_by_role("dialog")).to_have_count(0)
    board.open("Purge all")
    purge = board.page.get_by_role("dialog").get_by_role("button", name="Purge", exact=True)
    expect(purge).to_be_disabled()
    board.fill("Type letters to confirm", "letters")
    purge.click()
    board.see("3 dead letters purged.")
    board.see("Nothing has died here")


def test_a_delayed_message_is_rescheduled_and_cancelled(board: Board, client: Client) -> None:
    client.create_topic("later")
    board.go("topics", "later", "publish")
    board.fill("Value", "a cake")
    board.choose("After a delay")
    board.fill("Delay", "20 minutes")
    expect(board.page.get_by_role("button", name="Publish", exact=True)).to_be_disabled()
    board.fill("Delay", "20m")
    board.click("Publish", exact=True)
    board.see("later/0/0")
    board.page.get_by_role("navigation", name="Parts of the topic").get_by_role("link", name="Delayed").click()
    row = board.rows("Delayed messages")
    expect(row).to_contain_text(re.compile(r"in (19|20) min"))
    board.open("Reschedule")
    board.fill("In", "3h")
    board.click("Reschedule", exact=True)
    expect(row).to_contain_text(re.compile(r"in (2 h 59 min|3 h)"))
    board.click("Cancel")
    board.see("later/0/0 is cancelled.")
    board.see("Nothing waits")
    assert client.delayed("later") == []


def test_a_window_of_the_past_is_replayed_into_a_new_group(board: Board, client: Client) -> None:
    client.create_topic("past", partitions=2)
    client.publish_many("past", [Message(f"{number}", partition=1) for number in range(10)])
    board.go("topics", "past")
    board.open("Replay")
    board.choose("By offset")
    board.page.get_by_role("dialog").get_by_label("Partition").select_option("1")
    board.fill("From offset", "3")
    board.fill("Before offset", "7")
    board.fill("New group", "again")
    board.click("Replay", exact=True)
    board.see("4 messages for the group")
    board.follow("again")
    expect(board.heading("Groups/again")).to_be_visible()
    assert client.group("past", "again").lag == 4


def test_a_group_shows_its_members_and_is_moved(board: Board, client: Client) -> None:
    client.create_topic("moved", partitions=2)
    client.publish_many("moved", [f"{number}" for number in range(8)])
    with client.consumer("moved", "movers", name="anna", mode="assigned") as consumer:
        for message in consumer.receive(8, wait=10):
            message.ack()
        board.go("groups")
        board.fill("Find a group", "mover")
        expect(board.rows("Groups")).to_have_count(1)
        board.follow("movers")
        expect(board.rows("Members").first).to_contain_text("anna")
        expect(board.rows("Partitions").first).to_contain_text("anna")
    until(lambda: not client.group("moved", "movers").members)
    board.open("Seek")
    board.choose("The beginning")
    board.click("Seek", exact=True)
    board.see("The group is moved.")
    assert client.group("moved", "movers").lag == 8
    board.open("Delete")
    board.fill("Type movers to confirm", "movers")
    board.allow("the server responded with a status of 404")  # the page looks at the group while it goes
    board.click("Delete it")
    board.see("The group is deleted.")
    assert client.groups("moved") == []


def test_a_group_is_paused_and_resumed_and_its_messages_tell_of_it(board: Board, client: Client) -> None:
    waiting = client.publish("halted", "x")
    with client.consumer("halted", "halters") as consumer:
        board.go("groups", "halters")
        board.click("Pause")
        board.see("The group is paused")
        expect(board.page.locator(".badge").filter(has_text="paused")).to_be_visible()
        assert consumer.receive() == []
        board.go("groups")
        expect(board.rows("Groups").filter(has_text="halters")).to_contain_text("paused")
        board.go("groups", "halters")
        board.click("Resume")
        board.see("The group is resumed.")
        assert [message.id for message in consumer.receive(wait=10)] == [waiting]
    board.go("topics", "halted", "messages", "0", "0")
    board.see("not paused")


def test_a_topic_is_made_changed_and_deleted(board: Board, client: Client) -> None:
    board.go("topics")
    board.open("New topic")
    board.fill("Name", "short-lived")
    board.fill("Partitions", "3")
    board.fill("Retention", "2h")
    board.click("Make it")
    board.see("Nobody consumes this topic yet")
    expect(board.rows("Partitions")).to_have_count(3)
    board.page.get_by_role("link", name="Options").click()
    board.see("2h")
    board.open("Change…")
    board.fill("visibility_timeout", "90s")
    board.page.get_by_role("dialog").get_by_label("max_backlog").fill("1000")
    board.click("Change 2")
    board.see("Changed.")
    board.see("1m30s")
    config = next(topic.config for topic in client.topics() if topic.name == "short-lived")
    assert (config.partitions, config.retention_age, config.visibility_timeout, config.max_backlog) == (
        3,
        7200,
        90,
        1000,
    )
    board.open("Change…")
    board.page.get_by_role("dialog").get_by_label("max_backlog").fill("")
    board.page.get_by_role("dialog").get_by_label("retry_backoff", exact=False).first.fill("soon")
    board.allow("the server responded with a status of 400")
    board.click("Change 2")
    board.see("'soon' is not a duration")
    board.page.keyboard.press("Escape")
    expect(board.page.get_by_role("dialog")).to_have_count(0)
    board.open("Delete")
    board.fill("Type short-lived to confirm", "short-lived")
    board.click("Delete it")
    board.see("The topic is deleted.")
    assert "short-lived" not in [topic.name for topic in client.topics()]


def test_a_schedule_is_added_paused_and_removed(board: Board, client: Client) -> None:
    client.create_topic("reports")
    board.go("schedules")
    board.open("New schedule")
    board.fill("Name", "nightly")
    board.fill("Topic", "reports")
    board.fill("When", "0 3 * * *")
    board.fill("Time zone", "Europe/Berlin")
    board.fill("Value", "make the report")
    board.click("Add it")
    row = board.rows("Schedules")
    expect(row).to_contain_text("Europe/Berlin")
    board.click("Pause")
    expect(row).to_contain_text("paused")
    assert client.schedules()[0].paused
    board.click("Resume")
    expect(row).to_contain_text("in ")
    board.open("Remove")
    board.click("Remove it")
    board.see("No schedules yet")
    assert client.schedules() == []


def test_what_is_refused_is_said_in_the_form(board: Board, client: Client) -> None:
    client.create_topic("strict")
    board.allow("the server responded with a status of 400")
    board.go("publish")
    board.fill("Topic", "strict")
    board.choose("More")
    board.fill("Partition", "7")
    board.click("Publish", exact=True)
    expect(board.page.get_by_role("alert")).to_contain_text("7")
