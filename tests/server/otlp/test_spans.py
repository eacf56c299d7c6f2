"""What the spans of a message tell."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

import penstock
from penstock.embedded.broker import Broker
from penstock.model.message import Message
from penstock.server.otlp.spans import Contexts, parse_traceparent
from tests.server.harness import PATIENCE_S, until
from tests.server.otlp.harness import PARENT, SAMPLED, TRACE, UNSAMPLED, Exporting, Receiver, attributes


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
    assert broker.shard.broker_id.hex().encode() in resource
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
    contexts = Contexts(broker.shard.broker_id, 100)
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
            broker.shard.journal.flush()  # nobody waits for a burial
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
