"""A server that goes away, and comes back."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.dashboard.conftest import Opener
from tests.dashboard.harness import Served


def test_the_page_says_that_the_server_is_away_and_goes_on_when_it_is_back(open_board: Opener, fresh: Served) -> None:
    with fresh.client() as client:
        client.publish("orders", "one")
    board = open_board(fresh)
    for text in ("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET", "status of 503"):
        board.allow(text)
    board.go("topics", "orders")
    expect(board.rows("Partitions")).to_have_count(1)
    expect(board.page.locator(".pulse.on")).to_be_visible()
    fresh.stop()
    board.see("The server does not answer.")
    expect(board.rows("Partitions")).to_have_count(1)  # what was known stays
    expect(board.page.locator(".pulse.on")).to_have_count(0)
    board.page.get_by_role("link", name="Schedules").click()
    expect(board.page.locator(".empty.bad")).to_contain_text("The server does not answer")
    fresh.start()
    board.see("No schedules yet")
    expect(board.page.get_by_role("alert")).to_have_count(0)
    expect(board.page.locator(".pulse.on")).to_be_visible()
