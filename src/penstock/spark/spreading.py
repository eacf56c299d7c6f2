"""Work that Spark spreads over its cores and machines item by item, where a table would only be in the way."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")


def spread(spark: SparkSession, items: Sequence[Item], work: Callable[[Item], Result]) -> list[Result]:
    """Do the work for every item in a task of its own, in any order; the results in the order of the items.

    A task may run twice: what it leaves behind must not depend on how often. Items and results are pickled on their
    way, between processes of this job only.
    """
    if not items:
        return []
    packed = [pickle.dumps(item) for item in items]
    results = spark.sparkContext.parallelize(packed, len(packed)).map(
        lambda item: pickle.dumps(work(pickle.loads(item)))
    )
    return [pickle.loads(result) for result in results.collect()]


def bundled(items: Iterable[Item], size_of: Callable[[Item], int], most: int) -> list[list[Item]]:
    """Consecutive items together up to a size, for tasks that are worth starting; one that is larger is alone."""
    found: list[list[Item]] = []
    size = 0
    for item in items:
        if not found or size + size_of(item) > most:
            found.append([])
            size = 0
        found[-1].append(item)
        size += size_of(item)
    return found


def filled(items: Iterable[Item], size_of: Callable[[Item], int], enough: int) -> list[list[Item]]:
    """Consecutive items together until they are enough; the last ones may be fewer."""
    found: list[list[Item]] = []
    size = enough
    for item in items:
        if size >= enough:
            found.append([])
            size = 0
        found[-1].append(item)
        size += size_of(item)
    return found
