"""Dead letters as people see them, and what a redrive of them did."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

import msgspec

from penstock.model.message import MessageId


class DeadLetter(msgspec.Struct, frozen=True):
    """A message that a group could not process, with why."""

    id: MessageId
    """Its place among the dead letters."""
    origin: MessageId
    group: str
    cause: str
    consumer: str | None
    deliveries: int
    failures: int
    died_at: datetime
    published_at: datetime
    value: bytes
    key: bytes | None
    headers: dict[str, str] | None
    priority: int
    history: list[str]
    """What happened to it, a line for each event."""


LetterChoice = Callable[[DeadLetter], bool]
"""Whether a dead letter is meant."""


class ByName:
    """Chooses dead letters by their ids."""

    def __init__(self, ids: Iterable[MessageId]) -> None:
        self.ids = frozenset(ids)

    def __call__(self, letter: DeadLetter) -> bool:
        """Whether this is one of them."""
        return letter.id in self.ids


class DeadLetterCause(msgspec.Struct):
    """What several messages died of, in one group."""

    cause: str
    group: str
    count: int
    oldest: datetime
    newest: datetime

    def add(self, died_at: datetime) -> None:
        """Another one died of it."""
        self.count += 1
        self.oldest, self.newest = min(self.oldest, died_at), max(self.newest, died_at)


class CauseReport(msgspec.Struct):
    """Why messages of a topic died, the most frequent cause first."""

    causes: list[DeadLetterCause]
    total: int = 0
    """How many letters were looked at."""
    complete: bool = True
    """Whether these are all letters and all causes; else there are more than are counted at once."""


class RedriveReport(msgspec.Struct):
    """What a redrive did, or would do."""

    selected: int = 0
    redriven: int = 0
    """Sent back: delivered again to the group that gave them up, at their old place."""
    copied: int = 0
    """Published again, because the original is gone or another topic was asked for."""
    skipped: int = 0
    """Redriven or purged by somebody else meanwhile, or not dead any more because the group was moved back."""
    dry_run: bool = False

    def add(self, step: RedriveReport) -> None:
        """Count what one more step did."""
        self.selected += step.selected
        self.redriven += step.redriven
        self.copied += step.copied
        self.skipped += step.skipped
