"""A page of another site in a real browser, which tries everything that takes messages from a server."""

from __future__ import annotations

import http.server
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.dashboard.harness import Served, elsewhere

_LAN = "penstock.lan"
"""A name of this machine that is neither HTTPS nor loopback: a browser does not tell there which page asks."""
_TAKE = """
async (base) => {
  const ofTopic = ["next?autoack=true", "receive?group=g", "stream?group=g"].map((end) => `/v1/topics/q/${end}`);
  const paths = ["/api/v1/queue/q/dequeue", ...ofTopic];
  const done = (element, attribute, url) => new Promise((end) => {
    element.onload = element.onerror = end;
    setTimeout(end, 5000); // what loads for ever has been answered, and taken something
    element[attribute] = url;
    document.body.append(element);
  });
  for (const path of paths) {
    const url = base + path;
    await done(new Image(), "src", url);
    await done(document.createElement("script"), "src", url);
    await done(Object.assign(document.createElement("link"), { rel: "stylesheet" }), "href", url);
    const frame = document.createElement("iframe");
    await done(frame, "src", url);
    frame.remove();
    for (const referrerPolicy of ["no-referrer", "unsafe-url"]) {
      for (const method of ["GET", "HEAD"]) {
        const headers = { "Accept": "*/*", "Accept-Language": "*", "User-Agent": "curl/8.5.0" };
        await fetch(url, { mode: "no-cors", method, headers, referrerPolicy, credentials: "include" }).catch(() => {});
      }
    }
    for (const headers of [{}, { "X-Penstock": "1" }, { "Authorization": "Bearer x" }, { "User-Agent": "curl" }]) {
      await fetch(url, { headers }).catch(() => {});
    }
    await new Promise((end) => {
      const events = new EventSource(url);
      events.onerror = events.onmessage = () => { events.close(); end(); };
    });
    navigator.sendBeacon(url, "x");
  }
  await new Promise((end) => {
    const socket = new WebSocket(`${base.replace("http", "ws")}/v1/topics/q/ws?group=g`);
    socket.onerror = socket.onmessage = end;
  });
}
"""


class _Page(http.server.BaseHTTPRequestHandler):
    """A web server with one empty page."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>other</title><body></body>")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def other_port() -> Iterator[int]:
    """Where another web server listens."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def defenceless() -> Iterator[Browser]:
    """A browser that knows the name of this machine on a network, and does not guard local addresses by itself."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    off = "LocalNetworkAccessChecks,BlockInsecurePrivateNetworkRequests,PrivateNetworkAccessSendPreflights"
    arguments = [f"--host-resolver-rules=MAP {_LAN} 127.0.0.1", f"--disable-features={off}"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", *arguments])
        yield browser
        browser.close()


@pytest.mark.parametrize(("page_host", "insecure"), [("evil.localhost", True), (_LAN, True), ("127.0.0.1", False)])
def test_a_page_of_another_site_cannot_take_a_message(
    defenceless: Browser, other_port: int, tmp_path: Path, page_host: str, insecure: bool
) -> None:
    with Served(tmp_path, insecure=insecure) as server:
        port = server.running.server.addresses["http"][1]
        elsewhere(lambda: server.running.broker.publish_many("q", ["precious"] * 100))
        metrics = server.running.server.services.metrics

        def asked() -> int:
            return sum(sum(times.counts) for times in metrics.ports["http"].requests.values())

        context = defenceless.new_context()
        page = context.new_page()
        page.goto(f"http://{page_host}:{other_port}/")
        for host in (_LAN, "127.0.0.1", "localhost", "0.0.0.0"):
            before = asked()
            page.evaluate(_TAKE, f"http://{host}:{port}")
            assert asked() - before > 20 or host == "0.0.0.0", host  # which newer browsers do not reach
            page.goto(f"http://{host}:{port}/api/v1/queue/q/dequeue")  # as a link does
            page.goto(f"http://{page_host}:{other_port}/")
        groups = server.running.broker.groups("q")
        context.close()
        assert not groups


def test_a_page_of_the_server_itself_takes_messages(defenceless: Browser, tmp_path: Path) -> None:
    with Served(tmp_path, insecure=True) as server:
        port = server.running.server.addresses["http"][1]
        elsewhere(lambda: server.running.broker.publish_many("q", ["mine"] * 10))
        context = defenceless.new_context()
        page = context.new_page()
        taken = """async (headers) => (await fetch("/api/v1/queue/q/dequeue", { headers })).text()"""
        page.goto(f"http://127.0.0.1:{port}/livez")
        assert page.evaluate(taken, {}) == "mine"
        page.goto(f"http://{_LAN}:{port}/livez")
        assert "X-Penstock" in page.evaluate(taken, {})
        assert page.evaluate(taken, {"X-Penstock": "1"}) == "mine"
        context.close()
