"""Publishing by HTTP: JSON and raw bodies, one and many, and what is refused."""

from __future__ import annotations

import base64
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from tests.server.http.harness import HttpRunning


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpRunning]:
    with HttpRunning(tmp_path_factory.mktemp("data")) as running:
        yield running


def stored(server: HttpRunning, topic: str) -> list[penstock.StoredMessage]:
    return list(server.broker.read(topic))


def test_a_message_of_json_is_stored_with_all_that_it_has(server: HttpRunning) -> None:
    reply = server.post(
        "/v1/topics/full/publish",
        {"key": "k", "value": "wörld", "headers": {"a": "b"}, "priority": "high", "dedupe_id": "1", "expires_in": 60},
    )
    assert reply == {
        "id": "full/0/0",
        "topic": "full",
        "partition": 0,
        "offset": 0,
        "priority": 64,
        "delayed": False,
        "deliver_at": None,
    }
    (message,) = stored(server, "full")
    assert (message.key, message.value, message.headers) == (b"k", "wörld".encode(), {"a": "b"})
    assert (message.priority, message.dedupe_id, message.expires_at_us is not None) == (64, "1", True)
    assert server.post("/v1/topics/full/publish", {"value": "again", "dedupe_id": "1"})["offset"] == 0


def test_values_may_be_base64(server: HttpRunning) -> None:
    raw = bytes(range(256))
    text = base64.b64encode(raw).decode()
    server.post("/v1/topics/bytes/publish", {"value": text, "key": text.rstrip("="), "encoding": "base64"})
    server.post("/v1/topics/bytes/messages", {"encoding": "base64", "messages": [{"value": text}]})
    assert [(message.value, message.key) for message in stored(server, "bytes")] == [(raw, raw), (raw, None)]


def test_the_request_of_goqueue_has_its_value_in_base64_and_its_key_as_text(server: HttpRunning) -> None:
    path = "/goqueue/v1/topics/go/publish"
    reply = server.post(path, {"key": "order-123", "value": "eyJvcmRlcl9pZCI6MTIzfQ==", "delay": "5m"})
    assert reply["delayed"] and reply["id"] == "go/0/0"
    server.post(path, {"value": "plain", "encoding": "utf8"})
    server.post("/v1/topics/go/publish", {"key": "order-123", "value": "eyJvcmRlcl9pZCI6MTIzfQ=="})
    assert [(message.key, message.value) for message in stored(server, "go")] == [
        (b"order-123", b'{"order_id":123}'),
        (None, b"plain"),
        (b"order-123", b"eyJvcmRlcl9pZCI6MTIzfQ=="),
    ]
    refused = server.ask("POST", path, {"value": "two coffees"})
    assert refused.status == 400 and "is not base64" in refused.json["error"]


def test_a_raw_body_is_the_value_and_the_rest_is_in_the_query_and_in_headers(server: HttpRunning) -> None:
    headers = {"Content-Type": "application/octet-stream", "X-Penstock-Header-Source": "web"}
    query = {"key": "ä b", "priority": 3, "delay": 60, "partition": 0}
    reply = server.ask("POST", "/v1/topics/raw/publish", b"\x00\xff{", query=query, headers=headers)
    assert reply.status == 200 and reply.json["delayed"] and reply.json["deliver_at"].endswith("Z")
    (message,) = stored(server, "raw")
    assert (message.value, message.key) == (b"\x00\xff{", "ä b".encode())
    assert (message.headers, message.priority) == ({"source": "web"}, 3)


def test_the_names_of_other_queues_work_too(server: HttpRunning) -> None:
    server.broker.create_topic("other", max_delay="40000d")
    due = "2100-01-01T00:00:00Z"
    reply = server.post("/topics/other/publish", {"value": "x", "deliverAt": due})
    assert (reply["delayed"], reply["deliver_at"]) == (True, due)
    results = server.post("/topics/other/messages", {"messages": [{"value": "y", "deliverAt": due}]})
    assert results == {
        "results": [
            {
                "partition": 0,
                "offset": 1,
                "priority": 128,
                "delayed": True,
                "deliverAt": due,
                "error": None,
            }
        ],
        "published": 1,
    }


def test_a_batch_is_published_in_order_over_all_partitions(server: HttpRunning) -> None:
    server.broker.create_topic("wide", partitions=3)
    rows = [{"value": str(number), "key": f"k{number % 5}"} for number in range(100)]
    results = server.post("/v1/topics/wide/messages", {"messages": rows})["results"]
    found = {(message.partition, message.offset): message.value.decode() for message in stored(server, "wide")}
    assert [found[result["partition"], result["offset"]] for result in results] == [row["value"] for row in rows]


def test_a_batch_of_a_producer_is_published_once_however_often_it_is_sent(server: HttpRunning) -> None:
    body = {"messages": [{"value": "a"}, {"value": "b"}], "producer": "p", "sequence": 0}
    first = server.post("/v1/topics/once/messages", body)
    assert server.post("/v1/topics/once/messages", body) == first
    assert len(stored(server, "once")) == 2


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "missing required field `value`"),
        ({"value": 7}, "Expected `str`, got `int`"),
        ({"value": "x", "priority": 256}, "priority"),
        ({"value": "x", "priority": "urgent"}, "priority"),
        ({"value": "x", "delay": -1}, "delay"),
        ({"value": "x", "delay": 1, "deliver_at": "2100-01-01T00:00:00Z"}, "deliver_at"),
        ({"value": "x", "deliver_at": "tomorrow"}, "tomorrow"),
        ({"value": "x", "partition": 9}, "partition"),
        ({"value": "x", "valeu": "x"}, "unknown field `valeu`"),
        ({"value": "not base64!", "encoding": "base64"}, "is not base64"),
        ({"value": "x", "encoding": "latin1"}, "encoding"),
        ([], "Expected `object`"),
        (b"{", "truncated"),
        (b'{"value": "\xff"}', "utf-8"),
        (b"[" * 100_000, "malformed|recursion|Expected"),
    ],
)
def test_what_cannot_be_published_is_refused_with_why(server: HttpRunning, body: Any, said: str) -> None:
    status, text = server.refused("POST", "/v1/topics/refused/publish", body)
    assert status == 400 and re.search(said, text), text
    many = body if isinstance(body, bytes) else {"messages": [{"value": "fine"}, body]}
    status, text = server.refused("POST", "/v1/topics/refused/messages", many)
    assert status == 400
    assert "refused" not in {info.name for info in server.broker.topics()}


@pytest.mark.parametrize("topic", ["", "a b", "a%2Fb", "%00", "x" * 300, "..", "%C3%A4", "%F0%9F%98%80"])
def test_topics_that_cannot_be_are_refused(server: HttpRunning, topic: str) -> None:
    status, text = server.refused("POST", f"/v1/topics/{topic.replace(' ', '%20')}/publish", {"value": "x"})
    assert status in (400, 404, 405), text


def test_raw_options_that_are_not_known_are_refused(server: HttpRunning) -> None:
    raw = {"Content-Type": "application/octet-stream"}
    for query in ({"prio": 1}, {"partition": "x"}, {"delay": "soon"}, {"priority": "urgent"}):
        status, _ = server.refused("POST", "/v1/topics/raw-refused/publish", b"x", query=query, headers=raw)
        assert status == 400, query
    status, text = server.refused("POST", "/v1/topics/raw-refused/messages", b"x", headers=raw)
    assert status == 400 and "a batch is JSON" in text


def test_what_is_too_large_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with HttpRunning(tmp_path, max_request_bytes=2000, broker={"max_value_bytes": 1000}) as server:
        assert server.refused("POST", "/v1/topics/t/publish", {"value": "x" * 3000})[0] == 413
        assert server.refused("POST", "/v1/topics/t/publish", {"value": "x" * 1500})[0] == 413
        assert server.ask("POST", "/v1/topics/t/publish", {"value": "x" * 900}).status == 200
        chunk = b"3e8\r\n" + b"x" * 1000 + b"\r\n"
        with socket.create_connection(("127.0.0.1", server.http_port), 20) as raw:  # no length is told
            raw.sendall(b"POST /v1/topics/t/publish HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
            raw.sendall(chunk * 3)
            assert raw.recv(100).startswith(b"HTTP/1.1 413")


def test_a_full_buffer_is_429_with_a_time_to_try_again(tmp_path: Path) -> None:
    with HttpRunning(tmp_path) as server:
        server.broker.create_topic("t", max_backlog=2)
        server.broker.create_group("t", "g")
        for _ in range(2):
            server.post("/v1/topics/t/publish", {"value": "x"})
        reply = server.ask("POST", "/v1/topics/t/publish", {"value": "x"})
        assert (reply.status, reply.headers["retry-after"]) == (429, "1"), reply


def test_L1_what_is_not_durable_is_not_acknowledged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with HttpRunning(tmp_path) as server:
        server.post("/v1/topics/t/publish", {"value": "fine"})

        def fail(_: object) -> None:
            raise OSError(5, "the disk is broken")

        monkeypatch.setattr("penstock.storage.files.OpenFile.sync", fail)
        status, text = server.refused("POST", "/v1/topics/t/publish", {"value": "lost"})
        assert status == 503 and "disk" in text
        assert server.refused("POST", "/v1/topics/t/messages", {"messages": [{"value": "lost"}]})[0] == 503
        monkeypatch.undo()


def test_TR2_a_message_has_the_same_trace_whichever_port_it_came_by(server: HttpRunning) -> None:
    by_http = server.post("/v1/topics/traced/publish", {"value": "x", "key": "k"})["id"]
    with penstock.connect(server.address) as client:
        by_native = str(client.publish("traced", "x", key="k"))
        shown = [[line.kind for line in client.trace(identity).lines] for identity in (by_http, by_native)]
        assert shown[0] == shown[1] == ["published"]
    with pytest.raises(penstock.InvalidArgument):
        server.broker.publish("traced", "x", partition=7)
    assert server.refused("POST", "/v1/topics/traced/publish", {"value": "x", "partition": 7})[0] in (400, 404)
