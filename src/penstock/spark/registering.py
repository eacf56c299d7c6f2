"""Making the data source known to a session."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import penstock
from penstock.spark.buckets import of_the_store
from penstock.spark.sessions import changed
from penstock.spark.source import PenstockDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_known: weakref.WeakKeyDictionary[SparkSession, dict[str, str]] = weakref.WeakKeyDictionary()
"""The sessions that know it, with what its workers were told of stores."""


def register(spark: SparkSession) -> None:
    """Make `format("penstock")` known to a session; doing it again is harmless.

    Where the package is installed, Spark finds the source by itself (`pyspark_penstock`); this is for sessions to which
    it was shipped otherwise, as with `--py-files`.
    """
    store = of_the_store(os.environ)
    if _known.get(spark) != store:
        with _environment_of_workers(spark, store):
            spark.dataSource.register(PenstockDataSource)
        _known[spark] = store


@contextlib.contextmanager
def _environment_of_workers(spark: SparkSession, store: dict[str, str]) -> Iterator[None]:
    """Tell workers what is known of stores, and those of what is registered meanwhile where the package is.

    That is if it is in an archive: the process in which Spark plans a stream looks for `--py-files` in a directory
    where they are not.
    """
    if not hasattr(spark, "sparkContext"):
        yield
        return
    environment = spark.sparkContext.environment
    environment.update(store)
    root = Path(penstock.__file__).parent.parent
    if not root.is_file():
        yield
        return
    given = environment.get("PYTHONPATH")
    with changed(environment, {"PYTHONPATH": f"{given}:{root}" if given else str(root)}):
        yield
