"""The workers of the demonstration. `make run` runs them as `penstock worker examples.orders.workers:worker`."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import penstock
from penstock.worker import Discard, Retry

worker = penstock.Worker()


@worker.subscribe("orders", "billing", concurrency=16, retries=3)
async def bill(message: Any) -> None:
    """Ask the bank for the money, which does not always answer, and does not take every card."""
    try:
        order = json.loads(message.value)
    except ValueError:
        raise Discard("it is not JSON") from None
    await asyncio.sleep(0.005)
    if order["payment"] == "expired card":
        raise Retry("1s", "the card has expired")
    if order["payment"] == "bank transfer" and message.failures == 0:
        raise Retry("2s", "the bank does not answer")


@worker.subscribe(["orders-urgent", "orders-standard"], "warehouse", concurrency=16)
async def pack(message: Any) -> None:
    """Pack what the pipeline has enriched and routed; there is nothing that can go wrong."""
    await asyncio.sleep(0.005)


@worker.subscribe("order-minutes", "accounts")
async def note(message: Any) -> None:
    """Take note of a minute that is over."""
