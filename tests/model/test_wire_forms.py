"""What callers get back travels: msgpack and back gives an equal object, whether decoded by type or converted."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from penstock.model.config import TopicConfig
from penstock.model.events import Event, EventKind
from penstock.model.info import BrokerStatus, GroupInfo, MemberInfo, PartitionInfo, RecoveryReport, TopicInfo
from penstock.model.letters import DeadLetter, RedriveReport
from penstock.model.message import MessageId, StoredMessage
from penstock.model.schedules import DelayedMessage, Schedule
from penstock.model.singles import Single
from penstock.model.traces import Trace, TraceLine

ID = MessageId("orders", 2, 45678)
WHEN = datetime(2026, 2, 28, 23, 59, 59, 999_999, tzinfo=UTC)
STORED = StoredMessage("orders", 2, 45678, 1_700_000_000_000_001, b"\xff\x00", b"k", {"a": "é"}, 64, 7, "d", 8)
BARE = StoredMessage("orders", 2, 45678, 0, b"", None, None, 128, None, None)
PARTITION = PartitionInfo(0, 5, 1 << 60, 3, 1 << 50, 77)
CONFIG = TopicConfig.parse(
    {"partitions": 3, "lanes": "weighted", "lane_weights": {"high": 5, "low": 1}, "archive": "c"}
)
MEMBERS = (MemberInfo("kim", "assigned", 3, (0, 2)), MemberInfo("lee", "shared", 0, ()))

FORMS = [
    PARTITION,
    TopicInfo("orders", CONFIG, (PARTITION, PARTITION)),
    TopicInfo("orders", TopicConfig.parse({"retention_age": None}), ()),
    *MEMBERS,
    GroupInfo("orders", "g", 21, 1, 2, 3, 4, 5, 6, 0, 0, 0, 0, 14, 1.25, (0, 7), MEMBERS),
    GroupInfo("orders", "g", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, None, (), ()),
    RecoveryReport(1, 2, 3, 4, 5, 0.5),
    RecoveryReport(),
    BrokerStatus("ab" * 16, 3, "0.1.0", "/data", "always", 1.5, 1, 2, 3, 4, 5, 6, 7, 8, "frozen", RecoveryReport(1)),
    BrokerStatus("ab" * 16, 3, "0.1.0", None, "never", 0.0, 0, 0, 0, 0, 0, 0, 0, 0, None, RecoveryReport()),
    ID,
    STORED,
    BARE,
    DelayedMessage(ID, 1_700_000_000_000_001),
    Schedule(
        "nightly", "0 3 * * *", "Europe/Berlin", "reports", Single(b"v", b"k", {"a": "b"}, 3, 0, None, 9), next_us=5
    ),
    Schedule("nightly", "0 3 * * *", "UTC", "reports", Single(b"v"), paused=True),
    DeadLetter(ID, ID, "g", "boom", "kim", 3, 3, WHEN, WHEN, b"v", b"k", {"a": "b"}, 128, ["one", "two"]),
    DeadLetter(ID, ID, "", "by hand", None, 0, 0, WHEN, WHEN, b"", None, None, 0, []),
    RedriveReport(5, 2, 2, 1, dry_run=True),
    RedriveReport(),
    Trace(ID, STORED, [TraceLine("failed", 1, "g", "kim", 2, "boom", 3), TraceLine("due", 9)], WHEN),
    Trace(ID, None, [], None),
    Event(EventKind.FAILED, 1, 2, 3, "g", "kim", 4, "boom", 5, [2, 4, 6]),
    Event(EventKind.REMOVED, 1, 2, 3),
]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: type(form).__name__)
def test_it_comes_back_as_it_was(form: object) -> None:
    sent = msgspec.msgpack.encode(form)
    typed = msgspec.msgpack.Decoder(type(form)).decode(sent)
    converted = msgspec.convert(msgspec.msgpack.decode(sent), type(form))
    assert typed == form
    assert converted == form
    assert repr(typed) == repr(converted) == repr(form)  # equal, and of the same types all the way down
