"""Numbers, durations and times of very many digits, wherever a client can write one."""

from __future__ import annotations

import msgspec
import pytest

from penstock.model.config import BrokerConfig
from penstock.model.errors import InvalidArgument
from penstock.model.message import Message
from penstock.protocol.frames import Command
from penstock.protocol.publishing import encode_publish
from tests.abuse.harness import Target
from tests.server.harness import Raw

encode = msgspec.msgpack.Encoder().encode
DIGITS = "1" * 60_000
RAW = {"content-type": "application/octet-stream"}


def test_H1_a_number_of_many_digits_stalls_nobody_by_http(target: Target) -> None:
    target.ask_http("POST", "/v1/topics/t/publish", b"x", RAW)
    paths = [f"/v1/topics/t/publish?{option}={DIGITS}" for option in ("delay", "deliver_at", "expires_in", "priority")]
    paths += [f"/v1/topics/t/publish?delay={DIGITS}s", f"/v1/topics/t/publish?delay={'1s' * 30_000}x"]
    with target.unharmed():
        for path in paths:
            status, reply = target.ask_http("POST", path, b"x", RAW)
            assert (status, len(reply) < 1000) == (400, True), (path[:50], reply)
        for path in (
            f"/v1/topics?limit={DIGITS}",
            f"/v1/topics/t/receive?group=g&wait={DIGITS}",
            f"/v1/topics/t/messages?from_time={DIGITS}",
            f"/v1/topics/t/delayed/{DIGITS}/0",
            f"/v1/topics/t/delayed/0/{DIGITS}",
            f"/v1/traces?cursor={DIGITS}",
        ):
            status, reply = target.ask_http("GET", path)
            assert status in (400, 404), (path[:50], reply)
            assert len(reply) < 1000, path[:50]


def test_H1_a_duration_of_many_digits_stalls_nobody_by_the_native_port(target: Target) -> None:
    with Raw(target.port) as raw:
        raw.subscribe("t")
        raw.ask(Command.PUBLISH, encode_publish("t", [Message(b"x", delay="1h")], BrokerConfig())[0])
    for text in ("1" * 900_000, "1" * 900_000 + "s", "1s" * 450_000, "1." * 450_000):
        refuse_all(target, text)


def refuse_all(target: Target, text: str) -> None:
    """Send it as every argument that is read as a number, a duration or a time."""
    calls: list[tuple[str, dict[str, object]]] = [
        ("reschedule_delayed", {"identity": "t/0/0", "delay": text}),
        ("reschedule_delayed", {"identity": "t/0/0", "deliver_at": text}),
        ("reschedule_delayed", {"identity": text, "delay": 1}),
        ("create_topic", {"name": "t", "retention_age": text}),
        ("create_topic", {"name": "t", "retention_bytes": text}),
        ("schedule", {"name": "s", "cron": text, "topic": "t", "value": ""}),
        ("schedule", {"name": "s", "cron": "* * * * *", "topic": "t", "value": "", "zone": text}),
        ("seek_group", {"topic": "t", "group": "g", "to": text}),
        ("offset_at", {"topic": "t", "time": text}),
    ]
    with target.unharmed(), Raw(target.port) as raw:
        for operation, arguments in calls:
            with pytest.raises(InvalidArgument) as refused:
                raw.ask(Command.CALL, encode([operation, arguments]))
            assert len(str(refused.value)) < 2000, operation
