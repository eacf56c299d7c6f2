"""What a bucket costs: the prices of S3 for what a second of a cluster asks of it, as dollars a month.

>>> round(forecast(shards=4, interval_s=0.1, members=3).dollars(STANDARD)["total"])
632
"""

from __future__ import annotations

from dataclasses import dataclass

MONTH_S = 30 * 86_400
GB = 10**9

HEARTBEAT_S, LOOK_S, LIST_S = 0.5, 0.3, 60.0
"""How often a broker writes its heartbeat, reads those of the others and of the next that may come, and lists all."""
PIECES_OF_BUNDLE = 256
_PUTS_OF_BUNDLE = 2  # the bundle itself, and the checkpoint that has it put


@dataclass(frozen=True, slots=True)
class Prices:
    """What a maker of buckets asks for, in dollars."""

    name: str
    thousand_writes: float
    """Creates, puts and lists; deleting is free."""
    thousand_reads: float
    gb_uploaded: float
    gb_downloaded: float
    """From machines of the same region."""
    gb_stored: float
    """For a month."""


STANDARD = Prices("S3 Standard", 0.005, 0.0004, 0.0, 0.0, 0.023)
EXPRESS = Prices("S3 Express", 0.00113, 0.00003, 0.0032, 0.0006, 0.11)
"""Prices of us-east-1 in November 2026; other regions ask for a few percent more."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """What is asked of a bucket in a second, whether it is done or refused, and what lies there."""

    puts: float = 0.0
    """Creates too."""
    lists: float = 0.0
    gets: float = 0.0
    deletes: float = 0.0
    uploaded_bytes: float = 0.0
    downloaded_bytes: float = 0.0
    stored_bytes: float = 0.0

    def dollars(self, prices: Prices) -> dict[str, float]:
        """What a month of it costs, by the names of the fields, and the `total`."""
        write, read = (MONTH_S * price / 1000 for price in (prices.thousand_writes, prices.thousand_reads))
        costs = {
            "puts": self.puts * write,
            "lists": self.lists * write,
            "gets": self.gets * read,
            "deletes": 0.0,
            "uploaded_bytes": self.uploaded_bytes * MONTH_S / GB * prices.gb_uploaded,
            "downloaded_bytes": self.downloaded_bytes * MONTH_S / GB * prices.gb_downloaded,
            "stored_bytes": self.stored_bytes / GB * prices.gb_stored,
        }
        return {**costs, "total": sum(costs.values())}


def forecast(shards: int, interval_s: float, members: int, stored_bytes: float = 0.0) -> Traffic:
    """What so many brokers ask for, with so many shards that always have something to commit."""
    assert interval_s > 0 and members >= 1 and shards >= 0
    pieces = shards / interval_s
    return Traffic(
        puts=pieces * (1 + _PUTS_OF_BUNDLE / PIECES_OF_BUNDLE) + members / HEARTBEAT_S,
        lists=members / LIST_S,
        gets=members * members / LOOK_S,
        stored_bytes=stored_bytes,
    )
