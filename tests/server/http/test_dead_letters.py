"""Dead letters by HTTP: pages, causes, redriven by id, cause and group inside the server, purged."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from penstock.server.http.routes import dead_letters as routes
from penstock.shard.operations import dead_letters as module
from tests.server.http.harness import HttpRunning


def kill(server: HttpRunning, topic: str, *causes: str, group: str = "g") -> None:
    """Have one message die of each of these causes."""
    with server.broker.consumer(topic, group) as consumer:
        for number, cause in enumerate(causes):
            server.broker.publish(topic, f"{cause} {number}", key="k", headers={"a": "b"})
            messages = consumer.receive(100)
            messages[-1].kill(cause)
            consumer.ack(messages[:-1])


def redrive(server: HttpRunning, topic: str, **choice: Any) -> dict[str, Any]:
    found: dict[str, Any] = server.post(f"/v1/topics/{topic}/dead-letters/redrive", choice)
    return found


def test_they_are_listed_page_by_page_with_all_that_is_known(server: HttpRunning, topic: str) -> None:
    kill(server, topic, "no milk", "no beans", "no milk")
    first = server.get(f"/v1/topics/{topic}/dead-letters", limit=2)
    assert [letter["id"] for letter in first["dead_letters"]] == [f"{topic}.dlq/0/0", f"{topic}.dlq/0/1"]
    second = server.get(f"/v1/topics/{topic}/dead-letters", limit=2, after=first["after"])
    assert [letter["id"] for letter in second["dead_letters"]] == [f"{topic}.dlq/0/2"]
    assert second["after"] is None
    letter = first["dead_letters"][0]
    assert (letter["origin"], letter["group"], letter["cause"]) == (f"{topic}/0/0", "g", "no milk")
    assert (letter["deliveries"], letter["failures"], len(letter["history"])) == (1, 0, 1)
    assert (letter["value"], letter["key"], letter["encoding"]) == ("no milk 0", "k", "utf8")
    assert (letter["headers"], letter["priority"]) == ({"a": "b"}, 128)
    coded = server.get(f"/v1/topics/{topic}/dead-letters", encoding="base64")["dead_letters"][0]
    assert base64.b64decode(coded["value"]) == b"no milk 0"


def test_a_topic_in_which_nothing_died_has_none(server: HttpRunning, topic: str) -> None:
    server.broker.publish(topic, "x")
    assert server.get(f"/v1/topics/{topic}/dead-letters") == {"dead_letters": [], "after": None}
    assert server.get(f"/v1/topics/{topic}/dead-letters/causes") == {"causes": [], "total": 0, "complete": True}
    assert server.refused("GET", "/v1/topics/none/dead-letters")[0] == 404
    assert server.refused("GET", "/v1/topics/none/dead-letters/causes")[0] == 404


def test_causes_are_counted_the_most_frequent_first(server: HttpRunning, topic: str) -> None:
    kill(server, topic, "no milk", "no beans", "no milk")
    kill(server, topic, "no milk", group="h")
    found = server.get(f"/v1/topics/{topic}/dead-letters/causes")
    assert (found["total"], found["complete"]) == (4, True)
    counted = [(cause["cause"], cause["group"], cause["count"]) for cause in found["causes"]]
    assert counted == [("no milk", "g", 2), ("no beans", "g", 1), ("no milk", "h", 1)]
    assert found["causes"][0]["oldest"] < found["causes"][0]["newest"]


def test_counting_has_an_end_and_says_so(server: HttpRunning, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kill(server, topic, "a", "b", "c")
    monkeypatch.setattr(routes, "_COUNTED_MAX", 2)
    found = server.get(f"/v1/topics/{topic}/dead-letters/causes")
    assert (found["total"], found["complete"], len(found["causes"])) == (2, False, 2)
    monkeypatch.setattr(routes, "_COUNTED_MAX", 3)
    assert server.get(f"/v1/topics/{topic}/dead-letters/causes")["complete"] is True
    monkeypatch.setattr(module, "_CAUSES_MAX", 2)
    found = server.get(f"/v1/topics/{topic}/dead-letters/causes")
    assert (found["total"], found["complete"], len(found["causes"])) == (3, False, 2)
    monkeypatch.setattr(routes, "_COUNTED_BYTES_MAX", 1)
    assert server.get(f"/v1/topics/{topic}/dead-letters/causes")["total"] == 1


def test_a_redrive_chooses_by_cause_group_and_id(server: HttpRunning, topic: str) -> None:
    kill(server, topic, "no milk", "no beans", "no milk")
    kill(server, topic, "no milk", group="h")
    assert redrive(server, topic, cause="no milk", dry_run=True) == {
        "selected": 3,
        "redriven": 0,
        "copied": 0,
        "skipped": 0,
        "dry_run": True,
    }
    assert redrive(server, topic, cause="no milk", group="h")["redriven"] == 1
    assert redrive(server, topic, cause="no mil")["selected"] == 0
    assert redrive(server, topic, ids=[f"{topic}.dlq/0/1"], cause="no milk")["selected"] == 0
    assert redrive(server, topic, ids=[f"{topic}.dlq/0/1", f"{topic}.dlq/0/99"])["redriven"] == 1
    assert redrive(server, topic, group="g")["redriven"] == 2
    assert server.get(f"/v1/topics/{topic}/dead-letters")["dead_letters"] == []
    assert [(group.name, group.ready) for group in server.broker.groups(topic)] == [("g", 4), ("h", 1)]


def test_a_redrive_of_all_may_go_elsewhere(server: HttpRunning, topic: str) -> None:
    kill(server, topic, "a", "b")
    report = redrive(server, topic, to="again", rate=1000)
    assert (report["selected"], report["copied"], report["redriven"]) == (2, 2, 0)
    assert [message.value for message in server.broker.read("again")] == [b"a 0", b"b 1"]


def test_purging_takes_those_that_are_named_or_all(server: HttpRunning, topic: str) -> None:
    kill(server, topic, "a", "b", "c")
    assert server.post(f"/v1/topics/{topic}/dead-letters/purge", {"ids": [f"{topic}.dlq/0/1"]}) == {"purged": 1}
    assert server.post(f"/v1/topics/{topic}/dead-letters/purge", {"ids": []}) == {"purged": 0}
    assert server.post(f"/v1/topics/{topic}/dead-letters/purge", {}) == {"purged": 2}
    assert server.refused("POST", "/v1/topics/none/dead-letters/purge", {})[0] == 404


def test_a_purge_needs_a_body(server: HttpRunning, topic: str) -> None:
    kill(server, topic, "a")
    assert server.refused("POST", f"/v1/topics/{topic}/dead-letters/purge")[0] == 400
    assert len(server.broker.dead_letters(topic)) == 1


@pytest.mark.parametrize(
    "body",
    [
        {"ids": "all"},
        {"ids": ["x"]},
        {"ids": [f"t.dlq/0/{'9' * 100}"]},
        {"ids": [1]},
        {"rate": 0},
        {"rate": "fast"},
        {"to": "no spaces"},
        {"to": "TOPIC.dlq"},
        {"cause": 1},
        {"dry_run": "yes"},
        {"filter": "x"},
        [],
        None,
    ],
)
def test_a_redrive_that_makes_no_sense_is_refused(server: HttpRunning, topic: str, body: object) -> None:
    kill(server, topic, "a")
    data = b"{" if body is None else json.dumps(body).replace("TOPIC", topic).encode()
    reply = server.ask(
        "POST", f"/v1/topics/{topic}/dead-letters/redrive", data, headers={"Content-Type": "application/json"}
    )
    assert reply.status == 400, reply
    assert len(server.broker.dead_letters(topic)) == 1


@pytest.mark.parametrize("after", ["x", "t.dlq/0/-1", f"t.dlq/0/{'9' * 30}", "a b/0/0"])
def test_a_page_behind_what_cannot_be_is_refused(server: HttpRunning, topic: str, after: str) -> None:
    kill(server, topic, "a")
    assert server.refused("GET", f"/v1/topics/{topic}/dead-letters", query={"after": after})[0] == 400
    assert server.get(f"/v1/topics/{topic}/dead-letters", after=f"{topic}.dlq/7/7")["dead_letters"] == []


@pytest.mark.parametrize(
    "change",
    [
        {"history": '{"a": 1}'},
        {"history": "[1]"},
        {"history": "[" * 10_000},
        {"died-at": "9" * 30},
        {"deliveries": "many"},
        {"origin": "secret/0/0"},
        {"origin": "x"},
    ],
)
def test_letters_that_somebody_made_up_do_no_harm(server: HttpRunning, topic: str, change: dict[str, str]) -> None:
    honest = {"origin": f"{topic}/0/0", "group": "g", "cause": "c", "consumer": "", "deliveries": "1", "failures": "1"}
    times = {"died-at": "1767225600000000", "published-at": "1767225600000000", "history": "[]"}
    headers = {f"penstock-{name}": text for name, text in {**honest, **times, **change}.items()}
    server.broker.publish(topic, "x")
    server.broker.publish(f"{topic}.dlq", "made up", headers=headers)
    (letter,) = server.get(f"/v1/topics/{topic}/dead-letters")["dead_letters"]
    assert (letter["cause"], letter["value"], letter["history"]) == ("published by hand", "made up", [])
    assert redrive(server, topic)["copied"] == 1
    assert "secret" not in {topic.name for topic in server.broker.topics()}
