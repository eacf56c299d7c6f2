"""The shards of a data directory, and the way to the one that a topic lives in."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

from penstock.cluster.directory import divide
from penstock.model.clock import Clock
from penstock.model.config import BrokerConfig
from penstock.model.errors import BrokerClosed, InvalidArgument
from penstock.model.message import MessageId
from penstock.model.names import check_topic_name
from penstock.model.placement import shard_of
from penstock.shard.forks import disown_in_forks
from penstock.shard.shard import Shard
from penstock.storage import Storage


class Shards:
    """All shards of a directory, open in this process."""

    def __init__(self, storage: Storage, opened: Sequence[Shard]) -> None:
        self._root = storage
        self._opened = opened
        self._only = opened[0] if len(opened) == 1 else None
        self.schedules_lock = threading.Lock()
        """Held while a schedule changes shards."""

    def __iter__(self) -> Iterator[Shard]:
        return iter(self._opened)

    def __len__(self) -> int:
        return len(self._opened)

    @property
    def path(self) -> str | None:
        """The directory that they are in; None if it is not on disk."""
        return self._root.path

    @property
    def first(self) -> Shard:
        """The one that speaks for all where all are alike: its options, its clock, its identity."""
        return self._opened[0]

    @property
    def only(self) -> Shard:
        """The shard, where there is but one."""
        if self._only is None:
            raise InvalidArgument(f"this broker has {len(self)} shards: ask for that of a topic")
        return self._only

    def of(self, topic: str) -> Shard:
        """The shard that a topic lives in."""
        return self._only or self._opened[shard_of(check_topic_name(topic), len(self._opened))]

    def of_message(self, identity: MessageId | str) -> Shard:
        """The shard that a message is in."""
        if self._only is not None:
            return self._only
        return self.of((identity if isinstance(identity, MessageId) else MessageId.parse(str(identity))).topic)

    def check_open(self) -> None:
        """Raise if they are closed."""
        if self.first.closed:
            raise BrokerClosed("the broker is closed")

    def refuse_work(self) -> bool:
        """The first half of closing: nothing new is taken; whether it was open until now."""
        were_open = [shard.refuse_work() for shard in self._opened]
        return any(were_open)

    def close(self) -> None:
        """Close all of them, also where one fails, and let the directory go."""
        try:
            _close_all(self._opened)
        finally:
            if self._only is None:
                self._root.close()

    def disown(self) -> None:
        """This is a fork of the broker's process: the directory belongs to the parent."""
        self._root.close()


def open_shards(storage: Storage, config: BrokerConfig, clock: Clock | None = None, count: int | None = None) -> Shards:
    """Open every shard of a storage; a new one is divided into so many (None: one)."""
    places = divide(storage, count)
    opened: list[Shard] = []
    try:
        for place in places:
            opened.append(Shard(place, config, clock))  # noqa: PERF401 - those that are open are closed if one fails
    except BaseException:
        _close_all(opened)
        storage.close()
        raise
    shards = Shards(storage, opened)
    if len(opened) > 1:
        disown_in_forks(shards)
    return shards


def _close_all(opened: Sequence[Shard]) -> None:
    failed: BaseException | None = None
    for shard in opened:
        try:
            shard.close()
        except BaseException as error:  # noqa: BLE001 - the others are closed, and then it is raised
            failed = failed or error
    if failed is not None:
        raise failed
