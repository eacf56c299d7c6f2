"""`publish`: how fast messages become durable, compared with a bare round trip."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from penstock.bench.bare import WHAT, Trips
from penstock.bench.figures import Beside, Figure
from penstock.bench.place import Target
from penstock.bench.sending import Extent, Requests, Sender
from penstock.bench.topics import check_published, new_name, topics

_SLICE_S = 0.5
_SLICES_MAX = 8


@dataclass(frozen=True, slots=True)
class Publishing:
    """What to publish, and how."""

    batch: int = 1000
    connections: int = 1
    window: int = 8
    size: int = 100
    rate: float | None = None
    """Messages a second by a schedule; None: as fast as they are answered."""
    seconds: float = 3.0
    count: int | None = None
    """So many messages, in whole batches, instead of some seconds."""
    topic: str | None = None

    @property
    def one_at_a_time(self) -> bool:
        """Whether each request waits for the one before."""
        return self.connections == self.window == 1 and self.rate is None

    @property
    def what(self) -> str:
        """The plan in words."""
        messages = "one message a request" if self.batch == 1 else f"batches of {self.batch:,}"
        connections = "one connection" if self.connections == 1 else f"{self.connections:,} connections"
        window = "one at a time" if self.window == 1 else f"{self.window:,} under way"
        rate = "" if self.rate is None else f", {self.rate:,.0f}/s"
        return f"publish, {messages}, {connections}, {window}{rate}"

    def slices(self) -> list[Extent]:
        """The run in parts, between which the baseline is measured; a run with a schedule is one part."""
        parts = 1 if self.rate is not None else min(_SLICES_MAX, max(2, round(self.seconds / _SLICE_S)))
        if self.count is None:
            return [Extent(seconds=self.seconds / parts)] * parts
        requests = math.ceil(self.count / self.batch)
        ends = [requests * number // parts for number in range(parts + 1)]
        return [Extent(end - start) for start, end in pairwise(ends) if end > start]


async def publish(target: Target, plan: Publishing) -> Figure:
    """Measure it."""
    topic = plan.topic or new_name()
    async with (
        target.client() as client,
        topics(target, client, [topic]) as before,
        target.links(plan.connections) as links,
    ):
        sender = Sender(links, Requests([topic], plan.batch, plan.size), plan.window)
        per_second = None if plan.rate is None else plan.rate / plan.batch
        requests, seconds = 0, 0.0
        trips: Trips | None = None
        try:
            for extent in plan.slices():
                sent = await sender.run(extent, per_second)
                requests += sent.requests
                seconds += sent.seconds
                trips = trips or target.bare.trips(sender.request_bytes, sender.reply_bytes)
                trips.run(min(sent.seconds, _SLICE_S) / (1 if plan.one_at_a_time else 2))
        finally:
            if trips is not None:
                trips.close()
        messages = requests * plan.batch
        verified = await check_published(client, before, messages)
    assert trips is not None
    return Figure(
        plan.what,
        messages,
        seconds,
        plan.size,
        sender.histogram.latency(),
        "a request, from when it was " + ("sent" if plan.rate is None else "due") + " to its reply",
        (verified,),
        _beside(plan, sender, messages / seconds, trips),
    )


def _beside(plan: Publishing, sender: Sender, messages_per_s: float, trips: Trips) -> Beside:
    latency, bare = sender.histogram.latency(), trips.histogram.latency()
    bare_per_s = trips.per_second * plan.batch
    of_times = plan.one_at_a_time or plan.rate is not None
    ratio = latency.p50_s / bare.p50_s if of_times else messages_per_s / bare_per_s
    return Beside(WHAT, bare_per_s, bare, ratio, of_times)
