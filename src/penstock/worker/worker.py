"""The worker: collects subscriptions, and runs them until it is asked to stop."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import signal
import ssl
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from penstock.model.errors import BrokerClosed, InvalidArgument
from penstock.model.units import Duration, Time, parse_duration
from penstock.worker.running import Running, Stopping, on_signals
from penstock.worker.subscription import Handler, Subscription

logger = logging.getLogger("penstock.worker")

Function = TypeVar("Function", bound=Handler)
Hook = TypeVar("Hook", bound=Callable[[], object])
_DEFAULT_SERVER = "127.0.0.1:9000"
_TRUE = ("1", "true", "t", "yes", "y", "on")


class Worker:
    """Calls functions with the messages of topics, and acks, retries or dead-letters each message by the outcome.

    >>> import tempfile, penstock
    >>> directory = tempfile.mkdtemp()
    >>> with penstock.open(directory) as broker:
    ...     identity = broker.publish("orders", "two coffees")
    >>> worker = Worker(directory=directory)
    >>> @worker.subscribe("orders", "kitchen")
    ... def make(message):
    ...     print(message.value)
    ...     worker.stop()
    >>> worker.run()
    b'two coffees'
    """

    def __init__(
        self,
        server: str | None = None,
        *,
        token: str | None = None,
        tls: bool | ssl.SSLContext = False,
        ca: str | os.PathLike[str] | None = None,
        cert: str | os.PathLike[str] | None = None,
        key: str | os.PathLike[str] | None = None,
        directory: str | os.PathLike[str] | None = None,
    ) -> None:
        if server is not None and directory is not None:
            raise InvalidArgument("give the address of a server or a directory, not both")
        self.server = server
        self.token = token
        self._tls = {"tls": tls, "ca": ca, "cert": cert, "key": key}
        self.directory = directory
        self._subscriptions: list[Subscription] = []
        self._on_start: list[Callable[[], object]] = []
        self._on_stop: list[Callable[[], object]] = []
        self._stopping: Stopping | None = None
        self._broker: Any = None

    def subscribe(
        self,
        topics: str | Sequence[str],
        group: str,
        *,
        concurrency: int = 1,
        retries: int | None = None,
        backoff: Duration | None = None,
        visibility_timeout: Duration | None = None,
        mode: str = "shared",
        start: str | Time = "earliest",
        auto_extend: bool = True,
        timeout: Duration | None = None,
    ) -> Callable[[Function], Function]:
        """Have the function below called with each message; docs/how-to/run-workers.md tells what each option does."""

        def register(handler: Function) -> Function:
            self._subscriptions.append(
                Subscription(
                    handler,
                    topics,
                    group,
                    concurrency=concurrency,
                    retries=retries,
                    backoff=backoff,
                    visibility_timeout=visibility_timeout,
                    mode=mode,
                    start=start,
                    auto_extend=auto_extend,
                    timeout=timeout,
                )
            )
            return handler

        return register

    def on_start(self, hook: Hook) -> Hook:
        """Have a function called before the first message is received; what it raises ends the worker."""
        self._on_start.append(hook)
        return hook

    def on_stop(self, hook: Hook) -> Hook:
        """Have a function called after the last handler has ended; the last one given is called first."""
        self._on_stop.append(hook)
        return hook

    @property
    def broker(self) -> Any:
        """The broker that the worker has open (`penstock.aio`), for handlers that publish."""
        if self._broker is None:
            raise BrokerClosed("the worker does not run, and has no broker open")
        return self._broker

    def run(self, *, grace: Duration = "30s") -> None:
        """Handle messages until SIGINT, SIGTERM or `stop()`, then let handlers finish for up to `grace`.

        A second signal stops at once; Ctrl-C raises KeyboardInterrupt then. No message is lost by either.
        """
        came: list[int] = []

        async def main() -> None:
            serving = asyncio.create_task(self.serve(grace=grace))

            def hear(number: int) -> None:
                came.append(number)
                if len(came) > 1:
                    serving.cancel()
                else:
                    self.stop()

            with on_signals(hear, signal.SIGINT, signal.SIGTERM, loop=asyncio.get_running_loop()):
                await asyncio.wait([serving])
            if not serving.cancelled():
                serving.result()

        asyncio.run(main())
        if len(came) > 1 and came[-1] == signal.SIGINT:
            raise KeyboardInterrupt

    async def serve(self, *, grace: Duration = "30s") -> None:
        """As `run`, in an event loop of your own and without signals; to be cancelled is to stop at once."""
        grace_s = parse_duration(grace)
        if not self._subscriptions:
            raise InvalidArgument("the worker has nothing to do: give it handlers with @worker.subscribe(topic, group)")
        if self._stopping is not None:
            raise InvalidArgument("the worker runs already")
        self._stopping = Stopping(grace_s)
        try:
            async with self._open() as self._broker:
                for hook in self._on_start:
                    await _call(hook)
                try:
                    logger.info("started: %s", ", ".join(subscription.name for subscription in self._subscriptions))
                    await self._stopping.run([Running(each, self._broker) for each in self._subscriptions])
                finally:
                    await self._run_stop_hooks()
        finally:
            self._stopping = self._broker = None
        logger.info("stopped")

    def stop(self) -> None:
        """Receive no more, and end when the handlers have; from any thread. Nothing happens if it does not run."""
        stopping = self._stopping
        if stopping is not None:
            stopping.ask()

    def _open(self) -> AbstractAsyncContextManager[Any]:
        import penstock.aio

        if self.directory is not None:
            return penstock.aio.open(self.directory)
        server = self.server or os.environ.get("PENSTOCK_SERVER") or _DEFAULT_SERVER
        return penstock.aio.connect(server, token=self.token or os.environ.get("PENSTOCK_TOKEN"), **self._secured())

    def _secured(self) -> dict[str, Any]:
        """The TLS options: those that were given, or else those of the environment."""
        if any(self._tls.values()):
            return self._tls
        given = {name: os.environ.get(f"PENSTOCK_{name.upper()}") or None for name in ("ca", "cert", "key")}
        return {"tls": os.environ.get("PENSTOCK_TLS", "").lower() in _TRUE, **given}

    async def _run_stop_hooks(self) -> None:
        for hook in reversed(self._on_stop):
            try:
                await _call(hook)
            except Exception:
                logger.exception("a hook failed at the end")


async def _call(hook: Callable[[], object]) -> None:
    result = hook()
    if inspect.isawaitable(result):
        await result
