"""Traces say where a message is durable on a bucket, and which broker handed it out."""

from __future__ import annotations

import os
from pathlib import Path

import penstock
from penstock.model.traces import Trace
from tests.brokers.harness import Brokers, connected, until


def causes(trace: Trace, kind: str) -> list[str | None]:
    return [line.cause for line in trace.lines if line.kind == kind]


def test_a_trace_says_in_which_piece_or_segment_of_which_epoch_a_message_is(tmp_path: Path) -> None:
    place = f"file://{tmp_path}/bucket"
    with penstock.open(place, commit_interval=0.0) as broker:
        identity = broker.publish("orders", "tea")
        [written] = causes(broker.trace(identity), "replicated")
        assert written is not None
        assert written.startswith("in piece ")
        assert written.endswith(" of epoch 1")
        with broker.consumer("orders", "kitchen") as consumer:
            consumer.ack(consumer.receive(1))
        assert causes(broker.trace(identity), "delivered") == [f"by process {os.getpid()}"]
    with penstock.open(place) as broker:
        [read] = causes(broker.trace(identity), "replicated")
        assert read in (written, "in bundle 1 of epoch 1"), "it is where it was"
        broker.settle()
        assert causes(broker.trace(identity), "replicated") == ["in segment 0 of epoch 2"]
        assert "REPLICATED   in segment 0 of epoch 2" in str(broker.trace(identity))


def test_a_trace_has_no_such_line_on_a_disk(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "data") as broker:
        identity = broker.publish("orders", "tea")
        with broker.consumer("orders", "kitchen") as consumer:
            consumer.ack(consumer.receive(1))
        trace = broker.trace(identity)
        assert causes(trace, "replicated") == []
        assert causes(trace, "delivered") == [None]


def test_a_trace_names_each_broker_that_handed_a_message_out(brokers: Brokers) -> None:
    first, second = brokers.start_all(2)
    topic = brokers.topic_of(second)
    with connected(second.address) as client, client.consumer(topic, "kitchen") as consumer:
        identity = client.publish(topic, "tea")
        [message] = consumer.receive(1)
        message.release()
    owner = second.address
    second.stop()
    with connected(first.address) as client:
        with client.consumer(topic, "kitchen") as consumer:
            [message] = until(lambda: consumer.receive(1), "nothing is handed out")
            message.ack()
        assert causes(client.trace(identity), "delivered") == [f"by {owner}", f"by {first.address}"]
