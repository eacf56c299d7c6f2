"""Spans as OTLP has them, in protobuf; the one file that needs the extra."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import SpanFlags, Status

from penstock.server.otlp.spans import Attributes, Span
from penstock.version import __version__

_SAMPLED = 1
_LOCAL = _SAMPLED | SpanFlags.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK
_REMOTE = _LOCAL | SpanFlags.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK
_TEXT_MAX = 2000  # characters of a cause; some are whole tracebacks


class Encoder:
    """Writes batches of spans as requests of OTLP, and reads the replies."""

    def __init__(self, broker_id: str) -> None:
        self._resource = {
            "service.name": "penstock",
            "service.version": __version__,
            "service.instance.id": broker_id,
        }

    def encode(self, spans: Sequence[Span]) -> bytes:
        """A request to take these spans."""
        request = ExportTraceServiceRequest()
        whole = request.resource_spans.add()
        _put(whole.resource.attributes, self._resource)
        scope = whole.scope_spans.add()
        scope.scope.name, scope.scope.version = "penstock", __version__
        for span in spans:
            out = scope.spans.add(
                trace_id=span.trace_id,
                span_id=span.span_id,
                parent_span_id=span.parent_id,
                trace_state=span.state,
                flags=_REMOTE if span.remote else _LOCAL,
                name=span.name,
                kind=span.kind,
                start_time_unix_nano=span.start_us * 1000,
                end_time_unix_nano=max(span.start_us, span.end_us) * 1000,  # clocks may be set back
            )
            _put(out.attributes, span.attributes)
            for event in span.events:
                told = out.events.add(name=event.name, time_unix_nano=event.time_us * 1000)
                _put(told.attributes, event.attributes)
            if span.error is not None:
                out.status.code = Status.STATUS_CODE_ERROR
                out.status.message = span.error[:_TEXT_MAX]
        encoded: bytes = request.SerializeToString()
        return encoded

    def rejected(self, reply: bytes) -> tuple[int, str]:
        """How many spans of a request the collector did not take, although it took the request, and why."""
        try:
            partial = ExportTraceServiceResponse.FromString(reply).partial_success
        except DecodeError:  # it answers in another way, and it has taken them
            return 0, ""
        return partial.rejected_spans, partial.error_message


def _put(target: Any, attributes: Attributes) -> None:
    for name, value in attributes.items():
        entry = target.add(key=name)
        if isinstance(value, int):
            entry.value.int_value = value
        else:
            entry.value.string_value = value[:_TEXT_MAX]
