"""A broker with several shards in one process: every operation as with one, wherever its topic lives."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
import penstock.aio
from penstock.model.errors import BrokerClosed, InvalidArgument, LeaseLost, ScheduleNotFound, StorageFailed
from penstock.model.placement import shard_of
from penstock.shard.shard import Shard
from penstock.testing import FaultyStorage, MemoryStorage, VirtualClock
from tests.patience import until

SHARDS = 4
TOPICS = [f"topic-{number}" for number in range(16)]
APART = [next(name for name in TOPICS if shard_of(name, SHARDS) == number) for number in range(SHARDS)]
"""A topic in each shard."""


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def broker(clock: VirtualClock) -> Iterator[penstock.Broker]:
    with penstock.open(storage=MemoryStorage(), clock=clock, shards=SHARDS) as opened:
        yield opened


def test_topics_live_in_all_shards_and_are_listed_as_those_of_one(broker: penstock.Broker) -> None:
    for name in TOPICS:
        broker.publish(name, name)
    assert [topic.name for topic in broker.topics()] == sorted(TOPICS)
    assert all(shard.catalog.by_name for shard in broker.shards)
    assert [[message.value for message in broker.read(name)] for name in TOPICS] == [[name.encode()] for name in TOPICS]
    status = broker.status()
    assert (status.topics, status.partitions, status.groups, status.frozen) == (len(TOPICS), len(TOPICS), 0, None)
    assert status.unwritten_bytes == 0


def test_what_one_shard_does_can_be_asked_for_of_all(broker: penstock.Broker) -> None:
    for name in APART:
        broker.create_topic(name, partitions=2, max_deliveries=1)
        broker.publish_many(name, [penstock.Message(f"{n}", key=f"{n}") for n in range(10)])
        broker.create_group(name, "g")
        identity = broker.publish(name, "later", delay="1h")
        assert [delayed.id for delayed in broker.delayed(name)] == [identity]
        assert broker.cancel_delayed(identity)
        assert broker.trace(identity).message is not None
        assert broker.group(name, "g").published == 11
        assert broker.pause_group(name, "g").settings.paused
        broker.resume_group(name, "g")
        assert len(list(broker.events(name))) > 0
        assert len(broker.layout(name).messages) == 2
        assert sum(len(batch) for batch in broker.read_arrow(name)) == 11
        assert broker.replay(name, "again") == 10
        assert broker.configure_topic(name, retention_age="1d").config.retention_age == 86400
    assert [(group.topic, group.name) for group in broker.groups()] == sorted(
        (n, g) for n in APART for g in ("again", "g")
    )
    assert [group.name for group in broker.groups(APART[2])] == ["again", "g"]
    broker.settle()
    assert broker.status().segments >= 2 * SHARDS
    assert broker.retain() == 0
    broker.delete_topic(APART[0])
    assert [topic.name for topic in broker.topics()] == sorted(APART[1:])


def test_all_of_it_is_there_after_a_restart(tmp_path: Path) -> None:
    with penstock.open(tmp_path, shards=SHARDS) as broker:
        ids = {name: broker.publish_many(name, ["a", "b"], producer="p", sequence=1) for name in TOPICS}
        with broker.consumer(TOPICS, "g") as consumer:
            consumer.ack([message for message in consumer.receive(100) if message.offset == 0])
    with penstock.open(tmp_path) as broker:
        assert broker.recovery.messages == 2 * len(TOPICS)  # of all shards
        for name in TOPICS:
            assert list(broker.publish_many(name, ["a", "b"], producer="p", sequence=1)) == list(ids[name])
            assert broker.group(name, "g").acked == 1
        with broker.consumer(TOPICS, "g") as consumer:
            assert Counter(message.topic for message in consumer.receive(100)) == Counter(TOPICS)


def test_L1_power_cuts_lose_nothing_that_was_acknowledged_in_any_shard() -> None:
    for seed in range(12):
        storage = FaultyStorage(seed)
        acknowledged: dict[str, int] = Counter()
        broker = penstock.open(storage=storage, shards=SHARDS, min_free_bytes=0)
        for shard in broker.shards:
            shard.storage.cut_power_after(20 + seed * 7 % 60)  # type: ignore[attr-defined]
        try:
            for number in range(200):
                name = TOPICS[number % len(TOPICS)]
                broker.publish(name, f"{acknowledged[name]}")
                acknowledged[name] += 1
        except (OSError, StorageFailed):
            pass
        again = storage.crash()
        with contextlib.suppress(OSError):
            broker.close()
        with penstock.open(storage=again, min_free_bytes=0) as recovered:
            for name, count in acknowledged.items():
                values = [message.value for message in recovered.read(name)]
                assert values[:count] == [b"%d" % n for n in range(count)]
                assert len(values) <= count + 1


# A consumer of topics that live apart.


def test_a_consumer_merges_topics_of_all_shards_fairly(broker: penstock.Broker) -> None:
    for name in APART:
        broker.publish_many(name, [f"{n}" for n in range(100)])
    with broker.consumer(APART, "g") as consumer:
        seen = Counter(message.topic for _ in range(8) for message in consumer.receive(10))
        assert set(seen) == set(APART)
        assert max(seen.values()) - min(seen.values()) <= 10


def test_no_two_consumers_of_a_broker_have_one_name_wherever_their_topics_live(broker: penstock.Broker) -> None:
    chosen = [*APART, APART, APART[::-1], *APART]
    consumers = [broker.consumer(topics, "g") for topics in chosen]
    assert len({consumer.name for consumer in consumers}) == len(chosen)


def test_a_consumer_that_is_refused_leaves_no_group_in_any_shard(broker: penstock.Broker) -> None:
    for topics in ([*APART, "penstock.schedules"], [*APART, APART[0]], [*APART, "no/name"]):
        with pytest.raises(InvalidArgument):
            broker.consumer(topics, "g")
    assert broker.groups() == []


def test_all_that_a_consumer_holds_counts_against_one_window(broker: penstock.Broker) -> None:
    for name in APART:
        broker.publish_many(name, [f"{n}" for n in range(10)])
    with broker.consumer(APART, "g", max_in_flight=7) as consumer:
        held = consumer.receive(100)
        assert len(held) == 7
        assert consumer.receive(100) == []
        consumer.ack(held[:3])
        more = consumer.receive(100)
        assert len(more) == 3
        consumer.ack(held[3:] + more)
    assert sum(group.acked for group in broker.groups()) == 10


def test_messages_of_several_shards_are_finished_together(broker: penstock.Broker) -> None:
    for name in APART:
        broker.create_topic(name, max_deliveries=5, retry_backoff=0)
        broker.publish_many(name, ["a", "b", "c", "d", "e"])
    with broker.consumer(APART, "g") as consumer:
        messages = consumer.receive(100)
        by_value = {value: [m for m in messages if m.value == value] for value in (b"a", b"b", b"c", b"d", b"e")}
        consumer.ack(by_value[b"a"])
        consumer.release(by_value[b"b"])
        consumer.fail(by_value[b"c"], "no", delay="1h")
        consumer.kill(by_value[b"d"], "never")
        consumer.extend(by_value[b"e"], 100)
        for message in by_value[b"e"]:
            message.ack()
        consumer.heartbeat()
        with pytest.raises(LeaseLost) as lost:
            consumer.ack([*by_value[b"a"][:1], *by_value[b"d"], *by_value[b"c"][:2]])
        assert len(lost.value.ids) == SHARDS + 2
        assert sorted(message.value for message in consumer.receive(100)) == [b"b"] * SHARDS
    for name in APART:
        found = broker.group(name, "g")
        assert (found.acked, found.dead, found.retrying) == (2, 1, 1)
        assert [letter.value for letter in broker.dead_letters(name)] == [b"d"]


@pytest.mark.parametrize("number", range(SHARDS))
def test_whoever_waits_is_woken_by_any_shard(number: int, broker: penstock.Broker) -> None:
    with broker.consumer(APART, "g") as consumer:
        found: list[bytes] = []
        thread = threading.Thread(target=lambda: found.extend(m.value for m in consumer.receive(5, wait=60)))
        thread.start()
        until_waiting(broker)
        broker.publish(APART[number], "come")
        thread.join(30)
        assert found == [b"come"]
        assert not any(waiting(shard) for shard in broker.shards)  # it waits nowhere any more


def test_whoever_waits_with_a_full_window_is_woken_by_an_ack_anywhere(broker: penstock.Broker) -> None:
    broker.publish(APART[0], "first")
    broker.publish(APART[1], "second")
    with broker.consumer(APART, "g", max_in_flight=1) as consumer:
        (held,) = consumer.receive(1)
        found: list[str] = []
        thread = threading.Thread(target=lambda: found.extend(m.topic for m in consumer.receive(1, wait=60)))
        thread.start()
        until_waiting(broker)
        held.ack()
        thread.join(30)
        assert sorted([held.topic, *found]) == sorted(APART[:2])


def test_closing_wakes_whoever_waits(broker: penstock.Broker) -> None:
    consumer = broker.consumer(APART, "g")
    found: list[object] = []

    def receive() -> None:
        try:
            found.append(consumer.receive(5, wait=60))
        except BrokerClosed:
            found.append([])

    thread = threading.Thread(target=receive)
    thread.start()
    until_waiting(broker)
    consumer.close()
    thread.join(30)
    assert found == [[]]


def test_a_loop_over_a_consumer_gets_everything_of_all_shards_once(broker: penstock.Broker) -> None:
    for name in TOPICS:
        broker.publish_many(name, [f"{name}-{n}" for n in range(20)])
    seen: Counter[bytes] = Counter()
    with broker.consumer(TOPICS, "g", max_in_flight=50) as consumer:
        for message in consumer:
            seen[message.value] += 1
            message.ack()
            if len(seen) == 20 * len(TOPICS):
                break
    assert set(seen.values()) == {1}


def test_four_threads_and_four_consumers_share_all_of_it(broker: penstock.Broker) -> None:
    for name in TOPICS:
        broker.publish_many(name, [f"{name}-{n}" for n in range(50)])
    seen: list[bytes] = []

    def work() -> None:
        with broker.consumer(TOPICS, "g", max_in_flight=20) as consumer:
            while messages := consumer.receive(7):
                seen.extend(message.value for message in messages)
                consumer.ack(messages)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(seen) == len(set(seen)) == 50 * len(TOPICS)


def test_the_awaited_face_merges_too(tmp_path: Path) -> None:
    async def main() -> None:
        async with penstock.aio.open(tmp_path, shards=SHARDS) as broker:
            for name in APART:
                await broker.publish_many(name, ["a", "b", "c"])
            async with await broker.consumer(APART, "g", max_in_flight=5) as consumer:
                seen: list[str] = []
                while messages := await consumer.receive(10):
                    seen += [message.topic for message in messages]
                    await messages[0].ack()
                    await consumer.ack(messages[1:])
                assert Counter(seen) == dict.fromkeys(APART, 3)
                receiving = asyncio.ensure_future(consumer.receive(1, wait=60))
                await asyncio.to_thread(until_waiting, broker._broker)
                await broker.publish(APART[3], "late")
                assert [message.value for message in await receiving] == [b"late"]
                receiving = asyncio.ensure_future(consumer.receive(1, wait=60))
                await asyncio.to_thread(until_waiting, broker._broker)
                receiving.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await receiving
                assert not any(waiting(shard) for shard in broker._broker.shards)

    asyncio.run(main())


# Schedules, dead letters, stages.


def test_a_schedule_lives_with_its_topic_and_moves_with_it(broker: penstock.Broker, clock: VirtualClock) -> None:
    broker.schedule("hourly", "0 * * * *", APART[0], "first")
    broker.schedule("daily", "0 0 * * *", APART[1], "other")
    broker.schedule("hourly", "0 * * * *", APART[2], "second")  # to a topic of another shard
    assert [(schedule.name, schedule.topic) for schedule in broker.schedules()] == [
        ("daily", APART[1]),
        ("hourly", APART[2]),
    ]
    assert broker.pause_schedule("hourly").paused
    assert not broker.resume_schedule("hourly").paused
    clock.advance(3600)
    for shard in broker.shards:
        with shard.lock:
            shard.keep_time()
        shard.flush()
    assert [message.value for message in broker.read(APART[2])] == [b"second"]
    assert APART[0] not in [topic.name for topic in broker.topics()]
    assert [topic.name for topic in broker.topics()].count("penstock.schedules") <= 1
    broker.remove_schedule("hourly")
    with pytest.raises(ScheduleNotFound):
        broker.remove_schedule("hourly")
    assert [schedule.name for schedule in broker.schedules()] == ["daily"]


def test_dead_letters_go_to_a_topic_of_another_shard_once(broker: penstock.Broker) -> None:
    broker.create_topic(APART[0], max_deliveries=1)
    broker.publish_many(APART[0], [penstock.Message(f"{n}", key="k", headers={"h": "1"}, priority=7) for n in range(5)])
    with broker.consumer(APART[0], "g") as consumer:
        consumer.kill(consumer.receive(10), "never")
    report = broker.redrive(APART[0], to=APART[1])
    assert (report.selected, report.copied, report.redriven, report.skipped) == (5, 5, 0, 0)
    assert broker.dead_letters(APART[0]) == []
    copies = list(broker.read(APART[1]))
    assert [copy.value for copy in copies] == [b"0", b"1", b"2", b"3", b"4"]
    assert {(copy.key, copy.priority) for copy in copies} == {(b"k", 7)}
    assert copies[0].headers is not None
    assert copies[0].headers["penstock-origin"] == f"{APART[0]}/0/0"
    assert any(str(copies[0].id) in (line.cause or "") for line in broker.trace(f"{APART[0]}/0/0").lines)
    assert broker.redrive(APART[0], to=APART[1]).selected == 0


def test_a_redrive_that_was_cut_short_between_two_shards_copies_nothing_twice(
    broker: penstock.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic(APART[0], max_deliveries=1)
    broker.publish_many(APART[0], ["a", "b"])
    with broker.consumer(APART[0], "g") as consumer:
        consumer.kill(consumer.receive(10), "never")
    home = broker.shards.of(APART[0])
    with monkeypatch.context() as patched:
        patched.setattr(home, "log_events", lambda *_: (_ for _ in ()).throw(StorageFailed("cut")))
        with pytest.raises(StorageFailed, match="cut"):
            broker.redrive(APART[0], to=APART[1])
    assert len(list(broker.read(APART[1]))) == len(broker.dead_letters(APART[0])) == 2
    assert broker.redrive(APART[0], to=APART[1]).copied == 2
    assert [message.value for message in broker.read(APART[1])] == [b"a", b"b"]
    assert broker.dead_letters(APART[0]) == []


def test_dead_letters_go_back_to_their_group_within_their_shard(broker: penstock.Broker) -> None:
    for name in APART:
        broker.create_topic(name, max_deliveries=1)
        broker.publish(name, "v")
        with broker.consumer(name, "g") as consumer:
            consumer.kill(consumer.receive(), "never")
        assert broker.redrive(name).redriven == 1
        assert broker.purge_dead_letters(name) == 0
        with broker.consumer(name, "g") as consumer:
            assert [message.value for message in consumer.receive()] == [b"v"]


def test_a_stage_holds_topics_of_all_shards_and_is_published_once(broker: penstock.Broker) -> None:
    for name in APART:
        broker.stage_many("s1", name, ["a", "b"])
    broker.stage_many("s2", APART[0], ["c"])
    assert broker.topics() == []
    assert (broker.seal_stage("s1"), broker.seal_stage("s2")) == (2 * SHARDS, 1)
    assert broker.staged_sequence("job") is None
    assert broker.publish_staged(["s1", "s2"], producer="job", sequence=1) == 2 * SHARDS + 1
    assert broker.staged_sequence("job") == 1
    broker.stage_many("s3", APART[1], ["again"])
    broker.seal_stage("s3")
    assert broker.publish_staged(["s3"], producer="job", sequence=1) == 2 * SHARDS + 1
    assert [len(list(broker.read(name))) for name in APART] == [3, 2, 2, 2]
    broker.stage_many("s4", APART[2], ["never"])
    broker.drop_staged(["s4"])
    assert [len(shard.stages) for shard in broker.shards] == [0] * SHARDS


def test_a_staged_publish_that_was_cut_short_between_shards_is_finished_by_the_next_attempt(
    broker: penstock.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stage(name: str) -> None:
        for topic in APART:
            broker.stage_many(name, topic, ["x"])
        broker.seal_stage(name)

    stage("first")
    last = list(broker.shards)[-1]
    with monkeypatch.context() as patched:
        patched.setattr(last.staging, "publish_staged", lambda *_: (_ for _ in ()).throw(StorageFailed("cut")))
        with pytest.raises(StorageFailed, match="cut"):
            broker.publish_staged(["first"], producer="job", sequence=7)
    assert broker.staged_sequence("job") is None
    stage("second")
    assert broker.publish_staged(["second"], producer="job", sequence=7) == SHARDS
    assert broker.staged_sequence("job") == 7
    assert [len(list(broker.read(topic))) for topic in APART] == [1] * SHARDS


# One owner, one end.


def test_the_shard_of_a_broker_with_several_is_not_to_be_had(broker: penstock.Broker) -> None:
    with pytest.raises(InvalidArgument, match="has 4 shards"):
        _ = broker.shard


@pytest.mark.parametrize("name", ["", "..", "a/b", None, 7])
def test_a_name_that_is_none_is_refused_before_a_shard_is_chosen(name: object, broker: penstock.Broker) -> None:
    with pytest.raises(InvalidArgument, match="is not a topic name"):
        broker.publish(name, "v")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        broker.consumer([APART[0], name], "g")  # type: ignore[list-item]


def test_closing_closes_all_shards(tmp_path: Path) -> None:
    broker = penstock.open(tmp_path, shards=SHARDS)
    broker.publish(APART[0], "v")
    broker.close()
    broker.close()
    assert all(shard.closed for shard in broker.shards)
    for call in (broker.status, broker.groups, broker.schedules, lambda: broker.publish(APART[1], "v")):
        with pytest.raises(BrokerClosed):
            call()


def test_a_fork_does_not_keep_the_directory(tmp_path: Path) -> None:
    broker = penstock.open(tmp_path, shards=2)
    (read, write), (begun, begin) = os.pipe(), os.pipe()
    child = os.fork()
    if not child:  # pragma: no cover - another process
        os.close(write)
        os.write(begin, b"!")
        os.read(read, 1)
        os._exit(0)
    try:
        os.read(begun, 1)
        broker.close()
        penstock.open(tmp_path).close()  # although the child is still there
    finally:
        os.close(write)
        os.waitpid(child, 0)
        for descriptor in (read, begun, begin):
            os.close(descriptor)


def waiting(shard: Shard) -> int:
    """How many wait for messages in a shard."""
    with shard.lock:
        used = [shard.dispatcher.in_use.groups(topic) for topic in shard.catalog.by_id.values()]
        return sum(len(active.waiters) for groups in used for active in groups.values())


def until_waiting(broker: penstock.Broker) -> None:
    until(lambda: all(waiting(shard) for shard in broker.shards))
