"""The shop of the demonstration: orders out of nothing, the same for the same number each time.

Most are fine. Some are urgent, some are to be delivered later, some were placed a while before they arrive, some cannot
be paid for, and a few are no JSON at all.
"""

from __future__ import annotations

import csv
import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import penstock

CUSTOMERS = Path(__file__).with_name("customers.csv")
PRIORITIES = {"critical": 2, "high": 10, "normal": 70, "low": 18}
"""How many of a hundred orders have each."""
_CENTS = {"espresso": 240, "cappuccino": 330, "flat white": 380, "tea": 290, "cinnamon bun": 350, "cheesecake": 520}
_PAYMENTS = {"card": 86, "invoice": 8, "bank transfer": 4, "expired card": 2}
_GUESTS = 0.05
_LATE = 0.02
_LATE_MAX_S = 15
_DELAYED = 0.05
_CUT_SHORT = 0.004
_OLD_TILL = 0.002


class Shop:
    """Makes orders; number 17 is the same order whenever it is made, but for its time."""

    def __init__(self, seed: int = 7) -> None:
        self._seed = seed
        with CUSTOMERS.open(encoding="utf-8", newline="") as lines:
            self._customers = [(row["customer"], row["country"]) for row in csv.DictReader(lines)]

    def order(self, number: int, now: datetime) -> penstock.Message:
        """An order as a message."""
        chance = random.Random(self._seed * 1_000_000_007 + number)
        customer, country = chance.choice(self._customers)
        if chance.random() < _GUESTS:
            customer = f"guest-{number}"
        placed_at = now - timedelta(seconds=chance.uniform(1, _LATE_MAX_S)) if chance.random() < _LATE else now
        items: list[dict[str, Any]] = [
            {"item": item, "count": chance.choice((1, 1, 1, 2, 3)), "price": _CENTS[item] / 100}
            for item in chance.sample(list(_CENTS), chance.choice((1, 1, 2, 3)))
        ]
        order: dict[str, Any] = {
            "id": f"o-{number:07}",
            "customer": customer,
            "country": country,
            "items": items,
            "amount": sum(_CENTS[item["item"]] * item["count"] for item in items) / 100,
            "payment": _drawn(chance, _PAYMENTS),
            "placed_at": placed_at.astimezone(UTC).isoformat(timespec="milliseconds"),
        }
        return penstock.Message(
            self._written(order, chance),
            key=customer,
            priority=_drawn(chance, PRIORITIES),
            delay=chance.randint(2, 10) if chance.random() < _DELAYED else None,
            headers={"till": f"till-{number % 5 + 1}"},
        )

    def _written(self, order: dict[str, Any], chance: random.Random) -> str:
        text, trouble = json.dumps(order), chance.random()
        if trouble < _CUT_SHORT:
            return text[: len(text) // 2]
        if trouble < _CUT_SHORT + _OLD_TILL:
            return f"<order id='{order['id']}'>{order['amount']:.2f}</order>"
        return text


def _drawn(chance: random.Random, weights: dict[str, int]) -> str:
    return chance.choices(list(weights), list(weights.values()))[0]
