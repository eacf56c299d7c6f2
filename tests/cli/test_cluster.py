"""`penstock cluster`: the processes of a server, shown and changed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

import penstock
from penstock.cli.cluster import drawn_cluster
from penstock.cli.output import iso_time
from penstock.client import Client
from penstock.model.processes import ClusterInfo, ShardInfo
from tests.cli.harness import Command
from tests.server.harness import Child

HEADINGS = ["process", "state", "pid", "shards", "up for", "restarts", "memory", "connections"]


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """The command line on a server of two processes."""
    with Child(tmp_path_factory.mktemp("several") / "data", "--shards", "4", "--processes", "2") as child:
        yield Command({"PENSTOCK_SERVER": child.address}, lambda: penstock.connect(child.address))


def cluster(command: Command) -> Any:
    return json.loads(command.ok("cluster", "show", "-o", "json"))


def rows(text: str) -> list[list[str]]:
    """The cells of the first table, without its headings."""
    table = text.split("\n\n", maxsplit=1)[0].splitlines()[1:]
    return [re.split(r"\s{2,}", line.strip()) for line in table]


def test_processes_are_shown_as_a_table(several: Command) -> None:
    several.ok("cluster", "balance")
    text = several.ok("cluster", "show")
    assert re.split(r"\s{2,}", text.splitlines()[0].strip()) == HEADINGS
    shown = rows(text)
    assert [row[:2] for row in shown] == [["0", "up"], ["1", "up"]]
    assert sorted(", ".join(row[3] for row in shown).split(", ")) == ["0", "1", "2", "3"]
    assert [row[5] for row in shown] == ["0", "0"]
    assert all(re.fullmatch(r"[\d.]+ [KMG]iB", row[6]) for row in shown)


def test_processes_are_shown_to_programs_as_a_client_sees_them(several: Command) -> None:
    found = cluster(several)
    with several.open() as client:
        assert isinstance(client, Client)
        seen = client.cluster()
    assert [one["pid"] for one in found["processes"]] == [one.pid for one in seen.processes]
    assert [one["epoch"] for one in found["shards"]] == [one.epoch for one in seen.shards]
    assert [one["since"] for one in found["processes"]] == [iso_time(one.since) for one in seen.processes]
    assert several.ok("cluster", "show", "-o", "yaml").startswith("---\nprocesses:\n- number: 0\n")


def test_shards_are_moved_drained_and_balanced(several: Command) -> None:
    several.ok("cluster", "balance")
    origin = cluster(several)["shards"][2]["process"]
    target = 1 - origin
    moved = several.ok("cluster", "move", 2, "--to", target)
    assert "2" in rows(moved)[target][3].split(", ")
    headings, *moves = moved.split("\n\n")[1].splitlines()
    assert headings.split() == ["shard", "from", "to", "ago", "away", "for"]
    assert moves[-1].split()[:3] == ["2", str(origin), str(target)]
    assert re.search(r"\d\.\d{3} s$", moves[-1].rstrip())
    drained = rows(several.ok("cluster", "drain", target))
    assert (drained[target][1], drained[target][3]) == ("draining", "none")
    assert drained[origin][3] == "0, 1, 2, 3"
    balanced = json.loads(several.ok("cluster", "balance", "-o", "json"))
    assert [len(one["shards"]) for one in balanced["processes"]] == [2, 2]


def test_what_cannot_be_is_refused(several: Command) -> None:
    assert "there is no shard 9: they are 0 to 3" in several.refused("cluster", "move", 9, "--to", 0, code=2)
    assert "there is no process 5 that is up" in several.refused("cluster", "move", 0, "--to", 5, code=2)
    assert "there is no process 5 that is up" in several.refused("cluster", "drain", 5, code=2)
    assert "--to" in several.refused("cluster", "move", 0, code=2)
    assert "should be a valid integer" in several.refused("cluster", "drain", "first", code=2)


def test_a_server_of_one_process_is_shown_and_has_nothing_to_move(remote: Command) -> None:
    (row,) = rows(remote.ok("cluster", "show"))
    assert (row[:2], row[3]) == (["0", "up"], "0")
    assert int(row[7]) >= 1
    for arguments in (["move", 0, "--to", 0], ["drain", 0], ["balance"]):
        assert "this server is one process" in remote.refused("cluster", *arguments, code=2)


@pytest.mark.parametrize("arguments", [["show"], ["move", 0, "--to", 1], ["drain", 0], ["balance"]])
def test_a_directory_has_no_processes(local: Command, arguments: list[object]) -> None:
    line = local.refused("cluster", *arguments, code=2)
    assert "--dir has none" in line and "give --server" in line


def test_a_shard_that_is_not_open_is_told_with_the_reason() -> None:
    closed = ShardInfo(number=3, process=-1, epoch=4, state="closed", problem="its journal is damaged")
    moving = ShardInfo(number=1, process=0, epoch=2, state="moving")
    drawn = drawn_cluster(ClusterInfo(processes=[], shards=[moving, closed], moves=[]))
    assert drawn[1:] == ["shard 1 is moving", "shard 3 is closed: its journal is damaged"]
