"""Message traces as OpenTelemetry spans, read by a receiver that knows only the official protobuf."""

from __future__ import annotations

import asyncio
import http.server
import logging
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

import penstock
from penstock.broker.embedded import Broker
from penstock.model.errors import InvalidArgument
from penstock.model.message import Message
from penstock.server.otlp import changes, exporter, lives
from penstock.server.otlp.contexts import Contexts, parse_traceparent
from penstock.server.otlp.exporter import TraceExporter
from penstock.server.otlp.posting import Collector
from tests.server.harness import PATIENCE_S, Running, config_of, free_port, until

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


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "_GATHER_S", 0.01)
    monkeypatch.setattr(exporter, "_RETRY_S", 0.01)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with penstock.open(tmp_path / "data", min_free_bytes=0) as broker:
        broker.create_topic("orders", retry_backoff="1ms")
        yield broker


class Exporting:
    """An exporter that runs inside."""

    def __init__(self, broker: Any, endpoint: str, **options: Any) -> None:
        self.exporter = TraceExporter(broker, config_of("unused", otlp_endpoint=endpoint, **options))

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


def test_the_life_of_a_message_is_one_trace_below_its_traceparent(receiver: Receiver, broker: Broker) -> None:
    with (
        Exporting(broker, receiver.endpoint) as exporting,
        broker.consumer("orders", "kitchen", name="kim") as consumer,
    ):
        before_ns = time.time_ns()
        identity = broker.publish("orders", "two coffees", headers={**SAMPLED, "tracestate": "shop=7"})
        (message,) = consumer.receive(wait=PATIENCE_S)
        message.extend("1m")
        message.fail("no milk")
        (message,) = consumer.receive(wait=PATIENCE_S)
        message.release()
        (message,) = consumer.receive(wait=PATIENCE_S)
        message.ack()
        spans = receiver.wait_for(4)
    assert len(receiver.spans) == exporting.exported == 4
    assert exporting.dropped == 0
    assert receiver.paths == {"/v1/traces"}
    (resource,) = {r.resource.SerializeToString() for request in receiver.requests for r in request.resource_spans}
    assert b"service.name" in resource
    assert broker.engine.broker_id.hex().encode() in resource
    assert {span.trace_id.hex() for span in spans} == {TRACE}
    assert {span.trace_state for span in spans} == {"shop=7"}
    assert all(before_ns - 1000 <= span.start_time_unix_nano <= span.end_time_unix_nano for span in spans)

    (published,) = receiver.named("publish orders")
    assert published.kind == Span.SPAN_KIND_PRODUCER
    assert published.parent_span_id.hex() == PARENT
    assert published.flags == 0x301  # sampled; its parent is somebody else's
    assert published.end_time_unix_nano > published.start_time_unix_nano  # until it was durable
    assert attributes(published) == {
        "messaging.system": "penstock",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "0",
        "messaging.message.id": str(identity),
        "messaging.operation.name": "publish",
        "messaging.operation.type": "send",
        "messaging.message.body.size": 11,
    }

    failed, released, acked = receiver.named("process orders")
    for attempt, span in enumerate((failed, released, acked), 1):
        assert span.kind == Span.SPAN_KIND_CONSUMER
        assert span.parent_span_id == published.span_id
        told = attributes(span)
        assert told["messaging.consumer.group.name"] == "kitchen"
        assert told["messaging.client.id"] == "kim"
        assert told["messaging.operation.type"] == "process"
        assert told["messaging.message.id"] == str(identity)
        assert told["penstock.delivery.attempt"] == attempt
    assert [attributes(span)["penstock.outcome"] for span in (failed, released, acked)] == [
        "failed",
        "released",
        "acked",
    ]
    assert (failed.status.code, failed.status.message) == (Status.STATUS_CODE_ERROR, "no milk")
    assert attributes(failed)["error.type"] == "failed"
    assert "penstock.retry_at" in attributes(failed)
    assert [event.name for event in failed.events] == ["extended"]
    assert released.status.code == acked.status.code == Status.STATUS_CODE_UNSET
    assert len({span.span_id for span in spans}) == 4


def test_a_dead_letter_belongs_to_the_trace_of_the_message_that_died(receiver: Receiver, broker: Broker) -> None:
    broker.create_topic("frail", max_deliveries=1)
    for headers in (None, SAMPLED):
        broker.publish("frail", "x", headers=headers)
    with Exporting(broker, receiver.endpoint), broker.consumer("frail", "g") as consumer:
        by_hand, failing = consumer.receive(2, wait=PATIENCE_S)
        failing.fail("no milk")
        by_hand.kill("never")
        until(lambda: len(receiver.named("publish frail.dlq")) == 2)
        broker.redrive("frail")
        until(lambda: len(receiver.named("redriven frail")) == 2)
        for message in consumer.receive(2, wait=PATIENCE_S):
            message.ack()
        until(lambda: len(receiver.spans) == 10)
    contexts = Contexts(broker.engine.broker_id, 100)
    for identity, cause, kind, headers in (
        (by_hand.id, "never", "killed", None),
        (failing.id, "no milk", "failed", SAMPLED),
    ):
        context = contexts.of(str(identity), headers)
        assert context is not None
        own = [span for span in receiver.spans if span.trace_id == context.trace_id]
        (letter,) = [span for span in own if span.name == "publish frail.dlq"]
        assert {span.name: span.parent_span_id for span in own} == {
            "publish frail.dlq": context.span_id,  # the span of the publication, which was before
            "process frail": context.span_id,
            "redriven frail": context.span_id,
            "redriven frail.dlq": letter.span_id,
        }
        assert len(own) == 5
        died, acked = sorted(
            (span for span in own if span.name == "process frail"), key=lambda span: span.start_time_unix_nano
        )
        assert (died.status.code, died.status.message) == (Status.STATUS_CODE_ERROR, cause)
        assert attributes(died)["penstock.outcome"] == "dead"
        assert attributes(died)["error.type"] == kind
        assert attributes(acked)["penstock.outcome"] == "acked"


def test_a_delay_is_told_when_it_begins_and_when_it_ends(receiver: Receiver, broker: Broker) -> None:
    with Exporting(broker, receiver.endpoint), broker.consumer("orders", "g") as consumer:
        broker.publish("orders", "soon", delay="5ms")
        cancelled = broker.publish("orders", "never", delay="1h")
        moved = broker.publish("orders", "later", delay="1h")
        broker.reschedule_delayed(moved, delay="2h")
        assert broker.cancel_delayed(cancelled)
        (message,) = consumer.receive(wait=PATIENCE_S)
        message.ack()
        receiver.wait_for(6)
    published = receiver.named("publish orders")
    assert [[event.name for event in span.events] for span in published] == [["delayed"]] * 3
    (processed,) = receiver.named("process orders")
    (due,) = processed.events
    assert due.name == "due"
    assert due.time_unix_nano == published[0].start_time_unix_nano + 5_000_000
    (span,) = receiver.named("cancelled orders")
    assert attributes(span)["messaging.message.id"] == str(cancelled)
    assert span.kind == Span.SPAN_KIND_INTERNAL
    assert span.parent_span_id == published[1].span_id
    (span,) = receiver.named("rescheduled orders")
    assert attributes(span)["messaging.message.id"] == str(moved)
    assert "penstock.due_at" in attributes(span)


def test_a_lease_that_runs_out_is_an_error_of_its_own_kind(receiver: Receiver, broker: Broker) -> None:
    with Exporting(broker, receiver.endpoint), broker.consumer("orders", "g", visibility_timeout="20ms") as consumer:
        broker.publish("orders", "x")
        consumer.receive(wait=PATIENCE_S)
        (again,) = consumer.receive(wait=PATIENCE_S)
        again.ack()
        spans = receiver.wait_for(3)
    timed_out = spans[1]
    assert attributes(timed_out)["penstock.outcome"] == "expired"
    assert attributes(timed_out)["error.type"] == "timeout"
    assert timed_out.status.message == "the lease ran out"


def test_deliveries_end_when_their_group_is_moved(receiver: Receiver, broker: Broker) -> None:
    with Exporting(broker, receiver.endpoint) as exporting, broker.consumer("orders", "g") as consumer:
        broker.publish("orders", "x")
        consumer.receive(wait=PATIENCE_S)
        broker.seek_group("orders", "g", "latest")
        spans = receiver.wait_for(2)
        assert attributes(spans[1])["penstock.detail"] == "the group was moved or deleted"
        assert exporting._lives.open == 0


def test_what_nobody_got_in_time_is_told_too(receiver: Receiver, broker: Broker) -> None:
    broker.create_topic("short", dead_letter_lapsed=True)
    with (
        Exporting(broker, receiver.endpoint),
        broker.consumer(["orders", "short"], "g") as consumer,
    ):
        for topic in ("orders", "short"):
            broker.publish(topic, "x", expires_in="1ms", headers=SAMPLED)
        time.sleep(0.005)  # by the clock that counts, they are over
        assert consumer.receive() == []

        def told() -> bool:
            broker.engine.journal.flush()  # nobody waits for a burial
            return bool(receiver.named("lapsed orders") and receiver.named("dead short"))

        until(told)
    (dead,) = receiver.named("dead short")
    assert (dead.status.code, dead.status.message) == (Status.STATUS_CODE_ERROR, "its time to live ended")
    assert attributes(dead)["messaging.consumer.group.name"] == "g"
    assert {span.trace_id.hex() for span in receiver.spans} == {TRACE}


def test_a_dead_letter_that_is_purged_while_somebody_holds_it_is_over(receiver: Receiver, broker: Broker) -> None:
    with (
        broker.consumer("orders", "g") as consumer,
        broker.consumer("orders.dlq", "undertakers") as undertakers,
        Exporting(broker, receiver.endpoint) as exporting,
    ):
        broker.publish("orders", "x")
        consumer.receive(wait=PATIENCE_S)[0].kill("never")
        undertakers.receive(wait=PATIENCE_S)
        assert broker.purge_dead_letters("orders") == 1
        until(lambda: receiver.named("process orders.dlq"))
        assert exporting._lives.open == 0
    assert attributes(receiver.named("process orders.dlq")[0])["penstock.outcome"] == "purged"


def test_every_group_has_deliveries_of_its_own(receiver: Receiver, broker: Broker) -> None:
    with (
        Exporting(broker, receiver.endpoint),
        broker.consumer("orders", "kitchen") as kitchen,
        broker.consumer("orders", "bar") as bar,
    ):
        broker.publish_many("orders", ["a", "b", "c"])
        for consumer in (kitchen, bar):
            for message in consumer.receive(3, wait=PATIENCE_S):
                message.ack()
        spans = receiver.wait_for(9)
    groups = [attributes(span).get("messaging.consumer.group.name") for span in spans]
    assert [groups.count(name) for name in (None, "kitchen", "bar")] == [3, 3, 3]
    assert len({span.trace_id for span in spans}) == 3
    assert len({span.span_id for span in spans}) == 9


def test_ids_are_the_same_after_a_restart_and_others_for_another_broker(tmp_path: Path, receiver: Receiver) -> None:
    ids = []
    for directory in ("one", "one", "two"):
        with penstock.open(tmp_path / directory, min_free_bytes=0) as broker, Exporting(broker, receiver.endpoint):
            broker.publish("orders", "x", headers={"no": "traceparent"})
            with broker.consumer("orders", "g") as consumer:
                consumer.receive(wait=PATIENCE_S)  # given back when it closes
        # The first message was published before the second start: its trace is known again.
        ids.append(
            {
                span.trace_id
                for span in receiver.named("process orders")
                if attributes(span)["messaging.message.id"] == "orders/0/0"
            }
        )
        receiver.requests.clear()
    assert len(ids[0]) == 1
    assert ids[0] == ids[1] != ids[2]


def test_a_sampled_traceparent_is_always_exported_and_an_unsampled_one_never(
    receiver: Receiver, broker: Broker
) -> None:
    with Exporting(broker, receiver.endpoint, otlp_percent=0), broker.consumer("orders", "g") as consumer:
        broker.publish_many("orders", [Message("a", headers=h) for h in (None, SAMPLED, UNSAMPLED)])
        for message in consumer.receive(3, wait=PATIENCE_S):
            message.ack()
    assert {span.trace_id.hex() for span in receiver.spans} == {TRACE}
    assert len(receiver.spans) == 2
    receiver.requests.clear()
    with Exporting(broker, receiver.endpoint, otlp_percent=100):
        broker.publish("orders", "x", headers=UNSAMPLED)
    assert receiver.spans == []


def test_a_share_of_the_messages_is_exported_whole(receiver: Receiver, broker: Broker) -> None:
    consumer = broker.consumer("orders", "g", autoack=True)
    with Exporting(broker, receiver.endpoint, otlp_percent=25), consumer:
        broker.publish_many("orders", ["x"] * 1000)
        assert len(consumer.receive(1000, wait=PATIENCE_S)) == 1000
    by_trace: dict[bytes, list[str]] = {}
    for span in receiver.spans:
        by_trace.setdefault(span.trace_id, []).append(span.name)
    assert 180 < len(by_trace) < 320
    assert all(sorted(names) == ["process orders", "publish orders"] for names in by_trace.values())


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", f"00-{TRACE}-{PARENT}", f"00-{TRACE.upper()}-{PARENT}-01", f"ff-{TRACE}-{PARENT}-01"),
        *(f"00-{'0' * 32}-{PARENT}-01", f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE}-{PARENT}-01-more"),
        *(f"00-{TRACE}-{PARENT}-01\n", f" 00-{TRACE}-{PARENT}-01"),
    ],
)
def test_what_is_no_traceparent_is_as_good_as_absent(text: str) -> None:
    assert parse_traceparent(text) is None
    contexts = Contexts(b"broker", 100)
    assert contexts.of("orders/0/0", {"traceparent": text}) == contexts.of("orders/0/0", None)


def test_a_traceparent_of_a_later_version_is_understood() -> None:
    parent = parse_traceparent(f"01-{TRACE}-{PARENT}-03-more")
    assert parent is not None
    assert (parent.trace_id.hex(), parent.span_id.hex(), parent.sampled) == (TRACE, PARENT, True)


def test_what_happened_while_the_collector_was_away_comes_when_it_is_back(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()
    with (
        caplog.at_level(logging.INFO, "penstock.server.otlp"),
        Exporting(broker, f"http://127.0.0.1:{port}") as exporting,
        broker.consumer("orders", "g") as consumer,
    ):
        broker.publish("orders", "0")
        until(lambda: caplog.records, "a complaint")
        for number in range(1, 50):
            broker.publish("orders", str(number))
        for message in consumer.receive(50, wait=PATIENCE_S):
            message.ack()
        assert exporting.exported == 0
        with Receiver(port) as receiver:
            receiver.wait_for(100)
            until(lambda: exporting.exported == 100)
            assert len({span.span_id for span in receiver.spans}) == len(receiver.spans) == 100
    assert exporting.dropped == 0
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]  # once, and when it was over


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_collector_that_is_busy_is_asked_again(receiver: Receiver, broker: Broker, status: int) -> None:
    receiver.answers += [(status, {"Retry-After": "0"}, b"")] * 3
    with Exporting(broker, receiver.endpoint) as exporting:
        broker.publish("orders", "x")
        receiver.wait_for(1)
    assert receiver.refused == 3
    assert (exporting.exported, exporting.dropped) == (1, 0)


@pytest.mark.parametrize("status", [400, 401, 404, 500, 302])
def test_what_a_collector_refuses_is_dropped_and_the_rest_goes_on(
    receiver: Receiver, broker: Broker, status: int
) -> None:
    receiver.answers.append((status, {"Location": "/elsewhere"}, b""))
    with Exporting(broker, receiver.endpoint) as exporting:
        broker.publish("orders", "x")
        until(lambda: exporting.dropped)
        broker.publish("orders", "y")
        (span,) = receiver.wait_for(1)
    assert attributes(span)["messaging.message.id"] == "orders/0/1"
    assert (exporting.exported, exporting.dropped) == (1, 1)


def test_spans_that_a_collector_rejects_from_a_batch_are_counted(receiver: Receiver, broker: Broker) -> None:
    reply = ExportTraceServiceResponse()
    reply.partial_success.rejected_spans = 2
    receiver.answers.append((200, {}, reply.SerializeToString()))
    receiver.answers.append((200, {}, b"not protobuf"))
    with Exporting(broker, receiver.endpoint) as exporting:
        broker.publish_many("orders", ["x"] * 3)
        until(lambda: exporting.exported)
        broker.publish("orders", "x")
    assert (exporting.exported, exporting.dropped) == (2, 2)


def test_stopping_sends_what_is_there(receiver: Receiver, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "_GATHER_S", PATIENCE_S)
    with Exporting(broker, receiver.endpoint) as exporting, broker.consumer("orders", "g") as consumer:
        broker.publish_many("orders", ["x"] * 3000)
        consumer.receive(10, wait=PATIENCE_S)
        assert receiver.spans == []
        consumer.close()  # gives the ten back
    assert len(receiver.spans) == exporting.exported == 3010
    assert exporting.dropped == 0


def test_stopping_does_not_wait_for_a_collector_that_is_away(broker: Broker) -> None:
    with Exporting(broker, f"http://127.0.0.1:{free_port()}") as exporting:
        broker.publish_many("orders", ["x"] * 2500)
    assert exporting.exported == 0
    assert exporting.dropped >= 2500


def test_stopping_breaks_off_a_request_that_is_not_answered(
    receiver: Receiver, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporter, "_STOP_S", 0.05)
    monkeypatch.setattr(exporter, "_TIMEOUT_S", 10 * PATIENCE_S)
    receiver.taking.clear()
    exporting = Exporting(broker, receiver.endpoint)
    with exporting:
        broker.publish("orders", "x")
        until(lambda: exporting.exporter._collector._socket is not None)
    assert exporting.exporter.dropped == 1


def test_publishing_goes_on_while_the_collector_hangs(receiver: Receiver, broker: Broker) -> None:
    receiver.taking.clear()
    exporting = Exporting(broker, receiver.endpoint)
    with exporting, broker.consumer("orders", "g") as consumer:
        broker.publish("orders", "x")
        until(lambda: exporting.exporter._collector._socket is not None)
        for _ in range(100):
            broker.publish("orders", "x")
        for message in consumer.receive(101, wait=PATIENCE_S):
            message.ack()
        assert exporting.exporter.exported == 0
        receiver.taking.set()
        receiver.wait_for(202)
    assert exporting.exporter.exported == len({span.span_id for span in receiver.spans}) == 202


def test_thousands_of_messages_are_sent_in_batches_and_once(receiver: Receiver, broker: Broker) -> None:
    count = 5000
    consumer = broker.consumer("orders", "g", max_in_flight=count, autoack=True)
    with Exporting(broker, receiver.endpoint) as exporting, consumer:
        broker.publish_many("orders", ["x"] * count)
        assert len(consumer.receive(count, wait=PATIENCE_S)) == count
        until(lambda: exporting.exported == 2 * count)
    assert len({span.span_id for span in receiver.spans}) == len(receiver.spans) == 2 * count
    sizes = [len(r.resource_spans[0].scope_spans[0].spans) for r in receiver.requests]
    assert max(sizes) <= exporter._BATCH_SPANS
    assert exporting._lives.open == 0


def test_what_is_too_much_is_passed_over_from_the_oldest_and_counted(
    receiver: Receiver, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporter, "_BEHIND_SPANS", 100)
    monkeypatch.setattr(exporter, "_GATHER_S", PATIENCE_S)
    with Exporting(broker, receiver.endpoint) as exporting:
        broker.publish_many("orders", [str(number) for number in range(1000)])
    assert [attributes(span)["messaging.message.id"] for span in receiver.spans] == [
        f"orders/0/{offset}" for offset in range(900, 1000)
    ]
    assert (exporting.exported, exporting.dropped) == (100, 900)


def test_open_deliveries_are_bounded(receiver: Receiver, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lives, "_OPEN_MAX", 10)
    with Exporting(broker, receiver.endpoint) as exporting, broker.consumer("orders", "g") as consumer:
        broker.publish_many("orders", ["x"] * 30)
        messages = consumer.receive(30, wait=PATIENCE_S)
        until(lambda: exporting.dropped == 20)
        assert exporting._lives.open == 10
        for message in messages:
            message.ack()
    assert [attributes(span)["messaging.message.id"] for span in receiver.named("process orders")] == [
        f"orders/0/{offset}" for offset in range(20, 30)
    ]
    assert exporting.dropped == 20


def test_a_deleted_topic_is_let_go(receiver: Receiver, broker: Broker) -> None:
    with Exporting(broker, receiver.endpoint) as exporting, broker.consumer("orders", "g") as consumer:
        broker.publish("orders", "x")
        consumer.receive(wait=PATIENCE_S)
        until(lambda: exporting._lives.open == 1)
        broker.delete_topic("orders")
        until(lambda: exporting._lives.open == 0)
        broker.publish("orders", "again")
        until(lambda: len(receiver.named("publish orders")) == 2)
    assert len({span.span_id for span in receiver.spans}) == 2


def test_what_was_settled_before_it_was_delivered_keeps_its_trace(receiver: Receiver, broker: Broker) -> None:
    broker.publish_many("orders", [Message("x", headers=h) for h in (SAMPLED, UNSAMPLED, None)])
    with Exporting(broker, receiver.endpoint), broker.consumer("orders", "g") as consumer:
        broker.settle()
        for message in consumer.receive(3, wait=PATIENCE_S):
            message.ack()
        receiver.wait_for(2)
    assert [span.name for span in receiver.spans] == ["process orders"] * 2  # published before the export began
    assert receiver.spans[0].trace_id.hex() == TRACE


def test_settling_exports_nothing_again(receiver: Receiver, broker: Broker) -> None:
    with Exporting(broker, receiver.endpoint) as exporting:
        for number in range(20):
            broker.publish(f"topic-{number}", "x")
        receiver.wait_for(20)
        broker.settle()  # small ones are carried on, to the next file of the journal
        broker.publish("orders", "x")
        receiver.wait_for(21)
    assert exporting.exported == len({span.span_id for span in receiver.spans}) == 21


def test_how_the_broker_keeps_its_schedules_is_nobodys_trace(receiver: Receiver, broker: Broker) -> None:
    with Exporting(broker, receiver.endpoint):
        broker.schedule("daily", "0 7 * * *", "orders", "x")
        broker.remove_schedule("daily")
        broker.publish("orders", "x")
    assert [span.name for span in receiver.spans] == ["publish orders"]


def test_nothing_is_done_while_nothing_happens(receiver: Receiver, broker: Broker) -> None:
    with Exporting(broker, receiver.endpoint) as exporting:
        for number in range(300):
            broker.publish(f"topic-{number}", "x")
        until(lambda: exporting.exported == 300)
        until(lambda: not exporting._changes.noticed.is_set())
        requests, taken = len(receiver.requests), exporting._changes.take
        looked: list[None] = []

        def take() -> Any:
            looked.append(None)
            return taken()

        exporting._changes.take = take  # type: ignore[method-assign]
        time.sleep(0.1)  # ten times as long as it gathers
        assert looked == []
        broker.publish("topic-7", "y")
        until(lambda: exporting.exported == 301)
        assert len(receiver.requests) == requests + 1


def test_a_log_that_cannot_be_read_does_not_end_the_export(
    receiver: Receiver, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = lives.Lives.published

    def published(self: Any, log: Any, *arguments: Any) -> Any:
        if log.topic.name == "damaged":
            raise OSError("the disk is old")
        return whole(self, log, *arguments)

    monkeypatch.setattr(lives.Lives, "published", published)
    with Exporting(broker, receiver.endpoint) as exporting:
        broker.publish("damaged", "x")
        broker.publish("orders", "x")
        receiver.wait_for(1)
        until(lambda: exporting.dropped == 1)


def test_the_times_of_commits_are_bounded(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "_TIMES_MAX", 5)
    news = changes.Changes(broker.engine, 1000)
    news.follow()
    for _ in range(20):
        broker.publish("orders", "x")
    news.unfollow()
    broker.publish("orders", "not heard of")
    taken = news.take()
    assert len(taken.committed_us) == 5
    assert [(stretch.start, stretch.end) for stretch in taken.stretches] == [(0, 21)]
    assert news.take().stretches == []


@pytest.mark.parametrize(
    "endpoint",
    [
        *("collector:4318", "ftp://host", "http://", "http://host:x", "http://u:p@host", "http://host:99999"),
        *("http://host/a b", "http://host/\n", "http://höst"),
    ],
)
def test_an_endpoint_that_is_no_address_is_refused(broker: Broker, endpoint: str) -> None:
    with pytest.raises(InvalidArgument, match="otlp_endpoint: "):
        Exporting(broker, endpoint)


@pytest.mark.parametrize(
    ("endpoint", "host", "port"),
    [
        ("http://[::1]", "::1", 80),
        ("https://traces.example", "traces.example", 443),
        ("http://[::1]:4318", "::1", 4318),
    ],
)
def test_the_endpoint_may_do_without_a_port(endpoint: str, host: str, port: int) -> None:
    connection = Collector(endpoint)._connection(1.0)
    assert (connection.host, connection.port) == (host, port)


def test_the_endpoint_may_have_a_path(receiver: Receiver, broker: Broker) -> None:
    for path in ("/collect/", "/collect/v1/traces"):
        with Exporting(broker, receiver.endpoint + path):
            broker.publish("orders", "x")
    assert receiver.paths == {"/collect/v1/traces"}


def test_without_the_extra_the_error_says_what_to_install(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.proto.collector.trace.v1.trace_service_pb2", None)
    monkeypatch.delitem(sys.modules, "penstock.server.otlp.encoding", raising=False)
    with pytest.raises(InvalidArgument, match=r"pip install 'penstock\[otel\]'") as caught:
        Exporting(broker, "http://127.0.0.1:4318")
    assert "\n" not in str(caught.value)


def test_an_exporter_that_was_not_started_can_be_stopped(broker: Broker) -> None:
    Exporting(broker, "http://127.0.0.1:4318").stop()


def test_a_server_exports_what_its_clients_do_until_it_stops(tmp_path: Path, receiver: Receiver) -> None:
    with Running(tmp_path, otlp_endpoint=receiver.endpoint) as running, penstock.connect(running.address) as client:
        consumer = client.consumer("orders", "g", name="kim")
        client.publish("orders", "x", headers=SAMPLED)
        (message,) = consumer.receive(wait=PATIENCE_S)
        message.ack()
        client.publish("orders", "somebody holds it to the end", headers=SAMPLED)
        consumer.receive(wait=PATIENCE_S)
        client.close()
    assert {span.trace_id.hex() for span in receiver.spans} == {TRACE}
    assert len(receiver.named("publish orders")) == 2
    acked, released = receiver.named("process orders")
    assert attributes(acked)["messaging.client.id"] == "kim"
    assert attributes(released)["penstock.outcome"] == "released"


def test_a_server_does_not_start_without_the_extra_that_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.proto.collector.trace.v1.trace_service_pb2", None)
    monkeypatch.delitem(sys.modules, "penstock.server.otlp.encoding", raising=False)
    with (
        pytest.raises(InvalidArgument, match=r"penstock\[otel\]"),
        Running(tmp_path, otlp_endpoint="http://127.0.0.1:1"),
    ):
        pass
    with penstock.open(tmp_path, min_free_bytes=0):  # the directory was let go
        pass
