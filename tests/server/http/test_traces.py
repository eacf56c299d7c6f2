"""Traces by HTTP: the life of one message, and messages by what became of them, the newest first."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.server.access.tokens import TokenFile
from penstock.testing import MemoryStorage, VirtualClock
from penstock.views import trace_search
from penstock.views.trace_search import Mark, TraceQuery, search_traces
from tests.server.http.harness import HttpRunning


def search(server: HttpRunning, **query: Any) -> list[dict[str, Any]]:
    """What all pages of a search have."""
    found: list[dict[str, Any]] = []
    cursor = None
    while True:
        page = server.get("/v1/traces/search", **query, **({} if cursor is None else {"cursor": cursor}))
        found += page["traces"]
        cursor = page["cursor"]
        if cursor is None:
            return found


def places(found: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(trace["partition"], trace["offset"]) for trace in found]


def live_six_lives(server: HttpRunning, topic: str) -> None:
    """Messages 0 to 5: acked, failed, dead, delivered, published, delayed."""
    server.broker.create_topic(topic, retry_backoff=1000, visibility_timeout=1000)
    server.broker.publish_many(topic, [f"{number}" for number in range(4)])
    consumer = server.broker.consumer(topic, "g", name="one")
    messages = consumer.receive(4)
    messages[0].ack()
    messages[1].fail("no milk")
    messages[2].kill("never")
    server.broker.publish(topic, "4", headers={"traceparent": "00-1-2-01"})
    server.broker.publish(topic, "5", delay="1h")


def test_the_trace_of_what_was_redriven_elsewhere_shows_where_it_went(server: HttpRunning, topic: str) -> None:
    live_six_lives(server, topic)
    assert server.post(f"/v1/topics/{topic}/dead-letters/redrive", {"to": f"{topic}-again"})["copied"] == 1
    gone = server.get(f"/v1/traces/{topic}/0/2")["lines"][-1]
    assert (gone["kind"], gone["group"], gone["cause"]) == ("copied", "g", f"to {topic}-again/0/0")
    with penstock.connect(server.address) as client:
        assert client.trace(f"{topic}/0/2").lines[-1].cause == gone["cause"]
        with pytest.raises(penstock.MessageNotFound, match=f"it was redriven to {topic}-again/0/0"):
            client.dead_letter(f"{topic}.dlq/0/0")
    (found,) = search(server, topic=topic, status="dead")
    assert found["offset"] == 2, "it is still dead to its group"


def test_the_life_of_a_message_is_told(server: HttpRunning, topic: str) -> None:
    live_six_lives(server, topic)
    told = server.get(f"/v1/traces/{topic}/0/1")
    assert set(told) == {"id", "message", "traceparent", "lines", "retained_until"}
    assert [line["kind"] for line in told["lines"]] == ["published", "delivered", "failed"]
    failed = told["lines"][-1]
    assert (failed["group"], failed["consumer"], failed["attempt"], failed["cause"]) == ("g", "one", 1, "no milk")
    assert datetime.fromisoformat(failed["due_at"]) > datetime.fromisoformat(failed["time"])
    assert told["message"]["value"] == "1"
    assert server.get(f"/v1/traces/{topic}/0/4")["traceparent"] == "00-1-2-01"
    assert server.get(f"/v1/traces/{topic}/0/1", encoding="base64")["message"]["encoding"] == "base64"


def test_an_id_may_have_its_slashes_encoded(server: HttpRunning, topic: str) -> None:
    server.broker.publish(topic, "x")
    told = server.get(f"/v1/traces/{topic}/0/0")
    assert server.get(f"/v1/traces/{topic}%2F0%2F0") == told
    assert server.get(f"/traces/{topic}%2f0/0") == told
    assert server.refused("GET", f"/v1/traces/{topic}")[0] == 400


def test_a_topic_may_be_called_search(server: HttpRunning) -> None:
    server.broker.publish("search", "x")
    assert server.get("/v1/traces/search/0/0")["id"] == "search/0/0"
    assert server.get("/v1/traces/search%2F0%2F0")["id"] == "search/0/0"
    assert server.get("/v1/traces", topic="search")["traces"][0]["id"] == "search/0/0"


@pytest.mark.parametrize("settled", [False, True])
def test_messages_are_found_by_what_became_of_them(server: HttpRunning, topic: str, settled: bool) -> None:
    live_six_lives(server, topic)
    if settled:
        server.broker.settle()
    found = search(server, topic=topic)
    assert places(found) == [(0, offset) for offset in range(5, -1, -1)]
    statuses = ["delayed", "published", "delivered", "dead", "failed", "acked"]
    assert [trace["status"] for trace in found] == statuses
    assert [trace["groups"].get("g") for trace in found] == [None, None, *statuses[2:]]
    assert [trace["events"] for trace in found] == [0, 0, 1, 2, 2, 2]
    assert set(found[0]) == {"id", "topic", "partition", "offset", "published_at", "status", "groups", "events"}
    for offset, status in zip(range(5, -1, -1), statuses, strict=True):
        assert places(search(server, topic=topic, status=status)) == [(0, offset)]
    assert server.get("/v1/traces", topic=topic)["traces"] == found


def test_messages_are_found_by_group(server: HttpRunning, topic: str) -> None:
    server.broker.publish_many(topic, ["a", "b", "c"])
    with server.broker.consumer(topic, "one") as one, server.broker.consumer(topic, "two") as two:
        one.ack(one.receive(2))
        two.receive(1)[0].release()
        assert places(search(server, topic=topic, consumer_group="one")) == [(0, 1), (0, 0)]
        assert places(search(server, topic=topic, consumer_group="two")) == [(0, 0)]
        assert places(search(server, topic=topic, consumer_group="two", status="released")) == [(0, 0)]
        assert places(search(server, topic=topic, consumer_group="two", status="published")) == [(0, 2), (0, 1)]
        assert search(server, topic=topic, consumer_group="three") == []
        assert places(search(server, topic=topic, status="acked")) == [(0, 1), (0, 0)]
        (first,) = search(server, topic=topic, status="released")
        assert (first["status"], first["groups"]) == ("released", {"one": "acked", "two": "released"})


def test_what_happened_for_everybody_counts_too(server: HttpRunning, topic: str) -> None:
    for value in ("cancelled", "moved", "due"):
        server.broker.publish(topic, value, delay="1h")
    server.broker.cancel_delayed(f"{topic}/0/0")
    server.broker.reschedule_delayed(f"{topic}/0/1", delay="2h")
    server.broker.reschedule_delayed(f"{topic}/0/2", delay=0)
    found = search(server, topic=topic)
    assert [trace["status"] for trace in found] == ["published", "delayed", "cancelled"]
    assert places(search(server, topic=topic, consumer_group="g", status="cancelled")) == [(0, 0)]


def test_partitions_and_topics_are_merged_by_time_and_paged(
    server: HttpRunning, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_search, "_STRETCH_MIN", 2)
    server.broker.create_topic(topic, partitions=3)
    for number in range(30):
        server.broker.publish(topic, f"{number}", partition=number * number % 3)
        if number == 12:
            server.broker.settle()
    expected = [(n * n % 3, sum(m * m % 3 == n * n % 3 for m in range(n))) for n in range(29, -1, -1)]
    assert places(search(server, topic=topic)) == expected
    assert places(search(server, topic=topic, limit=4)) == expected
    assert places(search(server, topic=topic, limit=1, partition=1)) == [at for at in expected if at[0] == 1]
    monkeypatch.setattr(trace_search, "_SEARCH_SEEN", 3)
    assert places(search(server, topic=topic)) == expected
    assert search(server, topic=topic, status="acked") == []
    monkeypatch.setattr(trace_search, "_SEARCH_S", -1.0)  # no time at all: each page still gets on
    assert places(search(server, topic=topic)) == expected


def test_messages_of_one_batch_have_one_time_and_are_paged_all_the_same(server: HttpRunning, topic: str) -> None:
    other = f"{topic}-other"
    server.broker.create_topic(topic, partitions=2)
    for partition in (0, 1):
        server.broker.publish_many(topic, [penstock.Message("x", partition=partition)] * 5)
    server.broker.publish_many(other, ["x"] * 5)
    found = [trace["id"] for trace in search(server, limit=2) if trace["topic"] in (topic, other)]
    assert found == [f"{other}/0/{n}" for n in range(4, -1, -1)] + [
        f"{topic}/{partition}/{n}" for partition in (1, 0) for n in range(4, -1, -1)
    ]


def test_equal_times_in_several_partitions_are_each_found_once(clock: VirtualClock) -> None:
    with penstock.open(storage=MemoryStorage(), clock=clock) as broker:
        broker.create_topic("b", partitions=2)
        for topic in ("a", "b", "c"):  # all at one instant
            broker.publish_many(topic, [penstock.Message("x", partition=n % 2 * (topic == "b")) for n in range(6)])
        found, before = [], None
        while True:
            page, before = search_traces(broker.shards, TraceQuery(), lambda _: True, 4, before)
            found += [str(each.id) for each in page]
            if before is None:
                break
        assert len(found) == len(set(found)) == 18


def test_a_window_of_time_is_searched(server: HttpRunning, topic: str) -> None:
    server.broker.create_topic(topic, partitions=2)
    for number in range(10):
        server.broker.publish(topic, f"{number}", partition=number % 2)
        if number == 4:
            server.broker.settle()
    times = [trace["published_at"] for trace in search(server, topic=topic)][::-1]
    for first in (0, 2, 5, 7):
        for last in (0, 3, 5, 9):
            found = search(server, topic=topic, start=times[first], end=times[last], limit=2)
            assert [trace["published_at"] for trace in found] == times[first:last][::-1]
    assert len(search(server, topic=topic, start=times[8])) == 2
    assert len(search(server, topic=topic, end=times[1])) == 1


def test_a_message_that_is_gone_is_not_found_and_its_trace_says_so(tmp_path: Path) -> None:
    with HttpRunning(tmp_path) as server:
        server.broker.create_topic("t", retention_age=0)
        server.broker.publish("t", "x")
        with server.broker.consumer("t", "g") as consumer:
            consumer.receive(1)[0].ack()
        server.broker.settle()
        server.broker.retain()
        server.broker.publish("t", "y")
        assert places(search(server, topic="t")) == [(0, 1)]
        told = server.get("/v1/traces/t/0/0")
        assert told["message"] is None
        assert [line["kind"] for line in told["lines"]] == ["removed"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("nothing/0/0", 404),
        ("refusing/0/99", 404),
        ("refusing/9/0", 404),
        ("refusing/0/-1", 400),
        ("refusing/0/x", 404),
        ("a%20b/0/0", 400),
        ("%00/0/0", 400),
        ("..%2F0%2F0", 400),
        ("search?topic=nothing", 404),
        ("search?topic=a%20b", 400),
        ("search?topic=refusing&partition=9", 404),
        ("search?status=lost", 400),
        ("search?start=then", 400),
        ("search?end=-1", 400),
        ("search?limit=0", 400),
        ("search?cursor=1", 400),
        ("search?cursor=1/a/2", 400),
        ("search?cursor=x/a/1/2", 400),
        ("search?cursor=1/a/1/-2", 400),
    ],
)
def test_what_cannot_be_traced_is_refused(server: HttpRunning, path: str, status: int) -> None:
    server.broker.publish("refusing", "x")
    assert server.refused("GET", f"/v1/traces/{path}")[0] == status


def test_a_cursor_of_anywhere_does_no_harm(server: HttpRunning, topic: str) -> None:
    server.broker.publish(topic, "x")
    for cursor in ("0/a/0/0", f"{10**40}/{topic}/{10**30}/{10**30}", "5/../0/0", f"{2**70}//0/0"):
        server.get("/v1/traces", topic=topic, cursor=cursor)
    assert Mark.parse("7/a.b/2/3") == Mark(7, "a.b", 2, 3)
    assert str(Mark(7, "a.b", 2, 3)) == "7/a.b/2/3"


def test_a_token_finds_messages_of_its_own_topics_only(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path)
    reader = tokens.create("reader", ["read"], ["mine*"], None).secret
    consumer = tokens.create("consumer", ["consume"], ["*"], None).secret
    with HttpRunning(tmp_path, auth="tokens") as server:
        for name in ("mine", "other"):
            server.broker.publish(name, "x")
        for path in ("/v1/traces", "/v1/traces/search"):
            found = server.ask("GET", path, token=reader).json["traces"]
            assert [trace["topic"] for trace in found] == ["mine"]
            assert server.refused("GET", f"{path}?topic=other", token=reader)[0] == 403
            assert server.refused("GET", path, token=consumer)[0] == 403
            assert server.refused("GET", path)[0] == 401
        assert server.ask("GET", "/v1/traces/mine/0/0", token=reader).status == 200
        assert server.refused("GET", "/v1/traces/other/0/0", token=reader)[0] == 403
        assert server.refused("GET", "/v1/traces/other%2F0%2F0", token=reader)[0] == 403
