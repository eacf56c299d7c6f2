"""A worker: functions that are called with messages. Run it with `python examples/worker.py`.

Or keep it running, on a directory of your own: `penstock worker examples.worker:worker --dir ./data --reload`.
"""

from __future__ import annotations

import asyncio
import tempfile
from typing import Any

import penstock
from penstock.worker import Discard

worker = penstock.Worker()


@worker.subscribe("orders", "kitchen", concurrency=4, retries=3, backoff="50ms")
async def cook(message: Any) -> None:
    """A coroutine: four of them at once, on one event loop."""
    await asyncio.sleep(0.01)
    if message.value == b"a dragon":
        raise ValueError("there are no dragons")
    print(f"cooked {message.value.decode()}")
    await worker.broker.publish("bills", message.value)


@worker.subscribe("bills", "till")
def charge(message: Any) -> None:
    """A plain function: in a thread, so it may block."""
    if message.value == b"tap water":
        raise Discard("that is free")
    print(f"charged for {message.value.decode()}")


def main() -> None:
    """Handle a few orders in a directory that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="penstock-") as directory:
        with penstock.open(directory) as broker:
            broker.publish_many("orders", ["two coffees", "a dragon", "a cake", "tap water"])
        worker.directory = directory
        worker.on_start(lambda: asyncio.get_running_loop().call_later(1, worker.stop))
        worker.run()
        with penstock.open(directory) as broker:
            for topic in ("orders", "bills"):
                for letter in broker.dead_letters(topic):
                    print(f"gave up on {letter.value.decode()}: {letter.cause} ({letter.deliveries} deliveries)")


if __name__ == "__main__":
    main()
