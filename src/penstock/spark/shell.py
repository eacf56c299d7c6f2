"""`penstock spark shell`: a quiet session, and the helpers bound to it and to one place."""

from __future__ import annotations

import traceback
from dataclasses import asdict
from functools import partial
from typing import Any

from penstock.spark import explode_events, from_json, read_events, read_topic, session, topics
from penstock.spark.options import Secrets
from penstock.spark.sessions import hush

CODE = "<shell>"
"""The name of what is run, in tracebacks."""
_LINES_MAX = 15


def names(servers: str | None, path: str | None, secrets: Secrets, master: str | None) -> dict[str, Any]:
    """A session and the helpers, for a prompt."""
    hush()
    spark = session("penstock shell", master=master)
    place: dict[str, Any] = {"servers": servers, "path": path, **asdict(secrets)}
    return {
        "spark": spark,
        "read_topic": partial(read_topic, spark, **place),
        "read_events": partial(read_events, spark, **place),
        "topics": partial(topics, spark, **place),
        "from_json": from_json,
        "explode_events": explode_events,
    }


def run(code: str, found: dict[str, Any]) -> None:
    """Run what was given with `-e`."""
    exec(compile(code, CODE, "exec"), found)


def shortened(error: BaseException) -> str:
    """A traceback with the lines that were given, not those of Spark, nor those of Java."""
    told = "".join(traceback.format_exception_only(error)).partition("JVM stacktrace:")[0].rstrip().splitlines()
    told = [line for line in told if not line.startswith(("\tat ", "\t..."))]
    if len(told) > _LINES_MAX:
        told = [*told[: _LINES_MAX // 2], "  ...", *told[-_LINES_MAX // 2 :]]
    trace = traceback.walk_tb(error.__traceback__)
    where = [f"  line {number}, in {CODE}" for frame, number in trace if frame.f_code.co_filename == CODE]
    return "\n".join([*(["Traceback:", *where] if where else []), *told])
