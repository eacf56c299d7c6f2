"""How fast work that has a rate may go."""

from __future__ import annotations

from penstock.model.clock import EngineClock


class Pace:
    """So many a second at most, counted from the beginning; as fast as it goes where there is no rate.

    >>> pace = Pace(100, started_s=0.0)
    >>> pace.ahead_s(50, now_s=0.2), pace.at_once(500)
    (0.3, 10)
    """

    def __init__(self, rate: float | None, started_s: float) -> None:
        self._rate = rate
        self._started_s = started_s

    def ahead_s(self, done: int, now_s: float) -> float:
        """How long the next one has to wait when so many are done."""
        return 0.0 if self._rate is None else max(0.0, done / self._rate - (now_s - self._started_s))

    def at_once(self, most: int) -> int:
        """How many may go in one step: what is due in a tenth of a second."""
        return most if self._rate is None else max(1, min(most, int(self._rate / 10)))


class SleepingPace(Pace):
    """A pace that is kept by sleeping on a clock."""

    def __init__(self, rate: float | None, clock: EngineClock) -> None:
        super().__init__(rate, clock.monotonic_s())
        self._clock = clock

    def keep(self, done: int, slack_s: float = 0.0) -> None:
        """Sleep until the next one is due, when so many are done; not for less than the slack."""
        now_s = self._clock.monotonic_s()
        ahead_s = self.ahead_s(done, now_s)
        if ahead_s >= slack_s:
            self._clock.sleep_s(ahead_s)
            if self._clock.monotonic_s() == now_s:  # a caller's clock that stands still while the machine sleeps
                self._started_s -= ahead_s
