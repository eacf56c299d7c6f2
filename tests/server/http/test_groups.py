"""Groups by HTTP: listed, shown, made, moved, deleted; how far they are, and who is in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.server.access.tokens import TokenFile
from tests.server.http.harness import HttpRunning

SHOWN = {
    "group",
    "topic",
    "kind",
    "published",
    "acked",
    "ready",
    "leased",
    "delayed",
    "retrying",
    "dead",
    "lapsed",
    "withdrawn",
    "skipped",
    "lost",
    "lag",
    "oldest_unacked_s",
    "positions",
    "members",
    "settings",
}
PARTS = ("acked", "ready", "leased", "delayed", "retrying", "dead", "lapsed", "withdrawn", "skipped", "lost")


def only(server: HttpRunning, topic: str) -> dict[str, Any]:
    (found,) = server.get("/v1/groups", topic=topic)["groups"]
    return dict(found)


def test_a_group_is_made_with_settings_of_its_own_and_deleted(server: HttpRunning, topic: str) -> None:
    server.broker.publish_many(topic, ["a", "b"])
    body = {"topic": topic, "group": "g", "start": "latest", "visibility_timeout": "5s", "max_in_flight": 7}
    made = server.ask("POST", "/v1/groups", body)
    assert made.status == 201
    assert set(made.json) == SHOWN
    assert (made.json["positions"], made.json["lag"], made.json["kind"]) == ([2], 0, "consumers")
    assert server.refused("POST", "/v1/groups", body) == (409, f"{topic} has a group 'g' already")
    settings = server.broker.shard.topic(topic).partitions[0].delivery_state().groups["g"].settings
    assert (settings.visibility_timeout, settings.max_in_flight) == (5.0, 7)
    assert server.ask("DELETE", f"/v1/groups/g?topic={topic}").status == 204
    assert server.refused("DELETE", f"/v1/groups/g?topic={topic}")[0] == 404


def test_a_group_is_paused_and_resumed(server: HttpRunning, topic: str) -> None:
    server.broker.publish_many(topic, ["a", "b"])
    with server.broker.consumer(topic, "g") as consumer:
        paused = server.ask("POST", "/v1/groups/g/pause", {"topic": topic})
        assert (paused.status, paused.json["settings"], paused.json["ready"]) == (200, {"paused": True}, 2)
        assert consumer.receive() == []
        assert only(server, topic)["settings"] == {"paused": True}
        assert server.ask("POST", "/v1/groups/g/resume", {"topic": topic}).json["settings"] == {}
        assert len(consumer.receive()) == 2
    assert server.refused("POST", "/v1/groups/nope/pause", {"topic": topic})[0] == 404
    assert server.refused("POST", "/v1/groups/g/pause", {"topic": topic, "for": 3})[0] == 400
    assert server.refused("POST", "/v1/groups/g/pause", {})[0] == 400


def test_every_message_of_a_group_is_in_one_of_its_numbers(server: HttpRunning, topic: str) -> None:
    server.broker.create_topic(topic, partitions=2, retry_backoff=1000, max_deliveries=2)
    server.broker.publish_many(topic, [f"{number}" for number in range(10)])
    server.broker.publish(topic, "later", delay="1h")
    with server.broker.consumer(topic, "g", name="one") as consumer:
        messages = consumer.receive(4)
        messages[0].ack()
        messages[1].fail("no")
        messages[2].kill("never")
        shown = only(server, topic)
        exact = server.get("/v1/groups/g", topic=topic)["topics"][0]
    assert {name: shown[name] for name in PARTS if shown[name]} == {
        "acked": 1,
        "ready": 6,
        "leased": 1,
        "delayed": 1,
        "retrying": 1,
        "dead": 1,
    }
    assert shown["published"] == sum(shown[name] for name in PARTS) == 11
    assert shown["lag"] == 9
    assert shown["members"] == [{"name": "one", "mode": "shared", "in_flight": 1, "partitions": []}]
    assert 0 <= shown.pop("oldest_unacked_s") <= exact.pop("oldest_unacked_s")
    assert exact == shown


def test_a_group_that_nobody_used_since_the_start_is_listed_without_opening_it(tmp_path: Path) -> None:
    with HttpRunning(tmp_path) as server:
        server.broker.publish_many("t", ["a", "b", "c"])
        server.broker.publish("t", "d", delay="1h")
        with server.broker.consumer("t", "g") as consumer:
            consumer.receive(1)[0].ack()
    with HttpRunning(tmp_path) as server:
        shown = only(server, "t")
        everywhere = server.get("/v1/groups/g")
        server.get("/v1/topics/t")
        server.get("/v1/overview")
        assert not server.broker.shard.dispatcher.in_use.all()
        assert (shown["lag"], shown["acked"], shown["ready"], shown["delayed"]) == (3, 1, None, None)
        assert (everywhere["topics"][0]["lag"], everywhere["total"]) == (3, 1)
        exact = server.get("/v1/groups/g", topic="t")["topics"][0]
        assert (exact["ready"], exact["delayed"]) == (2, 1)
        assert (only(server, "t")["ready"], only(server, "t")["delayed"]) == (2, 1)


def test_groups_are_listed_in_pages_by_topic_and_name(server: HttpRunning) -> None:
    for topic in ("list-b", "list-a"):
        for group in ("list-2", "list-1"):
            server.broker.create_group(topic, group)
    pages = [server.get("/v1/groups", search="LIST-", limit=3, skip=skip) for skip in (0, 3)]
    assert [(group["topic"], group["group"]) for page in pages for group in page["groups"]] == [
        ("list-a", "list-1"),
        ("list-a", "list-2"),
        ("list-b", "list-1"),
        ("list-b", "list-2"),
    ]
    assert {page["total"] for page in pages} == {4}
    assert server.get("/v1/groups", search="list-*1", topic="list-a")["total"] == 1
    assert server.get("/groups", topic="list-a")["total"] == 2
    assert server.refused("GET", "/v1/groups?topic=nothing")[0] == 404


def test_a_group_is_shown_and_deleted_in_all_of_its_topics(server: HttpRunning) -> None:
    for number in range(3):
        server.broker.create_group(f"everywhere-{number}", "wide")
    shown = server.get("/v1/groups/wide", limit=2, skip=1)
    assert ([group["topic"] for group in shown["topics"]], shown["total"]) == (["everywhere-1", "everywhere-2"], 3)
    with server.broker.consumer("everywhere-2", "wide", name="busy"):
        status, error = server.refused("DELETE", "/v1/groups/wide")
        assert (status, "busy" in error) == (409, True)
        assert server.get("/v1/groups/wide")["total"] == 3
    assert server.ask("DELETE", "/v1/groups/wide").status == 204
    assert server.refused("GET", "/v1/groups/wide") == (404, "no topic has a group 'wide'")
    assert server.refused("DELETE", "/v1/groups/wide")[0] == 404


def test_a_group_is_moved_by_offset_time_and_name(server: HttpRunning, topic: str) -> None:
    server.broker.create_topic(topic, partitions=2)
    for number in range(6):
        server.broker.publish(topic, f"{number}", partition=number % 2)
    server.broker.create_group(topic, "g")

    def seek(**where: Any) -> Any:
        return server.post("/v1/groups/g/seek", {"topic": topic, **where})["positions"]

    assert seek(to="latest") == [3, 3]
    assert seek(to=1, partition=0) == [1, 3]
    assert seek(to="earliest") == [0, 0]
    time = server.get(f"/v1/topics/{topic}/messages/1/1")["timestamp"]
    assert seek(to=time) == [2, 1]
    for wrong in ({"to": 99}, {"to": "soon"}, {"to": -1}, {"to": 1, "partition": 9}, {"to": True}, {}, {"to": None}):
        assert server.refused("POST", "/v1/groups/g/seek", {"topic": topic, **wrong})[0] == 400, wrong
    assert server.refused("POST", "/v1/groups/nobody/seek", {"topic": topic, "to": 0})[0] == 404
    assert server.refused("POST", "/v1/groups/g/seek", {"topic": "nothing", "to": 0})[0] == 404


def test_committed_offsets_of_a_new_group_show_how_far_a_reader_is(server: HttpRunning, topic: str) -> None:
    server.broker.create_topic(topic, partitions=2)
    server.broker.publish_many(topic, ["x"] * 4)
    end = server.get(f"/v1/topics/{topic}")["end_offsets"]
    number = end.index(4)
    body = {"topic": topic, "offsets": {f"{number}": 3}}
    told = server.post("/v1/groups/reader/offsets", body)
    assert told == {"group": "reader", "topics": [{"topic": topic, "offsets": told["topics"][0]["offsets"], "lag": 1}]}
    assert told["topics"][0]["offsets"][f"{number}"] == 3
    assert server.get("/v1/groups/reader/offsets", topic=topic) == told
    assert server.get("/groups/reader/offsets") == told
    assert server.get("/v1/groups/reader")["topics"][0]["kind"] == "checkpoint"
    assert server.refused("POST", "/v1/groups/reader/seek", {"topic": topic, "to": 0})[0] == 409
    for wrong in ({"0": 99}, {"9": 0}, {"x": 0}, {"-1": 0}, {"0": -1}, {"0": 1.5}, {}):
        assert server.refused("POST", "/v1/groups/reader/offsets", {**body, "offsets": wrong})[0] == 400, wrong
    assert server.refused("POST", "/v1/groups/a b/offsets".replace(" ", "%20"), body)[0] == 400
    assert server.refused("GET", f"/v1/groups/nobody/offsets?topic={topic}")[0] == 404


def test_committed_offsets_move_a_group_of_consumers(server: HttpRunning, topic: str) -> None:
    server.broker.publish_many(topic, ["a", "b", "c"])
    with server.broker.consumer(topic, "g") as consumer:
        consumer.receive(3)
        told = server.post("/v1/groups/g/offsets", {"topic": topic, "offsets": {"0": 2}})
        assert told["topics"] == [{"topic": topic, "offsets": {"0": 2}, "lag": 1}]
        assert [message.value for message in consumer.receive(3, wait=5)] == [b"c"]
    assert server.refused("POST", "/v1/groups/g/offsets", {"topic": topic, "offsets": {"0": 4}})[0] == 400


def test_the_assignment_says_who_has_which_partitions(server: HttpRunning, topic: str) -> None:
    server.broker.create_topic(topic, partitions=4)
    with (
        server.broker.consumer(topic, "g", mode="assigned", name="one"),
        server.broker.consumer(topic, "g", mode="assigned", name="two"),
    ):
        shown = server.get("/v1/groups/g/assignment", topic=topic)
        members = {member["name"]: member["partitions"] for member in shown["topics"][0]["members"]}
        assert set(members) == {"one", "two"}
        assert sorted(members["one"] + members["two"]) == [0, 1, 2, 3]
    assert server.get("/v1/groups/g/assignment", topic=topic)["topics"] == [{"topic": topic, "members": []}]
    assert server.refused("GET", f"/v1/groups/nobody/assignment?topic={topic}")[0] == 404


@pytest.mark.parametrize("name", ["a%20b", "%00", "%C3%A4", "x" * 201, "*", "%25", "{group}", "a%2Fb"])
def test_a_hostile_name_is_refused_in_every_place(server: HttpRunning, name: str) -> None:
    server.broker.publish("hostile", "x")
    for query in ("", "?topic=hostile"):
        for method, path in [("GET", ""), ("DELETE", ""), ("GET", "/offsets"), ("GET", "/assignment")]:
            assert server.refused(method, f"/v1/groups/{name}{path}{query}")[0] in (400, 404)
    seek = {"topic": "hostile", "to": 0}
    assert server.refused("POST", f"/v1/groups/{name}/seek", seek)[0] in (400, 404)
    offsets = {"topic": "hostile", "offsets": {"0": 0}}
    assert server.refused("POST", f"/v1/groups/{name}/offsets", offsets)[0] in (400, 404)


@pytest.mark.parametrize(
    "wrong",
    [{"topic": "a b"}, {"group": "a b"}, {"start": "soon"}, {"visibility_timeout": 0}, {"max_in_flight": 0}, {"x": 1}],
)
def test_what_is_wrong_with_a_new_group_is_said(server: HttpRunning, topic: str, wrong: dict[str, Any]) -> None:
    assert server.refused("POST", "/v1/groups", {"topic": topic, "group": "g", **wrong})[0] == 400


def test_a_token_sees_and_moves_groups_of_its_own_topics_only(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path)
    reader = tokens.create("reader", ["read"], ["mine*"], None).secret
    consumer = tokens.create("consumer", ["consume"], ["mine*"], None).secret
    with HttpRunning(tmp_path, auth="tokens") as server:
        for name in ("mine", "mine.too", "other"):
            server.broker.create_group(name, "g")

        def refused(method: str, path: str, body: Any = None, token: str | None = reader) -> int:
            return server.refused(method, path, body, token=token)[0]

        assert server.ask("GET", "/v1/groups", token=reader).json["total"] == 2
        shown = server.ask("GET", "/v1/groups/g", token=reader).json
        assert [group["topic"] for group in shown["topics"]] == ["mine", "mine.too"]
        for path in ("/v1/groups?", "/v1/groups/g?", "/v1/groups/g/offsets?", "/v1/groups/g/assignment?"):
            assert refused("GET", f"{path}topic=other") == 403
            assert refused("GET", path, token=consumer) == 403
            assert refused("GET", path, token=None) == 401
        seek: dict[str, Any] = {"topic": "other", "to": 0}
        offsets: dict[str, Any] = {"topic": "other", "offsets": {"0": 0}}
        for method, path, body in [
            ("POST", "/v1/groups", {"topic": "other", "group": "new"}),
            ("POST", "/v1/groups/g/seek", seek),
            ("POST", "/v1/groups/g/offsets", offsets),
            ("DELETE", "/v1/groups/g?topic=other", None),
        ]:
            assert refused(method, path, body, consumer) == 403
            mine = None if body is None else {**body, "topic": "mine"}
            assert refused(method, path.replace("other", "mine"), mine, reader) == 403
        assert refused("DELETE", "/v1/groups/g", None, reader) == 403
        assert server.ask("POST", "/v1/groups/g/seek", {**seek, "topic": "mine"}, token=consumer).status == 200
        assert server.ask("DELETE", "/v1/groups/g", token=consumer).status == 204
        assert [(group.topic, group.name) for group in server.broker.groups()] == [("other", "g")]
