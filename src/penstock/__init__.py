"""Penstock: a durable message queue.

import penstock

with penstock.open("./data") as broker:
broker.publish("orders", b"two coffees", key="alex", priority="high")
for message in broker.read("orders"):
print(message.id, message.value)
"""

from penstock.broker.embedded import Broker
from penstock.broker.embedded import open_broker as open
from penstock.broker.info import PartitionInfo, TopicInfo
from penstock.model.config import BrokerConfig, TopicConfig
from penstock.model.errors import (
    BrokerClosed,
    CorruptData,
    DirectoryLocked,
    DiskFull,
    InvalidArgument,
    LimitExceeded,
    Overloaded,
    PenstockError,
    StaleSequence,
    StorageFailed,
    TopicExists,
    TopicNotFound,
)
from penstock.model.events import Event, EventKind
from penstock.model.message import Message, MessageId, MessageIds, StoredMessage

__version__ = "0.1.0"

__all__ = [
    "Broker",
    "BrokerClosed",
    "BrokerConfig",
    "CorruptData",
    "DirectoryLocked",
    "DiskFull",
    "Event",
    "EventKind",
    "InvalidArgument",
    "LimitExceeded",
    "Message",
    "MessageId",
    "MessageIds",
    "Overloaded",
    "PartitionInfo",
    "PenstockError",
    "StaleSequence",
    "StorageFailed",
    "StoredMessage",
    "TopicConfig",
    "TopicExists",
    "TopicInfo",
    "TopicNotFound",
    "open",
]
