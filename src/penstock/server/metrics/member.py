"""What a broker among others counts of itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

TAKEN, TOO_LATE, FAILED = "taken", "too_late", "failed"


@dataclass(slots=True)
class MemberMeter:
    """Counts that only grow, and what is so now."""

    tenure_left_s: Callable[[], float]
    members: Callable[[], int]
    """How many live, as far as it knows."""
    claims: Counter[str] = field(default_factory=Counter)
    """By what became of them."""
    handed_over: int = 0
    lost: int = 0
    """Shards that others have claimed from it."""
