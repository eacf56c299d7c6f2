"""A collector of OpenTelemetry that knows only the official protobuf, and an exporter that sends to it."""

from __future__ import annotations

import asyncio
import http.server
import threading
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from penstock.server.otlp.exporter import TraceExporter
from tests.server.harness import PATIENCE_S, config_of, until

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
SAMPLED = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
UNSAMPLED = {"traceparent": f"00-{TRACE}-{PARENT}-00"}
Answer = tuple[int, dict[str, str], bytes]


class Receiver:
    """A collector: takes requests of OTLP/HTTP, and answers as it is told."""

    def __init__(self, port: int = 0) -> None:
        receiver = self
        self.requests: list[ExportTraceServiceRequest] = []
        self.paths: set[str] = set()
        self.refused = 0
        self.answers: list[Answer] = []  # for the next requests; then all are taken
        self.taking = threading.Event()  # cleared: it takes connections and says nothing
        self.taking.set()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert self.headers["Content-Type"] == "application/x-protobuf"
                receiver.taking.wait(PATIENCE_S)
                status, headers, reply = receiver.answers.pop(0) if receiver.answers else (200, {}, b"")
                if status == 200:
                    receiver.paths.add(self.path)
                    receiver.requests.append(ExportTraceServiceRequest.FromString(body))
                else:
                    receiver.refused += 1
                self.send_response(status)
                for name, text in headers.items():
                    self.send_header(name, text)
                self.send_header("Content-Length", str(len(reply)))
                self.end_headers()
                self.wfile.write(reply)

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def spans(self) -> list[Span]:
        return [
            span
            for request in list(self.requests)
            for whole in request.resource_spans
            for scope in whole.scope_spans
            for span in scope.spans
        ]

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]

    def wait_for(self, count: int) -> list[Span]:
        until(lambda: len(self.spans) >= count, f"{count} spans (there are {len(self.spans)})")
        return self.spans

    def close(self) -> None:
        self.taking.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Exporting:
    """An exporter that runs inside."""

    def __init__(self, broker: Any, endpoint: str, **options: Any) -> None:
        self.exporter = TraceExporter(broker.shard, config_of("unused", otlp_endpoint=endpoint, **options))

    def stop(self) -> None:
        asyncio.run(self.exporter.stop())

    def __enter__(self) -> TraceExporter:
        self.exporter.start()
        return self.exporter

    def __exit__(self, *_: object) -> None:
        self.stop()
        assert not self.exporter._thread.is_alive()


def attributes(of: Any) -> dict[str, Any]:
    return {a.key: a.value.int_value if a.value.HasField("int_value") else a.value.string_value for a in of.attributes}
