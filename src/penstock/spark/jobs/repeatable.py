"""SQL that gives the same for a message each time it is asked, whatever else is read with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.model.errors import InvalidArgument

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_REFUSED = {
    "CURRENT_LIKE": "the time at which it runs (now, current_timestamp, current_date)",
    "WINDOW_EXPRESSION": "other messages (OVER)",
    "AGGREGATE_EXPRESSION": "other messages (count, sum and the like)",
}
"""Patterns of Spark's plans that a job in parts cannot have, in words."""


def check_repeatable(frame: DataFrame, what: str) -> None:
    """Raise if the rows of a frame depend on more than the messages themselves.

    A job that works in parts, and goes on after a kill, asks again for a part: it must get the same rows.
    """
    plan = frame._jdf.queryExecution().analyzed()  # noqa: SLF001 - only the JVM knows it
    java: Any = frame.sparkSession._jvm  # noqa: SLF001
    patterns = java.org.apache.spark.sql.catalyst.trees.TreePattern
    found = [words for name, words in _REFUSED.items() if plan.containsPattern(getattr(patterns, name)())]
    if not plan.deterministic():
        found.append("chance (rand, uuid and the like)")
    if found:
        raise InvalidArgument(
            f"{what} depends on {' and on '.join(found)}: run in parts, or again after a kill, it would choose others. "
            "It may depend on the columns of each message alone"
        )
