"""What is loaded when: importing Penstock costs next to nothing, and who only publishes and reads pays no Arrow."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
import penstock.aio

HEAVY = ("pyarrow", "numpy", "pandas", "pyspark", "duckdb")
BROKER = {"embedded", "shard", "views", "log"}

LOADED = """
import json, sys
print(json.dumps(sorted(sys.modules)))
"""


def modules_after(program: str, *arguments: str) -> set[str]:
    """The modules that a fresh process has loaded when it has run the program."""
    done = subprocess.run(
        [sys.executable, "-c", program + LOADED, *arguments], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return set(json.loads(done.stdout.splitlines()[-1]))


def heavy(modules: set[str]) -> list[str]:
    return [name for name in HEAVY if name in modules]


def parts(modules: set[str]) -> set[str]:
    """Of Penstock: the packages and the modules at its top."""
    return {name.split(".")[1] for name in modules if name.startswith("penstock.")}


def test_importing_penstock_loads_nothing_but_its_table_of_names() -> None:
    modules = modules_after("import penstock")
    assert "penstock" in modules
    assert parts(modules) == {"lazy", "version"}
    assert not {"msgspec", "asyncio", "typer", "rich", "click", *HEAVY} & modules


def test_importing_the_asynchronous_face_loads_no_more() -> None:
    modules = modules_after("import penstock.aio")
    assert parts(modules) == {"aio", "lazy", "version"}
    assert not {"msgspec", "asyncio", *HEAVY} & modules


def test_the_asynchronous_face_is_there_without_an_import_of_its_own() -> None:
    assert "penstock.aio.broker" in modules_after("import penstock\npenstock.aio.open")
    assert penstock.aio is sys.modules["penstock.aio"] and "aio" in dir(penstock)


def test_importing_the_testing_parts_loads_no_broker_and_no_arrow() -> None:
    modules = modules_after("import penstock.testing")
    assert heavy(modules) == []
    assert not BROKER & parts(modules)


def test_what_callers_get_back_is_there_without_the_broker() -> None:
    modules = modules_after(
        "from penstock import GroupInfo, DeadLetter, Message, Schedule, TopicInfo, TopicNotFound, Trace"
    )
    assert parts(modules) == {"lazy", "model", "version"}
    assert heavy(modules) == []


def test_help_loads_neither_the_broker_nor_arrow() -> None:
    help_of = """
import sys
sys.argv = ["penstock", "--help"]
from penstock.cli.main import app
app(standalone_mode=False)
"""
    modules = modules_after(help_of)
    assert heavy(modules) == []
    assert not {*BROKER, "aio", "journal", "segments", "storage", "delivery"} & parts(modules)


def test_a_name_that_is_not_there_is_no_attribute() -> None:
    for package in (penstock, penstock.aio):
        with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'Massage'"):
            package.Massage  # noqa: B018 - asking is the test


def test_every_public_name_is_listed_and_loads() -> None:
    for package in (penstock, penstock.aio):
        assert set(package.__all__) <= set(dir(package))
        for name in package.__all__:
            assert getattr(package, name).__doc__, name
    assert penstock.__version__


PUBLISH_AND_READ = """
import sys
import penstock
with penstock.open(sys.argv[1]) as broker:
    broker.create_topic("orders", partitions=2)
    broker.publish("orders", "alone", key="k", headers={"a": "b"}, priority="high", delay="1h", dedupe_id="one")
    broker.publish_many("orders", [b"first", penstock.Message("second", priority=3)])
    assert len(list(broker.read("orders"))) == 3
    assert broker.offset_at("orders", 0) == 0
    assert len(broker.topics()) == 1
    broker.retain()
"""


def test_publishing_and_reading_what_is_not_settled_loads_none_either(tmp_path: Path) -> None:
    assert heavy(modules_after(PUBLISH_AND_READ, str(tmp_path))) == []


def test_opening_the_directory_again_and_reading_what_is_not_settled_loads_none_either(tmp_path: Path) -> None:
    modules_after(PUBLISH_AND_READ, str(tmp_path))
    again = """
import sys
import penstock
with penstock.open(sys.argv[1]) as broker:
    assert [message.value for message in broker.read("orders", limit=10)] != []
"""
    assert heavy(modules_after(again, str(tmp_path))) == []


def test_settling_loads_arrow_and_what_is_settled_reads_on(tmp_path: Path) -> None:
    settle = """
import sys
import penstock
with penstock.open(sys.argv[1]) as broker:
    broker.publish("orders", "alone")
    broker.settle()
    assert [message.value for message in broker.read("orders")] == [b"alone"]
"""
    assert "pyarrow" in modules_after(settle, str(tmp_path))
