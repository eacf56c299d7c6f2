"""Where a job works: a server, or a directory that no broker has open."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.model.errors import InvalidArgument
from penstock.spark.connecting import connected
from penstock.spark.finding import origin_at
from penstock.spark.options import Secrets
from penstock.spark.origins import Origin

if TYPE_CHECKING:
    from penstock.client.sync import Client


@dataclass(frozen=True)
class Place:
    """A server (`servers`, with what it asks for), or a `path`: a data directory, an archive or a lake.

    >>> Place(servers="127.0.0.1:9000")
    Place(servers='127.0.0.1:9000', path=None, tls=False, ca=None)
    """

    servers: str | None = None
    path: str | None = None
    token: str | None = field(default=None, repr=False)
    tls: bool = False
    ca: str | None = None

    def __post_init__(self) -> None:
        if (self.servers is None) == (self.path is None):
            raise InvalidArgument("a place is `servers` (host:port) or `path` (a directory), one of the two")

    def __str__(self) -> str:
        return self.servers or self.path or ""

    @property
    def options(self) -> dict[str, Any]:
        """What `read_topic` and `format("penstock")` are given to find it."""
        if self.servers is None:
            return {"path": self.path}
        given = {"servers": self.servers, "token": self.token, "ca": self.ca, "tls": "true" if self.tls else None}
        return {name: value for name, value in given.items() if value is not None}

    @property
    def secrets(self) -> Secrets:
        """How its server is talked to."""
        return Secrets(self.token, self.tls, self.ca)

    def client(self, why: str) -> Client:
        """A client of the server; jobs that write need one, and say what for."""
        if self.servers is None:
            raise InvalidArgument(f"{why} needs a server: {self.path} is a directory (start `penstock serve` on it)")
        return connected(self.servers, self.secrets)

    def origin(self) -> Origin:
        """What planning has to know of it."""
        return origin_at(self.servers, self.path, self.secrets)
