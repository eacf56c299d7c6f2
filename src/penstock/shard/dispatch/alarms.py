"""An alarm clock for many: each has one alarm, the earliest that it asked for."""

from __future__ import annotations

import heapq

_SPARE = 1000


class Alarms:
    """Who wants to be woken when, by one clock."""

    def __init__(self) -> None:
        self._set: dict[int, float] = {}
        self._order: list[tuple[float, int]] = []  # also holds alarms that were set anew; they ring for nobody

    def __len__(self) -> int:
        return len(self._order)

    def set(self, who: int, time: float) -> bool:
        """Wake somebody at a time, unless it is woken before; whether it is the next to be woken."""
        if time >= self._set.get(who, _NEVER):
            return False
        self._set[who] = time
        heapq.heappush(self._order, (time, who))
        if len(self._order) > 2 * len(self._set) + _SPARE:
            self._order = [(when, sleeper) for sleeper, when in self._set.items()]
            heapq.heapify(self._order)
        return self._order[0] == (time, who)

    def ring(self, now: float) -> list[int]:
        """Those whose time has come; their alarms are off."""
        woken: list[int] = []
        while self._order and self._order[0][0] <= now:
            time, who = heapq.heappop(self._order)
            if self._set.get(who) == time:
                del self._set[who]
                woken.append(who)
        return woken

    def next_time(self) -> float | None:
        """When the next one rings."""
        while self._order and self._set.get(self._order[0][1]) != self._order[0][0]:
            heapq.heappop(self._order)
        return self._order[0][0] if self._order else None


_NEVER = float("inf")
