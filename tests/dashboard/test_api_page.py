"""The reference of the HTTP API, as people use it: find an operation, try it, take its curl line along."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from penstock.dashboard import FILES
from penstock.server.access.tokens import TokenFile
from penstock.server.http.description import description
from tests.dashboard.conftest import Opener
from tests.dashboard.harness import MISSING, Board, Served


@pytest.fixture
def page(board: Board, server: Served) -> Page:
    description()  # is made once; the browser need not wait for it
    board.page.goto(f"{server.url}/docs")
    expect(board.page.get_by_role("heading", name="Penstock API")).to_be_visible()
    return board.page


def show(page: Page, server: Served, operation: str, name: str) -> None:
    """Follow a deep link."""
    page.goto(f"{server.url}/docs#{operation}")
    expect(page.get_by_role("heading", level=1)).to_contain_text(name)


def listed(page: Page) -> Locator:
    return page.locator("nav a:visible")


def field(page: Page, name: str) -> Locator:
    return page.locator(f"form.try [name={name}]")


def send(page: Page) -> Locator:
    """Send what is filled in; the reply."""
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".reply-head")).to_be_visible()
    return page.locator(".reply")


def values_of(server: Served, topic: str) -> list[bytes]:
    with server.client() as client:
        return [message.value for message in client.read(topic, 0)]


def test_all_operations_are_listed_and_every_page_can_be_shown(page: Page) -> None:
    document: dict[str, Any] = json.loads(description())
    names = [operation["operationId"] for item in document["paths"].values() for operation in item.values()]
    expect(listed(page)).to_have_count(len(names))
    links = {str(link.get_attribute("href")) for link in listed(page).all()}
    assert links == {"#" + name.replace("_", "-") for name in names}
    assert page.locator("main table.overview a").count() == len(names)
    for link in sorted(links):
        page.evaluate("to => { location.hash = to }", link)
        expect(page.locator(f"nav a[href='{link}'][aria-current]")).to_have_count(1)
        expect(page.locator(".curl code")).to_contain_text("curl")
        assert "undefined" not in page.locator("main").inner_text(), link
        assert "[object" not in page.locator("main").inner_text(), link


def test_searching_finds_operations_by_name_path_and_summary(page: Page) -> None:
    page.keyboard.press("/")
    search = page.get_by_label("Search the API")
    expect(search).to_be_focused()
    search.fill("post publish mess")
    names = ("Publish message$", "Publish messages$", "Publish goqueue message$")
    expect(listed(page)).to_have_text([re.compile(name) for name in names])
    search.fill("/v1/schedules delete")
    expect(listed(page)).to_have_count(1)
    search.fill("<b>zzz")
    expect(listed(page)).to_have_count(0)
    expect(page.get_by_text("Nothing is called that.")).to_be_visible()
    search.fill("server-sent")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Stream messages")
    search.focus()
    page.keyboard.press("Escape")
    expect(search).not_to_be_focused()
    expect(search).to_have_value("")


def test_a_deep_link_shows_its_operation_and_keys_go_on_from_there(page: Page, server: Served) -> None:
    show(page, server, "publish-message", "Publish message")
    expect(page).to_have_title("Publish message · Penstock")
    expect(page.locator(".path-bar")).to_contain_text("POST/v1/topics/{topic}/publish")
    page.keyboard.press("j")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Publish messages")
    page.keyboard.press("k")
    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Publish messages")
    page.goto(f"{server.url}/docs#no-such-operation")
    expect(page.get_by_role("heading", name="Penstock API")).to_be_visible()


def test_schemas_are_shown_as_a_tree_with_their_limits(page: Page, server: Served) -> None:
    show(page, server, "join-group", "Join group")
    tree = page.locator(".tree").first
    topics = tree.locator("li", has_text="topics").first
    expect(topics).to_contain_text("string[]")
    expect(topics).to_contain_text("1 to 1,000 items")
    expect(topics.locator(".required")).to_have_count(1)
    expect(tree).to_contain_text('"shared" if it is left out')
    show(page, server, "receive-messages", "Receive messages")
    expect(page.locator("table.parameters")).to_contain_text("1 to 10,000")
    expect(page.locator(".tree li li").first).to_be_visible()


def test_trying_publishes_a_message_and_shows_the_reply(page: Page, server: Served) -> None:
    show(page, server, "publish-message", "Publish message")
    field(page, "topic").fill("tried")
    field(page, "body").fill('{"value": "<img src=x onerror=alert(1)> from the page"}')
    reply = send(page)
    expect(reply).to_contain_text("200 OK")
    expect(reply.locator("pre")).to_contain_text('"id": "tried/0/0"')
    reply.get_by_text(re.compile(r"\d+ headers")).click()
    expect(reply.locator("table")).to_contain_text("content-security-policy")
    assert values_of(server, "tried") == [b"<img src=x onerror=alert(1)> from the page"]

    show(page, server, "receive-messages", "Receive messages")
    field(page, "topic").fill("tried")
    field(page, "group").fill("readers")
    expect(send(page).locator("pre")).to_contain_text("<img src=x onerror=alert(1)> from the page")


def test_a_raw_body_goes_as_it_is(page: Page, server: Served) -> None:
    show(page, server, "publish-message", "Publish message")
    field(page, "topic").fill("raw")
    field(page, "content-type").select_option("application/octet-stream")
    field(page, "body").fill("{not json: 'at all'}")
    page.get_by_text("more parameters").click()
    field(page, "key").fill("a & b/c?")
    expect(send(page)).to_contain_text("200 OK")
    with server.client() as client:
        (message,) = client.read("raw", 0)
    assert (message.value, message.key) == (b"{not json: 'at all'}", b"a & b/c?")


def test_errors_are_shown_and_what_is_missing_is_not_sent(board: Board, page: Page, server: Served) -> None:
    board.allow(MISSING)
    show(page, server, "publish-message", "Publish message")
    field(page, "body").fill('{"value": ')
    expect(page.get_by_text("This is not JSON")).to_be_visible()
    reply = send(page)
    expect(reply.locator(".badge.bad")).to_contain_text("400")
    expect(reply).to_contain_text('"hint"')
    show(page, server, "topic-details", "Topic details")
    field(page, "topic").fill("")
    page.get_by_role("button", name="Send").click()
    expect(field(page, "topic")).to_be_focused()
    expect(field(page, "topic")).to_have_attribute("aria-invalid", "true")
    expect(page.locator(".reply-head")).to_have_count(0)


def test_the_curl_line_is_copied_and_really_publishes(page: Page, server: Served) -> None:
    show(page, server, "publish-message", "Publish message")
    value = 'it\'s "quoted" $HOME `id` \\ @file ü'
    field(page, "topic").fill("curled")
    field(page, "body").fill(json.dumps({"value": value, "key": "k"}, ensure_ascii=False, indent=2))
    page.get_by_role("button", name="Copy the curl line").click()
    line = str(page.evaluate("navigator.clipboard.readText()"))
    assert line.startswith("curl ")
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=60)
    assert json.loads(done.stdout)["id"] == "curled/0/0", done
    assert values_of(server, "curled") == [value.encode()]


def test_the_token_is_sent_kept_in_the_tab_and_left_out_of_the_curl_line(open_board: Opener, tmp_path: Path) -> None:
    secret = TokenFile(tmp_path).create("page", ["publish"]).secret
    with Served(tmp_path, auth="tokens") as server:
        board = open_board(server)
        board.allow(MISSING)
        page = board.page
        show(page, server, "publish-message", "Publish message")
        expect(send(page)).to_contain_text("401")
        field(page, "token").fill(secret)
        expect(send(page)).to_contain_text("200 OK")
        expect(page.locator(".curl")).to_contain_text("Bearer $PENSTOCK_TOKEN")
        expect(page.locator("main")).not_to_contain_text(secret)
        page.reload()
        expect(field(page, "token")).to_have_value(secret)
        assert secret not in str(page.evaluate("JSON.stringify(localStorage)"))


def test_a_stream_is_shown_as_it_comes_until_it_is_stopped(page: Page, server: Served) -> None:
    with server.client() as client:
        client.publish("streamed", "one")
        show(page, server, "stream-messages", "Stream messages")
        expect(page.locator(".curl")).to_contain_text("curl -N")
        field(page, "topic").fill("streamed")
        field(page, "group").fill("watchers")
        reply = send(page)
        expect(reply.locator("pre")).to_contain_text('"value":"one"')
        client.publish("streamed", "two")
        expect(reply.locator("pre")).to_contain_text('"value":"two"')
        expect(reply).to_contain_text("2 events")
        page.get_by_role("button", name="Stop").click()
        expect(reply).to_contain_text("ended")
        expect(page.get_by_role("button", name="Send")).to_be_enabled()


def test_the_dark_side_is_chosen_here_and_kept_for_the_dashboard(page: Page, server: Served) -> None:
    def background() -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    light = background()
    page.locator("[data-theme-switch]").click()
    page.locator("[data-theme-switch]").click()
    assert background() != light
    dark = background()
    page.get_by_role("link", name="Dashboard").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert background() == dark
    page.get_by_role("link", name="API", exact=True).click()
    expect(page.get_by_role("heading", name="Penstock API")).to_be_visible()
    assert background() == dark


def test_on_a_phone_the_list_is_behind_a_menu_and_nothing_is_cut_off(open_board: Opener, server: Served) -> None:
    page = open_board(server, width=390).page
    show(page, server, "publish-message", "Publish message")
    expect(listed(page)).to_have_count(0)
    page.get_by_role("button", name="Menu").click()
    page.get_by_role("link", name="POST Ack messages").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Ack messages")
    expect(listed(page)).to_have_count(0)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_page_is_small_and_sets_data_as_text_only() -> None:
    files = sorted((FILES / "docs").iterdir())
    assert sum(file.stat().st_size for file in files) < 44_000
    text = "".join(file.read_text() for file in files)
    for forbidden in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "https://"):
        assert forbidden not in text
