"""A message that was rescheduled shows its new time, on every face and however it is read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import penstock
from tests.client.faces import FACES, face_of
from tests.server.http.harness import HttpRunning

FIRST = datetime(2031, 1, 1, tzinfo=UTC)
NEW = datetime(2031, 6, 1, tzinfo=UTC)
LONG: dict[str, Any] = {"topic_defaults": {"max_delay": "9999d"}}


def make(broker: Any) -> penstock.MessageId:
    """A message between two others that was rescheduled."""
    broker.publish("t", "before", deliver_at=FIRST)
    identity: penstock.MessageId = broker.publish("t", "moved", deliver_at=FIRST)
    broker.publish("t", "behind", deliver_at=FIRST)
    assert broker.reschedule_delayed(identity, deliver_at=NEW) == NEW
    return identity


@pytest.mark.parametrize("face", FACES)
def test_the_log_and_the_trace_show_the_new_time(face: str, tmp_path: Path) -> None:
    with face_of(face, tmp_path, broker=LONG) as broker:
        identity = make(broker)
        for _ in range(2):
            assert [message.deliver_at for message in broker.read("t")] == [FIRST, NEW, FIRST]
            broker.settle()
        trace = broker.trace(identity)
        assert trace.message.deliver_at == NEW
        assert [(line.kind, line.due_us) for line in trace.lines] == [
            ("published", 0),
            ("scheduled", round(FIRST.timestamp() * 1_000_000)),
            ("rescheduled", round(NEW.timestamp() * 1_000_000)),
        ]
        assert [found.due_us for found in broker.delayed("t")][-1] == round(NEW.timestamp() * 1_000_000)


@pytest.mark.parametrize("face", FACES)
def test_a_consumer_gets_it_with_the_new_time(face: str, tmp_path: Path) -> None:
    with face_of(face, tmp_path) as broker, broker.consumer("t", "g") as consumer:
        broker.publish("t", "first")
        identity = broker.publish("t", "moved", delay="1h")
        now = datetime.now(UTC)
        assert broker.reschedule_delayed(identity, deliver_at=now) is not None
        received: list[Any] = []
        while len(received) < 2:
            received += consumer.receive(10, wait=10)
        assert received[0].deliver_at is None
        assert abs(received[1].deliver_at - now) < timedelta(minutes=1)


def test_T3_the_new_time_survives_a_restart(tmp_path: Path) -> None:
    with penstock.open(tmp_path, **LONG) as broker:
        make(broker)
    with penstock.open(tmp_path, **LONG) as broker:
        assert [message.deliver_at for message in broker.read("t")] == [FIRST, NEW, FIRST]


def test_http_shows_the_new_time(tmp_path: Path) -> None:
    with HttpRunning(tmp_path, broker=LONG) as server:
        make(server.broker)
        times = [message["deliver_at"] for message in server.get("/v1/topics/t/messages")["messages"]]
        assert [datetime.fromisoformat(time) for time in times] == [FIRST, NEW, FIRST]
        assert datetime.fromisoformat(server.get("/v1/topics/t/messages/0/1")["deliver_at"]) == NEW
