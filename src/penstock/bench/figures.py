"""What a run measured, beside what, and what it verified."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from penstock.bench.histogram import Latency
from penstock.model.errors import PenstockError


class RunFailed(PenstockError):
    """The server could not be measured to the end."""


class Mismatch(RunFailed):
    """What the server has is not what it acknowledged, or what it has did not come."""


def check_count(what: str, found: int, expected: int) -> str:
    """The two counts in words, if they are the same; raises Mismatch if not."""
    if found != expected:
        raise Mismatch(f"{what}: {found:,} instead of {expected:,}")
    return f"{what}: {found:,}"


@dataclass(frozen=True, slots=True)
class Beside:
    """The baseline of a figure, measured in the same run."""

    what: str
    messages_per_s: float
    latency: Latency | None
    ratio: float
    """Of the times (p50) where messages go one at a time or by a schedule, of the rates otherwise."""
    of_times: bool = False


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured line."""

    what: str
    messages: int
    seconds: float
    message_bytes: int
    latency: Latency
    latency_of: str
    """What took so long, from when to when."""
    verified: tuple[str, ...]
    beside: Beside | None = None

    @property
    def messages_per_s(self) -> float:
        """The rate."""
        return self.messages / self.seconds if self.seconds else 0.0

    @property
    def mb_per_s(self) -> float:
        """The rate of the values alone, in millions of bytes."""
        return self.messages_per_s * self.message_bytes / 1e6

    def as_json(self) -> dict[str, Any]:
        """The figure for programs."""
        return {**asdict(self), "messages_per_s": self.messages_per_s, "mb_per_s": self.mb_per_s}


@dataclass(frozen=True, slots=True)
class Conditions:
    """What the figures were measured on, and how busy the machine was."""

    server: str
    version: str
    sync: str
    """What stands behind an acknowledgement: `always` means that it is on disk."""
    own_server: bool
    directory: str
    """Where the bare round trip writes, and the server if it was started for this."""
    file_system: str
    cores: int
    python: str
    load_before: tuple[float, float, float]
    load_after: tuple[float, float, float]
