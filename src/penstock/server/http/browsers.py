"""What a web page may have a browser send: nothing, unless it is a page of this server or of an allowed origin.

Browsers send any page's GET to any address, without asking and without an `Origin`; and without `Sec-Fetch-Site` where
the address is neither HTTPS nor loopback (`http://0.0.0.0`, a machine on the network). So three things are checked: the
name under which a server without tokens is called, the origin where a browser tells it, and, for a GET that takes
messages away from others, that no page of somebody else can have sent it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.model.errors import Forbidden

if TYPE_CHECKING:
    from penstock.server.settings.options import ServerConfig

Headers = Mapping[bytes, bytes]
PROOF = b"x-penstock"
"""A header that no page of another origin can set without asking (a CORS preflight), which is refused."""
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_OF_BROWSERS = (b"sec-fetch-site", b"upgrade-insecure-requests", b"referer")


class BrowserGuard:
    """Refuses what pages of others sent."""

    def __init__(self, config: ServerConfig) -> None:
        self.origins = frozenset(config.cors_origins.split())
        """Origins of other pages that may use this server."""
        names = config.http_hosts.lower().split()
        is_open = config.auth == "off" and (not config.insecure or bool(names))
        self._names = frozenset((*_LOOPBACK, config.host.lower(), *names)) if is_open else None

    def check(self, headers: Headers, *, linked: bool) -> None:
        """Raise Forbidden for what a page of somebody else sent; pages may link to what is `linked`.

        Reading is refused to it as well: nothing that a server holds is for any page to know.
        """
        host = headers.get(b"host", b"").decode("latin-1")
        if self._names is not None and not self._is_own(host):
            raise Forbidden(
                f"a server without tokens does not answer to the name {host!r:.80}: use localhost or the address that "
                "it listens on, name it (http_hosts), or have the server ask for tokens (auth: tokens)"
            )
        origin = headers.get(b"origin", b"").decode("latin-1")
        if origin:
            if origin not in self.origins and origin.partition("://")[2] != host:
                raise Forbidden(f"pages of {origin!r:.80} may not use this server (cors_origins)")
        elif headers.get(b"sec-fetch-site") in (b"cross-site", b"same-site") and not linked:
            raise Forbidden("pages of other servers may not use this one (cors_origins)")

    def _is_own(self, host: str) -> bool:
        """Whether a Host header is a name of this server; none at all is no name that a page could have made up."""
        name = host.rpartition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
        name = name.lower()
        return not host or name.endswith(".localhost") or (self._names is not None and name in self._names)


def check_taking(headers: Headers) -> None:
    """Raise Forbidden for a GET that takes messages, if a page of somebody else can have had a browser send it.

    Programs such as curl say nothing that a browser says. A browser must show that a page of this server, or one that
    is allowed (`check` has seen its origin), has sent it.
    """
    shown = (
        headers.get(b"sec-fetch-site") == b"same-origin"
        or b"origin" in headers
        or PROOF in headers
        or headers.get(b"authorization", b"")[:7].lower() == b"bearer "
    )
    if not shown and _is_from_browser(headers):
        raise Forbidden(
            "a browser may not take messages by GET for any page: send the header X-Penstock, such as X-Penstock: 1"
        )


def _is_from_browser(headers: Headers) -> bool:
    """Whether a request has what all browsers send, and what no page can keep them from sending."""
    return (
        b"mozilla/" in headers.get(b"user-agent", b"").lower()
        or headers.get(b"accept-language", b"*") != b"*"  # which is what Node.js sends
        or any(name in headers for name in _OF_BROWSERS)
    )
