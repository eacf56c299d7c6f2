"""File descriptors: connections get what the broker's own files can do without.

A connection takes one for as long as its client likes. If they took all, no journal file could be begun and no segment
opened; so the number of connections follows from the limit of the process.
"""

from __future__ import annotations

import contextlib
import logging
import resource

from penstock.model.config import BrokerConfig
from penstock.server.access.starting import StartRefused
from penstock.server.settings.options import ServerConfig

REFUSED_AT_ONCE = 32
"""Connections beyond the limit that hear why they are refused; those beyond them are closed without a word."""
_BESIDE_JOURNAL = 64 + 64 + 80 + REFUSED_AT_ONCE
"""The process itself (ports, pipes, libraries), open stages, threads that read segments, and those above."""
_log = logging.getLogger("penstock.server")


def raise_limit() -> None:
    """Let this process open as many files as it may allow itself."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # then it stays as it is
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def connections_max(config: ServerConfig) -> int:
    """How many connections there may be, on all ports together; raises StartRefused where there is room for none."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return config.max_connections
    room = limit - _BESIDE_JOURNAL - _journal_files(config.broker, limit)
    if room < 1:
        raise StartRefused(
            f"this process may open {limit} files, and a server needs {limit - room} beside its connections",
            "raise the limit: `ulimit -n 20000`, or LimitNOFILE= of a service",
        )
    if room < config.max_connections:
        _log.warning(
            "%d connections are the most that %d open files allow, and not max_connections (%d): raise that limit "
            "(`ulimit -n`, LimitNOFILE=)",
            *(room, limit, config.max_connections),
        )
    return min(room, config.max_connections)


def _journal_files(config: BrokerConfig, limit: int) -> int:
    """How many journal files may be open; where they are tiny, and so many, connections still get most of the limit."""
    return min(config.max_unsettled_bytes // config.journal_file_bytes + 2, limit // 4)
