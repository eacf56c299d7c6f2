"""Receiving by HTTP: leases by receipt, long polls, members of groups."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from tests.server.harness import until
from tests.server.http.harness import HttpRunning


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpRunning]:
    with HttpRunning(tmp_path_factory.mktemp("data")) as running:
        yield running


def receive(server: HttpRunning, topic: str, limit: int = 100, **query: Any) -> list[dict[str, Any]]:
    found = server.get(f"/v1/topics/{topic}/receive", **{"group": "g", "limit": limit, **query})["messages"]
    assert isinstance(found, list)
    return found


def group(server: HttpRunning, topic: str, name: str = "g") -> penstock.GroupInfo:
    return server.broker.group(topic, name)


def test_messages_come_best_lanes_first_and_under_a_lease(server: HttpRunning) -> None:
    server.broker.publish_many("lanes", ["normal", penstock.Message("urgent", key="k", priority=0), b"\xff"])
    first, second, third = receive(server, "lanes")
    assert (first["value"], first["key"], first["encoding"], first["priority"]) == ("urgent", "k", "utf8", 0)
    assert (first["deliveries"], first["failures"], first["id"]) == (1, 0, "lanes/0/1")
    assert (second["value"], third["value"], third["encoding"]) == ("normal", "/w==", "base64")
    assert receive(server, "lanes") == []
    assert group(server, "lanes").leased == 3


def test_acked_messages_never_come_again(server: HttpRunning) -> None:
    server.broker.publish_many("acked", ["a", "b", "c"])
    found = receive(server, "acked")
    one, *others = [message["receipt_handle"] for message in found]
    assert server.post("/v1/messages/ack", {"receipt_handle": one}) == {"settled": 1}
    assert server.post("/messages/ack", {"receipt_handles": [*others, *others]}) == {"settled": 2}
    assert (group(server, "acked").acked, group(server, "acked").leased) == (3, 0)


def test_an_expired_receipt_is_gone_and_the_others_are_settled(server: HttpRunning) -> None:
    server.broker.publish_many("expired", ["a", "b"])
    first, second = [message["receipt_handle"] for message in receive(server, "expired")]
    server.post("/v1/messages/release", {"receipt_handle": first})
    reply = server.ask("POST", "/v1/messages/ack", {"receipt_handles": [first, second]})
    assert reply.status == 410
    assert (reply.json["lost"], reply.json["settled"]) == ([first], 1)
    again = receive(server, "expired")
    assert [message["deliveries"] for message in again] == [2]
    forgotten = "0" * 16 + first[16:]
    reply = server.ask("POST", "/v1/messages/ack", {"receipt_handle": forgotten})
    assert (reply.status, reply.json["lost"]) == (410, [forgotten])


def test_nack_tries_again_and_reject_goes_to_the_dead_letters(server: HttpRunning) -> None:
    server.broker.publish_many("failing", ["retry", "never"])
    retry, never = [message["receipt_handle"] for message in receive(server, "failing")]
    server.post("/v1/messages/nack", {"receipt_handle": retry, "reason": "busy", "delay": 0})
    server.post("/v1/messages/reject", {"receipt_handle": never, "reason": "broken"})
    (again,) = receive(server, "failing", wait=10)
    assert (again["value"], again["failures"], again["deliveries"]) == ("retry", 1, 2)
    (letter,) = server.broker.dead_letters("failing")
    assert (letter.value, letter.cause, letter.group) == (b"never", "broken", "g")


def test_visibility_is_extended_by_receipt(server: HttpRunning) -> None:
    server.broker.publish("slow", "x")
    (message,) = receive(server, "slow", visibility_timeout=5)
    assert server.post(
        "/v1/messages/visibility", {"receipt_handle": message["receipt_handle"], "visibility_timeout": "1h"}
    ) == {"settled": 1}
    shard = server.broker.shard
    with shard.lock:
        lease = shard.dispatcher.in_use.groups(shard.catalog.by_name["slow"])["g"].group.leases
        assert lease.next_deadline_s() is None or lease.total == 1


def test_a_long_poll_is_answered_as_soon_as_there_is_a_message(server: HttpRunning) -> None:
    server.broker.create_topic("polled")
    found: list[Any] = []
    waiting = threading.Thread(target=lambda: found.append(receive(server, "polled", wait=30)))
    waiting.start()
    until(lambda: group_exists(server, "polled") and server.waiters("polled") == 1, "somebody waits")
    server.broker.publish("polled", "now")
    waiting.join(20)
    assert [message["value"] for message in found[0]] == ["now"]


def group_exists(server: HttpRunning, topic: str) -> bool:
    return any(info.name == "g" for info in server.broker.groups(topic))


def test_a_client_that_goes_while_it_waits_leaves_nothing_behind(server: HttpRunning) -> None:
    import socket

    server.broker.create_topic("left")
    with socket.create_connection(("127.0.0.1", server.http_port)) as raw:
        raw.sendall(b"GET /v1/topics/left/receive?group=g&wait=60 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        until(lambda: group_exists(server, "left") and server.waiters("left") == 1, "somebody waits")
    until(lambda: server.waiters("left") == 0, "nobody waits")
    server.broker.publish("left", "x")
    assert [message["value"] for message in receive(server, "left")] == ["x"]


def test_next_is_one_message_or_nothing(server: HttpRunning) -> None:
    server.broker.create_topic("next")
    assert server.ask("GET", "/v1/topics/next/next").status == 204
    server.broker.publish_many("next", ["a", "b"])
    assert server.get("/v1/topics/next/next", autoack="true")["value"] == "a"
    assert server.get("/v1/topics/next/next", wait=1)["value"] == "b"
    assert (group(server, "next", "next").acked, group(server, "next", "next").leased) == (1, 1)


def test_members_share_or_are_assigned_partitions_and_leave(server: HttpRunning) -> None:
    server.broker.create_topic("assigned", partitions=4)
    join = {"topics": ["assigned"], "mode": "assigned", "session_timeout": 30}
    first = server.post("/v1/groups/team/join", {**join, "client_id": "one"})
    assert (first["name"], first["assignment"]) == ("one", {"assigned": [0, 1, 2, 3]})
    second = server.post("/groups/team/join", join)
    for member in (first, second, first):
        server.get("/v1/groups/team/poll", member_id=member["member_id"])
    shares = [
        server.post("/v1/groups/team/heartbeat", {"member_id": member["member_id"]})["assignment"]["assigned"]
        for member in (first, second)
    ]
    assert sorted(shares[0] + shares[1]) == [0, 1, 2, 3] and len(shares[0]) == 2
    server.broker.publish_many("assigned", [penstock.Message(str(number), partition=number) for number in range(4)])
    got = server.get("/v1/groups/team/poll", member_id=first["member_id"], timeout=10)["messages"]
    assert {message["partition"] for message in got} <= set(shares[0])
    assert server.ask("POST", "/v1/groups/team/leave", {"member_id": first["member_id"]}).status == 204
    assert server.refused("GET", f"/v1/groups/team/poll?member_id={first['member_id']}")[0] == 404
    info = group(server, "assigned", "team")
    assert len(info.members) == 1 and info.leased == 0


def test_a_member_that_is_not_heard_of_is_forgotten_and_its_messages_come_again(tmp_path: Path) -> None:
    with HttpRunning(tmp_path) as server:
        server.broker.publish("t", "x")
        joined = server.post("/v1/groups/g/join", {"topics": ["t"], "session_timeout": 1})
        poll = f"/v1/groups/g/poll?member_id={joined['member_id']}"
        assert len(server.get(poll)["messages"]) == 1
        until(lambda: group(server, "t").leased == 0, "it is forgotten", 20)
        assert not group(server, "t").members
        assert server.refused("GET", poll)[0] == 404


def test_stopping_answers_those_who_wait_and_gives_leases_back(tmp_path: Path) -> None:
    found: list[Any] = []
    with HttpRunning(tmp_path) as server:
        server.broker.publish("t", "x")
        receive(server, "t")
        server.broker.create_topic("empty")
        waiting = threading.Thread(target=lambda: found.append(receive(server, "empty", wait=50)))
        waiting.start()
        until(lambda: group_exists(server, "empty") and server.waiters("empty") == 1, "somebody waits")
    waiting.join(20)
    assert found == [[]]
    with penstock.open(tmp_path) as broker:
        assert (broker.group("t", "g").ready, broker.group("t", "g").leased) == (1, 0)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/v1/topics/lanes/receive", None, 400),
        ("GET", "/v1/topics/lanes/receive?group=a%20b", None, 400),
        ("GET", "/v1/topics/lanes/receive?group=g&limit=0", None, 400),
        ("GET", "/v1/topics/lanes/receive?group=g&limit=x", None, 400),
        ("GET", "/v1/topics/lanes/receive?group=g&wait=61", None, 400),
        ("GET", "/v1/topics/lanes/receive?group=g&wait=nan", None, 400),
        ("POST", "/v1/messages/ack", {}, 400),
        ("POST", "/v1/messages/ack", {"receipt_handles": []}, 400),
        ("POST", "/v1/messages/ack", {"receipt_handle": "x"}, 400),
        ("POST", "/v1/messages/ack", {"receipt_handle": "a:t/0/1@zz"}, 400),
        ("POST", "/v1/messages/ack", {"receipt_handle": "a:t/0/99999999999999999999@1"}, 400),
        ("POST", "/v1/messages/ack", {"receipt": "x"}, 400),
        ("POST", "/v1/messages/nack", {"receipt_handle": "a:t/0/1@1", "reason": ""}, 400),
        ("POST", "/v1/messages/visibility", {"receipt_handle": "a:t/0/1@1"}, 400),
        ("POST", "/v1/groups/g/join", {"topics": []}, 400),
        ("POST", "/v1/groups/g/join", {"topics": ["lanes"], "mode": "both"}, 400),
        ("POST", "/v1/groups/g/leave", {"member_id": "nobody"}, 404),
        ("POST", "/v1/messages/burn", {}, 404),
        ("DELETE", "/v1/messages/ack", None, 405),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_right_code(
    server: HttpRunning, method: str, path: str, body: Any, status: int
) -> None:
    server.broker.publish("lanes", "there")
    assert server.refused(method, path, body)[0] == status


def test_a_poll_is_filled_from_all_topics_of_a_member(server: HttpRunning) -> None:
    topics = [f"wide-{number}" for number in range(20)]
    for topic in topics:
        server.broker.publish_many(topic, ["1", "2"])
    joined = server.post("/v1/groups/wide/join", {"topics": topics})
    received = server.get("/v1/groups/wide/poll", member_id=joined["member_id"], limit=100)["messages"]
    assert sorted(message["topic"] for message in received) == sorted(2 * topics)
    handles = [message["receipt_handle"] for message in received]
    assert server.post("/v1/messages/ack", {"receipt_handles": handles}) == {"settled": 40}


def test_receiving_makes_no_topic_and_joining_does(server: HttpRunning) -> None:
    before = {topic.name for topic in server.broker.topics()}
    for path in ("receive?group=g", "receive?group=g&wait=30", "next", "next?autoack=true"):
        status, error = server.refused("GET", f"/v1/topics/misspelt/{path}")
        assert (status, error) == (404, "there is no topic 'misspelt'")
    assert {topic.name for topic in server.broker.topics()} == before
    server.post("/v1/groups/g/join", {"topics": ["expected"]})
    assert {topic.name for topic in server.broker.topics()} == before | {"expected"}
    assert receive(server, "expected") == []
