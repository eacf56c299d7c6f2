"""The processes of a server by HTTP: shown, and their shards moved."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from penstock.client import Client
from penstock.server.access.tokens import TokenFile
from tests.server.http.harness import HttpChild, HttpRunning

ALONE = "this server is one process: start it with --processes to have several"


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpChild]:
    """A server of two processes."""
    with HttpChild(tmp_path_factory.mktemp("several") / "data", "--shards", "4", "--processes", "2") as child:
        yield child


def owners(found: Any) -> list[int]:
    return [shard["process"] for shard in found["shards"]]


def age_s(time: str) -> float:
    return abs((datetime.now(UTC) - datetime.fromisoformat(time)).total_seconds())


def test_a_server_of_one_process_shows_it(server: HttpRunning) -> None:
    found = server.get("/v1/cluster")
    (process,) = found["processes"]
    shards = list(range(server.broker.shards.count))
    assert (process["number"], process["state"], process["shards"]) == (0, "up", shards)
    assert (process["pid"], process["restarts"]) == (os.getpid(), 0)
    assert process["resident_bytes"] > 1 << 20 and process["cpu_seconds"] > 0
    assert age_s(process["since"]) < 300
    assert found["moves"] == []
    assert [shard["number"] for shard in found["shards"]] == shards
    for shard in found["shards"]:
        assert (shard["process"], shard["state"], shard["problem"]) == (0, "open", None)


def test_a_server_of_one_process_counts_its_connections(server: HttpRunning) -> None:
    with Client(server.address) as client:
        before = client.cluster().processes[0].connections
        with Client(server.address) as another:
            assert another.cluster().processes[0].connections == before + 1


@pytest.mark.parametrize(
    ("path", "body"), [("move", {"shard": 0, "process": 0}), ("drain", {"process": 0}), ("balance", {})]
)
def test_a_server_of_one_process_has_nothing_to_move(server: HttpRunning, path: str, body: Any) -> None:
    assert server.refused("POST", f"/v1/cluster/{path}", body) == (400, ALONE)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("move", {"shard": 0}),
        ("move", {"shard": -1, "process": 0}),
        ("move", {"shard": 1024, "process": 0}),
        ("move", {"shard": 0, "process": 1, "at": 1}),
        ("drain", {}),
        ("drain", {"process": None}),
        ("drain", {"process": 1.5}),
    ],
)
def test_what_names_no_shard_or_process_is_refused(several: HttpChild, path: str, body: Any) -> None:
    status, text = several.refused("POST", f"/v1/cluster/{path}", body)
    assert status == 400 and text


def test_shards_are_moved_drained_and_balanced(several: HttpChild) -> None:
    before = several.get("/v1/cluster")
    assert {process["state"] for process in before["processes"]} == {"up"}
    origin = owners(before)[0]
    target = 1 - origin
    moved = several.post("/v1/cluster/move", {"shard": 0, "process": target})
    assert owners(moved)[0] == target and moved["shards"][0]["epoch"] > before["shards"][0]["epoch"]
    (last,) = moved["moves"][len(before["moves"]) :]
    assert (last["shard"], last["origin"], last["target"]) == (0, origin, target)
    assert 0 <= last["seconds"] < 10 and age_s(last["at"]) < 60
    drained = several.post("/v1/cluster/drain", {"process": target})
    assert owners(drained) == [origin] * 4
    assert drained["processes"][target]["state"] == "draining"
    status, text = several.refused("POST", "/v1/cluster/move", {"shard": 0, "process": target})
    assert (status, "is being drained" in text) == (400, True)
    balanced = several.post("/v1/cluster/balance")
    assert sorted(owners(balanced)) == [0, 0, 1, 1]


def test_what_is_not_there_is_said(several: HttpChild) -> None:
    status, text = several.refused("POST", "/v1/cluster/move", {"shard": 9, "process": 0})
    assert (status, text) == (400, "there is no shard 9: they are 0 to 3")
    status, text = several.refused("POST", "/v1/cluster/drain", {"process": 7})
    assert (status, text) == (400, "there is no process 7 that is up: 0, 1")


def test_processes_are_for_tokens_of_all_topics_and_moving_for_administrators(tmp_path: Path) -> None:
    file = TokenFile(tmp_path)
    reader = file.create("reader", ["read"]).secret
    boss = file.create("boss", ["admin"]).secret
    limited = file.create("limited", ["admin"], ["orders*"]).secret
    with HttpRunning(tmp_path, auth="tokens") as server:
        assert server.ask("GET", "/v1/cluster", token=reader).status == 200
        assert server.refused("GET", "/v1/cluster", token=limited)[0] == 403
        move = {"shard": 0, "process": 0}
        for token in (reader, limited):
            assert server.refused("POST", "/v1/cluster/move", move, token=token)[0] == 403
            assert server.refused("POST", "/v1/cluster/drain", {"process": 0}, token=token)[0] == 403
            assert server.refused("POST", "/v1/cluster/balance", token=token)[0] == 403
        assert server.refused("POST", "/v1/cluster/move", move, token=boss) == (400, ALONE)
