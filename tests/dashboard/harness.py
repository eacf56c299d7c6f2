"""Servers and pages for the tests of the dashboard."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, Self
from urllib.parse import quote, urlsplit

from playwright.sync_api import ConsoleMessage, Locator, Page, Request, expect

from penstock.client import Client
from tests.server.harness import Running

MISSING = "Failed to load resource"


def elsewhere(work: Callable[[], Any]) -> Any:
    """Do it in another thread: Playwright's event loop is running in this one."""
    found: list[Any] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:  # noqa: BLE001 - raised below
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return found[0]


class HasUrl(Protocol):
    """A server with a dashboard."""

    @property
    def url(self) -> str: ...


class Served:
    """A server with an HTTP port, which can be stopped and started again at the same place."""

    def __init__(self, path: Path | str, **options: Any) -> None:
        self._path = path
        self._options = {"http_port": 0, **options}
        self.running: Running

    def start(self) -> None:
        """Start it."""
        self.running = Running(self._path, **self._options)
        elsewhere(self.running.__enter__)
        self._options["http_port"] = self.running.server.addresses["http"][1]

    def stop(self) -> None:
        """Stop it."""
        elsewhere(self.running.__exit__)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._options['http_port']}"

    def client(self) -> Client:
        return Client(self.running.address)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(RuntimeError):  # it was stopped by the test
            self.stop()


class Board:
    """The dashboard in a window, with everything that went wrong in it."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self._url = url
        self._found: list[str] = []
        self._allowed: list[str] = []
        page.on("console", self._said)
        page.on("pageerror", lambda error: self._found.append(f"exception: {error}"))
        page.on("request", self._asked)
        page.on("dialog", lambda dialog: self._found.append(f"dialogue: {dialog.message}"))

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self._found.append(f"console: {message.text}")

    def _asked(self, request: Request) -> None:
        own = urlsplit(self._url).netloc
        if urlsplit(request.url).netloc not in ("", own):
            self._found.append(f"request to another host: {request.url}")

    def allow(self, text: str) -> None:
        """The console may say this: the browser itself does, when a request fails."""
        self._allowed.append(text)

    def problems(self) -> list[str]:
        return [said for said in self._found if not any(text in said for text in self._allowed)]

    def go(self, *parts: str, query: str = "") -> None:
        """Show a page."""
        path = "/".join(quote(part, safe="") for part in parts)
        self.page.goto(f"{self._url}/#/{path}{query}")

    def see(self, text: str) -> None:
        """Wait until a text is on the page."""
        expect(self.page.get_by_text(text).first).to_be_visible()

    def heading(self, name: str) -> Locator:
        return self.page.get_by_role("heading", name=name, exact=True)

    def click(self, name: str, *, exact: bool = False) -> None:
        """Click a button, in the dialogue if there is one."""
        self._scope().get_by_role("button", name=name, exact=exact).first.click()

    def open(self, name: str) -> None:
        """Click a button that opens a dialogue."""
        self.click(name)
        expect(self.page.get_by_role("dialog")).to_be_visible()

    def follow(self, name: str) -> None:
        """Click a link."""
        self.page.get_by_role("link", name=name, exact=True).first.click()

    def fill(self, label: str, value: str) -> None:
        self._scope().get_by_label(label, exact=True).first.fill(value)

    def choose(self, option: str) -> None:
        """Choose one of a few that stand side by side."""
        self._scope().get_by_text(option, exact=True).first.click()

    def table(self, name: str) -> Locator:
        return self.page.get_by_role("table", name=name, exact=True)

    def rows(self, table: str) -> Locator:
        return self.table(table).locator("tbody tr")

    def _scope(self) -> Locator:
        """The dialogue, or the page while there is none: decided anew each time that somebody looks."""
        return self.page.locator("dialog[open], body:not(:has(dialog[open]))")
