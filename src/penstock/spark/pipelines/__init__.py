"""Pipelines on Spark: from topics, to topics and tables, declared in a file or in Python.

from penstock.spark.pipelines import load, place_of, run, session_of

declared = load("orders.yaml")
run(session_of(declared), declared, place_of(declared))

A pipeline is a file. Each of its sinks is a streaming query, and a supervisor restarts them when they fail.

| file | what it does |
| --- | --- |
| `spec.py`, `loading.py`, `checking.py` | what a file declares; from YAML or Python; its errors |
| `planning.py`, `sources.py`, `sinks.py`, `letters.py` | from declarations to queries; rows that do not parse |
| `supervising.py`, `progress.py` | restarts; a line for each batch |
| `server.py`, `control.py` | questions and reports to the server; status, stop, checkpoints |
"""

from typing import TYPE_CHECKING

from penstock.lazy import lazy_names

if TYPE_CHECKING:
    from penstock.spark.pipelines.loading import load
    from penstock.spark.pipelines.running import check, place_of, run, session_of
    from penstock.spark.pipelines.spec import Pipeline, Sink, Source, Step, Watermark
    from penstock.spark.pipelines.value_readers import Misdeclared

__all__ = [
    "Misdeclared",
    "Pipeline",
    "Sink",
    "Source",
    "Step",
    "Watermark",
    "check",
    "load",
    "place_of",
    "run",
    "session_of",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "penstock.spark.pipelines.loading": ("load",),
        "penstock.spark.pipelines.value_readers": ("Misdeclared",),
        "penstock.spark.pipelines.running": ("check", "place_of", "run", "session_of"),
        "penstock.spark.pipelines.spec": ("Pipeline", "Sink", "Source", "Step", "Watermark"),
    },
)
