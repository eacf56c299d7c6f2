"""The server: a broker and its listeners on one event loop, from start to the last reply."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from types import TracebackType
from typing import Self

from penstock.broker.embedded import Broker
from penstock.model.errors import PenstockError
from penstock.server.native.listener import NativeListener
from penstock.server.settings.options import ServerConfig
from penstock.storage import FileStorage

_log = logging.getLogger("penstock.server")
_COLLECT_S = 600.0
_IMPATIENT_S = 0.5  # a second signal later than this after the first one is meant as such


class Server:
    """A broker that others use through a port; `async with Server(config) as server` runs one in a program.

    The broker is opened and closed with it.
    """

    def __init__(self, config: ServerConfig) -> None:
        self.config = config
        self.broker: Broker
        self.address: tuple[str, int]
        self._native: NativeListener

    async def start(self) -> None:
        """Open the directory and listen."""
        self.broker = await asyncio.to_thread(Broker, FileStorage(self.config.data_dir), self.config.broker)
        try:
            self._native = NativeListener(self.broker, self.config)
            self.address = await self._native.start()
        except BaseException:
            self.broker.close()
            raise
        self._preloading = asyncio.get_running_loop().run_in_executor(None, _preload)

    async def stop(self) -> None:
        """Answer what is under way, give leases back, close the directory."""
        await self._native.stop(self.config.shutdown_grace)
        await self._preloading
        await asyncio.to_thread(self.broker.close)

    def set_topic_defaults(self, config: ServerConfig) -> list[str]:
        """Take new defaults for topics that are made from now on; what changed."""
        engine = self.broker.engine
        old, new = asdict(engine.config.topic_defaults), asdict(config.broker.topic_defaults)
        engine.config = replace(engine.config, topic_defaults=config.broker.topic_defaults)
        return [f"{name}: {old[name]} -> {new[name]}" for name in new if new[name] != old[name]]

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        await self.stop()


async def serve(config: ServerConfig, on_ready: Callable[[Server], None], reload: Callable[[], ServerConfig]) -> None:
    """Run a server until SIGINT or SIGTERM; SIGHUP has it take the topic defaults of the configuration anew."""
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    first_s: list[float] = []

    def stop(number: int) -> None:
        if first_s and loop.time() - first_s[0] > _IMPATIENT_S:
            os._exit(128 + number)  # somebody does not want to wait; what was acknowledged is on disk
        first_s.append(loop.time())
        stopping.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    loop.add_signal_handler(signal.SIGHUP, lambda: None)  # nothing is old yet
    async with Server(config) as server:
        loop.add_signal_handler(signal.SIGHUP, _reload, server, reload)
        on_ready(server)
        sys.setswitchinterval(0.001)  # threads that settle or commit must not keep the loop waiting for long
        _collect_now_and_then(loop)
        await stopping.wait()
        _log.info("stopping")
    _log.info("stopped")


def _collect_now_and_then(loop: asyncio.AbstractEventLoop) -> None:
    """Look for garbage among what is new, often and briefly; among the rest rarely, for that stops everything."""
    gc.set_threshold(1000, 5, 1_000_000)
    gc.collect()
    gc.freeze()  # what is here now stays: the collector need not look at it again
    loop.call_later(_COLLECT_S, _collect_now_and_then, loop)


def _reload(server: Server, reload: Callable[[], ServerConfig]) -> None:
    try:
        changed = server.set_topic_defaults(reload())
    except (PenstockError, OSError) as error:
        _log.error("the configuration was not taken: %s", error)
    else:
        _log.info("topic defaults were read again: %s", "; ".join(changed) or "nothing changed")


def _preload() -> None:
    """Load what settling and reading segments will need, before somebody waits for it."""
    import pyarrow.parquet  # noqa: F401
