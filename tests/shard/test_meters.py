"""What a broker counts: whatever happens is counted once, when it is durable, and no counter ever goes down."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import penstock
from penstock.log.partition_log import Log
from penstock.log.records import SingleMessages
from penstock.model.errors import PenstockError, StorageFailed
from penstock.model.message import Message
from penstock.shard.metering.ages import published, published_us
from penstock.shard.metering.meters import COUNTED, OTHER, GroupMeter, Meters
from penstock.shard.shard import Shard
from penstock.testing import FaultyStorage, MemoryStorage, VirtualClock
from tests.shard.passing_time import pass_time


@pytest.fixture
def broker(clock: VirtualClock) -> Iterator[penstock.Broker]:
    with penstock.open(storage=MemoryStorage(), clock=clock) as opened:
        yield opened


@pytest.fixture
def meters(broker: penstock.Broker) -> Meters:
    return broker.shard.meters


def group(broker: penstock.Broker, topic: str = "t", name: str = "g") -> GroupMeter:
    broker.shard.journal.flush()
    meter = broker.shard.meters.meter_of(broker.shard.topic(topic))
    return meter.groups.get(name, meter.others)


def counts(broker: penstock.Broker, topic: str = "t", name: str = "g") -> dict[str, int]:
    """What happened to messages of a group, without what did not."""
    return {what: count for what, count in zip(COUNTED, group(broker, topic, name).counts, strict=True) if count}


def log_of(broker: penstock.Broker, topic: str = "t") -> Log:
    return broker.shard.topic(topic).partitions[0].messages


# Publishing and committing.


def test_published_messages_are_counted_by_topic_and_in_all(broker: penstock.Broker, meters: Meters) -> None:
    broker.publish("t", "one")
    broker.publish_many("t", ["two", "three"])
    broker.publish_many("u", ["x" * 1000] * 5)
    t, u = (meters.meter_of(broker.shard.topic(name)) for name in "tu")
    assert (t.published, u.published, meters.published) == (3, 5, 8)
    assert 5000 < u.published_bytes < 5500
    assert meters.published_bytes == t.published_bytes + u.published_bytes
    assert meters.written_bytes > meters.published_bytes
    assert meters.commits == broker.shard.journal.commits == sum(meters.commit_messages.counts)
    assert meters.commit_messages.sum == 8


def test_what_was_published_before_is_not_counted_again(broker: penstock.Broker, meters: Meters) -> None:
    for _ in range(3):
        broker.publish("t", "once", dedupe_id="a")
        broker.publish_many("t", ["x", "y"], producer="p", sequence=1)
    assert meters.published == 3


def test_a_publish_lasts_from_being_taken_to_being_durable(shard_on: Callable[..., Shard], clock: VirtualClock) -> None:
    shard = shard_on(MemoryStorage())
    shard.publish("t", Message("a"))
    shard.publish("t", Message("b"))
    shard.publish_many("t", ["c"] * 100)
    clock.advance(0.25)
    shard.journal.flush()
    times = shard.meters.publish_s
    assert sum(times.counts) == 3  # two single messages and a batch
    assert times.sum == pytest.approx(0.75)
    shard.close()


def test_a_clock_that_is_set_back_makes_no_negative_times(shard_on: Callable[..., Shard], clock: VirtualClock) -> None:
    shard = shard_on(MemoryStorage())
    shard.publish("t", Message("a"))
    clock.step_wall(-3600)
    shard.journal.flush()
    assert shard.meters.publish_s.sum == 0.0
    shard.close()


@pytest.mark.parametrize("cause", ["waiting", "encoding", "writing", "syncing", "folding"])
def test_a_commit_is_counted_under_what_took_longest_of_it(
    shard_on: Callable[..., Shard], clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, cause: str
) -> None:
    def slowed(work: Callable[..., Any]) -> Callable[..., Any]:
        def slow(*args: object) -> object:
            clock.advance(0.5)
            return work(*args)

        return slow

    shard = shard_on(MemoryStorage())
    shard.publish("t", Message("a"))
    shard.journal.flush()
    file = shard.journal.current
    assert file is not None
    before = {name: sum(seconds.counts) for name, seconds in shard.meters.commit_s.items()}
    shard.publish("t", Message("b"))
    clock.advance(0.25 if cause != "waiting" else 0.5)
    if cause == "encoding":
        monkeypatch.setattr(SingleMessages, "encode", slowed(SingleMessages.encode))
    elif cause == "writing":
        monkeypatch.setattr(file.handle, "write", slowed(file.handle.write))
    elif cause == "syncing":
        monkeypatch.setattr(file.handle, "sync", slowed(file.handle.sync))
    elif cause == "folding":
        monkeypatch.setattr(shard.folding, "committed", slowed(shard.folding.committed))
    shard.journal.flush()
    more = {name: sum(seconds.counts) - before[name] for name, seconds in shard.meters.commit_s.items()}
    assert more == {name: int(name == cause) for name in before}
    assert shard.meters.commit_s[cause].sum >= 0.5
    shard.close()


def test_syncs_are_measured_by_the_clock_of_the_broker(shard_on: Callable[..., Shard], clock: VirtualClock) -> None:
    shard = shard_on(MemoryStorage())
    shard.publish("t", Message("a"))
    shard.journal.flush()
    file = shard.journal.current
    assert file is not None
    sync, before = file.handle.sync, shard.meters.fsync_s.sum

    def slow_sync() -> None:
        clock.advance(0.5)
        sync()

    file.handle.sync = slow_sync  # type: ignore[method-assign]
    shard.publish("t", Message("b"))
    shard.journal.flush()
    assert shard.meters.fsync_s.sum - before == pytest.approx(0.5)
    shard.close()


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_what_is_refused_is_counted_as_refused_only(shard_on: Callable[..., Shard], error: int) -> None:
    storage = FaultyStorage()
    shard = shard_on(storage)
    _, commit = shard.publish("t", Message("a"))
    storage.fail("write", error)
    shard.journal.flush()
    assert commit is not None
    with pytest.raises(PenstockError):
        commit.result()
    assert (shard.meters.published, shard.meters.refused_commits) == (0, 1)
    storage.heal()
    shard.close()


def test_a_meter_that_fails_does_not_stop_the_broker(
    broker: penstock.Broker, meters: Meters, caplog: pytest.LogCaptureFixture
) -> None:
    meters.commit_bytes = meters.end_to_end_s = None  # type: ignore[assignment]
    with broker.consumer("t", "g") as consumer:
        broker.publish("t", "a")
        consumer.ack(consumer.receive())
    assert broker.group("t", "g").acked == 1
    assert "was not counted" in caplog.text


# Delivery.


def test_every_way_in_which_a_delivery_can_end_is_counted(broker: penstock.Broker, clock: VirtualClock) -> None:
    broker.create_topic("t", max_deliveries=2, retry_backoff=1)
    broker.publish_many("t", [str(n) for n in range(6)])
    consumer = broker.consumer("t", "g", visibility_timeout=10)
    ack, fail, kill, release, *expire = consumer.receive(6)
    ack.ack()
    fail.fail("no milk")
    kill.kill("poison")
    release.release()
    assert counts(broker) == {"delivered": 6, "acked": 1, "failed": 1, "dead": 1, "released": 1}
    pass_time(broker, clock, 11)
    assert counts(broker)["expired"] == len(expire) == 2
    again = consumer.receive(6)
    assert len(again) == 4
    consumer.fail(again, "still no milk")
    pass_time(broker, clock, 0)
    # Those that failed before are dead; the one that was only released lives.
    assert counts(broker) == {
        "delivered": 10, "redelivered": 4, "acked": 1, "failed": 5, "expired": 2, "released": 1, "dead": 4,
    }  # fmt: skip
    broker.redrive("t")
    broker.publish("t", "short", expires_in=1)
    pass_time(broker, clock, 2)
    assert counts(broker)["redriven"] == 4
    assert counts(broker)["lapsed"] == 1
    assert broker.shard.meters.totals == group(broker).counts
    consumer.close()


def test_a_group_that_is_moved_keeps_its_counts(broker: penstock.Broker) -> None:
    broker.publish_many("t", ["a", "b"])
    with broker.consumer("t", "g") as consumer:
        consumer.ack(consumer.receive(2))
        broker.seek_group("t", "g", "earliest")
        consumer.ack(consumer.receive(2))
    assert counts(broker)["acked"] == 4
    assert broker.group("t", "g").acked == 2


def test_a_fetch_that_finds_messages_is_measured(broker: penstock.Broker, meters: Meters) -> None:
    with broker.consumer("t", "g") as consumer:
        consumer.receive()
        assert sum(meters.fetch_s.counts) == 0
        broker.publish("t", "a")
        consumer.receive()
    assert sum(meters.fetch_s.counts) == 1


def test_content_that_is_not_in_memory_is_read_and_measured(clock: VirtualClock) -> None:
    storage = MemoryStorage()
    with penstock.open(storage=storage, clock=clock) as broker:
        broker.publish_many("t", ["a"] * 10)
    with penstock.open(storage=storage, clock=clock) as broker, broker.consumer("t", "g") as consumer:
        assert len(consumer.receive(10)) == 10
        assert sum(broker.shard.meters.content_read_s.counts) == 1


# End to end.


@pytest.mark.parametrize("settle", [False, True])
def test_end_to_end_is_from_publish_to_ack(
    broker: penstock.Broker, clock: VirtualClock, meters: Meters, settle: bool
) -> None:
    for _ in range(3):
        broker.publish_many("t", ["x" * 100] * 10)
        clock.advance(60)
    if settle:
        broker.settle()
        assert len(log_of(broker)) == 0
    with broker.consumer("t", "g") as consumer:
        consumer.ack(consumer.receive(30))
    times = meters.end_to_end_s
    assert sum(times.counts) == 30
    assert times.sum == pytest.approx(10 * (180 + 120 + 60), rel=0.02)
    assert group(broker).end_to_end_s == pytest.approx(times.sum)
    assert group(broker).acked_bytes > 500


def test_acks_here_and_there_find_their_own_times(broker: penstock.Broker, clock: VirtualClock, meters: Meters) -> None:
    for _ in range(4):
        broker.publish_many("t", ["x"] * 5)
        clock.advance(1)
    with broker.consumer("t", "g") as consumer:
        messages = consumer.receive(20)
        consumer.ack([message for message in messages if message.offset in (0, 6, 7, 19)])
    assert meters.end_to_end_s.sum == pytest.approx(4 + 3 + 3 + 1)
    assert sum(meters.end_to_end_s.counts) == 4


def test_a_run_of_very_many_blocks_is_looked_at_in_some_places(broker: penstock.Broker, clock: VirtualClock) -> None:
    for _ in range(500):
        broker.publish("t", "x")
        clock.advance(1)
    with broker.shard.lock:
        found = list(published(log_of(broker), 100, 499))
    assert len(found) <= 64
    assert sum(messages for _, messages, _ in found) == 400
    exact = sum(broker.shard.clock.wall_us() - VirtualClock.START_US - 1_000_000 * n for n in range(100, 500))
    estimated = sum((clock.wall_us() - time_us) * messages for time_us, messages, _ in found)
    assert estimated == pytest.approx(exact, rel=0.02)


def test_some_in_segments_and_some_in_the_journal_are_all_found(broker: penstock.Broker, clock: VirtualClock) -> None:
    for place in range(6):
        broker.publish_many("t", ["x"] * 10)
        clock.advance(10)
        if place in (1, 3):
            broker.settle()
    log = log_of(broker)
    with broker.shard.lock:
        assert [messages for _, messages, _ in published(log, 5, 54)] == [15, 20, 10, 5]
        assert [messages for _, messages, _ in published(log, 0, 59, [0, 19, 20, 45, 59])] == [2, 1, 1, 1]
        assert list(published(log, 60, 70)) == []
        times = [published_us(log, offset) for offset in (0, 19, 20, 45, 59)]
        assert published_us(log, 60) is None
    assert [((time_us or 0) - VirtualClock.START_US) // 1_000_000 for time_us in times] == [0, 10, 20, 40, 50]


# Delays.


def test_delayed_messages_are_as_late_as_nobody_looked(
    broker: penstock.Broker, clock: VirtualClock, meters: Meters
) -> None:
    with broker.consumer("t", "g"):
        broker.publish_many("t", [Message("x", delay=10), Message("y", delay=12), Message("z", delay=1000)])
        pass_time(broker, clock, 13)
    assert sum(meters.due_lateness_s.counts) == 2
    assert meters.due_lateness_s.sum == pytest.approx(3 + 1)


def test_what_fell_due_before_anybody_consumed_is_not_late(
    broker: penstock.Broker, clock: VirtualClock, meters: Meters
) -> None:
    broker.publish("t", "x", delay=10)
    clock.advance(3600)
    with broker.consumer("t", "g") as consumer:
        assert len(consumer.receive()) == 1
    assert sum(meters.due_lateness_s.counts) == 0


# Upkeep.


def test_settling_carrying_and_retention_are_counted(
    broker: penstock.Broker, clock: VirtualClock, meters: Meters
) -> None:
    broker.create_topic("t", retention_age="1d")
    broker.publish_many("t", ["x"] * 10)
    broker.settle()
    assert (meters.settled_segments, sum(meters.settle_s.counts)) == (1, 1)
    assert meters.settled_bytes > 0
    clock.advance(2 * 86400)
    assert broker.retain() == 1
    assert meters.retained == {"archived": 0, "removed": 1}
    before = sum(meters.settle_s.counts)
    broker.settle()  # of the event that says so
    broker.settle()  # nothing
    assert sum(meters.settle_s.counts) - before <= 1


def test_upkeep_that_fails_is_counted(broker: penstock.Broker, meters: Meters) -> None:
    def fail() -> None:
        raise StorageFailed("no disk")

    broker._backgrounds[0]._attempt("settling", fail)
    assert meters.upkeep_failures["settling"] == 1


# How many meters there are.


def shown(broker: penstock.Broker) -> set[str]:
    topics = broker.shard.catalog.by_id.values()
    return {broker.shard.meters.meter_of(topic).name for topic in topics}


def limited(broker: penstock.Broker, named_max: int) -> Meters:
    with broker.shard.lock:
        broker.shard.meters.limit(named_max, list(broker.shard.catalog.by_id.values()))
    return broker.shard.meters


def test_the_first_topics_have_meters_of_their_own(broker: penstock.Broker) -> None:
    for name in ("old", "older"):
        broker.create_topic(name)
    meters = limited(broker, 3)
    for name in ("a", "b", "c"):
        broker.publish(name, "x")
    assert shown(broker) == {"old", "older", "a", OTHER}
    assert meters.others.published == 2
    assert meters.published == 3


def test_a_deleted_topic_leaves_its_place_to_a_new_one_and_no_counter_goes_down(broker: penstock.Broker) -> None:
    meters = limited(broker, 2)
    for name in ("a", "b", "c"):
        broker.publish(name, "x")
    broker.delete_topic("a")
    broker.delete_topic("c")
    assert meters.others.published == 1
    broker.publish("d", "x")
    broker.publish("e", "x")
    assert shown(broker) == {"b", "d", OTHER}
    assert meters.others.published == 2


def test_a_lower_limit_moves_what_was_counted_to_the_others(broker: penstock.Broker) -> None:
    for name in ("a", "b", "c"):
        broker.publish(name, "x")
        with broker.consumer(name, "g") as consumer:
            consumer.ack(consumer.receive())
    broker.shard.journal.flush()
    meters = limited(broker, 1)
    assert shown(broker) == {"a", OTHER}
    assert (meters.others.published, meters.others.others.counts[COUNTED.index("acked")]) == (2, 2)


def test_groups_have_as_many_places_of_all_topics_together(broker: penstock.Broker) -> None:
    limited(broker, 2)
    broker.publish("t", "x")
    for name in ("a", "b", "c", "d"):
        with broker.consumer("t", name) as consumer:
            consumer.ack(consumer.receive())
    assert counts(broker, name="a")["acked"] == 1
    assert group(broker, name="c") is group(broker, name="d")
    assert (group(broker, name="d").name, counts(broker, name="d")["acked"]) == (OTHER, 2)
    broker.delete_group("t", "a")
    with broker.consumer("t", "e") as consumer:
        consumer.ack(consumer.receive())
    assert group(broker, name="e").name == "e"


@pytest.mark.parametrize("named", [{"topic": OTHER, "group": "g"}, {"topic": "t", "group": OTHER}])
def test_a_topic_or_group_that_is_called_as_the_others_is_one_of_them(
    broker: penstock.Broker, named: dict[str, Any]
) -> None:
    broker.publish(named["topic"], "x")
    with broker.consumer(**named) as consumer:
        consumer.ack(consumer.receive())
    assert group(broker, named["topic"], named["group"]).name == OTHER
