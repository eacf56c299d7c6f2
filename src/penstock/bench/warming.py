"""Before a figure: a little of everything, so that the first second of a fresh server is not what is measured."""

from __future__ import annotations

from penstock.bench.place import Measure, Result, Target
from penstock.bench.requests import Requests
from penstock.bench.sending import Extent, Sender
from penstock.bench.topics import GROUP, new_name, topics

_SIZE = 100


def warm(measure: Measure[Result]) -> Measure[Result]:
    """The same figure, on a server that has done its like before."""

    async def run(target: Target) -> Result:
        await _warm_up(target)
        return await measure(target)

    return run


async def _warm_up(target: Target) -> None:
    topic = new_name()
    async with target.client() as client, topics(target, client, [topic]), target.links(1) as links:
        for batch, window in ((100, 8), (1, 16)):
            await Sender(links, Requests([topic], batch, _SIZE), window).run(Extent(50))
        async with await client.consumer(topic, GROUP, max_in_flight=100_000) as consumer:
            while messages := await consumer.receive(1000):
                await consumer.ack(messages)
        if target.ours:
            await client.settle()  # for which it must have loaded everything that it needs
