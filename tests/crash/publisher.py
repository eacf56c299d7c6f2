"""A process that publishes until it is killed; each line it prints is something that was acknowledged."""

from __future__ import annotations

import itertools
import sys
import threading

import penstock


def main(path: str, run: str) -> None:
    broker = penstock.open(
        path, journal_file_bytes="256KiB", segment_min_bytes="32KiB", topic_defaults={"retention_age": None}
    )
    if "wide" not in {topic.name for topic in broker.topics()}:
        broker.create_topic("wide", partitions=3)

    def say(*lines: str) -> None:
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()

    def singles(name: str) -> None:
        for number in itertools.count():
            value = f"{run}.{name}.{number}"
            identity = broker.publish("singles", value, key=name, dedupe_id=value)
            say(f"{identity} {value}")

    def batches(name: str) -> None:
        for number in itertools.count():
            values = [f"{run}.{name}.{number}.{n}" for n in range(50)]
            ids = broker.publish_many("wide", [penstock.Message(value, key=value[-1]) for value in values])
            say(*(f"{identity} {value}" for identity, value in zip(ids, values, strict=True)))

    def upkeep() -> None:
        for number in itertools.count():
            broker.settle()
            topic = f"short-lived-{number % 3}"
            broker.publish(topic, "x")
            broker.delete_topic(topic)

    workers = [(singles, "a"), (singles, "b"), (batches, "c"), (batches, "d")]
    threads = [threading.Thread(target=work, args=(name,), daemon=True) for work, name in workers]
    threads.append(threading.Thread(target=upkeep, daemon=True))
    for thread in threads:
        thread.start()
    threads[0].join()
