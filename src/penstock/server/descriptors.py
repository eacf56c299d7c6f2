"""File descriptors: connections get those that the broker's own files do not need.

A connection holds one for as long as its client wants. If connections used them all, the broker could neither begin a
journal file nor open a segment; so the limit of the process limits the number of connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource

from penstock.model.config import BrokerConfig
from penstock.server.access.starting import StartRefused
from penstock.server.settings.options import ServerConfig

REFUSED_AT_ONCE = 32
"""Connections beyond the limit that get an error; the server closes all others without one."""
_BESIDE_JOURNAL = 64 + 64 + 80 + REFUSED_AT_ONCE
"""The process itself (ports, pipes, libraries), open stages, threads that read segments, and those above."""
_LOOK_S = 0.5
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


class SpareDescriptor:
    """A descriptor in reserve: when there is no other, it is used to accept new connections and close them immediately.

    Otherwise they would stay in the queue of the socket, and the loop would try to accept them all the time.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._held: int | None = None

    def is_given_up(self) -> bool:
        """Whether this process, or the machine, has no other descriptor."""
        if self._timer is not None and self._held is None:
            self._look()
        return self._timer is not None and self._held is None

    def start(self) -> None:
        """Look now, and again and again."""
        self._look()
        self._timer = self._loop.call_later(_LOOK_S, self.start)

    def _look(self) -> None:
        """Hold a descriptor, unless there would be no other then."""
        if self._held is None:
            self._held = _new_descriptor()
        another = _new_descriptor()
        if another is None:
            self._let_go()
        else:
            os.close(another)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._let_go()

    def _let_go(self) -> None:
        if self._held is not None:
            os.close(self._held)
            self._held = None


def _new_descriptor() -> int | None:
    """A descriptor of nothing; None where there is none left."""
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
