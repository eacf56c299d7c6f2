"""The plain queue by HTTP: what is put in comes out once, in order, also after a restart."""

from __future__ import annotations

import base64
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import pytest

from penstock.server.access.tokens import TokenFile
from penstock.views import info as module
from tests.server.http.harness import HttpRunning, Reply


def put(server: HttpRunning, queue: str, value: bytes) -> int:
    reply = server.ask("POST", f"/api/v1/queue/{queue}/enqueue", value)
    assert reply.status == 200, reply
    return int(reply.json["queueLength"])


def take(server: HttpRunning, queue: str) -> Reply:
    reply = server.ask("GET", f"/api/v1/queue/{queue}/dequeue")
    assert reply.status == 200, reply
    assert reply.headers["content-type"] == "application/octet-stream"
    return reply


def test_what_is_put_in_comes_out_in_order_as_it_was(server: HttpRunning, topic: str) -> None:
    values = [b"one", b"two\r\n", bytes(range(256)), "drei €".encode()]
    assert [put(server, topic, value) for value in values] == [1, 2, 3, 4]
    assert [take(server, topic).body for _ in values] == values
    assert put(server, topic, b"again") == 1


def test_an_empty_queue_gives_nothing_and_is_not_made_by_looking(server: HttpRunning, topic: str) -> None:
    reply = take(server, topic)
    assert (reply.body, "x-penstock-id" in reply.headers) == (b"", False)
    looked = server.get(f"/api/v1/queue/{topic}/list-items")
    assert looked == {"items": [], "page": 1, "perPage": 20, "total": 0, "encoding": "utf8"}
    assert topic not in {info.name for info in server.broker.topics()}


def test_an_empty_message_is_told_from_none(server: HttpRunning, topic: str) -> None:
    put(server, topic, b"")
    reply = take(server, topic)
    assert (reply.body, reply.headers["x-penstock-id"]) == (b"", f"{topic}/0/0")
    assert "x-penstock-id" not in take(server, topic).headers


def test_each_message_comes_out_once_however_many_take(server: HttpRunning, topic: str) -> None:
    count = 60
    with ThreadPoolExecutor(8) as pool:
        lengths = list(pool.map(lambda number: put(server, topic, b"%d" % number), range(count)))
        assert sorted(lengths)[-1] == count
        taken = [reply.body for reply in pool.map(lambda _: take(server, topic), range(count + 8))]
    assert sorted(body for body in taken if body) == sorted(b"%d" % number for number in range(count))
    assert server.broker.group(topic, "queue").acked == count


def test_what_was_taken_is_gone_after_a_crash_and_the_rest_is_there(tmp_path: Path) -> None:
    with HttpRunning(tmp_path) as server:
        for value in (b"a", b"b", b"c"):
            put(server, "q", value)
        assert take(server, "q").body == b"a"
    with HttpRunning(tmp_path) as server:
        assert server.get("/api/v1/queue/q/list-items")["items"] == ["b", "c"]
        assert take(server, "q").body == b"b"
        assert put(server, "q", b"d") == 2


def test_items_are_listed_page_by_page_and_left_there(server: HttpRunning, topic: str) -> None:
    for number in range(7):
        put(server, topic, b"%d" % number)
    take(server, topic)
    pages = [server.get(f"/api/v1/queue/{topic}/list-items", page=page, perPage=4) for page in (1, 2, 3)]
    assert [page["items"] for page in pages] == [["1", "2", "3", "4"], ["5", "6"], []]
    assert [(page["page"], page["perPage"], page["total"]) for page in pages] == [(n, 4, 6) for n in (1, 2, 3)]
    server.broker.settle()
    assert server.get(f"/api/v1/queue/{topic}/list-items")["items"] == ["1", "2", "3", "4", "5", "6"]


def test_items_that_are_no_text_are_listed_as_base64(server: HttpRunning, topic: str) -> None:
    put(server, topic, b"text")
    put(server, topic, b"\xff")
    found = server.get(f"/api/v1/queue/{topic}/list-items")
    assert found["encoding"] == "base64"
    assert [base64.b64decode(item) for item in found["items"]] == [b"text", b"\xff"]


def test_a_page_that_is_too_large_is_refused(server: HttpRunning, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BYTES_MAX", 10)
    put(server, topic, b"0123456")
    put(server, topic, b"789abc")
    assert server.refused("GET", f"/api/v1/queue/{topic}/list-items")[0] == 413
    assert server.get(f"/api/v1/queue/{topic}/list-items", perPage=1)["items"] == ["0123456"]


def test_a_topic_with_more_partitions_is_no_queue(server: HttpRunning, topic: str) -> None:
    server.broker.create_topic(topic, partitions=2)
    for method, path in (("POST", "enqueue"), ("GET", "dequeue"), ("GET", "list-items")):
        status, text = server.refused(method, f"/api/v1/queue/{topic}/{path}", b"x" if method == "POST" else None)
        assert status == 409
        assert "2 partitions, and a queue has one" in text
    assert not list(server.broker.read(topic))


def test_a_new_queue_has_one_partition_whatever_topics_have_by_default(tmp_path: Path) -> None:
    with HttpRunning(tmp_path, broker={"topic_defaults": {"partitions": 3}}) as server:
        with ThreadPoolExecutor(4) as pool:
            assert max(pool.map(lambda _: put(server, "q", b"x"), range(4))) == 4
        assert [len(topic.partitions) for topic in server.broker.topics()] == [1]


@pytest.mark.parametrize("name", ["a b", "ü", "..", "x" * 201, "a\x00b", "a\nb"])
def test_a_name_that_cannot_be_is_refused(server: HttpRunning, name: str) -> None:
    assert server.refused("POST", f"/api/v1/queue/{quote(name, safe='')}/enqueue", b"x")[0] in (400, 404)


@pytest.mark.parametrize("query", ["page=0", "page=x", "perPage=0", "perPage=1001", "page=1000000001"])
def test_pages_have_limits(server: HttpRunning, topic: str, query: str) -> None:
    put(server, topic, b"x")
    assert server.refused("GET", f"/api/v1/queue/{topic}/list-items?{query}")[0] == 400


def test_a_body_that_is_too_large_is_refused(tmp_path: Path) -> None:
    with HttpRunning(tmp_path, broker={"max_value_bytes": 2000}) as server:
        assert server.refused("POST", "/api/v1/queue/q/enqueue", b"x" * 2001)[0] == 413
        assert server.broker.topics() == []


def test_tokens_are_for_what_they_say(tmp_path: Path) -> None:
    secrets = {
        scope: TokenFile(str(tmp_path)).create(scope, [scope], ["mine*"], None).secret
        for scope in ("publish", "consume", "read")
    }
    with HttpRunning(tmp_path, auth="tokens") as server:

        def statuses(method: str, path: str, body: bytes | None = None) -> list[int]:
            return [server.ask(method, path, body, token=secrets[scope]).status for scope in secrets]

        assert statuses("POST", "/api/v1/queue/mine/enqueue", b"x") == [200, 403, 403]
        assert statuses("GET", "/api/v1/queue/mine/list-items") == [403, 403, 200]
        assert statuses("GET", "/api/v1/queue/mine/dequeue") == [403, 200, 403]
        assert statuses("POST", "/api/v1/queue/others/enqueue", b"x") == [403, 403, 403]
        assert statuses("GET", "/v1/topics/others/delayed") == [403, 403, 403]
        assert statuses("GET", "/v1/topics/mine/dead-letters/causes") == [403, 403, 200]
        assert statuses("GET", "/metrics") == [403, 403, 403]
        assert statuses("GET", "/status") == [403, 403, 200]
        assert server.ask("GET", "/status", token=secrets["read"]).json["queues"] == {"mine-0": 0}
