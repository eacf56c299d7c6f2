"""Making the data source known to a session."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import penstock
from penstock.spark.sessions import changed
from penstock.spark.source import PenstockDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_known: weakref.WeakSet[SparkSession] = weakref.WeakSet()


def register(spark: SparkSession) -> None:
    """Make `format("penstock")` known to a session; doing it again is harmless.

    Where the package is installed, Spark finds the source by itself (`pyspark_penstock`); this is for sessions to which
    it was shipped otherwise, as with `--py-files`.
    """
    if spark not in _known:
        with _archive_named(spark):
            spark.dataSource.register(PenstockDataSource)
        _known.add(spark)


@contextlib.contextmanager
def _archive_named(spark: SparkSession) -> Iterator[None]:
    """Name the archive in which the package is, if it is in one, in the environment of what is registered meanwhile.

    The process in which Spark plans a stream looks for `--py-files` in a directory where they are not.
    """
    root = Path(penstock.__file__).parent.parent
    if not root.is_file() or not hasattr(spark, "sparkContext"):
        yield
        return
    environment = spark.sparkContext.environment
    given = environment.get("PYTHONPATH")
    with changed(environment, {"PYTHONPATH": f"{given}:{root}" if given else str(root)}):
        yield
