"""Addresses of servers."""

from __future__ import annotations

from penstock.model.bounds import shown
from penstock.model.errors import InvalidArgument
from penstock.model.units import parse_digits

_HOST_MAX = 255  # characters of a name, as DNS has it


def parse_address(address: str) -> tuple[str, int]:
    """Host and port of `host:9000`, `:9000`, `host` or `[::1]:9000`."""
    host, separator, port = address.rpartition(":") if isinstance(address, str) else ("", "", "")
    if isinstance(address, str) and (not separator or address.endswith("]")):
        host, port = address, "9000"
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    number = parse_digits(port)
    if number is None or not 0 < number < 65536 or len(host) > _HOST_MAX or any(letter in host for letter in "/ @"):
        raise InvalidArgument(f"{shown(address)} is not the address of a server: give 'host:9000'")
    return host, number
