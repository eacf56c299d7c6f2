"""Delayed messages by HTTP: listed page by page, shown, cancelled for sure, moved."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from tests.server.http.harness import HttpRunning


def test_they_are_listed_by_when_they_fall_due_page_by_page(server: HttpRunning, topic: str) -> None:
    server.broker.create_topic(topic, partitions=3)
    for minutes in (30, 10, 20, 50, 40):
        server.broker.publish(topic, f"{minutes}", delay=f"{minutes}m", partition=minutes // 10 % 3)
    server.broker.publish(topic, "now")
    first = server.get(f"/v1/topics/{topic}/delayed", limit=2)
    second = server.get(f"/v1/topics/{topic}/delayed", limit=2, skip=2)
    last = server.get(f"/topics/{topic}/delayed", limit=2, skip=4)
    assert [page["more"] for page in (first, second, last)] == [True, True, False]
    found = [item for page in (first, second, last) for item in page["delayed"]]
    assert [item["partition"] for item in found] == [1, 2, 0, 1, 2]
    assert [item["due_at"] for item in found] == sorted(item["due_at"] for item in found)
    assert set(found[0]) == {"id", "topic", "partition", "offset", "due_at"}
    assert server.get(f"/v1/topics/{topic}/delayed", skip=5) == {"delayed": [], "more": False}


def test_one_is_shown_with_the_time_that_it_has_now(server: HttpRunning, topic: str) -> None:
    identity = server.broker.publish(topic, "x", delay="10m")
    assert server.get(f"/v1/topics/{topic}/delayed/0/0")["id"] == str(identity)
    due_at = datetime.now(UTC) + timedelta(hours=3)
    moved = server.ask("PATCH", f"/v1/topics/{topic}/delayed/0/0", {"deliver_at": due_at.isoformat()}).json
    assert datetime.fromisoformat(moved["due_at"]) == due_at
    assert server.get(f"/v1/topics/{topic}/delayed/0/0")["due_at"] == moved["due_at"]
    assert server.get(f"/v1/topics/{topic}/delayed")["delayed"][0]["due_at"] == moved["due_at"]


def test_a_cancelled_one_never_comes(server: HttpRunning, topic: str) -> None:
    server.broker.publish(topic, "x", delay="10m")
    reply = server.ask("DELETE", f"/v1/topics/{topic}/delayed/0/0")
    assert (reply.status, reply.json) == (200, {"cancelled": True})
    assert server.get(f"/v1/topics/{topic}/delayed") == {"delayed": [], "more": False}
    assert server.refused("GET", f"/v1/topics/{topic}/delayed/0/0") == (404, f"{topic}/0/0 is not delayed (any more)")
    assert server.ask("DELETE", f"/v1/topics/{topic}/delayed/0/0").json == {"cancelled": True}  # still so
    assert server.broker.consumer(topic, "g").receive() == []


def test_what_was_delivered_cannot_be_cancelled_or_moved(server: HttpRunning, topic: str) -> None:
    server.broker.publish(topic, "x")
    told = (409, f"{topic}/0/0 is not delayed (any more)")
    assert server.refused("DELETE", f"/v1/topics/{topic}/delayed/0/0") == told
    assert server.refused("PATCH", f"/v1/topics/{topic}/delayed/0/0", {"delay": 10}) == told


def test_it_is_cancelled_or_delivered_never_both(server: HttpRunning, topic: str) -> None:
    count = 20
    for number in range(count):
        server.broker.publish(topic, f"{number}", delay=0.15)
    with ThreadPoolExecutor(4) as pool, server.broker.consumer(topic, "g") as consumer:
        replies = list(pool.map(lambda n: server.ask("DELETE", f"/v1/topics/{topic}/delayed/0/{n}"), range(count)))
        cancelled = {n for n, reply in enumerate(replies) if reply.status == 200}
        got: set[int] = set()
        while len(got) + len(cancelled) < count:
            messages = consumer.receive(100, wait=20)
            assert messages, "a message is neither cancelled nor delivered"
            got |= {message.offset for message in messages}
            consumer.ack(messages)
    assert got.isdisjoint(cancelled)
    assert {reply.status for reply in replies} <= {200, 409}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "give delay or deliver_at"),
        ({"delay": 1, "deliver_at": 2e9}, "not both"),
        ({"delay": "soon"}, "'soon' is not a duration"),
        ({"delay": "9d"}, "max_delay"),
        ({"delay": -1}, ""),
        ({"deliver_at": "2026-12"}, "is not a point in time"),
        ({"later": 1}, "later"),
        ([], ""),
    ],
)
def test_a_time_that_cannot_be_is_refused(server: HttpRunning, topic: str, body: object, said: str) -> None:
    server.broker.publish(topic, "x", delay="10m")
    status, text = server.refused("PATCH", f"/v1/topics/{topic}/delayed/0/0", body)
    assert status in (400, 413)
    assert said in text
    assert len(server.get(f"/v1/topics/{topic}/delayed")["delayed"]) == 1


@pytest.mark.parametrize(
    "path",
    [
        "/v1/topics/none/delayed",
        "/v1/topics/none/delayed/0/0",
        "/v1/topics/TOPIC/delayed/0/1",
        "/v1/topics/TOPIC/delayed/7/0",
        "/v1/topics/TOPIC/delayed/0/999999999999999999",
    ],
)
def test_what_is_not_there_is_not_found(server: HttpRunning, topic: str, path: str) -> None:
    server.broker.publish(topic, "x", delay="10m")
    assert server.refused("GET", path.replace("TOPIC", topic))[0] == 404
    assert "none" not in {topic.name for topic in server.broker.topics()}


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "skip=-1", "limit="])
def test_pages_have_limits(server: HttpRunning, topic: str, query: str) -> None:
    server.broker.publish(topic, "x", delay="10m")
    assert server.refused("GET", f"/v1/topics/{topic}/delayed?{query}")[0] == 400


@pytest.mark.parametrize(
    "place",
    [
        "TOPIC/delayed/0/-1",
        "TOPIC/delayed/x/0",
        f"TOPIC/delayed/0/{'9' * 20}",
        f"TOPIC/delayed/0/{'9' * 5000}",
        "a%20b/delayed/0/0",
        "%00/delayed/0/0",
    ],
)
def test_places_that_cannot_be_are_refused(server: HttpRunning, topic: str, place: str) -> None:
    server.broker.publish(topic, "x", delay="10m")
    for method, body in (("GET", None), ("DELETE", None), ("PATCH", {"delay": 1})):
        assert server.refused(method, f"/v1/topics/{place.replace('TOPIC', topic)}", body)[0] in (400, 404)
