"""A bucket looked at as by a broker, while its owners go on: nothing is claimed, and nothing is changed there."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from penstock.api.operation import operations_of
from penstock.api.operations import BrokerOperations
from penstock.cluster.directory import part_name, shards_of
from penstock.embedded.broker import Broker
from penstock.journal.bucket_reading import open_root_for_reading
from penstock.model.config import BrokerConfig
from penstock.model.errors import InvalidArgument
from penstock.model.message import StoredMessage
from penstock.model.tokens import Scope
from penstock.storage.read_only import ReadableStorage
from penstock.storage.scratch import ScratchStorage

_OPERATIONS = operations_of(BrokerOperations)


class Onlooker:
    """A broker of which only what reads can be asked: it has the state of the moment at which it was opened."""

    def __init__(self, root: ReadableStorage) -> None:
        root.check_readable()
        self._address = root.path
        seen = root.part(part_name(0)) if shards_of(root) == 1 else root  # a bucket is always divided
        self._broker = Broker(ScratchStorage(seen), BrokerConfig())

    def __getattr__(self, name: str) -> Any:
        known = _OPERATIONS.get(name)
        if known is not None and known.scope is not Scope.READ:
            raise self._refusal()
        return getattr(self._broker, name)

    def replay(self, topic: str, to: str | Callable[[StoredMessage], object], **window: Any) -> int:
        """Hand a window of the past to a function: that reads only."""
        if isinstance(to, str):
            raise self._refusal()
        return self._broker.replay(topic, to, **window)

    def _refusal(self) -> InvalidArgument:
        return InvalidArgument(
            f"{self._address} is only looked at: its owners are brokers, and one of them must be asked to change it"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._broker.close()


def look_at(address: str) -> Onlooker:
    """What is on a bucket, as the broker that is opened next would find it."""
    return Onlooker(open_root_for_reading(address))
