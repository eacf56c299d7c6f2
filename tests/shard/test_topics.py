"""Topics: created by hand, deleted, made again; and what an idle one costs."""

from __future__ import annotations

import gc
import os
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import penstock
from penstock.testing import MemoryStorage, VirtualClock


def test_a_topic_is_created_with_options_of_its_own(broker: penstock.Broker) -> None:
    topic = broker.create_topic("orders", partitions=3, retention_age="2d", retention_bytes="1GB")
    assert (topic.config.partitions, topic.config.retention_age, topic.config.retention_bytes) == (3, 172800, 10**9)
    assert broker.topics() == [topic]
    with pytest.raises(penstock.TopicExists, match="'orders' exists already"):
        broker.create_topic("orders")


def test_all_wrong_topic_options_are_named_at_once(broker: penstock.Broker) -> None:
    with pytest.raises(penstock.InvalidArgument) as error:
        broker.create_topic("orders", partitions=0, retention_age="soon", retension_bytes=1)
    for part in ("partitions: 0 is not", "retention_age: 'soon' is not", "did you mean retention_bytes?"):
        assert part in str(error.value)


def test_topic_options_survive_a_restart(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as broker:
        created = broker.create_topic("orders", partitions=3, archive="/somewhere")
    with penstock.open(tmp_path) as broker:
        assert broker.topics()[0].config == created.config


def test_a_deleted_topic_is_gone_and_its_files_with_it(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as broker:
        broker.publish("doomed", "settled")
        broker.settle()
        broker.publish("doomed", "in the journal")
        broker.publish("other", "stays")
        broker.delete_topic("doomed")
        with pytest.raises(penstock.TopicNotFound, match="no topic 'doomed'"):
            broker.read("doomed")
        with pytest.raises(penstock.TopicNotFound):
            broker.delete_topic("doomed")
        assert not list(tmp_path.rglob("doomed/**/*.parquet"))
    with penstock.open(tmp_path) as broker:
        assert [topic.name for topic in broker.topics()] == ["other"]
        assert [message.value for message in broker.read("other")] == [b"stays"]


def test_L3_a_topic_made_again_never_uses_an_offset_twice(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as broker:
        for _ in range(5):
            last = broker.publish("t", "old")
        broker.delete_topic("t")
        assert broker.publish("t", "new").offset == last.offset + 1
    with penstock.open(tmp_path) as broker:
        assert [(message.offset, message.value) for message in broker.read("t")] == [(5, b"new")]
        broker.delete_topic("t")
    with penstock.open(tmp_path) as broker:
        assert broker.publish("t", "newer").offset == 6


def test_a_topic_deleted_and_made_again_settles_apart_from_the_old_one(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as broker:
        broker.publish("t", "old")
        broker.settle()
        broker.delete_topic("t")
        broker.publish("t", "new")
        broker.settle()
        assert [message.value for message in broker.read("t")] == [b"new"]
        assert len(list(tmp_path.rglob("*.parquet"))) == 1


def test_R2_an_idle_topic_costs_no_descriptor_and_little_memory(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as broker:
        broker.publish("warm", b"up")
        descriptors = len(os.listdir("/proc/self/fd"))
        gc.collect()
        tracemalloc.start()
        for number in range(3000):
            broker.shard.publish(f"topic-{number:05d}", penstock.Message(b"x"))
        broker.shard.journal.flush()
        gc.collect()
        used, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(os.listdir("/proc/self/fd")) == descriptors
        assert used / 3000 < 1500


def test_thousands_of_topics_are_there_after_a_restart() -> None:
    storage = MemoryStorage()
    with penstock.open(storage=storage) as broker:
        for number in range(2000):
            broker.shard.publish(f"topic-{number}", penstock.Message(b"%d" % number))
    with penstock.open(storage=storage) as broker:
        assert len(broker.topics()) == 2000
        assert next(broker.read("topic-1234")).value == b"1234"


PER_SHARD = pytest.mark.one_shard("limits are those of each shard")


@pytest.fixture
def crowded(clock: VirtualClock) -> Iterator[penstock.Broker]:
    with penstock.open(
        storage=MemoryStorage(), clock=clock, max_topics=2, topic_defaults={"max_deliveries": 1}
    ) as made:
        made.publish("a", "x")
        made.publish("b", "x")
        yield made


@PER_SHARD
@pytest.mark.parametrize(
    "make",
    [
        lambda broker: broker.publish("c", "x"),
        lambda broker: broker.publish_many("c", ["x"]),
        lambda broker: broker.stage_many("s", "c", ["x"]),
        lambda broker: broker.create_topic("c"),
        lambda broker: broker.consumer("c", "g"),
        lambda broker: broker.publish("c.dlq", "x"),
    ],
)
def test_R1_no_more_topics_are_made_than_there_may_be(
    crowded: penstock.Broker, make: Callable[[penstock.Broker], object]
) -> None:
    with pytest.raises(penstock.LimitExceeded, match=r"there are 2 topics, and the limit is 2 \(max_topics\)"):
        make(crowded)
    assert [topic.name for topic in crowded.topics()] == ["a", "b"]
    crowded.publish("a", "those that exist go on")


@PER_SHARD
def test_R1_a_topic_at_the_limit_has_room_for_its_dead_letters_and_schedules(crowded: penstock.Broker) -> None:
    with crowded.consumer("a", "g") as consumer:
        consumer.kill(consumer.receive(1), "bad")
    crowded.schedule("s", "0 * * * *", "a", "x")
    assert [letter.value for letter in crowded.dead_letters("a")] == [b"x"]
    crowded.delete_topic("b")
    with pytest.raises(penstock.LimitExceeded, match="there are 3 topics"):
        crowded.publish("c", "x")


def test_a_directory_with_more_topics_than_there_may_be_opens_and_works() -> None:
    storage = MemoryStorage()
    with penstock.open(storage=storage) as broker:
        for number in range(10):
            broker.publish(f"t{number}", "x")
    with penstock.open(storage=storage, max_topics=3) as broker:
        assert len(broker.topics()) == 10
        broker.publish("t9", "y")
        with pytest.raises(penstock.LimitExceeded, match="max_topics"):
            broker.publish("t10", "x")
        for number in range(8):
            broker.delete_topic(f"t{number}")
        broker.publish("t10", "x")
