"""Reading by HTTP: by offset, by time and key with a cursor, one message, and replay."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.model.message import Message
from penstock.server.access.tokens import TokenFile
from penstock.shard.reading import log_reader as reading
from penstock.views import searching
from tests.server.http.harness import HttpRunning

SHOWN = {
    "id",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "key",
    "value",
    "encoding",
    "headers",
    "priority",
    "deliver_at",
    "expires_at",
    "dedupe_id",
    "size",
}


def all_pages(server: HttpRunning, topic: str, **query: Any) -> tuple[list[dict[str, Any]], int]:
    """The messages of all pages of a search, and how many pages there were."""
    found: list[dict[str, Any]] = []
    pages, cursor = 0, None
    while True:
        more: dict[str, str] = {} if cursor is None else {"cursor": cursor}
        page = server.get(f"/v1/topics/{topic}/messages", **query, **more)
        found += page["messages"]
        pages += 1
        cursor = page["cursor"]
        if cursor is None:
            return found, pages


def values(messages: list[dict[str, Any]]) -> list[str]:
    return [message["value"] for message in messages]


def test_a_partition_is_read_page_by_page_and_goes_on_where_it_ended(server: HttpRunning, topic: str) -> None:
    server.broker.publish_many(topic, [f"{number}" for number in range(5)])
    path = f"/v1/topics/{topic}/partitions/0/messages"
    first = server.get(path, limit=2)
    assert (values(first["messages"]), first["next_offset"], first["end_offset"]) == (["0", "1"], 2, 5)
    second = server.get(path, offset=2)
    assert (values(second["messages"]), second["next_offset"]) == (["2", "3", "4"], 5)
    assert server.get(path, offset=5) == {"messages": [], "next_offset": 5, "end_offset": 5}
    assert server.get(path, offset=10**18 - 1)["next_offset"] == 10**18 - 1
    server.broker.publish(topic, "5")
    assert values(server.get(path, offset=5)["messages"]) == ["5"]
    assert values(server.get(path.removeprefix("/v1"), offset=4)["messages"]) == ["4", "5"]


def test_what_is_settled_and_what_is_not_read_the_same(server: HttpRunning, topic: str) -> None:
    server.broker.create_topic(topic, partitions=2)
    for number in range(20):
        server.broker.publish(
            topic, f"{number}", key=f"k{number % 3}", partition=number % 2, headers={"n": f"{number}"}
        )
        if number == 11:
            server.broker.settle()
    found, _ = all_pages(server, topic, limit=7)
    assert values(found) == [f"{number}" for number in (*range(0, 20, 2), *range(1, 20, 2))]
    by_key, _ = all_pages(server, topic, limit=2, key="k1")
    assert by_key == [message for message in found if message["key"] == "k1"]
    assert len(by_key) == 7
    paged = server.get(f"/v1/topics/{topic}/partitions/1/messages", offset=4, limit=4)
    assert paged["messages"] == found[14:18]
    assert found[0] == server.get(f"/v1/topics/{topic}/messages/0/0")
    assert values(all_pages(server, topic, partition=1, offset=8)[0]) == ["17", "19"]


def test_a_message_is_shown_with_all_that_it_has(server: HttpRunning, topic: str) -> None:
    due = datetime.now(UTC) + timedelta(hours=1)
    server.broker.publish(
        topic, "two coffees", key="alex", headers={"a": "b"}, priority="high", deliver_at=due, dedupe_id="d-1"
    )
    shown = server.get(f"/v1/topics/{topic}/messages/0/0")
    assert set(shown) == SHOWN
    assert (shown["id"], shown["key"], shown["headers"]) == (f"{topic}/0/0", "alex", {"a": "b"})
    assert (shown["priority"], shown["dedupe_id"], shown["size"]) == (64, "d-1", 11)
    assert datetime.fromisoformat(shown["deliver_at"]) == due


def test_what_is_no_text_is_base64_and_anything_is_if_asked_for(server: HttpRunning, topic: str) -> None:
    server.broker.publish(topic, b"\xff\x00", key="k")
    server.broker.publish(topic, "text", key=b"\xfe")
    server.broker.publish(topic, "text", key="k")
    found = server.get(f"/v1/topics/{topic}/messages")["messages"]
    assert [message["encoding"] for message in found] == ["base64", "base64", "utf8"]
    assert base64.b64decode(found[0]["value"]) == b"\xff\x00"
    assert base64.b64decode(found[0]["key"]) == b"k"
    key = base64.b64encode(b"\xfe").decode()
    (only,) = server.get(f"/v1/topics/{topic}/messages", key=key, encoding="base64")["messages"]
    assert (only["offset"], base64.b64decode(only["value"]), only["key"]) == (1, b"text", key)
    assert server.refused("GET", f"/v1/topics/{topic}/messages?key=!&encoding=base64")[0] == 400


def test_a_window_of_time_is_found_in_segments_and_in_the_journal(server: HttpRunning, topic: str) -> None:
    for number in range(6):
        server.broker.publish(topic, f"{number}")
        if number == 2:
            server.broker.settle()
    times = [message["timestamp"] for message in server.get(f"/v1/topics/{topic}/messages")["messages"]]
    assert values(all_pages(server, topic, from_time=times[1], to_time=times[4])[0]) == ["1", "2", "3"]
    seconds = datetime.fromisoformat(times[3]).timestamp()
    assert values(all_pages(server, topic, from_time=f"{seconds:.6f}")[0]) == ["3", "4", "5"]
    zone = times[4].replace("Z", "+00:00")
    unencoded = server.ask("GET", f"/v1/topics/{topic}/messages?from_time={zone}").json  # the plus is a space there
    assert values(unencoded["messages"]) == ["4", "5"]
    assert all_pages(server, topic, to_time="1999-01-01T00:00:00Z") == ([], 1)


def test_a_search_stops_when_it_has_done_its_share_and_goes_on_there(
    server: HttpRunning, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.broker.create_topic(topic, partitions=3)
    for number in range(30):
        server.broker.publish(topic, f"{number}", key="rare" if number in (4, 29) else "often", partition=number % 3)
    server.broker.settle()
    for number in range(30, 60):
        server.broker.publish(topic, f"{number}", key="rare" if number == 50 else "often", partition=number % 3)
    monkeypatch.setattr(searching, "_PAGE_SEEN", 4)
    found, pages = all_pages(server, topic, key="rare")
    assert values(found) == ["4", "29", "50"]
    assert pages > 5
    monkeypatch.setattr(searching, "_PAGE_S", -1.0)  # no time at all: each page still gets on
    assert sorted(map(int, values(all_pages(server, topic)[0]))) == list(range(60))


def test_a_page_has_some_mebibytes_at_most_and_always_one_message(
    server: HttpRunning, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "_PAGE_BYTES", 100)
    server.broker.publish_many(topic, ["x" * size for size in (40, 50, 60, 1000, 1)])
    server.broker.settle()
    server.broker.publish_many(topic, ["y" * size for size in (1000, 10)])
    path = f"/v1/topics/{topic}/partitions/0/messages"
    sizes, offset = [], 0
    while offset < 7:
        page = server.get(path, offset=offset)
        sizes.append([message["size"] for message in page["messages"]])
        offset = page["next_offset"]
    assert sizes == [[40, 50], [60], [1000], [1], [1000], [10]]
    found, pages = all_pages(server, topic)
    assert [message["size"] for message in found] == [40, 50, 60, 1000, 1, 1000, 10]
    assert pages == 6


def test_blocks_outside_of_a_window_are_passed_over_some_at_a_time(
    server: HttpRunning, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_BLOCKS_AT_ONCE", 2)
    for number in range(7):
        server.broker.publish(topic, f"{number}")
    time = server.get(f"/v1/topics/{topic}/messages/0/6")["timestamp"]
    assert values(all_pages(server, topic, from_time=time)[0]) == ["6"]


def test_what_retention_moved_to_the_archive_is_found_if_wanted(tmp_path: Path) -> None:
    with HttpRunning(tmp_path) as server:
        server.broker.create_topic("t", retention_age=0, archive="old")
        server.broker.publish_many("t", [Message("a", key="k"), Message("b")])
        server.broker.settle()
        server.broker.retain()
        server.broker.publish("t", "c", key="k")
        assert values(all_pages(server, "t")[0]) == ["c"]
        assert values(all_pages(server, "t", include_deleted="true")[0]) == ["a", "b", "c"]
        assert values(all_pages(server, "t", include_deleted="true", key="k")[0]) == ["a", "c"]
        page = server.get("/v1/topics/t/partitions/0/messages", offset=0)
        assert (values(page["messages"]), page["next_offset"]) == (["c"], 3)
        assert server.get("/v1/topics/t/messages/0/0")["value"] == "a"


def test_a_part_of_the_past_is_replayed_into_a_fresh_group(server: HttpRunning, topic: str) -> None:
    server.broker.publish_many(topic, ["a", "b", "c"])
    path = f"/v1/topics/{topic}/replay"
    assert server.post(path, {"group": "again", "from_offset": 1, "rate": 100}) == {"group": "again", "messages": 2}
    with server.broker.consumer(topic, "again") as consumer:
        assert consumer.receive(1)[0].value == b"b"
    assert server.refused("POST", path, {"group": "again"})[0] == 409
    for wrong in (
        {},
        {"group": "a b"},
        {"group": "g", "from_time": "then"},
        {"group": "g", "rate": 0},
        {"group": "g", "from_offset": 2, "to_offset": 1},
        {"group": "g", "partition": 7},
        {"group": "g", "from_offset": -1},
        {"group": "g", "speed": 1},
    ):
        assert server.refused("POST", path, wrong)[0] == 400, wrong
    assert server.refused("POST", "/v1/topics/nothing/replay", {"group": "g"})[0] == 404


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("messages?limit=0", 400),
        ("messages?limit=1001", 400),
        ("messages?offset=-1", 400),
        ("messages?offset=x", 400),
        ("messages?partition=9", 404),
        ("messages?from_time=yesterday", 400),
        ("messages?from_time=2026-01-01T00:00:00", 400),
        ("messages?to_time=99999999999999", 400),
        ("messages?cursor=x", 400),
        ("messages?cursor=1-", 400),
        ("messages?cursor=-1-2", 400),
        ("messages?cursor=%C2%B2-1", 400),
        ("messages?encoding=rot13", 400),
        ("messages?include_deleted=perhaps", 400),
        ("messages/0/9", 404),
        ("messages/9/0", 404),
        ("messages/0/-1", 400),
        ("messages/0/1000000000000000000", 400),
        ("messages/0/x", 404),
        (f"messages/0/{'9' * 5000}", 400),
        ("partitions/9/messages", 404),
        ("partitions/-1/messages", 400),
        ("partitions/0/messages?offset=-1", 400),
        ("partitions/0/messages?limit=1001", 400),
    ],
)
def test_what_cannot_be_read_is_refused(server: HttpRunning, topic: str, path: str, status: int) -> None:
    server.broker.publish(topic, "x")
    assert server.refused("GET", f"/v1/topics/{topic}/{path}")[0] == status


def test_a_cursor_from_beyond_ends_the_search(server: HttpRunning, topic: str) -> None:
    server.broker.publish(topic, "x")
    for cursor in ("0-99999999999999999999999", "7-0", f"{10**30}-1"):
        assert server.get(f"/v1/topics/{topic}/messages", cursor=cursor) == {"messages": [], "cursor": None}


def test_reading_needs_the_scope_and_the_topic(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path)
    reader = tokens.create("reader", ["read"], ["mine*"], None).secret
    consumer = tokens.create("consumer", ["consume"], ["mine*"], None).secret
    with HttpRunning(tmp_path, auth="tokens") as server:
        for name in ("mine", "other"):
            server.broker.publish(name, "x")
        for path in ("messages", "messages/0/0", "partitions/0/messages"):
            assert server.ask("GET", f"/v1/topics/mine/{path}", token=reader).status == 200
            assert server.refused("GET", f"/v1/topics/other/{path}", token=reader)[0] == 403
            assert server.refused("GET", f"/v1/topics/mine/{path}", token=consumer)[0] == 403
            assert server.refused("GET", f"/v1/topics/mine/{path}")[0] == 401
        replay = {"group": "again"}
        assert server.refused("POST", "/v1/topics/mine/replay", replay, token=reader)[0] == 403
        assert server.refused("POST", "/v1/topics/other/replay", replay, token=consumer)[0] == 403
        assert server.ask("POST", "/v1/topics/mine/replay", replay, token=consumer).status == 200
