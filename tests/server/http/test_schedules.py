"""Schedules by HTTP: made, shown, paused, resumed, ended."""

from __future__ import annotations

import base64

import pytest

from tests.server.http.harness import HttpRunning


@pytest.fixture(autouse=True)
def without_schedules(server: HttpRunning) -> None:
    for schedule in server.broker.schedules():
        server.broker.remove_schedule(schedule.name)


YEARLY = {"cron": "0 7 1 1 *", "topic": "reports", "value": "happy new year"}


def put(server: HttpRunning, name: str, **changes: object) -> dict[str, object]:
    reply = server.ask("PUT", f"/v1/schedules/{name}", {**YEARLY, **changes})
    assert reply.status == 200, reply
    found: dict[str, object] = reply.json
    return found


def test_a_schedule_is_made_shown_and_replaced(server: HttpRunning) -> None:
    made = put(server, "new-year", zone="Europe/Vienna", key="k", headers={"a": "b"}, priority="high", expires_in="1h")
    assert {**made, "next_at": None} == {
        **YEARLY,
        "name": "new-year",
        "zone": "Europe/Vienna",
        "encoding": "utf8",
        "key": "k",
        "headers": {"a": "b"},
        "priority": 64,
        "expires_in": 3600.0,
        "paused": False,
        "next_at": None,
    }
    assert str(made["next_at"]).endswith("-01-01T06:00:00Z")
    assert server.get("/v1/schedules") == {"schedules": [made]}
    put(server, "new-year", value="again")
    assert [item["value"] for item in server.get("/v1/schedules")["schedules"]] == ["again"]


def test_bytes_are_written_as_base64(server: HttpRunning) -> None:
    value, key = (base64.b64encode(data).decode() for data in (b"\xff\x00", b"\xfe"))
    made = put(server, "s", value=value, key=key, encoding="base64")
    assert (made["value"], made["key"], made["encoding"]) == (value, key, "base64")
    assert server.broker.schedules()[0].message.value == b"\xff\x00"


def test_it_is_paused_resumed_and_ended(server: HttpRunning) -> None:
    put(server, "s")
    paused = server.post("/v1/schedules/s/pause")
    assert (paused["paused"], paused["next_at"]) == (True, None)
    resumed = server.post("/v1/schedules/s/resume")
    assert resumed["paused"] is False
    assert resumed["next_at"] is not None
    reply = server.ask("DELETE", "/v1/schedules/s")
    assert (reply.status, reply.body) == (204, b"")
    assert server.get("/v1/schedules") == {"schedules": []}


@pytest.mark.parametrize(("method", "path"), [("POST", "/pause"), ("POST", "/resume"), ("DELETE", "")])
def test_one_that_is_not_there_is_not_found(server: HttpRunning, method: str, path: str) -> None:
    assert server.refused(method, f"/v1/schedules/none{path}") == (404, "there is no schedule 'none'")


@pytest.mark.parametrize(
    "change",
    [
        {"cron": "61 * * * *"},
        {"cron": "every day"},
        {"cron": "* * * * * * *"},
        {"cron": "0 0 30 2 *"},
        {"cron": "\x00"},
        {"cron": ""},
        {"zone": "Europe/Atlantis"},
        {"zone": "../../etc/passwd"},
        {"zone": "\x00"},
        {"zone": "x" * 100},
        {"topic": "no spaces"},
        {"topic": ""},
        {"value": None},
        {"value": "?", "encoding": "base64"},
        {"encoding": "rot13"},
        {"priority": 256},
        {"priority": "urgent"},
        {"expires_in": 0},
        {"expires_in": "1 day"},
        {"headers": {"a": 1}},
        {"delay": 10},
    ],
)
def test_what_cannot_be_scheduled_is_refused(server: HttpRunning, change: dict[str, object]) -> None:
    status, text = server.refused("PUT", "/v1/schedules/s", {**YEARLY, **change})
    assert status == 400
    assert text
    assert server.get("/v1/schedules") == {"schedules": []}


def test_a_name_that_cannot_be_is_refused(server: HttpRunning) -> None:
    assert server.refused("PUT", "/v1/schedules/two%20words", YEARLY)[0] == 400
