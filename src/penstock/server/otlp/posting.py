"""One request to a collector, by HTTP: sent, and its answer understood."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
from typing import NamedTuple
from urllib.parse import urlsplit

from penstock.model.errors import InvalidArgument
from penstock.version import __version__

_PATH = "/v1/traces"
_LATER = (429, 502, 503, 504)  # what OTLP says is worth another try
_REPLY_MAX = 64 << 10
_WAIT_MAX_S = 60.0


class Answer(NamedTuple):
    """What became of a request."""

    accepted: bool
    again: bool
    """Whether another try may help."""
    reason: str
    wait_s: float = 0.0
    """How long the collector asks to be left alone."""
    body: bytes = b""


class Collector:
    """Where spans are sent to, a connection for each request: there are few of them."""

    def __init__(self, endpoint: str) -> None:
        try:
            parts = urlsplit(endpoint)
            port = parts.port
        except ValueError as error:
            raise InvalidArgument(f"otlp_endpoint: {endpoint!r} is not an address: {error}") from error
        plain = endpoint.isascii() and endpoint.isprintable() and " " not in endpoint
        if not plain or parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise InvalidArgument(f"otlp_endpoint: {endpoint!r} is not an address such as 'http://127.0.0.1:4318'")
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._host, self._port = parts.hostname, port or (443 if self._tls else 80)
        path = parts.path.rstrip("/")
        self._target = (path if path.endswith(_PATH) else path + _PATH) + (f"?{parts.query}" if parts.query else "")
        self._socket: socket.socket | None = None
        self._given_up = False

    def post(self, body: bytes, timeout_s: float) -> Answer:
        """Send a request and wait for the answer; never raises for what a network or a collector does."""
        connection = self._connection(timeout_s)
        try:
            connection.connect()
            self._socket = connection.sock
            if self._given_up:
                return Answer(accepted=False, again=True, reason="it was given up")
            headers = {"Content-Type": "application/x-protobuf", "User-Agent": f"penstock/{__version__}"}
            connection.request("POST", self._target, body, headers)
            response = connection.getresponse()
            reply = response.read(_REPLY_MAX)
        except (OSError, http.client.HTTPException, ValueError) as error:
            return Answer(accepted=False, again=True, reason=f"{type(error).__name__}: {error}")
        finally:
            self._socket = None
            connection.close()
        if 200 <= response.status < 300:
            return Answer(accepted=True, again=False, reason="", body=reply)
        asked = response.headers.get("Retry-After", "")
        wait_s = min(float(asked), _WAIT_MAX_S) if asked.isascii() and asked.isdigit() else 0.0
        reason = f"{response.status} {response.reason}"
        return Answer(accepted=False, again=response.status in _LATER, reason=reason, wait_s=wait_s)

    def give_up(self) -> None:
        """Break off the request that is under way, from another thread."""
        self._given_up = True
        under_way = self._socket
        if under_way is not None:
            with contextlib.suppress(OSError):
                under_way.shutdown(socket.SHUT_RDWR)

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        if self._tls is not None:
            return http.client.HTTPSConnection(self._host, self._port, timeout=timeout_s, context=self._tls)
        return http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
