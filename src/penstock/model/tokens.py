"""Tokens as they are shown: what one is for, never its secret but once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Scope(StrEnum):
    """What a token is for; `admin` includes the others."""

    ADMIN = "admin"
    PUBLISH = "publish"
    CONSUME = "consume"
    READ = "read"


@dataclass(frozen=True, slots=True)
class TokenInfo:
    """A token of a server, without its secret."""

    id: str
    name: str
    scopes: tuple[str, ...]
    """What it is for: `admin`, `publish`, `consume`, `read`."""
    topics: tuple[str, ...]
    """Patterns of the topics that it is for."""
    created_at: datetime
    expires_at: datetime | None
    """None: it is valid until it is revoked."""


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token that was just made; nobody can find out its secret later."""

    token: TokenInfo
    secret: str
