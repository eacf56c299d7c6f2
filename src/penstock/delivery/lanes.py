"""Which lane is served next: strictly the lowest number, or by weights that let no lane starve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.model.config import TopicConfig


def lane_policy(config: TopicConfig) -> Strict | Weighted:
    """What a topic's options ask for."""
    return Weighted(dict(config.lane_weights)) if config.lanes == "weighted" else Strict()


class Strict:
    """The lowest number first, always."""

    def shares(self, lanes: Sequence[int], count: int) -> list[tuple[int, int]]:
        """How many of `count` messages each of the lanes may give, in the order in which they are asked."""
        return [(lane, count) for lane in lanes]


class Weighted:
    """Each lane that has messages gets its share; one of weight w waits for at most some 2 (sum of weights) / w.

    A lane's credit grows by its share of every message handed out and falls by what it was asked for. Lanes that
    have nothing keep no credit: nobody saves up for later, and filling up for others costs nothing.
    """

    def __init__(self, weights: Mapping[int, int]) -> None:
        self._weights = weights
        self._credit: dict[int, float] = {}

    def shares(self, lanes: Sequence[int], count: int) -> list[tuple[int, int]]:
        """How many of `count` messages each of the lanes may give, in the order in which they are asked."""
        weights = {lane: self._weights.get(lane, 1) for lane in lanes}
        total = sum(weights.values())
        credit = {lane: self._credit.get(lane, 0.0) + count * weight / total for lane, weight in weights.items()}
        whole = {lane: max(0, min(count, int(credit[lane] + 1e-9))) for lane in lanes}
        left = count - sum(whole.values())
        for lane in sorted(lanes, key=lambda lane: (whole[lane] - credit[lane], lane)):
            if left <= 0:
                break
            whole[lane] += 1
            left -= 1
        self._credit = {lane: credit[lane] - whole[lane] for lane in lanes}
        quotas = [(lane, whole[lane]) for lane in lanes if whole[lane]]
        return quotas + [(lane, count) for lane in lanes]  # what some lanes cannot fill, the others may
