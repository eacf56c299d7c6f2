"""Clients and servers of an earlier version, as processes of their own that run its code."""

from __future__ import annotations

import contextlib
import io
import json
import lzma
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.client.histories import LIMITS
from tests.patience import PATIENCE_S
from tests.server.harness import Child, free_port

PACKAGE = Path(__file__).with_name("v0_1_0.package.tar.xz")
_ROOT = Path(__file__).parents[2]
_SERVE = """
import asyncio, json, sys
from penstock.server.config import ServerConfig
from penstock.server.server import Server

async def main():
    async with Server(ServerConfig.parse(json.loads(sys.argv[1]))) as server:
        print(json.dumps({name: port for name, (_, port) in server.addresses.items()}), flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""
"""The server of 0.1.0, until its input ends."""


class Ports(NamedTuple):
    """Where a server listens."""

    native: int
    http: int
    line: int

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.native}"


def unpack(path: Path) -> Path:
    """The code of 0.1.0, in a directory for PYTHONPATH."""
    with tarfile.open(fileobj=io.BytesIO(lzma.decompress(PACKAGE.read_bytes()))) as archive:
        archive.extractall(path, filter="data")
    return path


def environment(package: Path | None) -> dict[str, str]:
    """The variables of a process that runs this code; None: that of today."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    return others if package is None else {**others, "PYTHONPATH": str(package)}


@contextlib.contextmanager
def earlier_server(package: Path, data: Path) -> Iterator[Ports]:
    """A server of 0.1.0."""
    broker = {"min_free_bytes": 0, **LIMITS}
    options = {"data_dir": str(data), "native_port": 0, "http_port": 0, "line_port": 0, "broker": broker}
    with subprocess.Popen(
        [sys.executable, "-P", "-c", _SERVE, json.dumps(options)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(package),
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield Ports(**json.loads(process.stdout.readline()))
            process.stdin.close()
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()


@contextlib.contextmanager
def todays_server(data: Path) -> Iterator[Ports]:
    """`penstock serve` of today."""
    http, line = free_port(), free_port()
    options = {"broker_min_free_bytes": 0, **{f"broker_{name}": value for name, value in LIMITS.items()}}
    with Child(data, http_port=http, line_port=line, **options) as child:
        yield Ports(child.port, http, line)


def live_as(package: Path | None, address: str, face: str) -> dict[str, Any]:
    """What a client of a version tells of the histories that it lived."""
    command = [sys.executable, "-m", "tests.compatibility.living", address, face]
    done = subprocess.run(command, cwd=_ROOT, env=environment(package), capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    told: dict[str, Any] = json.loads(done.stdout)
    return told
