"""How much is published to which topics now: counted by block, so that whoever looks finds it at once.

Two stretches of five seconds are kept, the one that goes on and the one before. Each counts 2,000 topics at the most:
where there are more, the half that least was published to is forgotten. So both take well under a megabyte, and a
block costs one update of a dict, whatever the number of topics.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

TOPICS_MAX = 2000
STRETCH_S = 5.0
_SHORTEST_S = 1.0  # a rate over less than that says little


class Traffic:
    """Messages that were published lately, by topic."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._begun_s = monotonic_s()  # of the stretch that goes on
        self._counts: dict[str, int] = {}
        self._before_s = self._begun_s  # of the one before
        self._before: dict[str, int] = {}

    def look_at_clock(self) -> None:
        """Begin another stretch if it is time: once for all that is committed together."""
        if self._monotonic_s() - self._begun_s >= STRETCH_S:
            self._turn()

    def add(self, topic: str, messages: int) -> None:
        """So many were committed."""
        counts = self._counts
        known = counts.get(topic)
        if known is None:
            if len(counts) >= TOPICS_MAX:
                counts = self._counts = dict(heapq.nlargest(TOPICS_MAX // 2, counts.items(), key=lambda each: each[1]))
            known = 0
        counts[topic] = known + messages

    def rates(self) -> dict[str, float]:
        """Messages a second, by topic, over the last five to ten seconds; topics with none are left out."""
        self.look_at_clock()
        elapsed_s = max(self._monotonic_s() - self._before_s, _SHORTEST_S)
        whole = dict(self._before)
        for topic, count in self._counts.items():
            whole[topic] = whole.get(topic, 0) + count
        return {topic: count / elapsed_s for topic, count in whole.items()}

    def _turn(self) -> None:
        """Begin another stretch; what ended long ago counts no more."""
        now_s = self._monotonic_s()
        if now_s - self._begun_s < 2 * STRETCH_S:
            self._before_s, self._before = self._begun_s, self._counts
        else:
            self._before_s, self._before = now_s - STRETCH_S, {}
        self._begun_s, self._counts = now_s, {}
