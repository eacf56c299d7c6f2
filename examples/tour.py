"""A tour of Penstock: publish, consume, fail, redrive, trace, replay, settle, crash. Run it with `make tour`."""

from __future__ import annotations

import itertools
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

import penstock

console = Console(highlight=False)

KILLED = """
import itertools, sys, penstock
broker = penstock.open(sys.argv[1])
for number in itertools.count():
    print(broker.publish("payments", f"payment {number}"), flush=True)
"""


def heading(text: str) -> None:
    """Say what comes next."""
    console.print(f"\n[bold cyan]{text}")


def publish_and_read(broker: penstock.Broker) -> None:
    """Messages with keys, headers, priorities and delays, given back as they were."""
    heading("Publish, and read it back")
    broker.create_topic("orders", partitions=3, retention_age="30d")
    broker.publish("orders", "two coffees", key="alex", priority="high", headers={"table": "4"})
    broker.publish("orders", "a cake", key="sam", delay="20m")
    broker.publish("orders", "two coffees", key="kim", dedupe_id="till-7/81")
    again = broker.publish("orders", "two coffees", key="kim", dedupe_id="till-7/81")
    console.print(f"  the same dedupe id gives the same message: {again}")
    table = Table("id", "key", "value", "priority", "due", box=None, padding=(0, 2))
    for message in broker.read("orders"):
        due = f"{message.deliver_at:%H:%M:%S}" if message.deliver_at else ""
        table.add_row(
            str(message.id), (message.key or b"").decode(), message.value.decode(), str(message.priority), due
        )
    console.print(table)


def consume(broker: penstock.Broker) -> None:
    """Leases, acks, and a message that fails until it is given up."""
    heading("Consume: ack, or fail; three failures make a dead letter")
    broker.create_topic("kitchen", retry_backoff="50ms")
    broker.publish_many("kitchen", ["two coffees", "a dragon", penstock.Message("fire!", priority="critical")])
    with broker.consumer("kitchen", "cooks", name="kim") as consumer:
        while messages := consumer.receive(10, wait="300ms"):
            for message in messages:
                if message.value == b"a dragon":
                    message.fail("there are no dragons")
                else:
                    message.ack()
                outcome = "failed" if message.value == b"a dragon" else "acked"
                console.print(f"  {message.id}  {message.value.decode():12} delivery {message.deliveries}: {outcome}")
    for letter in broker.dead_letters("kitchen"):
        console.print(f"  {letter.id} was {letter.origin}: {letter.cause!r}, {letter.failures} failures")


def redrive_and_trace(broker: penstock.Broker) -> None:
    """Bring the dead letter back to where it died, and see its whole life."""
    heading("Redrive it, process it, and ask what happened to it")
    console.print(f"  redriven: {broker.redrive('kitchen').redriven}")
    with broker.consumer("kitchen", "cooks", name="alex") as consumer:
        consumer.ack(consumer.receive(10, wait="2s"))
    for line in str(broker.trace("kitchen/0/1")).splitlines():
        console.print(f"  {line}", soft_wrap=True)
    group = broker.group("kitchen", "cooks")
    console.print(f"  the group: {group.published} published, {group.acked} acked, {group.dead} dead, lag {group.lag}")


def publish_many(broker: penstock.Broker) -> None:
    """Batches: one sync for a thousand messages."""
    heading("Publish 300,000 messages of 100 bytes, every batch of 1,000 on disk before it is acknowledged")
    batch = [f"{number:0100d}".encode() for number in range(1000)]
    started = time.perf_counter()
    for _ in range(300):
        broker.publish_many("clicks", batch)
    seconds = time.perf_counter() - started
    console.print(f"  {seconds:.2f} s, {300_000 / seconds:,.0f} messages a second")


def consume_many(broker: penstock.Broker) -> None:
    """Batches again: one durable ack for a thousand messages."""
    heading("Receive and ack them, every batch of 1,000 durably")
    count = 0
    with broker.consumer("clicks", "counters") as consumer:
        started = time.perf_counter()
        while messages := consumer.receive(1000):
            consumer.ack(messages)
            count += len(messages)
        seconds = time.perf_counter() - started
    console.print(f"  {count:,} in {seconds:.2f} s, {count / seconds:,.0f} messages a second")


def crash(path: Path) -> None:
    """Kill a publisher in the middle; everything that it was told is safe is there."""
    heading("Kill a publisher with SIGKILL and open its directory again")
    child = subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    acknowledged = [line.strip() for line in itertools.islice(child.stdout, 500)]
    child.kill()
    acknowledged += [line.strip() for line in child.stdout if line.endswith("\n")]
    child.wait()
    with penstock.open(path) as broker:
        found = {str(message.id) for message in broker.read("payments")}
        lost = len(set(acknowledged) - found)
        console.print(f"  {len(acknowledged)} were acknowledged, {len(found)} are there, [bold]{lost} lost[/]")


def replay(broker: penstock.Broker) -> None:
    """Any window of time, found by an index."""
    heading("Replay a window of time")
    middle = broker.publish("events", "start of the window")
    (first,) = broker.read("events", offset=middle.offset, limit=1)
    broker.publish_many("events", [f"event {number}" for number in range(5)])
    values = [message.value.decode() for message in broker.read("events", from_time=first.timestamp)]
    console.print(f"  {len(values)} messages since {first.timestamp:%H:%M:%S.%f}: {values[0]!r} to {values[-1]!r}")


def files(broker: penstock.Broker, path: Path) -> None:
    """What is settled is plain Parquet, for DuckDB, pandas and Spark."""
    heading("Settle: the journal becomes Parquet that any tool reads")
    broker.settle()
    for file in sorted(path.rglob("*.parquet")):
        console.print(f"  {file.relative_to(path)}  {file.stat().st_size:,} bytes")
    batches = broker.read_arrow("clicks")
    started = time.perf_counter()
    rows = sum(len(batch) for batch in batches)
    console.print(f"  {rows:,} rows into Arrow in {time.perf_counter() - started:.2f} s")


def main() -> None:
    """Run the tour in a directory that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="penstock-") as temporary:
        path = Path(temporary)
        with penstock.open(path / "data") as broker:
            publish_and_read(broker)
            consume(broker)
            redrive_and_trace(broker)
            publish_many(broker)
            consume_many(broker)
            replay(broker)
            files(broker, path / "data")
        crash(path / "crash")
    console.print("\nThe directory is gone again. Next: README.md, and the ten lines in it.")


if __name__ == "__main__":
    main()
