"""Run tests with divided directories: `pytest --shards 4 tests/client tests/server`.

Every data directory that a test makes is divided: in its own process, by the servers that it starts (`Child`), and by
programs that it starts with `command`. What is promised must hold then as it does with one shard. A test that looks
into *the* shard of a broker is skipped, and so is one that is marked:
`@pytest.mark.one_shard("limits are those of each shard")`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from penstock.cluster import directory, shards
from penstock.cluster.shards import Shards
from penstock.embedded.broker import Broker
from penstock.model.placement import shard_of
from penstock.shard.shard import Shard
from penstock.storage import Storage
from penstock.storage.read_only import ReadOnlyStorage

ROOT = Path(__file__).parents[1]
VARIABLE = "PENSTOCK_SHARDS"
"""What servers divide new directories by, and programs of tests."""


def divide_new_directories(count: int) -> None:
    """Have them divided into so many, unless a test says something else."""
    divide, only = directory.divide, Broker.shard.fget  # type: ignore[attr-defined]

    def divide_if_new(storage: Storage, wanted: int | None) -> list[Storage]:
        return divide(storage, count if wanted is None and directory.is_new(storage) else wanted)

    def shard_or_skip(broker: Broker) -> object:
        if broker.shards.count > 1:
            pytest.skip("it looks into the one shard of a broker")
        return only(broker)

    os.environ[VARIABLE] = str(count)
    shards.divide = divide_if_new  # type: ignore[assignment,attr-defined]
    Broker.shard = property(shard_or_skip)  # type: ignore[assignment,method-assign]


def divide_as_the_test() -> None:
    """In a program that a test started: have new directories divided as they are there."""
    if VARIABLE in os.environ:
        divide_new_directories(int(os.environ[VARIABLE]))


def command(program: str, *arguments: str) -> list[str]:
    """What starts a program in Python, in the directory `ROOT`, with directories divided as those of the test."""
    divide = f"from tests.sharding import {divide_as_the_test.__name__} as divide\ndivide()\n"
    return [sys.executable, "-c", divide + program, *arguments]


def variables() -> dict[str, str]:
    """What a server of the tests has in its environment to divide new directories too."""
    return {VARIABLE: os.environ[VARIABLE]} if VARIABLE in os.environ else {}


def skip_those_of_one_shard(items: list[pytest.Item]) -> None:
    """Skip the tests that are marked as those of one shard, for the reason that they give."""
    for item in items:
        for marker in item.iter_markers("one_shard"):
            item.add_marker(pytest.mark.skip(reason=marker.args[0]))


def home_of(path: Path, topic: str) -> Path:
    """The directory of the shard that a topic lives in."""
    count = directory.shards_of(ReadOnlyStorage(path))
    return path if count is None else path / directory.part_name(shard_of(topic, count))


def alone(shard: Shard) -> Shards:
    """A shard that is open as the only one of its broker."""
    shards = Shards(shard.storage, [shard.storage], shard.config, shard.clock)
    shards.put(0, shard)
    return shards
