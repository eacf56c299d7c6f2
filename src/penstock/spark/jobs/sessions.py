"""The session of a job or a pipeline that a command runs."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.model.errors import InvalidArgument
from penstock.spark.packaging import build_archive
from penstock.spark.sessions import session
from penstock.spark.shell import hush

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
}
"""What bulk work likes beyond what every session of ours has."""


def job_session(
    master: str | None = None, settings: Mapping[str, str] | None = None, name: str = "penstock job"
) -> SparkSession:
    """A quiet session: local, or on a master, to whose workers this very package is shipped."""
    if master is not None and master.startswith("sc://"):
        raise InvalidArgument(f"master: {master} is Spark Connect; jobs run on local, spark://… and other classic ones")
    hush()
    spark = session(name, master=master, settings={**SETTINGS, **(settings or {})})
    if master is not None and not master.startswith("local"):
        place = tempfile.mkdtemp(prefix="penstock-")
        atexit.register(shutil.rmtree, place, ignore_errors=True)  # workers may ask for it until then
        spark.sparkContext.addPyFile(str(build_archive(Path(place) / "penstock.zip")))
    return spark
