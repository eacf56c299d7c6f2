"""How many requests a second one client may send."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable

from penstock.model.errors import Overloaded
from penstock.server.access.principal import Principal

_KEYS_MAX = 10_000
_NETWORK_BITS = 64  # of an IPv6 address: one client may have all addresses of such a network


class RateLimited(Overloaded):
    """Too many requests of one client: nothing was done for this one."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class RateLimits:
    """A bucket for each client, which holds the requests of one second; 0 is no limit."""

    def __init__(self, limit: int, now_s: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._now_s = now_s
        self._full_s: dict[str, float] = {}  # when the bucket of a client is full again; the one seen last at the end

    @property
    def limited(self) -> bool:
        """Whether there is a limit."""
        return self._limit > 0

    def take(self, key: str) -> None:
        """Take one request out of a client's bucket; raises RateLimited if it is empty."""
        if not self._limit:
            return
        now_s = self._now_s()
        full_s = max(now_s, self._full_s.pop(key, now_s)) + 1 / self._limit
        wait_s = full_s - now_s - 1.0
        if wait_s > 1e-9:
            self._full_s[key] = full_s - 1 / self._limit
            raise RateLimited(f"more than {self._limit:,} requests a second (rate_limit): try later", wait_s)
        self._full_s[key] = full_s
        if len(self._full_s) > _KEYS_MAX:
            self._forget(now_s)

    def _forget(self, now_s: float) -> None:
        """Drop full buckets, which are like new ones, and if that is not enough those that were idle for longest."""
        self._full_s = {key: full_s for key, full_s in self._full_s.items() if full_s > now_s}
        for key in list(self._full_s)[: len(self._full_s) - _KEYS_MAX // 2]:
            del self._full_s[key]


def rate_key(principal: Principal, host: str) -> str:
    """Whose requests are counted together: those of a token, or without one those of an address."""
    if principal.token is not None:
        return f"token {principal.name}"
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.version == 6:
        return str(ipaddress.ip_network((int(address) >> _NETWORK_BITS << _NETWORK_BITS, _NETWORK_BITS)))
    return host
