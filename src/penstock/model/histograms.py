"""Distributions in fixed buckets: an observation costs one search and two additions, however often it is made."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

Bounds = tuple[float, ...]
"""The highest value of each bucket but the last, which takes all that is higher."""


def _decades(first: int, last: int, steps: Sequence[float]) -> Bounds:
    """The steps, times each power of ten."""
    return tuple(float(f"{step}e{power}") for power in range(first, last) for step in steps)


_FINE = (1, 1.5, 2, 3, 5, 7)
QUICK_S: Bounds = (*_decades(-5, 1, _FINE), 10.0)
"""From 10 µs to 10 s: what the broker and its disk do."""
WAIT_S: Bounds = (*_decades(-4, 1, _FINE), 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 14_400, 86_400)
"""From 0.1 ms to a day: what messages wait for."""
WORK_S: Bounds = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)
"""From 1 ms to 5 minutes: what is done in the background."""
REQUEST_S: Bounds = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30)
"""From 0.1 ms to 30 s, in few steps: there is one of these for each kind of request."""
COUNT: Bounds = (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000)
BYTES: Bounds = tuple(float(1 << power) for power in range(8, 27, 2))


class Histogram:
    """How often values fell into each bucket, and their sum; updated by one thread or under one lock."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value, once or several times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    def observe_sorted(self, values: Sequence[float]) -> None:
        """Count many values, in ascending order: the cost hardly grows with their number."""
        start = 0
        for place, bound in enumerate(self.bounds):
            if start == len(values):
                break
            end = bisect_right(values, bound, start)
            self.counts[place] += end - start
            start = end
        self.counts[-1] += len(values) - start
        self.sum += sum(values)


def quantile(bounds: Bounds, counts: Sequence[int], share: float) -> float | None:
    """The value below which this share of the observations is, estimated from the buckets; None without observations.

    It is interpolated inside its bucket; in the last bucket, it is the lower bound.

    >>> quantile((1.0, 2.0), [2, 2, 0], 0.75)
    1.5
    """
    left = share * sum(counts)
    if not left:
        return None
    for place, count in enumerate(counts[:-1]):
        if count and left <= count:
            low = bounds[place - 1] if place else 0.0
            return low + (bounds[place] - low) * left / count
        left -= count
    return bounds[-1]
