"""A real browser on a real server. Whatever a page says on its console, or asks of another host, fails the test."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, sync_playwright

from tests.dashboard.harness import Board, HasUrl, Served

Opener = Callable[..., Board]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, for a module: while Playwright runs, this thread can run no other event loop."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.fail("the tests of the dashboard need chromium: apt-get install chromium (`make test` does it)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_board(browser: Browser) -> Iterator[Opener]:
    """Opens the dashboard of a server in a fresh window."""
    opened: list[tuple[BrowserContext, Board]] = []

    def open_one(server: HasUrl, *, width: int = 1280, scheme: str = "light") -> Board:
        context = browser.new_context(
            viewport={"width": width, "height": 800},
            color_scheme=scheme,  # type: ignore[arg-type]
            reduced_motion="reduce",
        )
        context.set_default_timeout(15_000)
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        board = Board(context.new_page(), server.url)
        opened.append((context, board))
        return board

    yield open_one
    for context, board in opened:
        problems = board.problems()
        context.close()
        assert not problems, problems


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server for the tests of a module."""
    with Served(tmp_path_factory.mktemp("served") / "data") as served:
        yield served


@pytest.fixture
def board(open_board: Opener, server: Served) -> Board:
    """The dashboard of the module's server."""
    return open_board(server)


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Served]:
    """A server of this test alone, with nothing in it."""
    with Served(tmp_path / "data") as served:
        yield served


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with 5,000 topics."""
    with Served(tmp_path_factory.mktemp("many") / "data", broker={"sync": "never"}) as served:
        with served.client() as client:
            for number in range(5000):
                client.publish_soon(f"tenant-{number:04}.events", "x")
            client.publish_many("tenant-4999.events", ["x"] * 10)
            client.flush()
        yield served
