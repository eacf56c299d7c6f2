"""What a server must be sure of before it listens: that not anybody can use it by accident."""

from __future__ import annotations

import ipaddress

from penstock.model.errors import InvalidArgument
from penstock.server.settings.options import ServerConfig


class StartRefused(InvalidArgument):
    """A server does not start with these options; `hint` says what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def check_exposure(config: ServerConfig) -> None:
    """Raise StartRefused if others than this machine could reach a server that asks nobody for a token."""
    if config.auth == "off" and not config.insecure and not is_loopback(config.host):
        raise StartRefused(
            f"host {config.host} can be reached from other machines, and anybody may use the server (auth: off)",
            "ask for tokens with --auth tokens, listen on 127.0.0.1, or take the risk with --insecure",
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address; a name other than localhost may mean anything."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
