"""What is loaded when: a program that only publishes and reads does not pay for Arrow."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

HEAVY = ("pyarrow", "numpy", "pandas", "pyspark", "duckdb")

LOADED = """
import json, sys
print(json.dumps(sorted({name.split(".")[0] for name in sys.modules})))
"""


def modules_after(program: str, *arguments: str) -> set[str]:
    """The top-level modules that a fresh process has loaded when it has run the program."""
    done = subprocess.run(
        [sys.executable, "-c", program + LOADED, *arguments], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return set(json.loads(done.stdout.splitlines()[-1]))


def heavy(modules: set[str]) -> list[str]:
    return [name for name in HEAVY if name in modules]


def test_importing_penstock_loads_no_arrow_numpy_pandas_or_spark() -> None:
    modules = modules_after("import penstock")
    assert "penstock" in modules
    assert heavy(modules) == []


def test_importing_the_asynchronous_face_and_the_testing_parts_loads_none_either() -> None:
    assert heavy(modules_after("import penstock.aio, penstock.testing")) == []


def test_importing_penstock_loads_no_command_line() -> None:
    assert not {"typer", "rich", "click"} & modules_after("import penstock")


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


def test_every_public_name_is_there_and_documented() -> None:
    program = """
import penstock
for name in penstock.__all__:
    assert getattr(penstock, name).__doc__, name
assert penstock.__version__
"""
    assert "penstock" in modules_after(program)
