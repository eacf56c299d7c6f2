"""Penstock: a durable message queue.

>>> import tempfile, penstock
>>> with penstock.open(tempfile.mkdtemp()) as broker:
...     identity = broker.publish("orders", b"two coffees", key="alex", priority="high")
...     with broker.consumer("orders", "kitchen") as consumer:
...         for message in consumer.receive(10, wait=5):
...             print(message.id, message.value)
...             message.ack()
orders/0/0 b'two coffees'
"""

from penstock.broker.consumer import Consumer, Delivery
from penstock.broker.dead_letters import DeadLetter, RedriveReport
from penstock.broker.delays import DelayedMessage
from penstock.broker.embedded import Broker
from penstock.broker.embedded import open_broker as open
from penstock.broker.groups import GroupInfo, MemberInfo
from penstock.broker.info import PartitionInfo, TopicInfo
from penstock.broker.schedules import Schedule
from penstock.broker.tracing import Trace, TraceLine
from penstock.model.config import BrokerConfig, TopicConfig
from penstock.model.errors import (
    BrokerClosed,
    CorruptData,
    DirectoryLocked,
    DiskFull,
    GroupInUse,
    GroupNotFound,
    InvalidArgument,
    LeaseLost,
    LimitExceeded,
    MessageNotFound,
    Overloaded,
    PenstockError,
    ScheduleNotFound,
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
    "Consumer",
    "CorruptData",
    "DeadLetter",
    "DelayedMessage",
    "Delivery",
    "DirectoryLocked",
    "DiskFull",
    "Event",
    "EventKind",
    "GroupInUse",
    "GroupInfo",
    "GroupNotFound",
    "InvalidArgument",
    "LeaseLost",
    "LimitExceeded",
    "MemberInfo",
    "Message",
    "MessageId",
    "MessageIds",
    "MessageNotFound",
    "Overloaded",
    "PartitionInfo",
    "PenstockError",
    "RedriveReport",
    "Schedule",
    "ScheduleNotFound",
    "StaleSequence",
    "StorageFailed",
    "StoredMessage",
    "TopicConfig",
    "TopicExists",
    "TopicInfo",
    "TopicNotFound",
    "Trace",
    "TraceLine",
    "open",
]
