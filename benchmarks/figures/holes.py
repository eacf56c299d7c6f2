"""Ten million messages with a hundred thousand that nobody acked: the state, the cost of acking, and a trace."""

from __future__ import annotations

from statistics import median
from time import perf_counter

import msgspec

import penstock
from benchmarks.bench import SETTLING_OFF, Bench
from benchmarks.load import BATCH, batch
from benchmarks.rows import Row, Target, alone, compare
from benchmarks.verify import Wrong, check_count

EVERY = 100  # one of so many is left


def run(bench: Bench) -> list[Row]:
    count = bench.size(10_000_000, 20_000)
    with bench.scratch() as place, penstock.open(place, **SETTLING_OFF) as broker:
        for number in range(count // BATCH):
            broker.publish_many("orders", batch(number))
        acks: list[float] = []
        with broker.consumer("orders", "g", max_in_flight=1_000_000) as consumer:
            for _ in range(count // BATCH):
                messages = consumer.receive(BATCH)
                done = [message for message in messages if message.offset % EVERY]
                start = perf_counter()
                consumer.ack(done)
                acks.append(perf_counter() - start)
            info = broker.group("orders", "g")
            check_count("messages acked", info.acked, count - count // EVERY)
            progress = broker.shard.topic("orders").partitions[0].delivery_state().groups["g"]
            state = len(msgspec.msgpack.encode(progress.state()))
        broker.settle()
        traces = [_trace(broker, count * part // 100 + 1) for part in range(5, 100, 5)]
    tenth = max(1, len(acks) // 10)
    return [
        alone(
            f"state of a group with {count // EVERY:,} holes in {count:,}", "B", [state], Target("measured", "<", 10e6)
        ),
        compare(
            f"ack of {BATCH} without every {EVERY}th, at the end: p50",
            "s",
            [(median(acks[-tenth:]), median(acks[:tenth]))],
            "at the beginning",
            Target("ratio", "<=", 1.25),
        ),
        alone(f"trace of one message among {count:,}", "s", traces, Target("measured", "<", 0.050)),
        alone(f"trace of one message among {count:,}: slowest", "s", [max(traces)]),
    ]


def _trace(broker: penstock.Broker, offset: int) -> float:
    start = perf_counter()
    trace = broker.trace(f"orders/0/{offset}")
    seconds = perf_counter() - start
    kinds = [line.kind for line in trace.lines]
    if kinds[:3] != ["published", "delivered", "acked"]:
        raise Wrong(f"the trace of orders/0/{offset} says {kinds}")
    return seconds
