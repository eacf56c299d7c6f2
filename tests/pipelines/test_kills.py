"""Everything is killed in the middle of a pipeline: every message is there once."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.client import Client
from penstock.model.pipelines import PipelineState
from penstock.spark.jobs.place import Place
from penstock.spark.pipelines import load, run
from penstock.spark.pipelines.progress import Batch
from tests.cli.harness import PENSTOCK
from tests.pipelines.harness import Heard
from tests.server.harness import Child

COUNT = 1200
FILE = """
server: {address}
checkpoints: ./state
settings: {{spark.driver.host: 127.0.0.1}}
pipelines:
  copy:
    sources: {{s: {{topic: source, value: json, schema: n INT NOT NULL, max_per_trigger: 150}}}}
    steps: [{{name: doubled, sql: "SELECT n, n * 2 AS twice, message FROM s"}}]
    sinks: {{o: {{from: doubled, topic: target, key: CAST(n AS STRING), priority: CASE WHEN n % 100 = 7 THEN 999 END}}}}
    trigger: available-now
"""


@contextlib.contextmanager
def started(file: Path) -> Iterator[subprocess.Popen[str]]:
    """A run in a process of its own."""
    command = [PENSTOCK, "pipeline", "run", str(file)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as running:
        try:
            yield running
        finally:
            running.kill()


def told(running: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """What a run tells, line by line."""
    assert running.stdout is not None
    for line in running.stdout:
        if line.startswith("{"):
            yield json.loads(line)


def jvm_of(running: subprocess.Popen[str]) -> int:
    """The process of Java that a driver has started."""
    for children in Path(f"/proc/{running.pid}/task").glob("*/children"):
        for child in children.read_text().split():
            if "java" in Path(f"/proc/{child}/cmdline").read_text():
                return int(child)
    raise AssertionError("there is no Java")


def kill(running: subprocess.Popen[str], child: Child) -> None:
    """As a power cut: the driver, its Java and the broker."""
    os.kill(jvm_of(running), signal.SIGKILL)
    running.kill()
    child.kill()


class BrokerKilled(Heard):
    """Kills the broker behind the first batch, and starts it again."""

    def __init__(self, child: Child) -> None:
        super().__init__()
        self._child = child

    def done(self, batch: Batch) -> None:
        if batch.query == "copy.o" and not self.total("copy.o"):
            self._child.kill()
            self._child.start()
        super().done(batch)


@pytest.mark.crash
def test_S5_everything_that_is_killed_in_the_middle_leaves_every_message_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    """First the driver, its Java and the broker, then, while it goes on where it was, the broker once more."""
    file = tmp_path / "file.yaml"
    with Child(tmp_path / "data") as child, Client(child.address) as client:
        file.write_text(FILE.format(address=child.address))
        client.create_topic("source", partitions=2)
        rows = [penstock.Message(json.dumps({"n": n}) if n % 50 else f"bad {n}", key=f"{n}") for n in range(COUNT)]
        client.publish_many("source", rows)

        with started(file) as running:
            for line in told(running):
                if line.get("query") == "copy.o" and line["batch"] == 2:
                    kill(running, child)
            assert running.wait() == -signal.SIGKILL
        child.start()

        heard = BrokerKilled(child)
        (report,) = run(spark, load(file), Place(servers=child.address), watch=heard)
        assert report.state is PipelineState.FINISHED and heard.total("copy.o") > 0
        good = [n for n in range(COUNT) if n % 50]
        expected = Counter(n for n in good if n % 100 != 7)
        found = [json.loads(message.value) for message in client.read("target")]
        assert Counter(row["n"] for row in found) == expected
        assert all(row["twice"] == 2 * row["n"] for row in found)
        letters = Counter(letter.value.decode() for letter in client.dead_letters("source"))
        refused = [json.dumps({"n": n}) for n in good if n % 100 == 7]
        assert letters == Counter([*refused, *(f"bad {n}" for n in range(0, COUNT, 50))])
        assert client.group("source", "copy.o").lag == 0
        (shown,) = client.pipelines()
        assert shown.state == "finished"
        assert shown.restarts == report.restarts == heard.were("copy").count(PipelineState.WAITING)


def test_ctrl_c_finishes_the_batch_and_ends_with_0(tmp_path: Path) -> None:
    """The signal goes to everything that the terminal started, as Ctrl-C does."""
    file = tmp_path / "file.yaml"
    with Child(tmp_path / "data") as child, Client(child.address) as client:
        file.write_text(FILE.format(address=child.address).replace("available-now", "100ms"))
        client.publish_many("source", [json.dumps({"n": n}) for n in range(600)])
        with started(file) as running:
            heard = []
            for line in told(running):
                heard.append(line)
                if line.get("query") == "copy.o" and line["batch"] == 0:
                    os.killpg(running.pid, signal.SIGINT)
            assert running.wait() == 0, heard
        assert heard[-1]["state"] == "stopped"
        written = len([*client.read("target")]) + len(client.dead_letters("source"))
        assert written == sum(line["rows"] for line in heard if line.get("query") == "copy.o")
