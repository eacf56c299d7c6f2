"""Pipelines by HTTP: reported, listed, shown."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from penstock.client import Client
from tests.server.http.harness import HttpRunning

QUERY = {
    "name": "hourly.totals",
    "reads": ["orders", "clicks"],
    "writes": ["totals"],
    "batches": 3,
    "rows": 1200,
    "rows_per_second": 400.5,
    "batch_seconds": 0.25,
    "lag": 17,
    "state_rows": 5,
    "last_batch_at": "2026-05-04T09:12:44.101000Z",
}
REPORT = {
    "state": "waiting",
    "queries": [QUERY],
    "restarts": 2,
    "error": "no <milk>\nat kitchen",
    "file": "shop.yaml",
    "host": "machine-1",
    "pid": 77,
    "started_at": "2026-05-04T09:00:00Z",
}


def put(server: HttpRunning, name: str, **changes: object) -> None:
    reply = server.ask("PUT", f"/v1/pipelines/{name}", {**REPORT, **changes})
    assert (reply.status, reply.body) == (204, b""), reply


def test_what_is_reported_is_shown(server: HttpRunning) -> None:
    put(server, "hourly")
    shown = server.get("/v1/pipelines/hourly")
    told = datetime.fromisoformat(shown.pop("reported_at"))
    assert abs(datetime.now(told.tzinfo) - told) < timedelta(minutes=5)
    assert shown == {"name": "hourly", **REPORT, "history": []}
    put(server, "another", queries=[{"name": "q"}], error=None, started_at=None)
    listed = server.get("/v1/pipelines")["pipelines"]
    assert [each["name"] for each in listed] == ["another", "hourly"]
    assert listed[0]["queries"] == [
        {
            "name": "q",
            "reads": [],
            "writes": [],
            "batches": 0,
            "rows": 0,
            "rows_per_second": 0.0,
            "batch_seconds": 0.0,
            "lag": None,
            "state_rows": 0,
            "last_batch_at": None,
        }
    ]
    assert (listed[0]["error"], listed[0]["started_at"]) == (None, None)


def test_the_native_port_shows_the_same(server: HttpRunning) -> None:
    put(server, "hourly", state="finished")
    with Client(server.address) as client:
        (found,) = [report for report in client.pipelines() if report.name == "hourly"]
    assert (found.state, found.queries[0].reads, found.queries[0].lag) == ("finished", ("orders", "clicks"), 17)


def test_one_that_is_not_known_is_not_found(server: HttpRunning) -> None:
    assert server.refused("GET", "/v1/pipelines/none") == (404, "there is nothing at '/v1/pipelines/none'")


@pytest.mark.parametrize(
    "change",
    [
        {"state": "silent"},
        {"state": "sleeping"},
        {"state": None},
        {"restarts": -1},
        {"pid": 1 << 63},
        {"host": "x" * 1001},
        {"started_at": "yesterday"},
        {"queries": [{"name": f"q{number}"} for number in range(101)]},
        {"queries": [{"name": "two words"}]},
        {"queries": [{"name": "q"}, {"name": "q"}]},
        {"queries": [{"rows": 1}]},
        {"queries": [{"name": "q", "rows": -1}]},
        {"queries": [{"name": "q", "rows_per_second": 1e301}]},
        {"queries": [{"name": "q", "lag": 0.5}]},
        {"queries": [{"name": "q", "reads": ["no spaces"]}]},
        {"queries": [{"name": "q", "reads": "orders"}]},
        {"queries": [{"name": "q", "time_us": 1}]},
        {"time_us": 1},
        {"name": "x"},
    ],
)
def test_what_is_no_report_is_refused(server: HttpRunning, change: dict[str, object]) -> None:
    status, text = server.refused("PUT", "/v1/pipelines/refused", {**REPORT, **change})
    assert status == 400, text
    assert text
    assert server.ask("GET", "/v1/pipelines/refused").status == 404


def test_a_name_that_cannot_be_is_refused(server: HttpRunning) -> None:
    assert server.refused("PUT", "/v1/pipelines/two%20words", REPORT)[0] == 400


def test_a_report_that_is_too_large_is_refused(server: HttpRunning) -> None:
    reads = [f"{'x' * 190}{number}" for number in range(400)]
    status, text = server.refused("PUT", "/v1/pipelines/large", {**REPORT, "queries": [{**QUERY, "reads": reads}]})
    assert (status, "and may have 64 KiB" in text) == (413, True)


def test_the_history_of_a_pipeline_is_told_to_those_who_ask(server: HttpRunning) -> None:
    put(server, "told", queries=[{**QUERY, "rows": 10, "lag": 3}, {"name": "silent"}])
    put(server, "told", queries=[{**QUERY, "rows": 20, "lag": 2}, {"name": "silent"}])
    (found,) = (each for each in server.get("/v1/pipelines", history_since=0)["pipelines"] if each["name"] == "told")
    first, second = found["history"]
    assert first["rate"] == {"hourly.totals": None, "silent": None} and first["lag"] == {
        "hourly.totals": 3,
        "silent": None,
    }
    assert second["rate"]["hourly.totals"] > 0 and second["rate"]["silent"] == 0
    newer = server.get("/v1/pipelines", history_since=first["time"])["pipelines"]
    assert [each["history"] for each in newer if each["name"] == "told"] == [[second]]
    assert all(each["history"] == [] for each in server.get("/v1/pipelines")["pipelines"])
    assert server.refused("GET", "/v1/pipelines", query={"history_since": "yesterday"})[0] == 400
