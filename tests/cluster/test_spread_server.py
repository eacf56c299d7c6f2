"""A topic that is spread over the shards of one server: HTTP and the text port work with it as with any other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.model.placement import partition_of_key
from tests.server.http.harness import HttpRunning
from tests.server.line.harness import Talk
from tests.server.metrics_harness import Page

PARTITIONS = 8


@pytest.fixture
def server(tmp_path: Path) -> Iterator[HttpRunning]:
    with HttpRunning(tmp_path / "data", shards=4, line_port=0) as running:
        running.post("/v1/topics", {"name": "orders", "partitions": PARTITIONS, "spread": 4})
        yield running


def publish_all(server: HttpRunning, count: int = 40) -> list[dict[str, Any]]:
    messages = [{"value": f"{n}", "key": f"k{n}"} for n in range(count)]
    results: list[dict[str, Any]] = server.post("/v1/topics/orders/messages", {"messages": messages})["results"]
    return results


def ids_of(results: list[dict[str, Any]]) -> list[str]:
    return [f"orders/{found['partition']}/{found['offset']}" for found in results]


def drained(server: HttpRunning, wanted: int, group: str = "g") -> list[dict[str, Any]]:
    """So many messages, with nothing behind them."""
    found: list[dict[str, Any]] = []
    while len(found) < wanted:
        some = server.get("/v1/topics/orders/receive", group=group, limit=wanted, wait=10)["messages"]
        assert some
        found += some
    assert server.get("/v1/topics/orders/receive", group=group)["messages"] == []
    return found


def test_messages_by_http_go_to_the_partitions_of_their_keys_in_all_slices(server: HttpRunning) -> None:
    results = publish_all(server)
    assert [found["partition"] for found in results] == [
        partition_of_key(f"k{n}".encode(), PARTITIONS) for n in range(40)
    ]
    one = server.post("/v1/topics/orders/publish", {"value": "x", "key": "k3"})
    assert one["partition"] == results[3]["partition"]
    assert one["offset"] > results[3]["offset"]
    asked = server.post("/v1/topics/orders/publish", {"value": "x", "partition": 6})
    assert asked["partition"] == 6
    again = [server.post("/v1/topics/orders/publish", {"value": "d", "dedupe_id": "once"})["id"] for _ in range(2)]
    assert again[0] == again[1]
    batch = {"messages": [{"value": "b"}] * 5, "producer": "p", "sequence": 1}
    assert server.post("/v1/topics/orders/messages", batch) == server.post("/v1/topics/orders/messages", batch)
    status, told = server.refused("POST", "/v1/topics/orders/publish", {"value": "x", "partition": 8})
    assert (status, "0 to 7" in told) == (400, True)


def test_messages_by_http_are_received_from_all_slices_and_acked(server: HttpRunning) -> None:
    publish_all(server)
    found = drained(server, 40)
    assert sorted(int(message["value"]) for message in found) == list(range(40))
    handles = [message["receipt_handle"] for message in found]
    assert server.post("/v1/messages/ack", {"receipt_handles": handles}) == {"settled": 40}
    (group,) = server.get("/v1/groups")["groups"]
    assert (group["acked"], group["lag"], group["topic"]) == (40, 0, "orders")


def test_members_by_http_share_all_partitions(server: HttpRunning) -> None:
    join = {"topics": ["orders"], "mode": "assigned"}
    members = [server.post("/v1/groups/a/join", join)["member_id"] for _ in range(2)]
    (assigned,) = server.get("/v1/groups/a/assignment", topic="orders")["topics"]
    partitions = [member["partitions"] for member in assigned["members"]]
    assert sorted(number for own in partitions for number in own) == list(range(PARTITIONS))
    assert [len(own) for own in partitions] == [4, 4]
    assert len(members) == 2


def test_lists_and_details_by_http_show_one_topic(server: HttpRunning) -> None:
    results = publish_all(server)
    listed = server.get("/v1/topics")
    assert (listed["total"], [topic["name"] for topic in listed["topics"]]) == (1, ["orders"])
    topic = server.get("/v1/topics/orders")
    assert (topic["partitions"], topic["messages"], topic["config"]["spread"]) == (PARTITIONS, 40, 4)
    assert [each["partition"] for each in topic["partition_list"]] == list(range(PARTITIONS))
    assert sum(topic["end_offsets"]) == 40
    partitions = server.get("/v1/topics/orders/partitions")["partitions"]
    assert partitions == topic["partition_list"]
    for number in range(PARTITIONS):
        page = server.get(f"/v1/topics/orders/partitions/{number}/messages")
        assert len(page["messages"]) == topic["end_offsets"][number] == page["end_offset"]
    seen: list[str] = []
    cursor: str | None = None
    while cursor is not None or not seen:
        query: dict[str, Any] = {"limit": 9} if cursor is None else {"limit": 9, "cursor": cursor}
        page = server.get("/v1/topics/orders/messages", **query)
        seen += [message["id"] for message in page["messages"]]
        cursor = page["cursor"]
    assert sorted(seen) == sorted(ids_of(results))
    assert server.get(f"/v1/topics/orders/messages/{results[5]['partition']}/{results[5]['offset']}")["value"] == "5"
    assert len(server.get("/v1/traces/search", topic="orders", limit=100)["traces"]) == 40
    assert server.get("/v1/overview")["broker"]["topics"] == 1


def test_groups_are_moved_and_placed_by_http_over_all_slices(server: HttpRunning) -> None:
    publish_all(server)
    server.post("/v1/groups", {"topic": "orders", "group": "g"})
    offsets = {str(number): 1 for number in range(PARTITIONS)}
    (placed,) = server.post("/v1/groups/g/offsets", {"topic": "orders", "offsets": offsets})["topics"]
    assert placed["offsets"] == offsets
    assert placed["lag"] == 40 - PARTITIONS
    assert server.post("/v1/groups/g/seek", {"topic": "orders", "to": "latest"})["lag"] == 0
    assert server.post("/v1/groups/g/seek", {"topic": "orders", "to": "earliest"})["lag"] == 40
    assert server.post("/v1/groups/g/pause", {"topic": "orders"})["settings"]["paused"] is True
    assert server.ask("DELETE", "/v1/groups/g", query={"topic": "orders"}).status == 204
    assert server.get("/v1/groups")["total"] == 0


def test_delayed_messages_and_dead_letters_of_all_slices_are_listed_by_http(server: HttpRunning) -> None:
    later = [{"value": f"{n}", "key": f"k{n}", "delay": 3600 + n} for n in range(12)]
    ids = ids_of(server.post("/v1/topics/orders/messages", {"messages": later})["results"])
    page = server.get("/v1/topics/orders/delayed", limit=5, skip=2)
    assert ([found["id"] for found in page["delayed"]], page["more"]) == (ids[2:7], True)
    publish_all(server, 20)
    with server.broker.consumer("orders", "g") as consumer:
        for message in consumer.receive(20):
            message.kill("no milk")
    letters: list[dict[str, Any]] = []
    after: str | None = None
    while after is not None or not letters:
        query: dict[str, Any] = {"limit": 3} if after is None else {"limit": 3, "after": after}
        page = server.get("/v1/topics/orders/dead-letters", **query)
        letters += page["dead_letters"]
        after = page["after"]
    assert sorted(int(letter["value"]) for letter in letters) == list(range(20))
    report = server.get("/v1/topics/orders/dead-letters/causes")
    assert [(cause["cause"], cause["count"]) for cause in report["causes"]] == [("no milk", 20)]
    assert server.post("/v1/topics/orders/dead-letters/redrive", {})["redriven"] == 20
    assert len(drained(server, 20)) == 20


def test_metrics_have_no_series_twice(server: HttpRunning) -> None:
    publish_all(server)
    drained(server, 40)
    page = Page(server.ask("GET", "/metrics").body)
    assert page.value("penstock_topics") == 1
    assert page.value("penstock_partitions") == PARTITIONS
    assert page.value("penstock_topic_messages", topic="orders") == 40
    assert page.value("penstock_group_leased", topic="orders", group="g") == 40
    assert page.value("penstock_group_members", topic="orders", group="g") == 1


def test_the_text_port_works_with_all_slices(server: HttpRunning) -> None:
    with Talk(server.server.addresses["line"][1]) as talk:
        for n in range(16):
            assert talk.say(f"PRODUCE orders {n % PARTITIONS} any {n}") == "OK"
        stored = [(message.partition, message.offset) for message in server.broker.read("orders")]
        for partition, offset in stored:
            assert talk.say(f"CONSUME orders {partition}") == f"{offset} any {partition + PARTITIONS * offset}"
            assert talk.say(f"ACK orders {partition} {offset}") == "ACK_OK"
        assert len(stored) == 16
        assert talk.say("CONSUME orders 8").startswith("ERROR")
    (group,) = server.get("/v1/groups")["groups"]
    assert (group["acked"], group["lag"]) == (16, 0)


def test_a_queue_is_never_a_topic_that_is_spread(server: HttpRunning) -> None:
    assert server.ask("POST", "/api/v1/queue/orders/enqueue", b"x").status == 409
