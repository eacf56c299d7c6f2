"""Receiving in a task: waits on a future for what `shard.dispatch.waiting` decides."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import TYPE_CHECKING

from penstock.cluster.consuming import AnyConsuming
from penstock.shard.operations.consuming import Message

if TYPE_CHECKING:
    from penstock.shard.dispatch.waiting import Fetched


async def take_or_wait(
    consuming: AnyConsuming[Message],
    wanted: int,
    wait_s: float,
    visibility_s: float | None,
    ends: Collection[asyncio.Future[None]] = (),
) -> Fetched:
    """Lease up to so many messages; waits for the first one, until its time is over or one of the `ends` is done."""
    loop = asyncio.get_running_loop()
    arrived: asyncio.Future[None] | None = None

    def arrive() -> None:
        if arrived is not None and not arrived.done():
            arrived.set_result(None)

    def wake() -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
            loop.call_soon_threadsafe(arrive)

    waiter = consuming.waiter(wanted, visibility_s, wake)
    until_s = loop.time() + wait_s
    while (found := waiter.take(waits=wait_s > 0)) is None:
        arrived = loop.create_future()
        try:
            await asyncio.wait([arrived, *ends], timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            waiter.give_up()
            raise
        is_over = not arrived.done() or any(end.done() for end in ends)
        wait_s = 0.0 if is_over else until_s - loop.time()
    return found


async def read_fetched(
    consuming: AnyConsuming[Message],
    found: Fetched,
    owner: object,
    run: Callable[[Callable[[], list[Message]]], Awaitable[list[Message]]],
) -> list[Message]:
    """The messages that were leased; `run` reads them in a thread where that may take long."""
    if not consuming.must_read_segments(found):
        return consuming.messages(found, owner)
    try:
        return await run(partial(consuming.messages, found, owner))
    except BaseException:
        consuming.give_back(found)
        raise
