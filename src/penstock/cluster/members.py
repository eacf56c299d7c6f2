"""Who is there: members of a cluster say that they live by an object each on the bucket, which the others look at.

No clocks are compared. A member is dead when its object has not changed for as long as somebody looked at it, and the
bucket answered: time in which it did not answer counts for nobody, so an outage moves nothing.

Numbers of members are never given again: whoever slept meanwhile writes to an object that is its own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

import msgspec

from penstock.model.errors import CorruptData
from penstock.model.processes import Move

PREFIX = "members/"
BEAT_S, LOOK_S = 0.5, 0.3
SILENCE_S, LOOKS_MIN = 2.5, 3
"""After so much seen silence, and so many looks, a member is dead."""
TENURE_S = 2.0
"""For so long after a heartbeat was sent that arrived, whoever sent it is sure to be thought alive."""
_LOOK_GAP_S = 1.0  # what lies further apart tells nothing of what was between
_FORGOTTEN_S = 600.0
_NAME = re.compile(rf"{PREFIX}(\d{{10}})")


class Heartbeat(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What a member says of itself."""

    version: int = 1
    number: int
    incarnation: str
    """Of this process and no other, in hex."""
    beat: int
    """Grows with each."""
    address: str = ""
    """Its native port, for clients and other members; empty while it takes no requests."""
    shards: dict[int, int] = {}
    """Those that it has or is opening, with their epochs."""
    given: dict[int, tuple[int, int]] = {}
    """Those that it has handed over: the epoch that began so, and the number of the member that it is for."""
    draining: bool = False
    """Whether it gives its shards away, and takes none."""
    steady: bool = False
    """Whether it has moved a shard as somebody wished: all stay as they are until members come or go."""
    balances: int = 0
    """The greatest number of wishes, of all members together as far as it knows, to share the shards evenly."""
    left: bool = False
    """Whether it has ended, with nothing left to do."""
    embedded: bool = False
    """Whether it is a program of its own, which has all shards or none."""
    pid: int = 0
    since: datetime | None = None
    resident_bytes: int = 0
    cpu_seconds: float = 0.0
    connections: int = 0
    moves: list[Move] = []
    """The last of its own: shards that came to it, as planned."""

    @property
    def is_able(self) -> bool:
        """Whether it can have shards."""
        return bool(self.address) and not self.draining and not self.left


def member_name(number: int) -> str:
    """The name of a member's object."""
    return f"{PREFIX}{number:010d}"


def number_of_name(name: str) -> int | None:
    """The member of an object; None if it is of none."""
    found = _NAME.fullmatch(name)
    return int(found[1]) if found else None


def encode_heartbeat(heartbeat: Heartbeat) -> bytes:
    """As it stands on the bucket."""
    return msgspec.json.encode(heartbeat)


def decode_heartbeat(number: int, data: bytes) -> Heartbeat:
    """What a member says; raises CorruptData if it says nothing that can be understood."""
    try:
        return msgspec.json.decode(data, type=Heartbeat)
    except msgspec.MsgspecError as error:
        raise CorruptData(member_name(number), 0, f"this is no heartbeat of a member: {error}") from error


@dataclass(slots=True)
class _Seen:
    """What one knows of a member."""

    heartbeat: Heartbeat
    since_s: float
    silent_s: float = 0.0
    """For how long it was looked at, and nothing changed."""
    looks: int = 0
    gone_s: float = math.inf
    """Since when it is dead."""


class Members:
    """The members as one process knows them from its looks; it does not look at itself."""

    def __init__(self, number: int = -1) -> None:
        """`number`: its own."""
        self.number = number
        self._seen: dict[int, _Seen] = {}
        self._looked_s = -math.inf  # when the last look was that was answered
        self._unsure: set[int] = set()
        self.watched_s = 0.0
        """For how long it has looked, and was answered."""

    @property
    def wanted(self) -> list[int]:
        """Whose objects are to be looked at next; the last is of nobody yet."""
        return [*sorted(self._seen.keys() - {self.number}), max([*self._seen, self.number]) + 1]

    @property
    def living(self) -> dict[int, Heartbeat]:
        """What those say that are not dead."""
        return {number: seen.heartbeat for number, seen in self._seen.items() if seen.gone_s == math.inf}

    @property
    def heard(self) -> Iterable[Heartbeat]:
        """The last that every member said, living or not."""
        return [seen.heartbeat for seen in self._seen.values()]

    def has_changed(self, number: int) -> bool:
        """Whether a member was seen to say something new, and so to live."""
        return number in self.living and number not in self._unsure

    def number_of(self, incarnation: str) -> int | None:
        """The number of a process, living or not; None if it is not known."""
        return next((n for n, seen in self._seen.items() if seen.heartbeat.incarnation == incarnation), None)

    @property
    def is_sure(self) -> bool:
        """Whether it has seen all change, or be dead, that were there when it came: what stood there may be old."""
        return self._unsure.isdisjoint(self.living)

    def own(self, heartbeat: Heartbeat) -> None:
        """What this process says of itself."""
        self._seen[self.number] = _Seen(heartbeat, 0.0)

    def looked(self, found: Mapping[int, Heartbeat | None], now_s: float) -> None:
        """A look was answered; `now_s` is when it was asked. What cannot be understood is missing, and says nothing."""
        gap_s = now_s - self._looked_s
        self._looked_s = now_s
        counts_s = gap_s if 0 <= gap_s <= _LOOK_GAP_S else 0.0
        self.watched_s += counts_s
        if gap_s == math.inf:
            self._unsure = set(found)
        for number, heartbeat in found.items():
            if number != self.number:
                self._see(number, heartbeat, now_s)
        for number, seen in self._seen.items():
            if number != self.number and seen.since_s != now_s and seen.gone_s == math.inf:
                self._count_silence(seen, counts_s, now_s)

    def _see(self, number: int, heartbeat: Heartbeat | None, now_s: float) -> None:
        seen = self._seen.get(number)
        if heartbeat is None:
            if seen is not None:  # somebody has removed what was dead for long
                del self._seen[number]
        elif seen is None or heartbeat.beat > seen.heartbeat.beat:  # else it is an old one that was put late
            if seen is not None:
                self._unsure.discard(number)
            self._seen[number] = _Seen(heartbeat, now_s, gone_s=now_s if heartbeat.left else math.inf)

    def _count_silence(self, seen: _Seen, counts_s: float, now_s: float) -> None:
        seen.silent_s += counts_s
        seen.looks += 1
        if seen.silent_s >= SILENCE_S and seen.looks >= LOOKS_MIN:
            seen.gone_s = now_s

    def forgettable(self, now_s: float) -> list[int]:
        """Members that have been dead for long; the greatest number stays, so that none is given again."""
        greatest = max(self._seen, default=-1)
        return [n for n, seen in self._seen.items() if n != greatest and now_s - seen.gone_s >= _FORGOTTEN_S]
