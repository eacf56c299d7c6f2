"""The shards of a data directory that are open in this process, and the way to the one that a topic lives in."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial

from penstock.cluster.directory import divide, parts_of
from penstock.cluster.slices import find_existing, is_shown, of_partition
from penstock.log.topics import Topic
from penstock.model.clock import Clock, to_shard_clock
from penstock.model.config import BrokerConfig, TopicConfig
from penstock.model.errors import BrokerClosed, InvalidArgument, NotOwner
from penstock.model.message import Message, MessageId
from penstock.model.names import check_topic_name
from penstock.model.placement import Place, is_slice, shard_of
from penstock.shard.forks import disown_in_forks
from penstock.shard.shard import Shard
from penstock.storage import Storage

Elsewhere = Callable[[int], NotOwner]
"""What whoever asks for a shard hears, by its number, when it is not open here."""
PublishElsewhere = Callable[[str, Sequence[Message]], Sequence[MessageId]]
"""Publishes to a topic that other processes have, and returns when it is durable there."""


class Shards:
    """Some or all shards of a directory. Which are held changes when shards move between processes."""

    def __init__(
        self, storage: Storage, places: Sequence[Storage], config: BrokerConfig, clock: Clock | None = None
    ) -> None:
        self._root, self._places = storage, list(places)
        self.config = config
        """The options that all of them were opened with."""
        self.clock = to_shard_clock(clock)
        self.opened_s = self.clock.monotonic_s()
        self.count = len(places)
        """How many the directory has, here or elsewhere."""
        self._held: dict[int, Shard] = {}  # never changed, but replaced: others may be looking at it
        self._changing = threading.Lock()
        self._only: Shard | None = None
        self._closed = False
        self.elsewhere: Elsewhere = _not_here
        self.tenure: Callable[[int], bool] | None = None
        """Whether messages of a shard may be handed out now; None: always."""
        self.address = ""
        """Where this process is reached, where others could have its shards."""
        self.publish_elsewhere: PublishElsewhere | None = None
        """None where there is no other process."""
        self.turns = itertools.count()
        """Which slice of a topic gets what may go to any."""
        self.schedules_lock = threading.Lock()
        """Held while a schedule changes shards."""

    def __iter__(self) -> Iterator[Shard]:
        return iter(self._held.values())

    def __len__(self) -> int:
        """How many are open here."""
        return len(self._held)

    def items(self) -> Collection[tuple[int, Shard]]:
        """Those that are open here, with their numbers."""
        return self._held.items()

    def __contains__(self, number: int) -> bool:
        """Whether a shard is open here."""
        return number in self._held

    @property
    def numbers(self) -> list[int]:
        """Which are open here."""
        return list(self._held)

    @property
    def path(self) -> str | None:
        """The directory that they are in; None if it is not on disk."""
        return self._root.path

    @property
    def storage(self) -> Storage:
        """The whole directory."""
        return self._root

    @property
    def first(self) -> Shard:
        """The one that speaks for all where all are alike; there may be none where shards can move."""
        return next(iter(self._held.values()))

    @property
    def only(self) -> Shard:
        """The shard, where there is but one."""
        if self._only is None:
            if self.count == 1:
                return self[0]  # which says where it is
            raise InvalidArgument(f"this broker has {self.count} shards: ask for that of a topic")
        return self._only

    def of(self, topic: str) -> Shard:
        """The shard that a topic, or a slice of it, lives in; raises NotOwner if another process has it."""
        return self._only or self[shard_of(topic if is_slice(topic) else check_topic_name(topic), self.count)]

    def is_home(self, shard: Shard, topic: str) -> bool:
        """Whether a topic lives in a shard."""
        return shard is (self._only or self._held.get(shard_of(topic, self.count)))

    def slices(self, topic: str) -> tuple[str, Sequence[Shard]]:
        """The name of a topic, and the shards that have something of it: one unless it is spread."""
        return find_existing(self, topic)

    def partition_count(self, topic: str) -> int:
        """How many partitions a topic has, which must be there."""
        name, (first, *_) = self.slices(topic)
        return first.partition_count(name)

    def counts(self, topic: str) -> bool:
        """Whether the home of a topic is here: so it is counted once, in whichever processes it has slices."""
        return self._only is not None or shard_of(topic, self.count) in self._held

    def shows(self, shard: Shard, topic: Topic) -> bool:
        """Whether what a shard has of a topic is part of what is told of it."""
        return is_shown(self, shard, topic)

    def __getitem__(self, number: int) -> Shard:
        """A shard by its number; raises NotOwner if another process has it."""
        shard = self._held.get(number)
        if shard is None:
            self.check_open()
            raise self.elsewhere(number)
        return shard

    def of_message(self, identity: MessageId | str) -> Shard:
        """The shard that a message is in."""
        if self._only is not None:
            return self._only
        if not isinstance(identity, MessageId):
            identity = MessageId.parse(str(identity))
        return of_partition(self, identity.topic, identity.partition)

    # Opening and closing.

    def open(self, number: int) -> Shard:
        """Open a shard here; from now on it is found."""
        shard = Shard(self._places[number], self.config, self.clock, Place(number, self.count))
        if self.tenure is not None:
            shard.deliver_while(partial(self.tenure, number), self.address)
        self.put(number, shard)
        return shard

    def place(self, number: int) -> Storage:
        """Where a shard is, open or not."""
        return self._places[number]

    def put(self, number: int, shard: Shard) -> None:
        """Have a shard found that is open already."""
        with self._changing:
            held = {**self._held, number: shard}
            self._held = {known: held[known] for known in sorted(held)}
            self._only = shard if self.count == 1 else None

    def let_go(self, number: int) -> Shard:
        """Let a shard be found no more: from now on, whoever asks hears that it is elsewhere. It is still open."""
        shard = self[number]
        with self._changing:
            self._held = {known: held for known, held in self._held.items() if known != number}
            self._only = None
        with shard.lock:
            shard.core.closing = partial(self.elsewhere, number)
        return shard

    def lose(self, number: int, error: NotOwner) -> Shard:
        """Let a shard go that another process has: it is closed at once, and nobody is waited for."""
        shard = self.let_go(number)
        self._places[number] = shard.abandon(error)
        return shard

    def set_topic_defaults(self, defaults: TopicConfig) -> None:
        """Keep topics that are made from now on by these options, where they have none of their own."""
        self.config = replace(self.config, topic_defaults=defaults)
        for shard in self:
            shard.set_topic_defaults(defaults)

    def check_open(self) -> None:
        """Raise if they are closed."""
        if self._closed or any(shard.closed for shard in self):
            raise BrokerClosed("the broker is closed")

    def refuse_work(self) -> bool:
        """The first half of closing: nothing new is taken; whether it was open until now."""
        was_open, self._closed = not self._closed, True
        for shard in self:
            shard.refuse_work()
        return was_open

    def close(self) -> None:
        """Close all of them, also where one fails, and let the directory go."""
        self._closed = True
        try:
            _close_all(list(self))
        finally:
            if self._places[0] is not self._root:
                self._root.close()

    def disown(self) -> None:
        """This is a fork of the broker's process: the directory belongs to the parent."""
        self._root.close()


def open_shards(
    storage: Storage,
    config: BrokerConfig,
    clock: Clock | None = None,
    count: int | None = None,
    held: Collection[int] | None = None,
) -> Shards:
    """Open every shard of a storage; a new one is divided into so many (None: one).

    Of a directory that somebody else keeps for several processes, just those that are to be `held` here are opened.
    """
    places = divide(storage, count) if held is None else parts_of(storage)
    shards = Shards(storage, places, config, clock)
    try:
        for number in range(len(places)) if held is None else held:
            shards.open(number)
    except BaseException:
        _close_all(list(shards))
        storage.close()
        raise
    if len(places) > 1:
        disown_in_forks(shards)
    return shards


def _not_here(number: int) -> NotOwner:
    return NotOwner(f"shard {number} is not open in this process: nothing was done", number)


def _close_all(opened: Sequence[Shard]) -> None:
    failed: BaseException | None = None
    for shard in opened:
        try:
            shard.close()
        except BaseException as error:  # noqa: BLE001 - the others are closed, and then it is raised
            failed = failed or error
    if failed is not None:
        raise failed
