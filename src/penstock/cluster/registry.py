"""A member's requests to the bucket: it takes a number, says that it lives, looks at the others, and leaves."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Sequence

from penstock.cluster.members import (
    PREFIX,
    TENURE_S,
    Heartbeat,
    Members,
    decode_heartbeat,
    encode_heartbeat,
    member_name,
    number_of_name,
)
from penstock.model.errors import CorruptData
from penstock.storage.objects import ObjectStore, Outcome, StoreUnavailable
from penstock.storage.persistent import Pause, PersistentObjects

_log = logging.getLogger("penstock")
_LIST_S = 60.0  # newcomers are seen by their numbers, unless this process slept for long


class Tenure:
    """For how long a member may hand out messages of its shards: until then nobody claims them, for sure.

    It goes on from heartbeat to heartbeat. When it is broken, others may have claimed the shards: each has to be proven
    to be this member's still, by a write, after a heartbeat has arrived again. Its clock goes on while machines sleep.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._until_s: dict[int, float] = {}
        self.lapsed: dict[int, float] = {}
        """Shards to be proven, with when the heartbeat was sent that has arrived."""

    def trust(self, shard: int, since_s: float) -> None:
        """A shard is this member's, which was claimed since then; or proven, after a heartbeat that was sent then."""
        self._until_s[shard] = max(self._until_s.get(shard, 0.0), since_s + TENURE_S)
        self.lapsed.pop(shard, None)

    def renew(self, sent_s: float, shards: Collection[int]) -> None:
        """A heartbeat that was sent at this time, and that says to have these, has arrived."""
        unbroken = [shard for shard in shards if self.holds(shard)]
        self._until_s = dict.fromkeys(unbroken, sent_s + TENURE_S)
        self.lapsed = dict.fromkeys(set(shards).difference(unbroken), sent_s)

    @property
    def left_s(self) -> float:
        """How many seconds of it are left, of the shard where it is shortest; 0 without any shard."""
        return max(0.0, min(self._until_s.values(), default=0.0) - self._now_s())

    def holds(self, shard: int) -> bool:
        """Whether it goes on for a shard."""
        return self._now_s() < self._until_s.get(shard, 0.0)


class Registry:
    """The members' objects on a bucket."""

    def __init__(self, objects: ObjectStore, now_s: Callable[[], float]) -> None:
        """`objects`: should rather fail than take long."""
        self._objects, self._now_s = objects, now_s
        self.tenure = Tenure(now_s)
        self._listed_s = -math.inf

    def join(self, incarnation: str, pause: Pause, *, embedded: bool = False) -> Members:
        """Take a number that nobody ever had, and see who is there."""
        objects = PersistentObjects(self._objects, pause)
        number = max(_numbers(objects), default=-1) + 1
        while not self._take(objects, Heartbeat(number=number, incarnation=incarnation, beat=0, embedded=embedded)):
            number += 1
        members = Members(number)
        others = [other for other in _numbers(objects) if other != number]  # also those that came at the same moment
        members.looked(self._read(objects, others), self._now_s())
        return members

    def _take(self, objects: ObjectStore, heartbeat: Heartbeat) -> bool:
        """Create one's own object; False if somebody else has that number."""
        name, data = member_name(heartbeat.number), encode_heartbeat(heartbeat)
        while objects.create(name, data) != Outcome.DONE:
            there = objects.get(name)
            if there is not None:
                return there == data
        return True

    def send(self, heartbeat: Heartbeat) -> bool:
        """Say that this member lives; whether that is known to have arrived."""
        sent_s = self._now_s()
        try:
            self._objects.put(member_name(heartbeat.number), encode_heartbeat(heartbeat))
        except StoreUnavailable:
            return False
        self.tenure.renew(sent_s, heartbeat.shards)
        return True

    def look(self, numbers: Sequence[int]) -> dict[int, Heartbeat | None] | None:
        """What these members say, and now and then all that there are; None if the bucket did not answer."""
        now_s = self._now_s()
        try:
            if now_s - self._listed_s >= _LIST_S:
                numbers = sorted({*numbers, *_numbers(self._objects)})
                self._listed_s = now_s
            return self._read(self._objects, numbers)
        except StoreUnavailable:
            return None

    def _read(self, objects: ObjectStore, numbers: Sequence[int]) -> dict[int, Heartbeat | None]:
        found: dict[int, Heartbeat | None] = {}
        answers = objects.get_many([member_name(number) for number in numbers])
        for number, data in zip(numbers, answers, strict=True):
            try:
                found[number] = None if data is None else decode_heartbeat(number, data)
            except CorruptData as error:
                _log.warning("%s", error)
        return found

    def forget(self, numbers: Sequence[int]) -> None:
        """Remove objects of members that are dead for long."""
        self._objects.delete([member_name(number) for number in numbers])


def _numbers(objects: ObjectStore) -> list[int]:
    return [number for name in objects.list(PREFIX) if (number := number_of_name(name)) is not None]
