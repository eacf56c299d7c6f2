"""What tests start in processes of their own divides directories as they do: with `pytest --shards 4`, into four."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import penstock
from penstock.client import Client
from tests.server.harness import Child
from tests.sharding import ROOT, command

PROGRAM = "import sys, penstock\nprint(len(penstock.open(sys.argv[1]).shards))"


@pytest.fixture
def wanted(pytestconfig: pytest.Config) -> int:
    """How many shards a new directory is to have in this run."""
    return int(pytestconfig.option.shards)


def test_a_server_of_the_tests_divides_a_new_directory_as_they_do(wanted: int, tmp_path: Path) -> None:
    with Child(tmp_path / "data") as child, Client(child.address) as client:
        assert len(client.cluster().shards) == wanted
        child.kill()
    with penstock.open(tmp_path / "data") as broker:
        assert len(broker.shards) == wanted


def test_a_program_of_the_tests_divides_a_new_directory_as_they_do(wanted: int, tmp_path: Path) -> None:
    told = subprocess.check_output(command(PROGRAM, str(tmp_path / "data")), cwd=ROOT, text=True)
    assert int(told) == wanted
