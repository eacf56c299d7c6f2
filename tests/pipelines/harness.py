"""What the tests of pipelines share: files, runs in the session of all tests, and what was heard of them."""

from __future__ import annotations

import json
import textwrap
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from pyspark.sql import SparkSession

from penstock.model.message import StoredMessage
from penstock.model.pipelines import PipelineReport, PipelineState
from penstock.spark.jobs.place import Place
from penstock.spark.pipelines import load, run
from penstock.spark.pipelines.planning import Sessions
from penstock.spark.pipelines.progress import Batch
from penstock.spark.pipelines.running import settings_of
from penstock.spark.pipelines.spec import Declared
from penstock.spark.pipelines.supervising import Supervisor
from tests.server.harness import until
from tests.spark.harness import Served

ORDER = "id STRING NOT NULL, customer STRING, amount DOUBLE, placed_at TIMESTAMP"


def declare(directory: Path, text: str, name: str = "file.yaml") -> Declared:
    """A file with this in it, loaded."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_text(textwrap.dedent(text))
    return load(directory / name)


class Heard:
    """Everything that was told of a run."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.states: list[tuple[str, PipelineState]] = []
        self.notes: list[str] = []
        self.failed: Callable[[], None] = lambda: None
        self._lock = threading.Lock()

    def done(self, batch: Batch) -> None:
        with self._lock:
            self.batches.append(batch)

    def changed(self, report: PipelineReport, note: str) -> None:
        with self._lock:
            self.states.append((report.name, report.state))
            self.notes.append(note)
            if report.state is PipelineState.WAITING:
                self.failed()

    def total(self, query: str) -> int:
        """How many rows a query has read."""
        return sum(batch.rows for batch in self.batches if batch.query == query)

    def refused(self, query: str) -> int:
        return sum(batch.refused for batch in self.batches if batch.query == query)

    def were(self, name: str) -> list[PipelineState]:
        """The states of a pipeline, one after the other."""
        return [state for found, state in self.states if found == name]


def run_now(spark: SparkSession, server: Served, declared: Declared) -> Heard:
    """Run a file whose pipelines are `available-now`; all of them must finish, with no failure on the way."""
    heard = Heard()

    def started(supervisor: Supervisor) -> None:
        heard.failed = lambda: supervisor.stop(0)

    reports = run(spark, declared, Place(servers=server.address), watch=heard, started=started)
    assert [report.state for report in reports] == [PipelineState.FINISHED] * len(reports), reports
    return heard


class Background:
    """Pipelines that run beside a test."""

    def __init__(self, spark: SparkSession, address: str, declared: Declared) -> None:
        self.heard = Heard()
        self.supervisor = Supervisor(
            declared, Place(servers=address), Sessions(spark, settings_of(declared)), self.heard
        )

    def state(self, name: str) -> PipelineState:
        (found,) = [pipeline.state for pipeline in self.supervisor.pipelines if pipeline.name == name]
        return found

    def wait_for(self, name: str, state: PipelineState) -> None:
        until(lambda: self.state(name) is state, f"{name} {state}", 60)

    def __enter__(self) -> Self:
        self.supervisor.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.supervisor.stop(0)
        self.supervisor.wait()


def order(number: int, **fields: Any) -> str:
    """An order as JSON."""
    return json.dumps(
        {
            "id": f"o-{number}",
            "customer": f"c-{number % 3}",
            "amount": number / 4,
            "placed_at": f"2026-01-01T{number // 60 % 24:02}:{number % 60:02}:00Z",
            **fields,
        }
    )


def values(server: Served, topic: str) -> Counter[bytes]:
    """The values of a topic, and how often they are there; of one that is not there, none."""
    if topic not in [info.name for info in server.client.topics()]:
        return Counter()
    return Counter(message.value for message in server.client.read(topic))


def objects(server: Served, topic: str) -> list[dict[str, Any]]:
    """The values of a topic, which are JSON."""
    return [json.loads(message.value) for message in server.client.read(topic)]


def is_delayed(message: StoredMessage, seconds: float) -> bool:
    """Whether a message is due so long after it was staged, which was shortly before it was published."""
    assert message.deliver_at_us is not None
    return 0 < message.timestamp_us + seconds * 1_000_000 - message.deliver_at_us < 60_000_000
