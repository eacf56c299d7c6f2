"""Options of a topic are changed while it is in use: durably, for everybody, or not at all."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

import penstock
from penstock.embedded.consumer import Consumer
from penstock.journal.layout import file_name
from penstock.model.config import TopicConfig
from penstock.model.errors import DiskFull, StorageFailed
from penstock.model.message import Message
from penstock.shard.checking import check_directory, repair_directory
from penstock.shard.operations.burying import bury
from penstock.shard.operations.dead_letters import list_dead_letters
from penstock.shard.shard import Shard
from penstock.shard.upkeep.settling import Settler
from penstock.storage import FileStorage
from penstock.testing import FaultyStorage, MemoryStorage, VirtualClock
from tests.shard.passing_time import pass_time
from tests.sharding import alone, home_of

ShardOn = Callable[..., Shard]

EVERYTHING: dict[str, object] = {
    "retention_age": "1h",
    "retention_bytes": "1GB",
    "archive": "cold",
    "dedupe_window": 7,
    "protect_unacked": True,
    "max_backlog": 1000,
    "backlog_groups": "all",
    "max_delay": "2d",
    "visibility_timeout": 5,
    "max_deliveries": 9,
    "retry_backoff": 2,
    "retry_backoff_max": 20,
    "lanes": "weighted",
    "lane_weights": {"high": 5, "low": 1},
    "dead_letter_lapsed": True,
}


@pytest.fixture
def broker(clock: VirtualClock) -> Iterator[penstock.Broker]:
    with penstock.open(storage=MemoryStorage(), clock=clock) as opened:
        yield opened


def configure(shard: Shard, **options: object) -> None:
    commit = shard.configure_topic("t", options)
    assert commit is not None
    shard.journal.wait(commit)


def create(shard: Shard, **options: object) -> None:
    shard.journal.wait(shard.create_topic("t", options))


def config_of(shard: Shard) -> TopicConfig:
    return shard.topic("t").config


def publish(shard: Shard, value: str, topic: str = "t") -> None:
    _, commit = shard.publish(topic, Message(value))
    assert commit is not None
    shard.journal.wait(commit)


# It is durable.


def test_every_option_that_can_be_changed_survives_a_restart(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as broker:
        broker.create_topic("t", partitions=3)
        broker.publish("t", "x")
        before = broker.topics()[0].config
        changed = broker.configure_topic("t", **EVERYTHING)
        assert changed.config == before.changed(EVERYTHING)
        assert (changed.name, changed.config.partitions, len(changed.partitions)) == ("t", 3, 3)
        assert broker.topics() == [changed]
    with penstock.open(tmp_path) as broker:
        assert broker.topics()[0].config == changed.config


@pytest.mark.parametrize("upkeep", ["nothing", "checkpoint", "settle"])
def test_L1_a_change_that_was_acknowledged_survives_a_power_cut(shard_on: ShardOn, upkeep: str) -> None:
    for seed in range(20):
        storage = FaultyStorage(seed)
        shard = shard_on(storage)
        create(shard, partitions=2)
        publish(shard, "x")
        configure(shard, **EVERYTHING)
        if upkeep == "checkpoint":
            shard.checkpoint()
        elif upkeep == "settle":
            Settler(shard).settle(everything=True)
        configure(shard, visibility_timeout=seed + 100)
        wanted = config_of(shard)
        assert wanted.visibility_timeout == seed + 100
        survivor = storage.crash()
        again = shard_on(survivor)
        assert config_of(again) == wanted
        assert config_of(shard_on(survivor.crash())) == wanted  # recovering twice gives the same


def test_a_power_cut_in_the_middle_leaves_the_old_options_or_the_new_ones(shard_on: ShardOn) -> None:
    found = set()
    for step in range(3):
        for seed in range(20):
            storage = FaultyStorage(seed)
            shard = shard_on(storage)
            create(shard)
            storage.cut_power_after(step)
            acknowledged = True
            try:
                configure(shard, max_deliveries=9, visibility_timeout=9)
            except StorageFailed:
                acknowledged = False
            config = config_of(shard_on(storage.crash()))
            assert (config.max_deliveries, config.visibility_timeout) in [(3, 30), (9, 9)]
            assert config.max_deliveries == 9 or not acknowledged
            found.add((acknowledged, config.max_deliveries))
    assert found == {(True, 9), (False, 9), (False, 3)}


def test_a_topic_that_is_made_again_does_not_inherit_them(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as broker:
        broker.create_topic("t")
        broker.configure_topic("t", max_deliveries=9)
        broker.delete_topic("t")
        broker.create_topic("t")
    with penstock.open(tmp_path) as broker:
        assert broker.topics()[0].config.max_deliveries == 3


def test_changes_that_share_a_commit_all_hold_and_the_last_one_wins(shard_on: ShardOn) -> None:
    storage = FaultyStorage()
    shard = shard_on(storage)
    create(shard)
    for options in ({"max_deliveries": 5}, {"visibility_timeout": 5}, {"max_deliveries": 6}):
        shard.configure_topic("t", options)
    assert config_of(shard).max_deliveries == 3
    shard.journal.flush()
    assert (config_of(shard).max_deliveries, config_of(shard).visibility_timeout) == (6, 5)
    assert shard.topic("t").changes == ()
    again = shard_on(storage.crash())
    assert (config_of(again).max_deliveries, config_of(again).visibility_timeout) == (6, 5)


def test_what_changes_nothing_is_not_written(broker: penstock.Broker) -> None:
    created = broker.create_topic("t", partitions=2, visibility_timeout=5)
    commits = broker.shards.of("t").journal.commits
    assert broker.configure_topic("t") == created
    assert broker.configure_topic("t", partitions=2, order="lane", visibility_timeout="5s") == created
    assert broker.shards.of("t").journal.commits == commits


# A disk that refuses.


def test_R3_on_a_full_disk_the_old_options_stay_and_a_change_works_once_there_is_room(shard_on: ShardOn) -> None:
    storage = FaultyStorage()
    shard = shard_on(storage)
    create(shard, max_deliveries=2)
    publish(shard, "x")
    consumer = Consumer(alone(shard), "t", "g")
    before = config_of(shard)
    storage.fail("write", errno.ENOSPC)
    shard.configure_topic("t", {"visibility_timeout": 5})
    with pytest.raises(DiskFull):
        configure(shard, max_deliveries=1)
    assert config_of(shard) == before
    assert shard.topic("t").changes == ()
    (message,) = consumer.receive()
    message.fail("not yet", delay=0)
    assert len(consumer.receive()) == 1  # by the old options: it may fail twice
    configure(shard, max_deliveries=7)
    assert config_of(shard) == before.changed({"max_deliveries": 7})
    assert config_of(shard_on(storage.crash())) == before.changed({"max_deliveries": 7})


def test_R3_retention_can_be_made_shorter_when_publishing_is_refused_for_lack_of_space(
    shard_on: ShardOn, clock: VirtualClock
) -> None:
    storage = FaultyStorage()
    shard = shard_on(storage, min_free_bytes="10MiB")
    create(shard)
    storage.capacity_bytes = 8 << 20
    clock.advance(1)
    with pytest.raises(DiskFull, match="min_free_bytes"):
        shard.publish("t", Message("x"))
    configure(shard, retention_age="1h")
    assert config_of(shard).retention_age == 3600


# Everybody follows.


def test_a_consumer_at_work_follows_the_visibility_timeout(broker: penstock.Broker, clock: VirtualClock) -> None:
    broker.publish_many("t", ["a", "b"])
    consumer = broker.consumer("t", "g")
    consumer.receive(1)
    broker.configure_topic("t", visibility_timeout=5)
    consumer.receive(1)
    pass_time(broker, clock, 6)
    assert [message.value for message in consumer.receive()] == [b"b"]  # the other lease is as long as it was
    pass_time(broker, clock, 25)
    assert sorted(message.value for message in consumer.receive()) == [b"a", b"b"]


def test_a_consumer_at_work_follows_retries_and_the_limit_of_failures(
    broker: penstock.Broker, clock: VirtualClock
) -> None:
    broker.create_topic("t", max_deliveries=10, retry_backoff=1000)
    broker.publish("t", "x")
    consumer = broker.consumer("t", "g")
    broker.configure_topic("t", retry_backoff=0)
    for _ in range(4):
        consumer.receive()[0].fail("no")
    broker.configure_topic("t", max_deliveries=5)
    consumer.receive()[0].fail("no")
    bury(broker.shards.of("t"))
    broker.shards.of("t").journal.flush()
    assert [letter.failures for letter in broker.dead_letters("t")] == [5]
    assert consumer.receive() == []


def test_a_consumer_at_work_follows_the_lanes(broker: penstock.Broker) -> None:
    for priority in ("high", "low"):
        broker.publish_many("t", [penstock.Message("x", priority=priority) for _ in range(60)])
    consumer = broker.consumer("t", "g")
    assert {message.priority for message in consumer.receive(20)} == {64}
    broker.configure_topic("t", lanes="weighted", lane_weights={"high": 3, "low": 1})
    assert sorted(message.priority for message in consumer.receive(20)) == [64] * 15 + [192] * 5
    broker.configure_topic("t", lane_weights={"high": 1, "low": 1})
    assert sorted(message.priority for message in consumer.receive(20)) == [64] * 10 + [192] * 10
    broker.configure_topic("t", lanes="strict")
    assert {message.priority for message in consumer.receive(10)} == {64}


def test_other_options_leave_the_credit_of_lanes_alone(broker: penstock.Broker) -> None:
    broker.create_topic("t", lanes="weighted", lane_weights={"high": 3, "low": 1})
    for priority in ("high", "low"):
        broker.publish_many("t", [penstock.Message("x", priority=priority) for _ in range(20)])
    consumer = broker.consumer("t", "g")
    received = []
    for number in range(8):
        broker.configure_topic("t", visibility_timeout=number + 1)
        received += [message.priority for message in consumer.receive(1)]
    assert sorted(received) == [64] * 6 + [192] * 2


def test_a_group_that_comes_later_has_the_new_options(broker: penstock.Broker, clock: VirtualClock) -> None:
    broker.publish("t", "x")
    broker.consumer("t", "first")
    broker.configure_topic("t", visibility_timeout=5)
    consumer = broker.consumer("t", "second")
    consumer.receive()
    pass_time(broker, clock, 6)
    assert len(consumer.receive()) == 1


def test_what_lapses_follows_to_the_dead_letters(broker: penstock.Broker, clock: VirtualClock) -> None:
    broker.publish("t", "x", expires_in=10)
    broker.consumer("t", "g")
    broker.configure_topic("t", dead_letter_lapsed=True)
    pass_time(broker, clock, 11)
    assert [letter.value for letter in list_dead_letters(broker.shards.of("t"), "t")] == [b"x"]


def test_publishers_follow_backlog_delay_and_dedupe_window(broker: penstock.Broker, clock: VirtualClock) -> None:
    first = broker.publish("t", "x", dedupe_id="a")
    broker.configure_topic("t", max_backlog=1, max_delay=10)
    with pytest.raises(penstock.Overloaded, match="max_backlog"):
        broker.publish("t", "y")
    with pytest.raises(penstock.InvalidArgument, match="the limit is 10s "):
        broker.publish("t", "y", delay=11)
    broker.configure_topic("t", max_backlog=None, dedupe_window=1000)
    clock.advance(900)
    assert broker.publish("t", "x", dedupe_id="a") == first
    broker.configure_topic("t", dedupe_window=5)
    second = broker.publish("t", "x", dedupe_id="a")
    assert second != first
    clock.advance(4)
    assert broker.publish("t", "x", dedupe_id="a") == second


def test_a_restart_knows_the_dedupe_window_that_was_changed(clock: VirtualClock) -> None:
    storage = MemoryStorage()
    with penstock.open(storage=storage, clock=clock) as broker:
        first = broker.publish("t", "x", dedupe_id="a")
        broker.configure_topic("t", dedupe_window=1000)
    with penstock.open(storage=storage, clock=clock) as broker:
        clock.advance(900)
        assert broker.publish("t", "x", dedupe_id="a") == first


def test_retention_follows(broker: penstock.Broker, clock: VirtualClock) -> None:
    broker.publish("t", "x")
    broker.settle()
    clock.advance(7200)
    assert broker.retain() == 0
    broker.configure_topic("t", retention_age="1h")
    assert broker.retain() == 1


def test_what_was_archived_stays_where_it_is_and_is_found_there(tmp_path: Path) -> None:
    def values(broker: penstock.Broker) -> list[bytes]:
        return [message.value for message in broker.read("t", include_deleted=True)]

    def archive_one(broker: penstock.Broker, value: str) -> None:
        broker.publish("t", value)
        broker.settle()
        assert broker.retain() >= 1

    data = tmp_path / "data"
    with penstock.open(data) as broker:
        broker.create_topic("t", archive="../first", retention_bytes=0)
        archive_one(broker, "one")
        broker.configure_topic("t", archive="../second")
        archive_one(broker, "two")
        broker.configure_topic("t", archive=None, retention_bytes=None)
        broker.publish("t", "three")
        assert values(broker) == [b"one", b"two", b"three"]
    assert len(list(tmp_path.glob("first/t/messages/0/*"))) == len(list(tmp_path.glob("second/t/messages/0/*"))) == 1
    assert check_directory(FileStorage(data)).problems == []
    with penstock.open(data) as broker:
        assert values(broker) == [b"one", b"two", b"three"]


# What is refused.


def test_all_that_is_wrong_is_named_at_once_and_nothing_is_changed(broker: penstock.Broker) -> None:
    before = broker.create_topic("t", partitions=2)
    with pytest.raises(penstock.InvalidArgument) as error:
        broker.configure_topic(
            "t", partitions=4, order="key", retention_age="soon", max_delivery=1, visibility_timeout=7
        )
    for part in (
        "topic options: ",
        "partitions: it is 2 and cannot be changed: keys would go to other partitions",
        "order: it is 'lane' and cannot be changed: ",
        "retention_age: 'soon' is not",
        "max_delivery: unknown option, did you mean max_deliveries?",
    ):
        assert part in str(error.value)
    assert broker.topics() == [before]


def test_topics_that_are_not_there_or_not_ones_own_are_refused(broker: penstock.Broker) -> None:
    with pytest.raises(penstock.TopicNotFound, match="no topic 'other'"):
        broker.configure_topic("other", max_deliveries=1)
    assert broker.topics() == []
    for _ in range(2):
        with pytest.raises(penstock.InvalidArgument, match=r"penstock\.schedules is the broker's own"):
            broker.configure_topic("penstock.schedules", retention_age=1)
        broker.schedule("s", "* * * * *", "t", "x")


def test_a_topic_that_is_being_deleted_and_a_closed_broker_refuse(shard_on: ShardOn) -> None:
    shard = shard_on(MemoryStorage())
    create(shard)
    shard.delete_topic("t")
    with pytest.raises(penstock.TopicNotFound, match="is being deleted"):
        shard.configure_topic("t", {"max_deliveries": 1})
    shard.close()
    with pytest.raises(penstock.BrokerClosed):
        shard.configure_topic("t", {"max_deliveries": 1})


# Checking and repairing.


def test_a_check_understands_changes(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as broker:
        broker.create_topic("t", partitions=2)
        broker.publish("t", "x")
        broker.configure_topic("t", **EVERYTHING)
        report = check_directory(FileStorage(home_of(tmp_path, "t")))
    assert (report.problems, report.notes) == ([], [])
    assert (report.topics, report.partitions, report.messages) == (1, 2, 1)


def rot_at(storage: FaultyStorage, shard_on: ShardOn, position: int) -> tuple[list[str], Shard]:
    """Let a group of the journal rot and repair it; what was lost, and the broker that opens then."""
    storage.flip_bit(file_name(1), position + 100)
    survivor = storage.crash()
    found = check_directory(survivor)
    repair_directory(survivor, found, datetime(2026, 1, 2, tzinfo=UTC))
    return [run for problem in found.problems for run in problem.affected], shard_on(survivor)


def test_a_repair_that_loses_a_change_keeps_the_options_before(shard_on: ShardOn) -> None:
    storage = FaultyStorage()
    shard = shard_on(storage)
    create(shard, max_deliveries=5)
    position = shard.journal.position()[1]
    configure(shard, max_deliveries=6)
    publish(shard, "x")
    affected, again = rot_at(storage, shard_on, position)
    assert affected == ["the creation, a change or the deletion of t"]
    assert config_of(again).max_deliveries == 5


@pytest.mark.parametrize("published_before", [False, True])
def test_a_repair_that_loses_the_creation_goes_on_with_the_change(shard_on: ShardOn, published_before: bool) -> None:
    storage = FaultyStorage()
    shard = shard_on(storage)
    publish(shard, "other", topic="other")
    position = shard.journal.position()[1]
    create(shard, partitions=3)
    if published_before:
        publish(shard, "x")
    configure(shard, max_deliveries=6)
    publish(shard, "y")
    _, again = rot_at(storage, shard_on, position)
    name = "recovered-2" if published_before else "t"
    assert sorted(again.catalog.by_name) == sorted(["other", name])
    topic = again.topic(name)
    assert (topic.config.max_deliveries, topic.config.partitions, len(topic.partitions)) == (6, 3, 3)
    assert sum(partition.messages.committed_end for partition in topic.partitions) == 1 + published_before
