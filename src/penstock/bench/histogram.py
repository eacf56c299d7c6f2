"""Durations counted in buckets: little memory for any number of them, and percentiles with a known error."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

_BITS = 8
_HALF = 1 << (_BITS - 1)
RELATIVE_ERROR = 1 / _HALF
"""A percentile is never lower than the true one, and higher by at most this fraction."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Some percentiles, in seconds."""

    count: int
    mean_s: float
    p50_s: float
    p90_s: float
    p99_s: float
    p999_s: float
    max_s: float


class Histogram:
    """Log-linear buckets of nanoseconds: exact below 256, then 128 of the same width for each power of two.

    >>> durations = Histogram()
    >>> for ns in range(1, 1001):
    ...     durations.record(ns)
    >>> durations.percentile(50), durations.percentile(100)
    (501, 1000)
    """

    def __init__(self) -> None:
        self.count = 0
        self.sum_ns = 0
        self.max_ns = 0
        self._counts: defaultdict[int, int] = defaultdict(int)

    def record(self, ns: int, times: int = 1) -> None:
        """Count a duration, once or several times."""
        shift = ns.bit_length() - _BITS
        self._counts[(shift << (_BITS - 1)) + (ns >> shift) if shift > 0 else ns if ns > 0 else 0] += times
        self.count += times
        self.sum_ns += ns * times
        if ns > self.max_ns:
            self.max_ns = ns

    def percentile(self, percent: float) -> int:
        """The duration that this percentage did not exceed, in nanoseconds; 0 if nothing was recorded."""
        wanted = max(1, math.ceil(self.count * percent / 100))
        seen = 0
        for bucket in sorted(self._counts):
            seen += self._counts[bucket]
            if seen >= wanted:
                return min(_last_of(bucket), self.max_ns)
        return 0

    def latency(self) -> Latency:
        """The percentiles that are shown."""
        p50, p90, p99, p999 = (self.percentile(percent) / 1e9 for percent in (50, 90, 99, 99.9))
        mean_s = self.sum_ns / self.count / 1e9 if self.count else 0.0
        return Latency(self.count, mean_s, p50, p90, p99, p999, self.max_ns / 1e9)


def _last_of(bucket: int) -> int:
    """The longest duration that is counted in a bucket."""
    if bucket < 2 * _HALF:
        return bucket
    shift = bucket // _HALF - 1
    return ((bucket - shift * _HALF + 1) << shift) - 1
