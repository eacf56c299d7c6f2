"""A copy of the state at an earlier time: exactly what a copy is that was made then, as far back as that is kept."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Broker
from penstock.cluster.copying.bucket_target import BucketTarget
from penstock.cluster.copying.copying import copy, copy_root
from penstock.cluster.copying.directory_target import DirectoryTarget
from penstock.journal.bucket_reading import ReadOnlyBucket
from penstock.model.clock import SystemClock
from penstock.model.config import BrokerConfig
from penstock.model.errors import InvalidArgument
from penstock.model.units import to_datetime
from penstock.storage import FileStorage
from penstock.storage.read_only import ReadOnlyStorage
from penstock.testing import MemoryObjects, VirtualClock
from tests.cli.test_copy import run
from tests.cluster.resharding_harness import quietly
from tests.cluster.rich_directory import portrait

CONFIG = BrokerConfig.parse(
    {"journal_file_bytes": "16KiB", "journal_files_max": 1000, "segment_min_bytes": "1GiB", "min_free_bytes": 0}
)
"""There are many journal files, and nobody settles them."""


def open_at(path: Path, clock: VirtualClock, shards: int | None = None) -> Broker:
    return Broker(FileStorage(path), CONFIG, clock, shards=shards)


@pytest.fixture
def broker(tmp_path: Path, clock: VirtualClock) -> Iterator[Broker]:
    """A broker that nobody closes while it is copied; the last checkpoint was written when it had settled."""
    with open_at(tmp_path / "data", clock, 2) as opened:
        for number in range(10):
            opened.create_topic(f"topic-{number}", max_deliveries=1)
        live(opened, clock, "before")
        opened.settle()
        for shard in opened.shards:
            shard.checkpoint()
        clock.advance(1)
        yield opened


def live(broker: Broker, clock: VirtualClock, word: str) -> None:
    """A bit of everything, over some time."""
    for number in range(10):
        clock.advance(1)
        topic = f"topic-{number}"
        broker.publish_many(topic, [f"{word} {n} {random.Random(n).randbytes(300).hex()}" for n in range(20)])
        broker.publish(topic, word, dedupe_id=f"{word}-{number}")
        broker.publish_many(topic, [word], producer="p", sequence=1 + len(list(broker.read(topic))))
        delayed = broker.publish(topic, word, delay=5000)
        with broker.consumer(topic, "g") as consumer:
            for message in consumer.receive(10):
                message.kill("it is broken") if message.offset % 5 == 0 else message.ack()
        broker.schedule(f"{word}-{number}", "0 5 * * *", topic, "v")
        if number % 3 == 0:
            broker.cancel_delayed(delayed)
            broker.purge_dead_letters(topic)


@pytest.mark.parametrize("by_bucket", [False, True])
def test_what_came_later_is_left_out(by_bucket: bool, broker: Broker, tmp_path: Path, clock: VirtualClock) -> None:
    live(broker, clock, "first")
    assert [len(shard.journal.files) > 1 for shard in broker.shards] == [True, True]
    copy(str(tmp_path / "data"), str(tmp_path / "then"), quietly)
    then_us = clock.wall_us()
    clock.advance(0.5)
    live(broker, clock, "second")
    broker.delete_group("topic-1", "g")
    broker.create_topic("later")
    source, past = str(tmp_path / "data"), str(tmp_path / "past")
    if by_bucket:
        objects, target = MemoryObjects(), DirectoryTarget(past)
        copy_root(ReadOnlyStorage(source), BucketTarget(objects), quietly, SystemClock(), then_us)
        copy_root(ReadOnlyBucket(objects), target, quietly, SystemClock())
        target.close()
    else:
        copy(source, past, quietly, until=to_datetime(then_us))
    with open_at(tmp_path / "then", clock) as expected, open_at(tmp_path / "past", clock) as found:
        assert {topic.name for topic in found.topics()} >= {f"topic-{number}" for number in range(10)}
        assert "later" not in {topic.name for topic in found.topics()}
        known, there = portrait(expected), portrait(found)
        for face in known:
            assert there[face] == known[face], face
        again_id = found.publish("topic-3", "again", dedupe_id="first-3")
        assert again_id == expected.publish("topic-3", "again", dedupe_id="first-3")
        assert found.publish("topic-3", "new", dedupe_id="second-3").offset == again_id.offset + 3, "it never came"


def test_each_moment_is_one_that_was(broker: Broker, tmp_path: Path, clock: VirtualClock) -> None:
    """Of a single log: at each time the messages are those that came until then."""
    times = []
    for number in range(8):
        clock.advance(1)
        broker.publish("topic-5", f"{number}" + "x" * 3000)
        times.append(clock.wall_us())
    before = sum(not message.value.endswith(b"xxx") or b"before" in message.value for message in broker.read("topic-5"))
    for number, time_us in enumerate(times):
        path = tmp_path / f"past-{number}"
        copy(str(tmp_path / "data"), str(path), quietly, until=to_datetime(time_us))
        with open_at(path, clock) as past:
            assert len(list(past.read("topic-5"))) == before + number + 1


def test_the_future_leaves_nothing_out(broker: Broker, tmp_path: Path, clock: VirtualClock) -> None:
    live(broker, clock, "first")
    copied = copy(str(tmp_path / "data"), str(tmp_path / "past"), quietly, until=to_datetime(clock.wall_us() + 10**9))
    assert copied.messages == sum(
        len(list(broker.read(topic.name))) for topic in broker.topics() if topic.name[0] == "t"
    )


def test_a_state_that_is_not_kept_is_refused_and_nothing_is_made(
    broker: Broker, tmp_path: Path, clock: VirtualClock
) -> None:
    then = to_datetime(clock.wall_us())
    clock.advance(10)
    noted = to_datetime(clock.wall_us()).isoformat(timespec="milliseconds")
    broker.shards[1].checkpoint()
    with pytest.raises(InvalidArgument, match="the state of then is not kept") as caught:
        copy(str(tmp_path / "data"), str(tmp_path / "past"), quietly, until=then)
    assert noted in str(caught.value)
    assert not (tmp_path / "past/penstock.json").exists()
    code, output = run("copy", tmp_path / "data", tmp_path / "past", "--until", "2020-01-01T00:00:00Z")
    assert code == 2
    assert "the state of then is not kept" in output
