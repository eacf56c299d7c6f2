"""Every error that Penstock raises on purpose; each says what was wrong and what is allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class PenstockError(Exception):
    """The base of all errors of this package: catch it to catch them all."""


class InvalidArgument(PenstockError, ValueError):
    """An argument or option that can never be accepted as it is."""


class LimitExceeded(InvalidArgument):
    """A message, batch or topic larger than a configured limit."""


class TopicNotFound(PenstockError, LookupError):
    """The topic, or the partition of it, does not exist."""


class TopicExists(PenstockError):
    """`create_topic` was called for a topic that is already there."""


class GroupNotFound(PenstockError, LookupError):
    """The topic has no group of this name."""


class GroupInUse(PenstockError):
    """The group has consumers, which stand in the way of what was asked for."""


class MessageNotFound(PenstockError, LookupError):
    """There is no message of this id, or not any more."""


class ScheduleNotFound(PenstockError, LookupError):
    """There is no schedule of this name."""


class StageNotFound(PenstockError, LookupError):
    """There is no such stage, or what was staged is not there any more: stage it again, under another name."""


class LeaseLost(PenstockError):
    """Messages are not leased by this receipt (any more): nothing was changed for them."""

    def __init__(self, message: str, ids: tuple[object, ...] = ()) -> None:
        super().__init__(message, ids)
        self.ids = ids

    @classmethod
    def of(cls, ids: Sequence[object], asked: int) -> LeaseLost:
        """The error that tells which messages were not held, of so many."""
        shown = ", ".join(map(str, ids[:5])) + (f" and {len(ids) - 5} more" if len(ids) > 5 else "")
        others = f"; the other {asked - len(ids)} are finished" if asked > len(ids) else ""
        text = f"not leased (any more) by this receipt: {shown}{others}. Receive again what is still to be done"
        return cls(text, tuple(ids))

    def __str__(self) -> str:
        return str(self.args[0])


class Overloaded(PenstockError):
    """A bounded buffer is full: nothing was published; try again later."""


class DiskFull(PenstockError):
    """There is no room left: nothing of what was asked for was written, reads go on."""


class StaleSequence(PenstockError):
    """A producer repeated a sequence number so old that its answer is forgotten."""


class StorageFailed(PenstockError):
    """The disk failed a write or a sync: writes are frozen until the broker is opened again.

    What was being published at that moment may or may not be there after the restart.
    """


class DirectoryLocked(PenstockError):
    """Another broker has this data directory open."""


class BrokerClosed(PenstockError):
    """The broker was closed; open the directory again to go on."""


class NotOwner(BrokerClosed):
    """The shard of a topic is open in another process: nothing was done here; ask its owner.

    `epoch` and `address` are what is known of the owner; the address is empty while the shard is on its way.
    """

    def __init__(self, message: str, shard: int = 0, epoch: int = 0, address: str = "") -> None:
        super().__init__(message, shard, epoch, address)
        self.shard, self.epoch, self.address = shard, epoch, address

    def __str__(self) -> str:
        return str(self.args[0])


class TopicSpread(PenstockError):
    """The topic is spread over shards of several processes, and this is for another one: nothing was done here.

    `topic`, `slices` and `partitions` tell how it is spread, or is not (any more) with one slice. Clients that follow
    shards ask the owners of the slices.
    """

    def __init__(self, message: str, topic: str = "", slices: int = 1, partitions: int = 1) -> None:
        super().__init__(message, topic, slices, partitions)
        self.topic, self.slices, self.partitions = topic, slices, partitions

    def __str__(self) -> str:
        return str(self.args[0])


class CorruptData(PenstockError):
    """Stored bytes do not match their checksum: nothing of them is served, nothing is thrown away."""

    def __init__(self, name: str, position: int, problem: str) -> None:
        super().__init__(f"{name} at byte {position}: {problem}")
        self.name = name
        self.position = position
        self.problem = problem


class ConsumerNotFound(PenstockError, LookupError):
    """The server knows no such consumer on this connection (any more): subscribe again."""


class ConnectionLost(PenstockError):
    """The server cannot be reached, or the connection broke: what is known of the request is in the text."""


class ShardLost(ConnectionLost):
    """Another process has taken the shard over while this was being written: it may or may not be done."""


class RequestTimeout(PenstockError):
    """No answer came in time: what is known of the request is in the text."""


class Unauthenticated(PenstockError):
    """The server asks for a token, and none was given or it is not valid (any more)."""


class Forbidden(PenstockError):
    """The token is valid, but not for this."""
