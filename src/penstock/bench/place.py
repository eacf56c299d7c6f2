"""Where a run takes place: the server that is measured, and the directory of the baseline."""

from __future__ import annotations

import contextlib
import gc
import os
import platform
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Self, TypeVar

from penstock.bench.bare import Bare
from penstock.bench.figures import Conditions, RunFailed
from penstock.bench.own import OwnServer
from penstock.client.client import AsyncClient
from penstock.client.link import Link
from penstock.model.errors import ConnectionLost, RequestTimeout
from penstock.protocol.session import Welcome

_TIMEOUT_S = 30.0

Result = TypeVar("Result")


class Target:
    """The server of one figure, and its baseline."""

    def __init__(self, address: str, token: str | None, bare: Bare, ours: bool) -> None:
        self.address = address
        self.token = token
        self.bare = bare
        self.ours = ours
        self.welcome: Welcome | None = None

    @contextlib.asynccontextmanager
    async def links(self, count: int) -> AsyncIterator[list[Link]]:
        """Connections for the load."""
        links = [Link(self.address, self.token, _TIMEOUT_S) for _ in range(count)]
        try:
            for link in links:
                await link.open()
            yield links
        finally:
            for link in links:
                await link.close()

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[AsyncClient]:
        """A client: to consume, and to check what the server has."""
        async with AsyncClient(self.address, token=self.token, timeout=_TIMEOUT_S) as client:
            self.welcome = client.link.welcome
            yield client


Measure = Callable[[Target], Coroutine[Any, Any, Result]]


class Place:
    """A running server, or a new one for each figure; use it in a `with` block.

    Files are removed only at the end: removing them earlier changes how fast others sync.
    """

    def __init__(self, server: str | None, token: str | None = None, directory: Path | None = None) -> None:
        self._server = server
        self._token = token
        self._parent = directory
        self._figures = 0
        self._own: OwnServer | None = None
        self._seen: tuple[str, Welcome] | None = None
        self._load_before = os.getloadavg()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            if self._parent is not None:
                self._parent.mkdir(parents=True, exist_ok=True)
            parent = None if self._parent is None else str(self._parent)
            made = tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=parent)
            self.directory = Path(stack.enter_context(made)).resolve()
            self._bare = stack.enter_context(Bare(self.directory))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def measure(self, measure: Measure[Result]) -> Result:
        """Run a figure on an event loop, with a new server unless one was given."""
        import uvloop

        with self._target() as target:
            gc.collect()
            gc.freeze()  # existing objects need not be scanned during a figure
            try:
                result = uvloop.run(measure(target))
            except (ConnectionLost, RequestTimeout) as error:
                if target.welcome is None:  # it was never there
                    raise
                trouble = None if self._own is None else self._own.trouble()
                raise RunFailed(trouble or str(error)) from error
            finally:
                gc.unfreeze()
            if target.welcome is not None:
                self._seen = target.address, target.welcome
        return result

    @contextlib.contextmanager
    def _target(self) -> Iterator[Target]:
        if self._server is not None:
            yield Target(self._server, self._token, self._bare, ours=False)
            return
        self._figures += 1
        with OwnServer(self.directory / f"data-{self._figures}") as own:
            self._own = own
            yield Target(own.address, self._token, self._bare, ours=True)

    def conditions(self) -> Conditions:
        """The conditions of the figures measured so far."""
        address, welcome = self._seen or ("", None)
        return Conditions(
            server=address,
            version=welcome.server if welcome is not None else "",
            sync=welcome.sync if welcome is not None else "",
            own_server=self._server is None,
            directory=str(self.directory.parent),
            file_system=file_system_of(self.directory),
            cores=os.cpu_count() or 0,
            python=platform.python_version(),
            load_before=self._load_before,
            load_after=os.getloadavg(),
        )


def file_system_of(directory: Path) -> str:
    """The type of file system of a directory, if the system tells it."""
    found = ("", "")
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/mounts").read_text().splitlines():
            _, place, kind, *_ = line.split(" ")
            if directory.is_relative_to(place.replace("\\040", " ")) and len(place) >= len(found[0]):
                found = (place, kind)
    return found[1] or "unknown"
