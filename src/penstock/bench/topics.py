"""The topics of a run, and checks of what the server has of them."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from penstock.bench.figures import check_count
from penstock.bench.place import Target
from penstock.client.client import AsyncClient
from penstock.model.errors import PenstockError, TopicExists

GROUP = "bench"
_AT_ONCE = 64
_PATIENCE_S = 5.0


def new_name() -> str:
    """A new topic name."""
    return f"bench-{uuid.uuid4().hex[:12]}"


@contextlib.asynccontextmanager
async def topics(target: Target, client: AsyncClient, names: Sequence[str]) -> AsyncIterator[dict[str, int]]:
    """Make these topics, if they are new; how many messages each has ever had.

    Those that were made here are deleted afterwards, unless the whole server is.
    """
    made: list[str] = []

    async def make(name: str) -> None:
        with contextlib.suppress(TopicExists):
            await client.create_topic(name)
            made.append(name)

    try:
        await _for_each(names, make)
        yield await ends_of(client, names)
    finally:
        if not target.ours:
            with contextlib.suppress(PenstockError, TimeoutError):  # an earlier error is the one that counts
                async with asyncio.timeout(_PATIENCE_S):
                    await client.ping()
                await _for_each(made, client.delete_topic)


async def _for_each(names: Sequence[str], do: Callable[[str], Awaitable[None]]) -> None:
    """Do something with each name, some at a time."""
    left = iter(names)

    async def work() -> None:
        for name in left:
            await do(name)

    await asyncio.gather(*(work() for _ in range(min(_AT_ONCE, len(names)))))


async def ends_of(client: AsyncClient, names: Sequence[str]) -> dict[str, int]:
    """How many messages each topic has ever had: the sum of the end offsets of its partitions."""
    wanted = set(names)
    return {
        topic.name: sum(part.end_offset for part in topic.partitions)
        for topic in await client.topics()
        if topic.name in wanted
    }


async def check_published(client: AsyncClient, before: dict[str, int], expected: int) -> str:
    """That the end offsets grew by what was acknowledged, in equal parts where there are several topics."""
    after = await ends_of(client, list(before))
    grown = {name: after.get(name, 0) - end for name, end in before.items()}
    if len(grown) > 1:
        share = expected // len(grown)
        for name, count in grown.items():
            check_count(f"acknowledged for {name}, and there by its end offset", count, share)
    return check_count("acknowledged, and there by the end offsets", sum(grown.values()), expected)


async def check_acked(client: AsyncClient, names: Sequence[str], received: int, expected: int) -> tuple[str, ...]:
    """That everything was received once, is acked, and nothing is left."""
    wanted = set(names)
    groups = await client.groups(names[0] if len(names) == 1 else None)
    ours = [group for group in groups if group.name == GROUP and group.topic in wanted]
    check_count("groups", len(ours), len(names))
    check_count("left to the group", sum(group.lag for group in ours), 0)
    return (
        check_count("received, each once", received, expected),
        check_count("acked by the group", sum(group.acked for group in ours), expected),
    )
