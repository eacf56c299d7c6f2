"""Spans as they are gathered, before they are written as OTLP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

Attributes = Mapping[str, str | int]


class SpanKind(IntEnum):
    """The kinds that we use, by their numbers in OTLP."""

    INTERNAL = 1
    PRODUCER = 4
    CONSUMER = 5


class SpanEvent(NamedTuple):
    """Something that happened at one moment of a span."""

    name: str
    time_us: int
    attributes: Attributes


@dataclass(slots=True)
class Span:
    """One span; of a failed one, `error` tells why."""

    trace_id: bytes
    span_id: bytes
    parent_id: bytes
    name: str
    kind: SpanKind
    start_us: int
    end_us: int
    attributes: dict[str, str | int]
    events: list[SpanEvent] = field(default_factory=list)
    error: str | None = None
    state: str = ""
    remote: bool = False
    """Whether the parent is a span of somebody else."""
