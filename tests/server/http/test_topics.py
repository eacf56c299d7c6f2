"""Topics by HTTP: listed page by page and sorted, made, shown, changed, deleted; and what is refused."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest

from penstock.server.access.tokens import TokenFile
from penstock.testing import MemoryStorage, VirtualClock
from penstock.views.ranking import Ranking
from tests.server.http.harness import HttpRunning

SHOWN = {
    "name",
    "partitions",
    "messages",
    "first_offsets",
    "end_offsets",
    "bytes",
    "segments",
    "segment_bytes",
    "journal_bytes",
    "groups",
    "config",
}
HOSTILE = [
    "..",
    ".",
    "a b",
    "a%2Fb",
    "%00",
    "%0A",
    "ä",
    "%F0%9F%8D%95",
    "x" * 201,
    "*",
    "'; drop",
    "%25",
    "{topic}",
    "a:b",
]


def names(page: dict[str, list[dict[str, str]]]) -> list[str]:
    return [topic["name"] for topic in page["topics"]]


def test_a_topic_is_made_shown_changed_and_deleted(server: HttpRunning, topic: str) -> None:
    made = server.ask("POST", "/v1/topics", {"name": topic, "partitions": 3, "retention_age": "2h", "order": "key"})
    assert made.status == 201
    assert set(made.json) == SHOWN
    assert (made.json["partitions"], made.json["config"]["retention_age"]) == (3, 7200.0)
    assert made.json["config"]["order"] == "key"
    changed = server.ask("PATCH", f"/v1/topics/{topic}", {"retention_age": None, "visibility_timeout": 5}).json
    assert (changed["config"]["retention_age"], changed["config"]["visibility_timeout"]) == (None, 5.0)
    assert server.ask("PATCH", f"/v1/topics/{topic}", {}).json == changed
    assert server.ask("DELETE", f"/v1/topics/{topic}").status == 204
    assert server.refused("GET", f"/v1/topics/{topic}") == (404, f"there is no topic '{topic}'")
    assert server.refused("DELETE", f"/v1/topics/{topic}")[0] == 404


def test_goqueues_names_of_options_are_taken_with_and_without_v1(server: HttpRunning, topic: str) -> None:
    made = server.ask("POST", "/topics", {"name": topic, "num_partitions": 4, "retention_hours": 1.5})
    assert made.status == 201
    assert (made.json["partitions"], made.json["config"]["retention_age"]) == (4, 5400.0)
    assert server.get(f"/topics/{topic}")["config"] == made.json["config"]
    for both in ({"num_partitions": 1, "partitions": 1}, {"retention_hours": 1, "retention_age": 1}):
        assert "not both" in server.refused("POST", "/v1/topics", {"name": f"{topic}x", **both})[1]


def test_the_options_that_are_shown_can_be_sent_back(server: HttpRunning, topic: str) -> None:
    options = {"lanes": "weighted", "lane_weights": {"high": 5, "10": 2}, "retention_bytes": "10GB", "max_backlog": 7}
    config = server.post("/v1/topics", {"name": topic, **options})["config"]
    assert config["lane_weights"] == [[10, 2], [64, 5]]
    assert config["retention_bytes"] == 10**10
    assert server.ask("PATCH", f"/v1/topics/{topic}", config).json["config"] == config


def test_a_topic_is_shown_with_its_partitions_lanes_and_groups(server: HttpRunning, topic: str) -> None:
    server.broker.create_topic(topic, partitions=2)
    for number in range(6):
        server.broker.publish(topic, "x" * 100, partition=number % 2, priority="high" if number < 2 else "normal")
    shown = server.get(f"/v1/topics/{topic}")
    assert (shown["lanes"], shown["group_list"], shown["groups"]) == ([], [], 0)
    with server.broker.consumer(topic, "g") as consumer:
        consumer.receive(1)[0].ack()
        shown = server.get(f"/v1/topics/{topic}")
        assert shown["lanes"] == [{"priority": 64, "messages": 1}, {"priority": 128, "messages": 4}]
        (group,) = shown["group_list"]
        assert (group["group"], group["lag"], len(group["members"])) == ("g", 5, 1)
    assert (shown["messages"], shown["first_offsets"], shown["end_offsets"]) == (6, [0, 0], [3, 3])
    assert shown["bytes"] == shown["journal_bytes"] + shown["segment_bytes"] > 600
    partitions = server.get(f"/v1/topics/{topic}/partitions")["partitions"]
    assert partitions == shown["partition_list"]
    assert [(each["partition"], each["messages"], each["end_offset"]) for each in partitions] == [(0, 3, 3), (1, 3, 3)]


def test_topics_are_listed_in_pages(server: HttpRunning) -> None:
    for number in range(5):
        server.broker.create_topic(f"page-{number}")
    pages = [server.get("/v1/topics", search="page-", limit=2, skip=skip) for skip in (0, 2, 4, 6)]
    assert [names(page) for page in pages] == [["page-0", "page-1"], ["page-2", "page-3"], ["page-4"], []]
    assert {page["total"] for page in pages} == {5}
    assert names(server.get("/v1/topics", search="page-", limit=2, order="desc")) == ["page-4", "page-3"]


def test_a_search_is_a_part_of_the_name_or_a_pattern(server: HttpRunning) -> None:
    for name in ("Find.Eu.orders", "find.us.orders", "find.us.bills"):
        server.broker.create_topic(name)
    assert names(server.get("/v1/topics", search="FIND.")) == ["Find.Eu.orders", "find.us.bills", "find.us.orders"]
    assert names(server.get("/v1/topics", search="find.*.orders")) == ["Find.Eu.orders", "find.us.orders"]
    assert names(server.get("/v1/topics", search="us.*")) == []
    assert server.get("/v1/topics", search="[") == {"topics": [], "total": 0}
    assert server.get("/v1/topics", search="*" * 200)["total"] >= 3


def test_they_are_sorted_by_what_is_in_them_and_by_backlog(tmp_path: Path) -> None:
    with HttpRunning(tmp_path) as server:
        for name, count, size in (("few-large", 2, 5000), ("many-small", 9, 1), ("none", 0, 1), ("read", 5, 1)):
            server.broker.create_topic(name)
            server.broker.publish_many(name, ["x" * size] * count)
            server.broker.create_group(name, "g")
        with server.broker.consumer("read", "g") as consumer:
            consumer.ack(consumer.receive(5))

        def order(sort: str, order: str | None = None) -> list[str]:
            server.server.services.ranking._fresh_until_s = 0
            return names(server.get("/v1/topics", sort=sort, **({} if order is None else {"order": order})))

        assert order("messages") == ["many-small", "read", "few-large", "none"]
        assert order("messages", "asc") == ["none", "few-large", "read", "many-small"]
        assert order("bytes")[0] == "few-large"
        assert order("backlog") == ["many-small", "few-large", "none", "read"]


def test_how_topics_stand_is_looked_at_again_after_a_hundred_times_what_a_look_takes(clock: VirtualClock) -> None:
    from penstock import open as open_broker

    with open_broker(storage=MemoryStorage(), clock=clock) as broker:
        ranking = Ranking(broker.shards)
        broker.publish_many("t", ["x"] * 10)
        assert ranking.topics()["t"].messages == 10
        ranking._fresh_until_s = clock.monotonic_s() + 1.0  # as if it had taken ten milliseconds
        broker.publish("t", "x")
        assert ranking.topics()["t"].messages == 10
        clock.advance(1.0)
        assert ranking.topics()["t"].messages == 11


def test_an_overview_has_the_busiest_topics_and_the_groups_furthest_behind(tmp_path: Path) -> None:
    with HttpRunning(tmp_path) as server:
        for number in range(12):
            server.broker.publish_many(f"t{number:02d}", ["x"] * (number + 1))
            server.broker.create_group(f"t{number:02d}", "g")
        server.server.services.ranking._fresh_until_s = 0
        shown = server.get("/v1/overview")
        assert shown["broker"]["topics"] == 12
        assert "published" in shown["latest"]
        assert [topic["name"] for topic in shown["busiest"]] == [f"t{number:02d}" for number in range(11, 1, -1)]
        assert [group["lag"] for group in shown["lagging"]] == list(range(12, 2, -1))


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_refused_in_every_place(server: HttpRunning, name: str) -> None:
    path = quote(name, safe="%")
    for method, place in [
        ("GET", path),
        ("PATCH", path),
        ("DELETE", path),
        ("GET", f"{path}/partitions"),
        ("GET", f"{path}/messages"),
        ("GET", f"{path}/messages/0/0"),
        ("GET", f"{path}/partitions/0/messages"),
        ("POST", f"{path}/replay"),
    ]:
        body: object = {"group": "g"} if method == "POST" else {} if method == "PATCH" else None
        assert server.refused(method, f"/v1/topics/{place}", body)[0] in (400, 404, 405), (method, place)
    assert server.refused("POST", "/v1/topics", {"name": name})[0] == 400


def test_a_name_may_be_percent_encoded(server: HttpRunning) -> None:
    server.broker.publish("per.cent-1", "x")
    assert server.get("/v1/topics/%70er%2Ecent%2D1")["messages"] == 1
    assert server.get("/v1/topics/per.cent-1/messages/0/%30")["value"] == "x"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "name"),
        ({"name": 7}, "str"),
        ({"name": "n", "partitions": 0}, ">= 1"),
        ({"name": "n", "partitions": 65_537}, "<= 65536"),
        ({"name": "n", "partitions": 1.5}, "int"),
        ({"name": "n", "retention_hours": -1}, ">= 0"),
        ({"name": "n", "retention_age": "soon"}, "duration"),
        ({"name": "n", "visibility_timeout": 0}, "shorter"),
        ({"name": "n", "visibility_timeout": None}, "null"),
        ({"name": "n", "lanes": "fair"}, "fair"),
        ({"name": "n", "lane_weights": {"urgent": 1}}, "urgent"),
        ({"name": "n", "lane_weights": {"9999": 1}}, "9999"),
        ({"name": "n", "retention": 5}, "retention"),
        (["n"], "array"),
        (b"{", "truncated"),
        (b"\xff\xfe", "malformed"),
        (b"", ""),
    ],
)
def test_what_is_wrong_with_a_new_topic_is_said(server: HttpRunning, body: object, said: str) -> None:
    status, error = server.refused("POST", "/v1/topics", body)
    assert status == 400
    assert said in error


def test_what_is_there_or_cannot_be_changed_is_refused(server: HttpRunning, topic: str) -> None:
    server.post("/v1/topics", {"name": topic})
    assert server.refused("POST", "/v1/topics", {"name": topic}) == (409, f"the topic '{topic}' exists already")
    assert "cannot be changed" in server.refused("PATCH", f"/v1/topics/{topic}", {"partitions": 2})[1]
    assert server.refused("PATCH", "/v1/topics/nothing", {})[0] == 404
    assert server.refused("PUT", f"/v1/topics/{topic}", {})[0] == 405


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=1001", "limit=x", "limit=-1", "skip=-1", "sort=color", "order=up", f"search={'x' * 201}"],
)
def test_a_bad_query_is_refused(server: HttpRunning, query: str) -> None:
    assert server.refused("GET", f"/v1/topics?{query}")[0] == 400


def test_a_token_sees_and_changes_its_own_topics_only(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path)
    limited = tokens.create("shop", ["admin"], ["shop.*"], None).secret
    reader = tokens.create("reader", ["read"], ["*"], None).secret
    publisher = tokens.create("publisher", ["publish"], ["*"], None).secret
    with HttpRunning(tmp_path, auth="tokens") as server:
        for name in ("shop.orders", "shop.bills", "bank.accounts"):
            server.broker.publish(name, "x")
            server.broker.create_group(name, "g")
        assert server.refused("GET", "/v1/topics")[0] == 401
        assert server.refused("GET", "/v1/topics", token=f"{limited}x")[0] == 401
        assert server.refused("GET", "/v1/topics", token=publisher)[0] == 403
        found = server.ask("GET", "/v1/topics?sort=messages", token=limited).json
        assert (sorted(names(found)), found["total"]) == (["shop.bills", "shop.orders"], 2)
        assert server.ask("GET", "/v1/topics", token=reader).json["total"] == 3
        overview = server.ask("GET", "/v1/overview", token=limited).json
        assert {topic["name"] for topic in overview["busiest"]} == {"shop.orders", "shop.bills"}
        assert {group["topic"] for group in overview["lagging"]} == {"shop.orders", "shop.bills"}
        for method, path in [("GET", ""), ("GET", "/partitions"), ("PATCH", ""), ("DELETE", "")]:
            body: object = {} if method == "PATCH" else None
            assert server.refused(method, f"/v1/topics/bank.accounts{path}", body, token=limited)[0] == 403
        assert server.refused("POST", "/v1/topics", {"name": "bank.new"}, token=limited)[0] == 403
        assert server.refused("POST", "/v1/topics", {"name": "shop.new"}, token=reader)[0] == 403
        assert server.ask("POST", "/v1/topics", {"name": "shop.new"}, token=limited).status == 201
        archive = {"name": "shop.archived", "archive": "/tmp/elsewhere"}
        assert server.refused("POST", "/v1/topics", archive, token=limited)[0] == 403
        assert server.ask("DELETE", "/v1/topics/shop.new", token=limited).status == 204
