"""A process that lives all histories through a client, and prints what came of them as JSON.

    python -m tests.compatibility.living 127.0.0.1:9000 aio

Which version of Penstock it is depends on PYTHONPATH.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec

import penstock
import penstock.aio
from tests.client.awaited import connected
from tests.client.histories import LIVED_BY_0_1_0, lived


def live(address: str, face: str) -> dict[str, Any]:
    """What came of every history, which operations were called, and whose code it was."""
    called: set[str] = set()
    call = penstock.aio.AsyncClient.call

    def counted(client: penstock.aio.AsyncClient, operation: str, *rest: Any, **arguments: Any) -> Any:
        called.add(operation)
        return call(client, operation, *rest, **arguments)

    penstock.aio.AsyncClient.call = counted  # type: ignore[assignment,method-assign]
    with connected(face, address) as client:
        told = {history.__name__: lived(history, client) for history in LIVED_BY_0_1_0}
    return {"package": penstock.__file__, "called": sorted(called), "told": told}


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(live(*sys.argv[1:]), enc_hook=str))
