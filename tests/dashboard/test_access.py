"""Logging in with a token, and what a token may see."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from penstock.server.access.tokens import TokenFile
from tests.dashboard.conftest import Opener
from tests.dashboard.harness import Board, Served


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("guarded") / "data"


@pytest.fixture(scope="module")
def tokens(directory: Path) -> dict[str, str]:
    directory.mkdir()
    file = TokenFile(directory)
    return {
        "boss": file.create("boss", ["admin"]).secret,
        "reader": file.create("reader", ["read"], ["orders*"]).secret,
    }


@pytest.fixture(scope="module")
def server(directory: Path, tokens: dict[str, str]) -> Iterator[Served]:
    with Served(directory, auth="tokens") as served:
        served.running.broker.create_topic("orders")
        served.running.broker.create_topic("secret")
        yield served


@pytest.fixture
def board(open_board: Opener, server: Served) -> Board:
    board = open_board(server)
    board.allow("the server responded with a status of 401")
    return board


def log_in(board: Board, token: str) -> None:
    board.fill("Token", token)
    board.click("Log in")


def test_the_dashboard_asks_for_a_token_and_forgets_it_again(board: Board, tokens: dict[str, str]) -> None:
    board.go("topics")
    log_in(board, "pst_wrong")
    expect(board.page.get_by_role("alert")).to_be_visible()
    log_in(board, tokens["boss"])
    expect(board.heading("Topics")).to_be_visible()
    expect(board.rows("Topics")).to_have_count(2)
    board.page.reload()
    expect(board.rows("Topics")).to_have_count(2)
    assert tokens["boss"] not in board.page.evaluate("JSON.stringify([document.cookie, localStorage, sessionStorage])")
    board.click("Log out")
    expect(board.page.get_by_label("Token")).to_be_visible()
    board.page.reload()
    expect(board.page.get_by_label("Token")).to_be_visible()


def test_a_token_sees_its_topics_and_is_offered_what_it_may_do(board: Board, tokens: dict[str, str]) -> None:
    board.allow("the server responded with a status of 403")
    board.go("topics")
    log_in(board, tokens["reader"])
    expect(board.rows("Topics")).to_have_count(1)
    expect(board.page.get_by_role("button", name="New topic")).to_have_count(0)
    board.follow("orders")
    expect(board.rows("Partitions")).to_have_count(1)
    for offered in ("Delete", "Replay"):
        expect(board.page.get_by_role("button", name=offered)).to_have_count(0)
    board.go("topics", "secret")
    board.see("Your token does not allow this")
    board.see("it is for orders*")


def test_a_session_that_ends_leads_to_the_login(board: Board, tokens: dict[str, str]) -> None:
    board.go("schedules")
    log_in(board, tokens["boss"])
    board.see("No schedules yet")
    board.page.context.clear_cookies()
    board.page.get_by_role("link", name="Groups").click()
    expect(board.page.get_by_label("Token")).to_be_visible()
