"""A bucket for somebody who mostly looks, while its owners go on: it is owned only when something is to be changed."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from penstock.api.operation import operations_of
from penstock.api.operations import BrokerOperations
from penstock.cluster.directory import part_name, shards_of
from penstock.embedded.broker import Broker
from penstock.embedded.opening import open_broker
from penstock.journal.bucket_reading import open_root_for_reading
from penstock.model.config import BrokerConfig
from penstock.model.message import StoredMessage
from penstock.model.tokens import Scope
from penstock.storage.read_only import ReadableStorage
from penstock.storage.scratch import ScratchStorage

_OPERATIONS = operations_of(BrokerOperations)


class BucketVisitor:
    """A broker on a bucket. What reads sees the moment at which it was opened, and disturbs nobody.

    The first operation that does more opens the bucket, for this program alone: it is refused if somebody has it.
    """

    def __init__(self, address: str, *, new: bool = False) -> None:
        """`new`: something is to be changed, and the bucket is made if there is none."""
        self._address = address
        self._is_owner = new
        self._broker = open_broker(address) if new else look_at(open_root_for_reading(address))

    def __getattr__(self, name: str) -> Any:
        known = _OPERATIONS.get(name)
        if known is not None and known.scope is not Scope.READ:
            self._own()
        return getattr(self._broker, name)

    def replay(self, topic: str, to: str | Callable[[StoredMessage], object], **window: Any) -> int:
        """Hand a window of the past to a group, or to a function: that reads only."""
        if isinstance(to, str):
            self._own()
        return self._broker.replay(topic, to, **window)

    def _own(self) -> None:
        if not self._is_owner:
            self._broker.close()
            self._broker, self._is_owner = open_broker(self._address), True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._broker.close()


def look_at(root: ReadableStorage) -> Broker:
    """A broker on what is read, whose changes stay in memory: it finds what the next owner would find."""
    root.check_readable()
    seen = root.part(part_name(0)) if shards_of(root) == 1 else root  # a bucket is always divided
    return Broker(ScratchStorage(seen), BrokerConfig())
