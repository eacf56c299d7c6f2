"""How spans get to the collector: also when that is away, busy, slow, or refuses them."""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceResponse,
)

import penstock
from penstock.embedded.broker import Broker
from penstock.model.errors import InvalidArgument
from penstock.model.message import Message
from penstock.server.otlp import exporter, lives
from penstock.server.otlp.posting import Collector
from penstock.views import changes
from tests.server.harness import PATIENCE_S, Running, free_port, until
from tests.server.otlp.harness import SAMPLED, TRACE, UNSAMPLED, Exporting, Receiver, attributes


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
    news = changes.Changes(broker.shard, 1000)
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
