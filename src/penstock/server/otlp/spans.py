"""Spans as they are gathered, and the trace of a message: told by its headers, or derived from its id."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from hashlib import blake2b
from typing import NamedTuple

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_NO_TRACE, _NO_SPAN = "0" * 32, "0" * 16
_SAMPLED = 1
_STATE_MAX = 512  # characters of a tracestate, which more than that need not be passed on
_ORIGIN = "penstock-origin"

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


class Context(NamedTuple):
    """The trace of a message, and the span of its publication there."""

    trace_id: bytes
    span_id: bytes
    parent_id: bytes
    """The span that the publication is a child of; empty for none."""
    state: str
    """The tracestate that came with the message."""
    remote: bool
    """Whether that parent is a span of somebody else."""

    def child(self, span_id: bytes, name: str, kind: SpanKind, time_us: int, attributes: dict[str, str | int]) -> Span:
        """A span below that of the publication, which has no length yet."""
        return Span(self.trace_id, span_id, self.span_id, name, kind, time_us, time_us, attributes, state=self.state)


class Parent(NamedTuple):
    """What a traceparent header says."""

    trace_id: bytes
    span_id: bytes
    sampled: bool


class Contexts:
    """The contexts of a broker's messages: the same after a restart, and never those of another broker."""

    def __init__(self, broker_id: bytes, percent: int) -> None:
        self._key = broker_id[:64]
        self._percent = percent
        self._bound = (percent << 64) // 100  # as samplers by ratio have it: of the last 64 bits of the trace id

    def of(self, identity: str, headers: Mapping[str, str] | None) -> Context | None:
        """The context of a message; None where it is not exported.

        A dead letter, and what was published again from one, belongs to the trace of the message that died.
        """
        parent = parse_traceparent(headers["traceparent"]) if headers and "traceparent" in headers else None
        if parent is not None:
            if not parent.sampled:
                return None
        elif not self._percent:
            return None
        trace_id, span_id = self._derived(identity)
        origin = headers.get(_ORIGIN) if headers else None
        above = b""
        if origin is not None:
            trace_id, above = self._derived(origin)
        if parent is not None and headers is not None:
            state = headers.get("tracestate", "")
            state = state if len(state) <= _STATE_MAX else ""
            return Context(parent.trace_id, span_id, above or parent.span_id, state, remote=not above)
        if int.from_bytes(trace_id[8:], "big") >= self._bound:
            return None
        return Context(trace_id, span_id, above, "", remote=False)

    def delivery_id(self, identity: str, group: str, attempt: int, time_us: int) -> bytes:
        """The span id of one delivery."""
        return blake2b(f"{identity} {time_us} {attempt} {group}".encode(), digest_size=8, key=self._key).digest()

    def _derived(self, identity: str) -> tuple[bytes, bytes]:
        digest = blake2b(identity.encode(), digest_size=24, key=self._key).digest()
        return digest[:16], digest[16:]


def parse_traceparent(text: str) -> Parent | None:
    """What a W3C traceparent says; None where it is none, which is as good as absent."""
    found = _TRACEPARENT.fullmatch(text)
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == "ff" or (version == "00" and more) or trace_id == _NO_TRACE or span_id == _NO_SPAN:
        return None
    return Parent(bytes.fromhex(trace_id), bytes.fromhex(span_id), bool(int(flags, 16) & _SAMPLED))
