"""How far a group is: the one place where its messages are counted.

Every message that was published for a group is in just one of these numbers (Q1):

    published = acked + dead + lapsed + skipped + withdrawn + lost      it is done, as the progress tells
              + leased + retrying                                       it is on its way
              + ready + delayed + unsorted                              it can be taken, now or later

Messages that a repair lost are in the lag of the groups that had not done them, and in nothing else.
Only the index of a group in use tells what is ready from what is delayed. Both are `unsorted` in a group that nobody
has used since the broker was opened, and in a directory that is read without a broker.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from penstock.delivery.claims import Claims
from penstock.delivery.progress import Progress


@dataclass(slots=True)
class Standing:
    """Of a group in a topic; or of several that are shown as one."""

    published: int = 0
    acked: int = 0
    dead: int = 0
    lapsed: int = 0
    """With those that are about to be counted so, and are in the lag until then."""
    skipped: int = 0
    withdrawn: int = 0
    lost: int = 0
    lag: int = 0
    """What is not done."""
    leased: int = 0
    """Or finished, where that is not committed yet."""
    retrying: int = 0
    """Failed, and waiting to be tried again; of a group that is not in use also if it has waited long enough."""
    ready: int = 0
    delayed: int = 0
    unsorted: int = 0
    """Ready or delayed."""
    is_indexed: bool = False
    """Whether it is known what is ready and what is delayed, in some partition at least."""
    kind: str = "consumers"
    """Or `checkpoint`: of a reader that keeps its own position, to which everything that is not done is ready."""
    positions: tuple[int, ...] = ()
    """The first offset that is not done, partition by partition, where it is one group of one topic."""
    lags: tuple[int, ...] = ()
    """The lag, partition by partition."""

    def add_other(self, other: Standing) -> None:
        """Add what is shown as one with it."""
        for name in _NUMBERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.is_indexed = self.is_indexed or other.is_indexed

    def add(self, end: int, progress: Progress, claims: Claims | None = None) -> int:
        """Add a partition whose messages end at `end`, with the claims of a group that is in use; its lag."""
        tally, lag = progress.tally, progress.backlog(end)
        self.published += progress.published(end)
        self.acked += tally.acked
        self.dead += tally.dead
        self.lapsed += tally.lapsed
        self.skipped += tally.skipped
        self.withdrawn += tally.withdrawn
        self.lost += tally.lost
        self.lag += lag
        if claims is not None:
            leased, retrying, delayed, lapsing = claims.held, claims.waiting(), claims.delayed(), len(claims.lapsing)
            self.leased += leased
            self.retrying += retrying
            self.delayed += delayed
            self.lapsed += lapsing
            ready = lag - leased - retrying - delayed - lapsing - claims.unknown()
            if ready > 0:  # else what is leased was withdrawn meanwhile
                self.ready += ready
            self.is_indexed = True
        elif progress.settings.checkpoint:
            self.ready += lag
            self.is_indexed, self.kind = True, "checkpoint"
        else:
            retrying = len(progress.waiting)
            self.retrying += retrying
            self.unsorted += max(0, lag - retrying)
        return lag


_NUMBERS = [field.name for field in fields(Standing) if field.type == "int"]
