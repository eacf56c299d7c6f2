"""How pages look and behave: empty, full, hostile, small, in the dark, by keyboard."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from penstock import Message
from tests.dashboard.conftest import Opener
from tests.dashboard.harness import Board, Served

HOSTILE = '<script>alert("value")</script><img src=x onerror="alert(1)">'
LONG_TOPIC = "long." + "x" * 195
PAGES = [
    "",
    "topics",
    "groups",
    "messages",
    "delayed",
    "schedules",
    "dead-letters",
    "pipelines",
    "processes",
    "publish",
]


def overflow(board: Board) -> int:
    """How much wider the page is than its window."""
    return int(board.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


def test_an_empty_broker_teaches_how_to_begin(open_board: Opener, fresh: Served) -> None:
    board = open_board(fresh)
    board.go()
    board.see("No topics yet")
    board.see("penstock publish orders 'two coffees' --key alex")
    board.see("Nobody is behind")
    board.page.get_by_role("button", name="Copy").first.click()
    board.see("Copied.")
    assert board.page.evaluate("navigator.clipboard.readText()").startswith("penstock publish orders")
    for page, text in [
        ("topics", "A topic is made by its first message"),
        ("groups", "A group is made by its first consumer"),
        ("messages", "No topics yet"),
        ("delayed", "No topics yet"),
        ("schedules", "A schedule publishes a message again and again"),
        ("dead-letters", "Nothing has died"),
        ("pipelines", "penstock pipeline run FILE"),
        ("processes", "penstock serve ./data --shards 8 --processes 4"),
    ]:
        board.go(page)
        board.see(text)


def test_the_overview_lives(board: Board, server: Served) -> None:
    with server.client() as client:
        client.publish_many("lively", ["x"] * 500)
        client.create_group("lively", "slow", start="earliest")
        board.go()
        expect(board.page.locator(".pulse.on")).to_be_visible()
        expect(board.page.locator("canvas")).to_have_count(2)
        expect(board.rows("Busiest topics").filter(has_text="lively")).to_contain_text("500")
        expect(board.rows("Groups behind").filter(has_text="slow")).to_contain_text("500")
        published = board.page.locator(".tile").filter(has_text="Published").locator(".tile-value")
        expect(published).to_contain_text("0/s")
        client.publish_many("lively", ["x"] * 500)
        expect(published).not_to_have_text("0/s")
    board.page.get_by_role("button", name="acked").click()
    expect(board.page.get_by_role("button", name="acked")).to_have_attribute("aria-pressed", "false")


def test_the_rates_of_the_busiest_topics_are_there_when_the_page_is_opened(open_board: Opener, fresh: Served) -> None:
    with fresh.client() as client:
        client.publish_many("lively", ["x"] * 500)
    board = open_board(fresh)
    with board.page.expect_response("**/v1/overview") as first:
        board.go()
    assert first.value.json()["busiest"][0]["published_per_second"] > 0
    expect(board.rows("Busiest topics").filter(has_text="lively").locator("td").nth(1)).not_to_have_text("0")


def test_five_thousand_topics_are_searched_sorted_and_paged(open_board: Opener, many: Served) -> None:
    board = open_board(many)
    board.go("topics")
    board.see("1–50 of 5,000 topics")
    expect(board.rows("Topics")).to_have_count(50)
    board.click("Next")
    board.see("51–100 of 5,000 topics")
    expect(board.rows("Topics").first).to_contain_text("tenant-0050.events")
    board.page.keyboard.press("n")
    board.see("101–150 of 5,000 topics")
    board.page.keyboard.press("b")
    board.see("51–100 of 5,000 topics")
    board.page.keyboard.press("/")
    board.page.keyboard.type("tenant-42")
    board.see("1–50 of 100 topics")
    expect(board.rows("Topics").first).to_contain_text("tenant-4200.events")
    board.page.keyboard.press("ControlOrMeta+a")
    board.page.keyboard.type("tenant-*7.events")
    board.see("1–50 of 500 topics")
    board.page.keyboard.press("ControlOrMeta+a")
    board.page.keyboard.type("nobody-has-this")
    board.see("No topic has “nobody-has-this” in its name")
    board.fill("Find a topic", "")
    board.see("1–50 of 5,000 topics")
    board.page.get_by_role("button", name="Messages").click()
    expect(board.rows("Topics").first).to_contain_text("tenant-4999.events")
    board.page.reload()
    expect(board.rows("Topics").first).to_contain_text("tenant-4999.events")


def test_hostile_content_is_shown_as_text(board: Board, server: Served) -> None:
    turned = "abc \u202e reversed \u2066 مرحبا 🎉👩‍👩‍👧"
    with server.client() as client:
        client.create_topic("hostile", max_deliveries=1)
        client.publish_many(
            "hostile",
            [
                Message(HOSTILE, key=HOSTILE, headers={"x": HOSTILE, '"><b>': "1"}),
                Message(turned, key=turned),
                Message(bytes(range(256)), key=b"\xff\x00"),
                Message('{"<b>": "</pre><script>alert(2)</script>", "n": 1e5, "no": null}'),
            ],
        )
        with client.consumer("hostile", "victims") as consumer:
            messages = sorted(consumer.receive(4, wait=10), key=lambda message: message.offset)
            messages[0].fail(HOSTILE)
            messages[1].fail(turned)
            board.go("topics", "hostile", "messages")
            expect(board.rows("Newest messages")).to_have_count(4)
            board.see('<script>alert("value")</script>')
            board.see("⟨U+202E⟩")
            board.go("topics", "hostile", "messages", "0", "0")
            expect(board.page.locator("pre.value")).to_have_text(HOSTILE)
            board.go("topics", "hostile", "messages", "0", "2")
            expect(board.page.locator("pre.value")).to_contain_text("000010  10 11 12")
            board.choose("Base64")
            expect(board.page.locator("pre.value")).to_contain_text("AAECAwQF")
            board.go("topics", "hostile", "messages", "0", "3")
            expect(board.page.locator(".json-member").first).to_have_text('"<b>"')
            board.go("topics", "hostile", "dead-letters")
            expect(board.rows("Causes")).to_have_count(2)
            board.rows("Dead letters").first.get_by_role("button", name="Show").click()
            board.see("History")
    for page in ("topics", "groups", "search"):
        board.go(page, query="?search=" + "%3Cimg%20src%3Dx%20onerror%3Dalert(3)%3E")
    board.go(HOSTILE)
    board.see("There is no such page")
    assert board.page.locator("main script, main img").count() == 0


def test_a_large_value_is_cut_until_somebody_wants_all_of_it(board: Board, server: Served) -> None:
    with server.client() as client:
        client.publish("large", "x" * 1_000_000)
    board.go("topics", "large", "messages", "0", "0")
    value = board.page.locator("pre.value")
    expect(value).to_be_visible()
    assert value.evaluate("element => element.textContent.length") == 20_000
    board.click("Show all")
    expect(board.page.get_by_role("button", name="Show all")).to_have_count(0)
    assert value.evaluate("element => element.textContent.length") == 1_000_000


def test_messages_are_found_by_offset_time_and_key(board: Board, server: Served) -> None:
    with server.client() as client:
        client.create_topic("found", partitions=2)
        client.publish_many("found", [Message(f"value {n}", key=f"k{n % 4}", partition=n % 2) for n in range(120)])
    board.go("topics", "found", "messages")
    expect(board.rows("Newest messages")).to_have_count(50)
    expect(board.rows("Newest messages").first).to_contain_text("59")
    board.choose("From offset")
    board.fill("Offset", "55")
    board.page.get_by_label("Partition").select_option("1")
    board.click("Look")
    expect(board.rows("Messages")).to_have_count(5)
    expect(board.rows("Messages").first).to_contain_text("value 111")
    board.choose("By key")
    board.see("Which key?")
    board.page.get_by_label("Partition").select_option("")
    board.fill("Key", "k3")
    board.click("Look")
    expect(board.rows("Messages")).to_have_count(30)
    board.choose("By time")
    expect(board.rows("Messages")).to_have_count(50)
    board.click("More")
    expect(board.rows("Messages")).to_have_count(100)
    board.fill("From", "2001-01-01T00:00:00")
    board.fill("Until", "2001-01-02T00:00:00")
    board.click("Look")
    board.see("No messages found")


def test_every_page_fits_a_phone_even_with_the_longest_name(open_board: Opener, server: Served) -> None:
    with server.client() as client:
        client.publish(LONG_TOPIC, "v" * 500, key="k" * 300)
        client.create_group(LONG_TOPIC, "g" * 200, start="earliest")
    board = open_board(server, width=375)
    pages = [[page] if page else [] for page in PAGES]
    pages += [["topics", LONG_TOPIC, *tab] for tab in ([], ["messages"], ["options"], ["messages", "0", "0"])]
    for parts in [*pages, ["groups", "g" * 200]]:
        board.go(*parts)
        expect(board.page.locator("h1")).to_be_visible()
        expect(board.page.locator(".loading")).to_have_count(0)
        assert overflow(board) <= 0, parts
    board.page.get_by_role("button", name="Menu").click()
    board.page.get_by_role("link", name="Schedules").click()
    expect(board.heading("Schedules")).to_be_visible()
    expect(board.page.get_by_role("link", name="Schedules")).to_be_hidden()


def test_colours_follow_the_system_until_somebody_chooses(open_board: Opener, server: Served) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    board = open_board(server, scheme="dark")
    board.go()
    expect(board.heading("Overview")).to_be_visible()
    assert board.page.evaluate(background) == "rgb(13, 18, 24)"
    board.click("Colours: as the system")
    assert board.page.evaluate(background) == "rgb(245, 247, 250)"
    board.page.reload()
    expect(board.heading("Overview")).to_be_visible()
    assert board.page.evaluate(background) == "rgb(245, 247, 250)"
    board.click("Colours: light")
    board.click("Colours: dark")
    board.page.emulate_media(color_scheme="light")
    assert board.page.evaluate(background) == "rgb(245, 247, 250)"
    assert board.page.evaluate("localStorage.length") == 0


def test_the_keyboard_is_enough(board: Board, server: Served) -> None:
    with server.client() as client:
        client.publish("by-keyboard", "x")
        client.publish("by-keyboard-too", "x")
    board.go()
    expect(board.heading("Overview")).to_be_visible()
    press = board.page.keyboard.press
    press("Tab")
    expect(board.page.get_by_role("link", name="To the content")).to_be_focused()
    press("g")
    press("t")
    expect(board.heading("Topics")).to_be_visible()
    press("/")
    expect(board.page.get_by_label("Find a topic")).to_be_focused()
    board.page.keyboard.type("by-key g t ?")  # nothing of this is a shortcut while typing
    press("ControlOrMeta+a")
    board.page.keyboard.type("by-keyboard")
    expect(board.rows("Topics")).to_have_count(2)
    press("Escape")
    press("j")
    press("j")
    expect(board.page.get_by_role("link", name="by-keyboard-too")).to_be_focused()
    press("k")
    press("Enter")
    expect(board.heading("Topics/by-keyboard")).to_be_visible()
    press("?")
    expect(board.page.get_by_role("dialog", name="Keys")).to_be_visible()
    press("Escape")
    expect(board.page.get_by_role("dialog")).to_have_count(0)
    places = {"g": "Groups", "m": "Messages", "d": "Delayed", "s": "Schedules", "l": "Dead letters", "i": "Pipelines"}
    places["r"] = "Processes"
    for key, heading in places.items():
        press("g")
        press(key)
        expect(board.heading(heading)).to_be_visible()


def test_what_is_not_there_is_said_to_be_not_there(board: Board) -> None:
    board.allow("the server responded with a status of 404")
    for parts in (
        ["topics", "no-such-topic"],
        ["groups", "no-such-group"],
        ["topics", "lively", "messages", "0", "99999"],
    ):
        board.go(*parts)
        board.see("There is no such thing")
    board.go("nowhere", "at", "all")
    board.see("There is no such page")
    board.follow("To the overview")
    expect(board.heading("Overview")).to_be_visible()


@pytest.mark.parametrize("name", ["__proto__", "constructor", "toString", "hasOwnProperty"])
def test_names_that_every_object_of_javascript_has_are_no_pages(board: Board, name: str) -> None:
    board.go(name)
    board.see("There is no such page")
    board.go("topics", name)
    board.see("There is no such thing")
    board.allow("status of 404")


def test_only_what_is_on_the_screen_is_asked_for(board: Board, server: Served) -> None:
    with server.client() as client:
        client.publish("watched", "x")
    asked: list[str] = []
    board.page.on("request", lambda request: asked.append(re.sub(r"^https?://[^/]+|\?.*", "", request.url)))
    board.go("topics", "watched")
    expect(board.rows("Partitions")).to_have_count(1)
    board.go("schedules")
    board.see("No schedules yet")
    asked.clear()
    with board.page.expect_response("**/v1/schedules"):
        pass
    assert set(asked) == {"/v1/schedules"}
