"""A broker does not start on a store that nothing would be safe on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.brokers.harness import BrokerProcess


class Forgetful(BaseHTTPRequestHandler):
    """An object store that takes every put, whether or not something is there."""

    objects: dict[str, bytes]
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        self.objects[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(200, b"")

    def do_GET(self) -> None:
        found = self.objects.get(self.path)
        self._answer(404 if found is None else 200, found or b"")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(200, b"<DeleteResult><Deleted><Key>all</Key></Deleted></DeleteResult>")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("ETag", '"0"')
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def forgetful() -> Iterator[ThreadingHTTPServer]:
    handler = type("OneStore", (Forgetful,), {"objects": {}})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_C17_a_broker_does_not_start_where_objects_can_be_created_twice(
    forgetful: ThreadingHTTPServer, tmp_path: Path
) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    endpoint = f"http://127.0.0.1:{forgetful.server_port}"
    log = tmp_path / "log"
    broker = BrokerProcess("s3://bucket/place", log, {"AWS_ENDPOINT_URL": endpoint, **keys}, [])
    assert broker.process.wait(30) != 0
    assert "messages would be lost on it" in log.read_text()
