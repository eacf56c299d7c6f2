"""In a task: the rows of a range handed to the broker, on disk and seen by nobody."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from pyspark import TaskContext

from penstock.client.sync import Client
from penstock.spark.connecting import connected
from penstock.spark.files.cutting import Range
from penstock.spark.files.roles import Roles, messages_of
from penstock.spark.files.rows import BadRow, read_range
from penstock.spark.options import Secrets
from penstock.spark.packing import Columns, request_of, requests
from penstock.spark.writing import dropped_on_failure

ATTEMPTS = 4
"""How often Spark tries a task by default."""


@dataclass(frozen=True)
class Target:
    """Where the rows go, and what is what of them."""

    servers: str
    secrets: Secrets
    topic: str
    roles: Roles
    delimiter: str
    dry_run: bool
    """Read and check everything, and stage nothing."""


class Done(NamedTuple):
    """What became of a range."""

    stage: str
    messages: int
    bad: list[BadRow]


def stage_range(target: Target, work: tuple[Range, str]) -> Done:
    """Stage the messages of a range under a name, with the number of the attempt behind it."""
    part, base = work
    context = TaskContext.get()
    name = stage_name(base, 0 if context is None else context.attemptNumber())
    client = connected(target.servers, target.secrets, patient=True)
    messages = 0
    bad: list[BadRow] = []
    with dropped_on_failure(client, name):
        for columns, wrong in _read(part, target, client):
            bad += wrong
            if columns is None:
                continue
            messages += len(columns)
            if not target.dry_run:
                for some in requests(columns, client.limits):
                    client.stage_packed(name, request_of(target.topic, some))
        if messages and not target.dry_run:
            client.seal_stage(name)
    return Done(name, messages, sorted(bad, key=lambda row: row.line))


def stage_name(base: str, attempt: int) -> str:
    """The stage of one attempt."""
    return f"{base}-{attempt}"


def _read(part: Range, target: Target, client: Client) -> Iterator[tuple[Columns | None, list[BadRow]]]:
    wanted = target.roles.wanted(part.source.format, part.columns)
    for block in read_range(part, wanted, target.delimiter):
        if not block.count:
            yield None, block.bad
            continue
        columns, problems = messages_of(block, target.roles, client.limits)
        places = block.locate(list(problems)) if problems else []
        found = zip(problems.values(), places, strict=True)
        yield columns, [*block.bad, *(BadRow(part.source.path, line, wrong, text) for wrong, (line, text) in found)]
