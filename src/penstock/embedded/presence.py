"""A program that has a bucket to itself: it takes its place among the members, if nobody else is there."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

from penstock.cluster.bucket_place import BucketPlace, boottime_s, open_place
from penstock.cluster.members import BEAT_S, LOOK_S, Heartbeat, Members
from penstock.cluster.shards import Shards
from penstock.model.clock import ShardClock
from penstock.model.errors import DirectoryLocked, PenstockError
from penstock.model.units import to_datetime
from penstock.shard.shard import Shard

_log = logging.getLogger("penstock")


class Presence:
    """Says that this program lives, as long as it has the bucket."""

    def __init__(self, address: str, shards: int | None, clock: ShardClock) -> None:
        """Raises DirectoryLocked if somebody else uses the bucket."""
        self.place: BucketPlace = open_place(address, shards)
        self._registry, self._incarnation = self.place.registry, self.place.root.incarnation.hex()
        self._since, self._beats, self._process = to_datetime(clock.wall_us()), 0, os.getpid()
        self._ended = threading.Event()
        self._members: Members = self._registry.join(self._incarnation, self.place.patience, embedded=True)
        self._held: dict[int, Shard] = {}
        self._wait_until_alone(address)
        self._since_s = boottime_s()
        self._thread = threading.Thread(target=self._live, name="penstock-presence", daemon=True)

    @property
    def number(self) -> int:
        """Of this member."""
        return self._members.number

    def _wait_until_alone(self, address: str) -> None:
        """Return when all that came before have left, or are silent for long."""
        while True:
            self._say()
            before = {n: each for n, each in self._members.living.items() if n < self.number}
            if not before:
                return
            for number, each in before.items():
                if self._members.has_changed(number):
                    self._leave()
                    where = f"the broker at {each.address}" if each.address else f"a program (process {each.pid})"
                    raise DirectoryLocked(f"{address} is in use: {where} has it, as member {number}")
            self._ended.wait(LOOK_S)
            asked_s = boottime_s()
            found = self._registry.look(self._members.wanted)
            if found is not None:
                self._members.looked(found, asked_s)

    def begin(self, shards: Shards) -> None:
        """All shards are here: their messages are handed out as long as nobody else can have them."""
        self._held = dict(shards.items())
        for number, shard in self._held.items():
            self._registry.tenure.trust(number, self._since_s)
            shard.deliver_while(_during(self._registry.tenure.holds, number), f"process {self._process}")
        self._say()
        self._thread.start()

    def _live(self) -> None:
        while not self._ended.wait(BEAT_S):
            for shard in self._held.values():
                shard.lock_once()
            try:
                self._say()
                self._prove_lapsed()
            except (PenstockError, OSError) as error:
                _log.warning("this program cannot say that it has the bucket: %s", error)

    def _prove_lapsed(self) -> None:
        for number, sent_s in dict(self._registry.tenure.lapsed).items():
            shard = self._held[number]
            if not shard.closed:
                shard.prove()
                self._registry.tenure.trust(number, sent_s)
                shard.serve_all()

    def _say(self, *, left: bool = False) -> None:
        self._beats += 1
        heartbeat = Heartbeat(
            number=self.number,
            incarnation=self._incarnation,
            beat=self._beats,
            shards={number: shard.storage.epoch for number, shard in self._held.items()},
            embedded=True,
            left=left,
            pid=self._process,
            since=self._since,
        )
        self._members.own(heartbeat)
        self._registry.send(heartbeat)

    def _leave(self) -> None:
        self._ended.set()
        self._say(left=True)
        self.place.patience.end()

    def end(self) -> None:
        """All shards are closed: let the bucket go."""
        if os.getpid() == self._process and not self._ended.is_set():
            try:
                self._leave()
            except OSError as error:
                _log.warning("this program cannot say that it has left the bucket: %s", error)


def _during(holds: Callable[[int], bool], number: int) -> Callable[[], bool]:
    return lambda: holds(number)
