"""Health by HTTP: it answers, it can write, and it says why not."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from penstock.model.errors import StorageFailed
from penstock.version import __version__
from tests.server.http.harness import HttpRunning

READY = ["/readyz", "/health", "/healthz"]


@pytest.mark.parametrize("path", READY)
def test_a_server_that_can_write_is_ready(server: HttpRunning, path: str) -> None:
    assert server.get(path) == {"status": "ok"}
    for query in ("verbose", "verbose=", "verbose=true", "verbose=1"):
        reply = server.ask("GET", f"{path}?{query}")
        assert reply.status == 200
        assert [(check["name"], check["ok"]) for check in reply.json["checks"]] == [
            *(("open", True), ("journal", True), ("disk", True), ("settling", True))
        ]
    assert server.get(path, verbose="false") == {"status": "ok"}


def wrong(server: HttpRunning, path: str = "/readyz") -> list[str]:
    """The checks that have failed."""
    reply = server.ask("GET", path)
    assert reply.status == 503, reply
    assert reply.headers["retry-after"] == "1"
    assert reply.json["status"] == "not ready"
    return [check["name"] for check in reply.json["checks"] if not check["ok"]]


@pytest.mark.parametrize("path", READY)
def test_a_frozen_journal_is_not_ready_and_alive(tmp_path: Path, path: str) -> None:
    secret = "the secret place of the data"
    with HttpRunning(tmp_path) as server:
        with patch.object(server.broker.shard.journal, "frozen", StorageFailed(secret)):
            assert wrong(server, path) == ["journal"]
            assert secret not in server.ask("GET", path).body.decode()
            assert server.get("/livez") == {"status": "ok"}
        assert server.get(path) == {"status": "ok"}


def test_a_full_disk_is_not_ready_until_there_is_room(server: HttpRunning) -> None:
    storage = server.broker.shard.storage
    with patch.object(storage, "free_bytes", return_value=0):
        assert wrong(server) == ["disk"]
        assert server.get("/livez") == {"status": "ok"}
    with patch.object(storage, "free_bytes", side_effect=OSError("gone")):
        assert wrong(server) == ["disk"]
    assert server.get("/readyz") == {"status": "ok"}


def test_a_disk_that_refuses_writes_is_not_ready_whatever_it_says_is_free(tmp_path: Path) -> None:
    with HttpRunning(tmp_path, broker={"min_free_bytes": 0}) as server:
        server.broker.publish("t", "x")
        file = server.broker.shard.journal.current
        assert file is not None
        with patch.object(file, "handle", _Full(file.handle)):
            assert server.refused("POST", "/v1/topics/t/publish", {"value": "y"})[0] == 507
            assert wrong(server) == ["disk"]
        assert wrong(server) == ["disk"]  # for some seconds


class _Full:
    """A file on a disk with no space left."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, position: int, buffers: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def test_a_broker_that_is_closing_is_not_ready(server: HttpRunning) -> None:
    with patch.object(server.broker.shard.core, "closed", new=True):
        assert wrong(server) == ["open"]


def test_a_server_that_stops_is_not_ready(tmp_path: Path) -> None:
    with HttpRunning(tmp_path) as server:
        listener = server.server._listeners["http"]
        with patch.object(listener._front, "stopping", new=True):  # type: ignore[attr-defined]
            assert server.refused("GET", "/readyz") == (503, "the server is stopping")


def test_health_needs_no_token_and_numbers_do(tmp_path: Path) -> None:
    with HttpRunning(tmp_path, auth="tokens") as server:
        for path in (*READY, "/livez", "/version", "/readyz?verbose"):
            assert server.ask("GET", path).status == 200
        for path in ("/metrics", "/status", "/v1/stats", "/reliability/stats", "/v1/schedules"):
            assert server.refused("GET", path)[0] == 401
        assert server.refused("POST", "/api/v1/queue/q/enqueue", b"x")[0] == 401


def test_the_version_is_that_of_the_package(server: HttpRunning) -> None:
    assert server.get("/version") == {"name": "penstock", "version": __version__}


def test_only_the_methods_that_make_sense(server: HttpRunning) -> None:
    for path in (*READY, "/livez", "/version", "/metrics", "/status"):
        assert server.refused("POST", path, b"")[0] == 405
        assert server.ask("HEAD", path).status in (200, 405)
