"""The three faces of a broker behind one: embedded, through a plain client, through an asyncio client."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import penstock
from tests.client.awaited import connected
from tests.server.harness import Running

FACES = ("embedded", "client", "aio")


@contextlib.contextmanager
def face_of(kind: str, path: Path, **options: Any) -> Iterator[Any]:
    """A broker on a directory, used in plain calls whatever it is."""
    broker_options = {"min_free_bytes": 0, **options.pop("broker", {})}
    if kind == "embedded":
        with penstock.open(path, **broker_options) as broker:
            yield broker
        return
    with Running(path, broker=broker_options, **options) as server, connected(kind, server.address) as client:
        yield client
