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

from typing import TYPE_CHECKING

from penstock.lazy import lazy_names
from penstock.version import __version__ as __version__

if TYPE_CHECKING:
    from penstock import aio as aio
    from penstock.client import Client, connect
    from penstock.embedded.broker import Broker
    from penstock.embedded.consumer import Consumer, Delivery
    from penstock.embedded.opening import open_broker as open
    from penstock.model.config import BrokerConfig, TopicConfig
    from penstock.model.errors import (
        BrokerClosed,
        ConnectionLost,
        ConsumerNotFound,
        CorruptData,
        DirectoryLocked,
        DiskFull,
        Forbidden,
        GroupInUse,
        GroupNotFound,
        InvalidArgument,
        LeaseLost,
        LimitExceeded,
        MessageNotFound,
        Overloaded,
        PenstockError,
        RequestTimeout,
        ScheduleNotFound,
        StageNotFound,
        StaleSequence,
        StorageFailed,
        TopicExists,
        TopicNotFound,
        Unauthenticated,
    )
    from penstock.model.events import Event, EventKind
    from penstock.model.group_settings import GroupSettings
    from penstock.model.info import BrokerStatus, GroupInfo, MemberInfo, PartitionInfo, RecoveryReport, TopicInfo
    from penstock.model.letters import DeadLetter, RedriveReport
    from penstock.model.message import Message, MessageId, MessageIds, StoredMessage
    from penstock.model.schedules import DelayedMessage, Schedule
    from penstock.model.traces import Trace, TraceLine
    from penstock.worker import Worker
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "penstock.aio": (),
            "penstock.embedded.consumer": ("Consumer", "Delivery"),
            "penstock.embedded.broker": ("Broker",),
            "penstock.embedded.opening": ("open_broker as open",),
            "penstock.client": ("Client", "connect"),
            "penstock.model.config": ("BrokerConfig", "TopicConfig"),
            "penstock.model.errors": (
                "BrokerClosed",
                "ConnectionLost",
                "ConsumerNotFound",
                "CorruptData",
                "DirectoryLocked",
                "DiskFull",
                "GroupInUse",
                "GroupNotFound",
                "InvalidArgument",
                "LeaseLost",
                "LimitExceeded",
                "MessageNotFound",
                "Overloaded",
                "PenstockError",
                "RequestTimeout",
                "ScheduleNotFound",
                "StageNotFound",
                "Unauthenticated",
                "Forbidden",
                "StaleSequence",
                "StorageFailed",
                "TopicExists",
                "TopicNotFound",
            ),
            "penstock.model.events": ("Event", "EventKind"),
            "penstock.model.group_settings": ("GroupSettings",),
            "penstock.model.info": (
                "BrokerStatus",
                "GroupInfo",
                "MemberInfo",
                "PartitionInfo",
                "RecoveryReport",
                "TopicInfo",
            ),
            "penstock.model.letters": ("DeadLetter", "RedriveReport"),
            "penstock.model.message": ("Message", "MessageId", "MessageIds", "StoredMessage"),
            "penstock.model.schedules": ("DelayedMessage", "Schedule"),
            "penstock.model.traces": ("Trace", "TraceLine"),
            "penstock.worker": ("Worker",),
        },
    )

__all__ = [
    "Broker",
    "BrokerClosed",
    "BrokerConfig",
    "BrokerStatus",
    "Client",
    "ConnectionLost",
    "Consumer",
    "ConsumerNotFound",
    "CorruptData",
    "DeadLetter",
    "DelayedMessage",
    "Delivery",
    "DirectoryLocked",
    "DiskFull",
    "Event",
    "EventKind",
    "Forbidden",
    "GroupInUse",
    "GroupInfo",
    "GroupNotFound",
    "GroupSettings",
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
    "RecoveryReport",
    "RedriveReport",
    "RequestTimeout",
    "Schedule",
    "ScheduleNotFound",
    "StageNotFound",
    "StaleSequence",
    "StorageFailed",
    "StoredMessage",
    "TopicConfig",
    "TopicExists",
    "TopicInfo",
    "TopicNotFound",
    "Trace",
    "TraceLine",
    "Unauthenticated",
    "Worker",
    "aio",
    "connect",
    "open",
]
