"""Addresses of servers: one, or those of all members of a cluster."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.model.bounds import shown
from penstock.model.errors import InvalidArgument
from penstock.model.units import parse_digits

_HOST_MAX = 255  # characters of a name, as DNS has it
_ADDRESSES_MAX = 100  # that are given at once


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


class Addresses:
    """Where a server is reached: addresses that were given, and those that it has told of, for when none of them is."""

    def __init__(self, given: str) -> None:
        parts = given.split(",") if isinstance(given, str) else [given]
        if len(parts) > _ADDRESSES_MAX:
            raise InvalidArgument(f"{len(parts)} addresses are too many: give at most {_ADDRESSES_MAX}")
        if len(parts) > 1:
            parts = [part.strip() for part in parts]
        if len(parts) > 1 and "" in parts:
            raise InvalidArgument(f"{shown(given)} has a comma too many: give 'host:9000' or 'host:9000,other:9000'")
        self._given = list(dict.fromkeys(map(parse_address, parts)))
        self._told: list[tuple[str, int]] = []
        self._tried: tuple[str, int] | None = None

    def __len__(self) -> int:
        return len(self._given) + len(self._told)

    def __str__(self) -> str:
        return ", ".join(map(text_of, (*self._given, *self._told)))

    @property
    def current(self) -> tuple[str, int]:
        """The one that was tried last."""
        return self._tried or self._given[0]

    def turn_to(self, address: tuple[str, int]) -> None:
        """Note that one of them is tried."""
        self._tried = address

    def learn(self, told: Iterable[str]) -> None:
        """Note where the server says that it is reached too; what it said before is not so any more."""
        self._told = [address for address in dict.fromkeys(map(parse_address, told)) if address not in self._given]

    def in_turn(self) -> list[tuple[str, int]]:
        """All of them as they are to be tried next: those that were given first, and last of them the current one."""
        return [*self._rotated(self._given), *self._rotated(self._told)]

    def _rotated(self, some: list[tuple[str, int]]) -> list[tuple[str, int]]:
        place = some.index(self._tried) + 1 if self._tried in some else 0
        return some[place:] + some[:place]


def text_of(address: tuple[str, int]) -> str:
    """As errors show it."""
    return f"{address[0]}:{address[1]}"
