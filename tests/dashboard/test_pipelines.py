"""The page of pipelines: their states, queries, errors and charts, as they report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from playwright.sync_api import Locator, expect

from penstock.client import Client
from penstock.model.pipelines import PipelineReport, PipelineState, QueryReport
from tests.dashboard.conftest import Opener
from tests.dashboard.harness import Board, Served
from tests.dashboard.test_pages import HOSTILE, overflow


@pytest.fixture
def board(open_board: Opener, fresh: Served) -> Board:
    return open_board(fresh)


@pytest.fixture
def client(fresh: Served) -> Iterator[Client]:
    with fresh.client() as client:
        yield client


def tell(client: Client, name: str, state: PipelineState, *queries: QueryReport, **more: Any) -> None:
    client.report_pipeline(PipelineReport(name=name, state=state, queries=queries, **more))


def card(board: Board, name: str) -> Locator:
    return board.page.get_by_role("region", name=name, exact=True)


def test_a_pipeline_is_shown_while_it_works_fails_and_ends(board: Board, client: Client) -> None:
    client.create_topic("orders")
    client.create_topic("orders-urgent")
    query: dict[str, Any] = {"name": "shop.urgent", "reads": ("orders",), "writes": ("orders-urgent",)}
    board.go("pipelines")
    board.see("No pipelines yet")
    tell(client, "shop", PipelineState.STARTING, file="shop.yaml", host="machine-1", pid=77)
    shop = card(board, "shop")
    expect(shop.locator(".badge")).to_have_text("starting")
    expect(shop).to_contain_text("shop.yaml · machine-1 · process 77")
    tell(
        client,
        "shop",
        PipelineState.RUNNING,
        QueryReport(**query, batches=3, rows=1200, rows_per_second=640, batch_seconds=0.25, lag=17, state_rows=41),
    )
    row = board.rows("Queries of shop")
    expect(row).to_have_count(1)
    expect(row.locator("td")).to_have_text(
        ["urgent", "orders→orders-urgent", "1,200", "640", "17", "3", "250 ms", "41", "–"]
    )
    expect(shop.locator("canvas")).to_have_count(2)
    tell(client, "shop", PipelineState.WAITING, QueryReport(**query, rows=1300), restarts=1, error="no\nmilk " * 500)
    expect(shop.locator(".badge")).to_have_text("waiting")
    expect(shop).to_contain_text("1 restart")
    expect(shop.locator("pre")).to_be_visible()
    assert shop.locator("pre").inner_text() == "no\nmilk " * 500
    shop.get_by_role("button", name="Copy").click()
    board.see("Copied.")
    tell(client, "shop", PipelineState.RUNNING, QueryReport(**query, rows=1400), restarts=1, error="no milk")
    expect(shop.locator("pre")).to_be_hidden()
    shop.get_by_text("Why it failed last").click()
    expect(shop.locator("pre")).to_have_text("no milk")
    tell(client, "shop", PipelineState.STOPPED, QueryReport(**query, rows=1400))
    expect(shop.locator(".badge")).to_have_text("stopped")
    expect(shop.locator("canvas")).to_have_count(0)
    shop.get_by_role("link", name="orders-urgent").click()
    expect(board.heading("Topics/orders-urgent")).to_be_visible()


def test_what_needs_somebody_comes_first(board: Board, fresh: Served, client: Client) -> None:
    for state in PipelineState:
        if state is not PipelineState.SILENT:
            tell(client, f"is-{state}", state)
    tell(client, "is-silent", PipelineState.RUNNING)
    told = fresh.running.server.services.pipelines._told
    old = told["is-silent"]
    told["is-silent"] = type(old)(old.report, old.heard_s - 61, old.owner)
    board.go("pipelines")
    cards = board.page.locator(".pipeline h2")
    order = ["failed", "silent", "waiting", "starting", "running", "stopped", "finished"]
    expect(cards).to_have_text([f"is-{state}" for state in order])
    expect(board.page.locator("header .badge")).to_have_text([*(f"1 {state}" for state in order), *order])
    colours = {
        state: card(board, f"is-{state}").locator(".badge").evaluate("element => getComputedStyle(element).color")
        for state in order
    }
    assert colours["failed"] == colours["silent"]
    assert len({colours[state] for state in ("failed", "waiting", "running", "stopped")}) == 4


def test_the_charts_follow_what_is_reported(board: Board, client: Client) -> None:
    board.go("pipelines")
    board.see("No pipelines yet")
    for turn in range(3):
        with board.page.expect_response("**/v1/pipelines?*"):
            tell(client, "shop", PipelineState.RUNNING, QueryReport(name="shop.urgent", rows=1000 * turn, lag=50))
    lag = board.page.get_by_role("region", name="Lag", exact=True)
    expect(lag.locator("canvas")).to_be_visible()
    lag.locator(".u-over").hover()
    expect(lag.locator(".plot-tip")).to_contain_text("urgent  50")
    lag.get_by_role("button", name="urgent").click()
    expect(lag.get_by_role("button", name="urgent")).to_have_attribute("aria-pressed", "false")


def test_charts_have_the_past_when_the_page_is_opened(board: Board, fresh: Served, client: Client) -> None:
    rows = QueryReport(name="shop.urgent", rows=1000, lag=50)
    tell(client, "shop", PipelineState.RUNNING, rows)
    points = fresh.running.server.services.pipelines._history._points["shop"]
    long_ago = points.popleft()
    points.append(replace(long_ago, time_s=long_ago.time_s - 5))  # as if it had been told five seconds ago
    tell(client, "shop", PipelineState.RUNNING, msgspec.structs.replace(rows, rows=6000, lag=40))
    rate = points[-1].rates[0]  # a little time has passed besides
    assert 0 < rate <= 1000
    board.go("pipelines")
    for chart, shown in (("Rows a second", f"urgent  {rate:,.0f}"), ("Lag", "urgent  40")):
        region = board.page.get_by_role("region", name=chart, exact=True)
        plot = region.locator(".u-over")
        expect(plot).to_be_visible()
        box = plot.bounding_box()
        assert box is not None
        plot.hover(position={"x": box["width"] - 2, "y": box["height"] / 2})  # the newest point
        expect(region.locator(".plot-tip")).to_contain_text(shown)
        board.page.mouse.move(0, 0)


def test_many_pipelines_of_many_queries_are_found_by_name(board: Board, client: Client) -> None:
    for number in range(30):
        queries = [QueryReport(name=f"p{number:02}.q{place}", lag=place) for place in range(7)]
        tell(client, f"p{number:02}", PipelineState.RUNNING, *queries)
    board.go("pipelines")
    cards = board.page.locator(".pipeline")
    expect(cards).to_have_count(20)
    expect(card(board, "p03").get_by_role("button", name="all queries")).to_have_count(2)
    board.click("Show all 30")
    expect(cards).to_have_count(30)
    board.page.keyboard.press("/")
    board.page.keyboard.type("P2")
    expect(cards).to_have_count(10)
    board.page.keyboard.type("x")
    board.see("No pipeline has “P2x” in its name")


def test_what_is_typed_while_the_page_finds_what_was_typed_before_stays(board: Board, client: Client) -> None:
    tell(client, "p20", PipelineState.RUNNING)
    board.go("pipelines")
    board.page.evaluate(
        """() => {
            const change = history.replaceState.bind(history);
            history.replaceState = (...rest) => {
                change(...rest);
                history.replaceState = change;
                const box = document.querySelector("[data-search]");
                box.value += "x";
                box.dispatchEvent(new Event("input", { bubbles: true }));
            };
        }"""
    )
    board.page.get_by_label("Find a pipeline").fill("P2")
    board.see("No pipeline has “P2x” in its name")


def test_hostile_and_long_texts_are_text_and_fit_a_phone(open_board: Opener, fresh: Served, client: Client) -> None:
    board = open_board(fresh, width=375, scheme="dark")
    name, topic = "n" * 200, "t" * 200
    query = QueryReport(name="q" * 200, reads=(topic,), writes=(topic,), rows=10**18, lag=10**18, state_rows=10**18)
    more: dict[str, Any] = {"error": f"{HOSTILE}\u202e" + "x" * 5000, "file": HOSTILE, "host": "h" * 1000}
    tell(client, name, PipelineState.FAILED, query, **more)
    tell(client, "p", PipelineState.RUNNING, query)
    board.go("pipelines")
    expect(card(board, name).locator("pre")).to_contain_text(f"{HOSTILE}⟨U+202E⟩")
    expect(card(board, "p").locator("canvas")).to_have_count(2)
    assert overflow(board) <= 0
    assert board.page.locator("main script, main img").count() == 0
