"""Servers with an HTTP port for tests, and a client that says what it is told to."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tests.server.harness import PATIENCE_S, Child, Running, free_port


@dataclass(frozen=True, slots=True)
class Reply:
    """What a server answered."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Asking:
    """Asks a server by HTTP."""

    @property
    def http_port(self) -> int:
        raise NotImplementedError

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
        token: str | None = None,
    ) -> Reply:
        """The reply to a request; a body that is not bytes is sent as JSON."""
        sent = dict(headers or {})
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        data = body
        if body is not None and not isinstance(body, bytes):
            data = json.dumps(body).encode()
            sent.setdefault("Content-Type", "application/json")
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=PATIENCE_S)
        try:
            connection.request(method, f"{path}?{urlencode(query)}" if query else path, data, sent)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Reply(response.status, found, response.read())
        finally:
            connection.close()

    def get(self, path: str, **query: Any) -> Any:
        """What is at a path, as JSON; it must be there."""
        reply = self.ask("GET", path, query={name.rstrip("_"): value for name, value in query.items()})
        assert reply.status == 200, reply
        return reply.json

    def post(self, path: str, body: Any = None) -> Any:
        """What a POST that succeeds answers, as JSON; None if that is nothing."""
        reply = self.ask("POST", path, {} if body is None else body)
        assert reply.status in (200, 201, 204), reply
        return reply.json if reply.body else None

    def refused(self, method: str, path: str, body: Any = None, **options: Any) -> tuple[int, str]:
        """The status and the text of an error, which has the shape that all errors have."""
        reply = self.ask(method, path, body, **options)
        assert reply.status >= 400, reply
        assert reply.headers["content-type"].startswith("application/json"), reply
        found = reply.json
        assert set(found) >= {"error", "status", "hint"}, found
        assert found["status"] == reply.status, found
        return reply.status, found["error"]


class HttpRunning(Asking, Running):
    """A server in a thread of its own, with a free port for HTTP."""

    def __init__(self, path: Any, **options: Any) -> None:
        super().__init__(path, **{"http_port": 0, **options})

    @property
    def http_port(self) -> int:
        return self.server.addresses["http"][1]


class HttpChild(Asking, Child):
    """`penstock serve` as a process, with a port for HTTP that stays the same."""

    def __init__(self, path: Path, *arguments: str, **options: object) -> None:
        self._http_port = free_port()
        super().__init__(path, *arguments, **{"http_port": self._http_port, **options})

    @property
    def http_port(self) -> int:
        return self._http_port
