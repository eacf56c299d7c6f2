"""Work at a limited rate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Some = TypeVar("Some")

_SHORT_S = 0.001  # neither worth a sleep, nor a pause of the work


class Pace:
    """Limits work to a rate, over any second; without a rate there is no limit.

    Work is done in turns, and the next turn waits until the time of this one is over. Unused time is not saved: after a
    pause, work continues at the rate and does not catch up.

    >>> pace = Pace(100)
    >>> pace.at_once(500), pace.ahead_s(now_s=5.0)
    (10, 0.0)
    >>> pace.went(10, now_s=5.0)
    >>> round(pace.ahead_s(now_s=5.02), 3)
    0.08
    """

    def __init__(self, rate: float | None, turn_s: float = 0.1) -> None:
        self._rate = rate
        self._turn_s = turn_s
        self._due_s = self._slept_from_s = float("-inf")

    def at_once(self, most: int) -> int:
        """How many may be done in one turn; at least one."""
        return most if self._rate is None else max(1, min(most, int(self._rate * self._turn_s)))

    def ahead_s(self, now_s: float) -> float:
        """How long to sleep before the next turn; a time that is too short is added to the turn after it."""
        ahead_s = self._due_s - now_s
        if ahead_s < _SHORT_S:
            return 0.0
        self._slept_from_s = now_s
        return ahead_s

    def went(self, count: int, now_s: float) -> None:
        """Note that this many were done just now."""
        if self._rate is None:
            return
        stood_still = now_s == self._slept_from_s  # a caller's clock may, while the machine sleeps
        if stood_still or now_s - self._due_s >= _SHORT_S:
            self._due_s = now_s
        self._due_s += count / self._rate


def paced(turns: Iterable[list[Some]], pace: Pace, now_s: Callable[[], float]) -> Iterator[tuple[float, list[Some]]]:
    """Turns of some work, each with how long to sleep before it."""
    for some in turns:
        asked_s = now_s()
        sleep_s = pace.ahead_s(asked_s)
        yield sleep_s, some
        pace.went(len(some), min(asked_s + sleep_s, now_s()))  # since it began
