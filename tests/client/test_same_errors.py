"""What is refused is refused on every face, with the same error and the same words."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import penstock
from tests.client.awaited import error_of
from tests.client.faces import FACES, face_of

Act = Callable[[Any, Any, Any], Any]
NAIVE = datetime(2030, 1, 1)  # noqa: DTZ001 - which is what is wrong with it
LIMITS = {"max_value_bytes": 1024, "max_key_bytes": 256, "max_headers_bytes": 256, "max_batch_bytes": 8192}

REFUSED: dict[str, list[Act]] = {
    "TopicNotFound": [
        lambda b, c, m: list(b.read("nope")),
        lambda b, c, m: list(b.read("t", 2)),
        lambda b, c, m: list(b.read("t", -1)),
        lambda b, c, m: list(b.read_arrow("nope")),
        lambda b, c, m: list(b.events("nope")),
        lambda b, c, m: list(b.events("t", 9)),
        lambda b, c, m: b.offset_at("nope", 0),
        lambda b, c, m: b.offset_at("t", 0, 5),
        lambda b, c, m: b.delete_topic("nope"),
        lambda b, c, m: b.configure_topic("nope", archive="x"),
        lambda b, c, m: b.groups("nope"),
        lambda b, c, m: b.group("nope", "g"),
        lambda b, c, m: b.delayed("nope"),
        lambda b, c, m: b.dead_letters("nope"),
        lambda b, c, m: b.redrive("nope"),
        lambda b, c, m: b.purge_dead_letters("nope"),
        lambda b, c, m: b.replay("nope", "g"),
        lambda b, c, m: b.trace("nope/0/0"),
        lambda b, c, m: b.cancel_delayed("nope/0/0"),
    ],
    "TopicExists": [lambda b, c, m: b.create_topic("t")],
    "GroupNotFound": [
        lambda b, c, m: b.group("t", "nope"),
        lambda b, c, m: b.seek_group("t", "nope", 0),
        lambda b, c, m: b.reset_group("t", "nope"),
        lambda b, c, m: b.delete_group("t", "nope"),
    ],
    "GroupInUse": [
        lambda b, c, m: b.delete_group("t", "g"),
        lambda b, c, m: b.create_group("t", "g"),
        lambda b, c, m: b.consumer("t", "g", name="r1"),
        lambda b, c, m: b.consumer("t", "g", mode="assigned"),
        lambda b, c, m: b.replay("t", "g"),
        lambda b, c, m: b.replay("t", "g", filter=lambda message: True),
    ],
    "MessageNotFound": [
        lambda b, c, m: b.trace("t/0/99"),
        lambda b, c, m: b.dead_letter("t/0/0"),
        lambda b, c, m: b.dead_letter("t.dlq/0/99"),
    ],
    "ScheduleNotFound": [
        lambda b, c, m: b.pause_schedule("nope"),
        lambda b, c, m: b.remove_schedule("nope"),
    ],
    "LeaseLost": [
        lambda b, c, m: (c.ack([m]), c.release([m])),
        lambda b, c, m: m.extend(5),
        lambda b, c, m: m.fail("late"),
        lambda b, c, m: m.kill("late"),
    ],
    "LimitExceeded": [
        lambda b, c, m: b.publish("t", b"x" * 2000),
        lambda b, c, m: b.publish("t", "x", key="k" * 300),
        lambda b, c, m: b.publish("t", "x", headers={"h": "x" * 300}),
        lambda b, c, m: b.publish_many("t", ["ok", b"x" * 2000]),
        lambda b, c, m: b.publish_many("t", [b"x" * 900] * 20),
        lambda b, c, m: b.create_topic("wide", partitions=9),
    ],
    "InvalidArgument": [
        lambda b, c, m: b.publish("no topic", "x"),
        lambda b, c, m: b.publish("t", 7),
        lambda b, c, m: b.publish("t", None),
        lambda b, c, m: b.publish("t", "x", key=7),
        lambda b, c, m: b.publish("t", "x", headers={"a": 1}),
        lambda b, c, m: b.publish("t", "x", headers="a"),
        lambda b, c, m: b.publish("t", "x", priority="urgent"),
        lambda b, c, m: b.publish("t", "x", priority=256),
        lambda b, c, m: b.publish("t", "x", priority=True),
        lambda b, c, m: b.publish("t", "x", delay=-1),
        lambda b, c, m: b.publish("t", "x", delay="soon"),
        lambda b, c, m: b.publish("t", "x", delay="8d"),
        lambda b, c, m: b.publish("t", "x", delay=1, deliver_at=2e9),
        lambda b, c, m: b.publish("t", "x", deliver_at=NAIVE),
        lambda b, c, m: b.publish("t", "x", expires_in=0),
        lambda b, c, m: b.publish("t", "x", partition=2),
        lambda b, c, m: b.publish("t", "x", partition=-1),
        lambda b, c, m: b.publish("t", "x", dedupe_id=""),
        lambda b, c, m: b.publish("t", "x", dedupe_id=5),
        lambda b, c, m: b.publish("t", "x", dedupe_id="x" * 1025),
        lambda b, c, m: b.publish("t", "\ud800"),
        lambda b, c, m: b.publish_many("t", "text"),
        lambda b, c, m: b.publish_many("t", ["ok", 7]),
        lambda b, c, m: b.publish_many("t", [penstock.Message("a", priority="urgent")]),
        lambda b, c, m: b.publish_many("t", ["ok", penstock.Message("a", delay=-1)]),
        lambda b, c, m: b.publish_many("t", ["ok", penstock.Message("a", partition=7)]),
        lambda b, c, m: b.publish_many("t", ["x"], producer="p"),
        lambda b, c, m: b.publish_many("t", ["x"], sequence=1),
        lambda b, c, m: b.publish_many("t", ["x"], producer="", sequence=1),
        lambda b, c, m: b.publish_many("t", ["x"], producer="p", sequence=-1),
        lambda b, c, m: b.publish_many("t", ["x"], producer="p", sequence=2**63),
        lambda b, c, m: b.publish_many("t", ["x"], producer=5, sequence=1),
        lambda b, c, m: b.publish_many("t", [penstock.Message("a", dedupe_id="d")], producer="p", sequence=1),
        lambda b, c, m: (
            b.publish_many("t", [penstock.Message("x", partition=0)], producer="q", sequence=1),
            b.publish_many("t", [penstock.Message("x", partition=0)] * 2, producer="q", sequence=1),
        ),
        lambda b, c, m: list(b.read("no topic")),
        lambda b, c, m: list(b.read("t", limit=-1)),
        lambda b, c, m: list(b.read("t", limit="5")),
        lambda b, c, m: list(b.read("t", offset=-1)),
        lambda b, c, m: list(b.read("t", offset="5")),
        lambda b, c, m: list(b.read("t", from_time="yesterday")),
        lambda b, c, m: list(b.read("t", to_time=NAIVE)),
        lambda b, c, m: b.offset_at("t", "noon"),
        lambda b, c, m: b.create_topic("no topic"),
        lambda b, c, m: b.create_topic("u", partitions=0, colour="red"),
        lambda b, c, m: b.configure_topic("t", retention_agee=5),
        lambda b, c, m: b.configure_topic("t", partitions=3),
        lambda b, c, m: b.configure_topic("t", order="key"),
        lambda b, c, m: b.delete_topic("no topic"),
        lambda b, c, m: b.create_group("t", "no group"),
        lambda b, c, m: b.create_group("t", "u", start="sometime"),
        lambda b, c, m: b.create_group("t", "u", visibility_timeout=0),
        lambda b, c, m: b.seek_group("t", "g", 99),
        lambda b, c, m: b.seek_group("t", "g", "somewhere"),
        lambda b, c, m: b.seek_group("t", "g", 0, partition=7),
        lambda b, c, m: b.delayed("t", limit=-1),
        lambda b, c, m: b.cancel_delayed("t"),
        lambda b, c, m: b.reschedule_delayed("t/0/0", delay=1, deliver_at=2),
        lambda b, c, m: b.schedule("s", "every day", "t", "x"),
        lambda b, c, m: b.schedule("s", "* * * * *", "t", "x", zone="Middle/Earth"),
        lambda b, c, m: b.schedule("s", "* * * * *", "t", 7),
        lambda b, c, m: b.schedule("s", "* * * * *", "t", "x", priority="urgent"),
        lambda b, c, m: b.dead_letters("t", limit=-1),
        lambda b, c, m: b.dead_letters("t", limit="1"),
        lambda b, c, m: b.dead_letter("t"),
        lambda b, c, m: b.redrive("t", rate=0),
        lambda b, c, m: b.redrive("t", to="t.dlq"),
        lambda b, c, m: b.redrive("t", to="no topic"),
        lambda b, c, m: b.replay("t", "no group"),
        lambda b, c, m: b.replay("t", 7),
        lambda b, c, m: b.replay("t", "u", rate=-1),
        lambda b, c, m: b.replay("t", print, rate=0),
        lambda b, c, m: b.replay("t", "u", from_offset=-1),
        lambda b, c, m: b.replay("t", print, to_offset=-1),
        lambda b, c, m: b.replay("t", "u", from_offset=5, to_offset=2),
        lambda b, c, m: b.replay("t", print, from_offset=5, to_offset=2),
        lambda b, c, m: b.replay("t", "u", partition=9),
        lambda b, c, m: b.replay("t", print, partition=9),
        lambda b, c, m: b.replay("t", print, partition="0"),
        lambda b, c, m: b.replay("t", "u", filter=bool, partition=9),
        lambda b, c, m: b.trace("what"),
        lambda b, c, m: b.consumer("t", "no group"),
        lambda b, c, m: b.consumer("no topic", "g"),
        lambda b, c, m: b.consumer([], "g"),
        lambda b, c, m: b.consumer(["t", "t"], "g"),
        lambda b, c, m: b.consumer(7, "g"),
        lambda b, c, m: b.consumer(["t", 7], "g"),
        lambda b, c, m: b.consumer("t", 7),
        lambda b, c, m: b.consumer("t", "g", mode="alone"),
        lambda b, c, m: b.consumer("t", "g", mode=7),
        lambda b, c, m: b.consumer("t", "g", name="no name"),
        lambda b, c, m: b.consumer("t", "g", name=7),
        lambda b, c, m: b.consumer("t", "g", max_in_flight=0),
        lambda b, c, m: b.consumer("t", "g", visibility_timeout=0),
        lambda b, c, m: b.consumer("t", "g", autoack="yes"),
        lambda b, c, m: b.consumer("t", "g2", start="sometime"),
        lambda b, c, m: b.consumer("t", "g", session_timeout=0),
        lambda b, c, m: c.receive(0),
        lambda b, c, m: c.receive(1, wait=-1),
        lambda b, c, m: c.receive(1, visibility_timeout=0),
        lambda b, c, m: c.ack(["x"]),
        lambda b, c, m: c.ack(7),
        lambda b, c, m: c.extend([m], -1),
        lambda b, c, m: c.fail([m], ""),
        lambda b, c, m: c.fail([m], 7),
        lambda b, c, m: c.fail([m], "x", delay=-1),
        lambda b, c, m: c.kill([m], "  "),
    ],
}
"""By the error: what raises it, of a broker, a consumer and a message."""
OTHER_WORDS: list[Act] = [
    lambda b, c, m: b.publish("t", "x", partition="0"),  # a client does not know how many there are
    lambda b, c, m: b.publish("t", "x", partition=2**70),
    lambda b, c, m: c.ack(m),  # messages of a client show themselves otherwise
    lambda b, c, m: b.offset_at("t", NAIVE),  # times are sent as text
    lambda b, c, m: b.seek_group("t", "g", NAIVE),
    lambda b, c, m: b.create_group("t", "u", start=NAIVE),
    lambda b, c, m: b.publish(7, "x"),
    lambda b, c, m: b.create_topic(7),
    lambda b, c, m: b.create_topic("u", retention_age=object()),
    lambda b, c, m: b.publish("t", "x", delay=3e11),
]
"""These are InvalidArgument everywhere, but a client says it in other words."""


def refusals(face: str, path: Path) -> dict[str, str]:
    """What each of them tells."""
    told: dict[str, str] = {}
    with face_of(face, path, broker={**LIMITS, "max_partitions": 4}) as broker:
        broker.create_topic("t", partitions=2)
        broker.publish("t", "x", partition=0)
        broker.publish("t.dlq", "by hand")
        consumer = broker.consumer("t", "g", name="r1")
        (message,) = consumer.receive(1)
        for kind, acts in REFUSED.items():
            for act in acts:
                label = f"{kind}, line {act.__code__.co_firstlineno}"
                told[label] = error_of(lambda act=act: act(broker, consumer, message))  # type: ignore[misc]
        for act in OTHER_WORDS:
            wrong = error_of(lambda act=act: act(broker, consumer, message))  # type: ignore[misc]
            assert wrong.startswith("InvalidArgument: "), wrong
        told["left"] = str([found.value for found in broker.read("t")])
        with broker.consumer("t.dlq", "d", name="d1") as burials:
            (letter,) = burials.receive(1)
            told["letters are immortal"] = error_of(lambda: letter.kill("again"))
        consumer.close()
        told["closed"] = error_of(lambda: consumer.receive(1))
        broker.configure_topic("t", max_backlog=1)
        told["overloaded"] = error_of(lambda: [broker.publish("t", "x", partition=0) for _ in range(9)])
        broker.delete_topic("t")
        told["gone"] = error_of(lambda: list(broker.read("t")))
    return told


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return refusals("embedded", tmp_path_factory.mktemp("embedded"))


def test_every_error_is_the_one_that_it_is_listed_under(expected: dict[str, str]) -> None:
    assert {label: told for label, told in expected.items() if not told.startswith(label.partition(",")[0])} == {
        label: expected[label] for label in ("left", "letters are immortal", "closed", "overloaded", "gone")
    }


@pytest.mark.parametrize("face", FACES[1:])
def test_TR2_what_is_refused_is_refused_with_the_same_words(
    face: str, expected: dict[str, str], tmp_path: Path
) -> None:
    found = refusals(face, tmp_path)
    different = {label: (found[label], told) for label, told in expected.items() if found[label] != told}
    assert not different, "".join(f"\n{label}: {a}\n    not {b}" for label, (a, b) in different.items())
