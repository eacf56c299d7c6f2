"""Ports and awaited faces ask the shard questions and have it do things; its insides are its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.testing import MemoryStorage

SOURCE = Path(penstock.__file__).parent
PACKAGES = ("server", "aio")
INSIDES = {
    *("core", "lock", "upkeep_lock", "state", "catalog", "topic", "topics", "folding", "journal", "dispatcher"),
    *("publishing", "schedules", "checkpoints", "log_events", "append_internal"),
}
"""What a shard has for its own parts, and for views."""


def reaches(source: str) -> Iterator[str]:
    """The insides of a shard that a module uses."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr in INSIDES:
            name = ast.unparse(node.value).rpartition(".")[2]
            if name.strip("_") == "shard":
                yield f"{name}.{node.attr}, line {node.lineno}"


def test_the_insides_go_by_these_names() -> None:
    with penstock.open(storage=MemoryStorage()) as broker:
        assert {name for name in INSIDES if not hasattr(broker.shard, name)} == set(), "they have another name now"


def test_no_port_takes_the_state_lock_or_touches_what_is_inside_the_shard() -> None:
    files = [file for package in PACKAGES for file in (SOURCE / package).rglob("*.py")]
    assert len(files) > 80
    found = {f"{file.relative_to(SOURCE)}: {use}" for file in files for use in reaches(file.read_text())}
    assert found == set(), "give the shard, or views, a question or an operation for it"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("with shard.lock: pass", ["shard.lock, line 1"]),
        ("self._shard.journal.flush()", ["_shard.journal, line 1"]),
        ("x = broker.shard.dispatcher", ["shard.dispatcher, line 1"]),
        ("shard.flush(); shard.frozen; self.lock; path.state", []),
    ],
)
def test_what_counts_as_reaching_inside(source: str, found: list[str]) -> None:
    assert list(reaches(source)) == found
