"""Consumers without a connection when things go wrong around them: deleted topics, lost leases, crowds, vanishing."""

from __future__ import annotations

import concurrent.futures
import socket
from typing import Any

import pytest

from tests.server.harness import PATIENCE_S, until
from tests.server.http.harness import HttpRunning


def members(server: HttpRunning) -> Any:
    listener: Any = server.server._listeners["http"]
    return listener.members


def receive(server: HttpRunning, topic: str, **query: Any) -> list[dict[str, Any]]:
    found = server.get(f"/v1/topics/{topic}/receive", **{"group": "g", **query})["messages"]
    assert isinstance(found, list)
    return found


def waiters(server: HttpRunning, topic: str) -> int:
    known = topic in server.broker.shards.of(topic).catalog.by_name and server.broker.groups(topic)
    return server.waiters(topic) if known else 0


def test_a_topic_that_was_deleted_and_made_again_is_received_from(server: HttpRunning, topic: str) -> None:
    server.broker.publish(topic, "old")
    (old,) = receive(server, topic)
    assert server.ask("DELETE", f"/v1/topics/{topic}").status == 204
    server.broker.publish(topic, "new")
    (new,) = receive(server, topic)
    assert new["value"] == "new"
    reply = server.ask("POST", "/v1/messages/ack", {"receipt_handle": old["receipt_handle"]})
    assert (reply.status, reply.json["lost"]) == (410, [old["receipt_handle"]])
    assert server.post("/v1/messages/ack", {"receipt_handle": new["receipt_handle"]}) == {"settled": 1}


def test_receipts_of_a_deleted_topic_do_not_keep_others_from_being_settled(server: HttpRunning, topic: str) -> None:
    gone = f"{topic}-gone"
    for name in (gone, topic):
        server.broker.publish(name, "x")
    joined = server.post("/v1/groups/g/join", {"topics": [gone, topic]})
    query = {"member_id": joined["member_id"]}
    both = [server.get("/v1/groups/g/poll", **query)["messages"] for _ in range(2)]
    handles = {message["topic"]: message["receipt_handle"] for found in both for message in found}
    server.broker.delete_topic(gone)
    reply = server.ask("POST", "/v1/messages/ack", {"receipt_handles": list(handles.values())})
    assert (reply.status, reply.json["lost"], reply.json["settled"]) == (410, [handles[gone]], 1)
    assert server.broker.group(topic, "g").acked == 1


def test_of_two_receipts_of_a_message_the_one_that_holds_it_counts(server: HttpRunning, topic: str) -> None:
    server.broker.publish(topic, "x")
    (first,) = receive(server, topic, visibility_timeout=0.01)
    until(lambda: server.broker.group(topic, "g").leased == 0, "the lease is over")
    (second,) = until(lambda: receive(server, topic), "it comes again")
    handles = [first["receipt_handle"], second["receipt_handle"]]
    reply = server.ask("POST", "/v1/messages/ack", {"receipt_handles": handles})
    assert (reply.status, reply.json["lost"], reply.json["settled"]) == (410, handles[:1], 1)
    assert server.broker.group(topic, "g").acked == 1


def test_ten_thousand_are_settled_at_once(server: HttpRunning, topic: str) -> None:
    server.broker.publish_many(topic, [str(number) for number in range(10_000)])
    handles = [message["receipt_handle"] for message in receive(server, topic, limit=10_000)]
    assert server.post("/v1/messages/ack", {"receipt_handles": handles}) == {"settled": 10_000}
    assert server.broker.group(topic, "g").acked == 10_000
    assert server.refused("POST", "/v1/messages/ack", {"receipt_handles": [*handles, "one:more/0/0@1"]})[0] == 400


def test_what_a_group_was_moved_away_from_is_not_settled(server: HttpRunning, topic: str) -> None:
    server.broker.publish(topic, "x")
    (message,) = receive(server, topic)
    server.post("/v1/groups/g/seek", {"topic": topic, "to": "earliest"})
    for action in ("ack", "nack", "release", "reject"):
        handle = {"receipt_handle": message["receipt_handle"]}
        assert server.refused("POST", f"/v1/messages/{action}", handle)[0] == 410, action
    assert [again["value"] for again in receive(server, topic)] == ["x"]


@pytest.mark.parametrize(
    "receipt",
    ["", ":", "a", "a:b@c", "a:t/0/0@", "a:t/0/0@g", "a:t/0/-1@1", "a:t/0/0@" + "f" * 17, "a:../0/0@1", "a:t/0/0@1@"],
)
def test_a_receipt_that_is_none_is_refused(server: HttpRunning, receipt: str) -> None:
    assert server.refused("POST", "/v1/messages/ack", {"receipt_handle": receipt})[0] == 400


def test_a_receipt_of_one_message_does_not_settle_another(server: HttpRunning, topic: str) -> None:
    server.broker.publish_many(topic, ["a", "b"])
    (message,) = receive(server, topic)
    for forged in (
        message["receipt_handle"].replace("/0/0@", "/0/1@"),
        message["receipt_handle"].replace("/0/0@", "/1/0@"),
        message["receipt_handle"].replace(f":{topic}/", ":other/"),
        message["receipt_handle"].replace("@", "@1"),
    ):
        assert server.refused("POST", "/v1/messages/ack", {"receipt_handle": forged})[0] == 410, forged
    assert server.broker.group(topic, "g").acked == 0


def test_a_group_is_deleted_once_nothing_is_held_for_it(server: HttpRunning, topic: str) -> None:
    server.broker.publish(topic, "x")
    (message,) = receive(server, topic)
    assert server.refused("DELETE", f"/v1/groups/g?topic={topic}")[0] == 409
    server.post("/v1/messages/ack", {"receipt_handle": message["receipt_handle"]})
    assert server.ask("DELETE", f"/v1/groups/g?topic={topic}").status == 204
    assert [again["value"] for again in receive(server, topic)] == ["x"]  # a new group, from the beginning


def test_a_crowd_shares_one_member(server: HttpRunning, topic: str) -> None:
    server.broker.create_topic(topic)
    with concurrent.futures.ThreadPoolExecutor(40) as crowd:
        asked = [crowd.submit(receive, server, topic, wait=20) for _ in range(40)]
        until(lambda: waiters(server, topic) == 40, "all wait")
        assert len(server.broker.group(topic, "g").members) == 1
        server.broker.publish_many(topic, [str(number) for number in range(40)])
        values = [message["value"] for each in asked for message in each.result()]
    assert sorted(values, key=int) == [str(number) for number in range(40)]


def test_a_group_that_cannot_be_is_refused_each_time(server: HttpRunning, topic: str) -> None:
    server.broker.create_topic(topic)
    server.post("/v1/groups/reader/offsets", {"topic": topic, "offsets": {"0": 0}})
    for _ in range(2):
        assert server.refused("GET", f"/v1/topics/{topic}/receive?group=a%20b")[0] == 400
        assert server.refused("GET", f"/v1/topics/{topic}/receive?group=reader")[0] == 409
    assert not [place for place in members(server)._shared if place[0] == topic]


def test_whoever_vanishes_while_waiting_takes_nothing_along(server: HttpRunning, topic: str) -> None:
    server.broker.create_topic(topic)
    path = f"/v1/topics/{topic}/receive?group=g&wait=30&visibility_timeout=1000"
    lines = []
    for _ in range(20):
        line = socket.create_connection(("127.0.0.1", server.http_port), PATIENCE_S)
        line.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        lines.append(line)
    until(lambda: waiters(server, topic) == 20, "all wait")
    for line in lines:
        line.close()
    until(lambda: waiters(server, topic) == 0, "nobody waits any more")
    server.broker.publish(topic, "x")
    assert [message["value"] for message in receive(server, topic)] == ["x"]


def test_a_member_that_was_forgotten_gives_back_what_it_held(server: HttpRunning, topic: str) -> None:
    server.broker.publish(topic, "x")
    joined = server.post("/v1/groups/g/join", {"topics": [topic], "session_timeout": 1, "visibility_timeout": 1000})
    (held,) = server.get("/v1/groups/g/poll", member_id=joined["member_id"])["messages"]
    members(server)._by_id[joined["member_id"]].heard_s -= 10
    until(lambda: server.broker.group(topic, "g").leased == 0, "it is given back")
    assert server.refused("GET", f"/v1/groups/g/poll?member_id={joined['member_id']}")[0] == 404
    assert server.refused("POST", "/v1/messages/ack", {"receipt_handle": held["receipt_handle"]})[0] == 410
    assert [again["value"] for again in receive(server, topic)] == ["x"]


def test_the_shared_member_goes_when_nobody_has_asked_for_long(server: HttpRunning, topic: str) -> None:
    server.broker.publish(topic, "x")
    (message,) = receive(server, topic)
    (member,) = [known for known in members(server)._by_id.values() if known.topics == (topic,)]
    member.heard_s -= 1000
    server.call(members(server)._sweep)
    assert member.id in members(server)._by_id  # something is held through it
    server.post("/v1/messages/ack", {"receipt_handle": message["receipt_handle"]})
    member.heard_s -= 1000
    until(lambda: not server.broker.group(topic, "g").members, "it has left")
    assert (topic, "g") not in members(server)._shared
    server.broker.publish(topic, "y")
    assert [again["value"] for again in receive(server, topic)] == ["y"]
