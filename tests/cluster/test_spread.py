"""A topic that is spread over shards: what is promised of a topic holds, in each slice or over all of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

import pytest

import penstock
from penstock import Message
from penstock.model.errors import (
    InvalidArgument,
    LimitExceeded,
    Overloaded,
    StorageFailed,
    TopicExists,
    TopicNotFound,
)
from penstock.model.intake import check_message, check_messages
from penstock.model.placement import Spread
from penstock.testing import MemoryStorage, VirtualClock

SHARDS, PARTITIONS = 4, 8
KEYS = [f"key-{number}" for number in range(40)]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def storage() -> MemoryStorage:
    return MemoryStorage()


@pytest.fixture
def broker(storage: MemoryStorage, clock: VirtualClock) -> Iterator[penstock.Broker]:
    with penstock.open(storage=storage, clock=clock, shards=SHARDS, min_free_bytes=0) as opened:
        opened.create_topic("orders", partitions=PARTITIONS, spread=SHARDS, max_deliveries=1)
        yield opened


def keyed(prefix: str = "") -> list[Message]:
    return [Message(f"{prefix}{key}", key=key) for key in KEYS]


def values(broker: penstock.Broker, topic: str = "orders") -> Counter[bytes]:
    return Counter(message.value for message in broker.read(topic))


def drain(broker: penstock.Broker, group: str = "g", topic: str = "orders") -> list[bytes]:
    """The values of all that is ready, acked."""
    found: list[bytes] = []
    with broker.consumer(topic, group) as consumer:
        while some := consumer.receive(1000):
            found += [message.value for message in some]
            consumer.ack(some)
    return found


# Publishing.


def test_messages_are_in_all_slices_and_each_shard_fills_its_own_partitions(broker: penstock.Broker) -> None:
    ids = broker.publish_many("orders", keyed())
    assert {identity.partition for identity in ids} == set(range(PARTITIONS))
    for number, shard in enumerate(broker.shards.slices("orders")[1]):
        filled = [part.messages.partition for part in shard.topic("orders").partitions if part.messages.next_offset]
        assert filled == [number, number + SHARDS]


def test_a_key_goes_to_the_partition_that_it_has_without_spread(broker: penstock.Broker) -> None:
    broker.create_topic("plain", partitions=PARTITIONS)
    expected = [identity.partition for identity in broker.publish_many("plain", keyed())]
    for _ in range(2):
        assert [identity.partition for identity in broker.publish_many("orders", keyed())] == expected
        assert [broker.publish("orders", "v", key=key).partition for key in KEYS] == expected


def test_a_batch_is_all_or_nothing_in_a_slice(clock: VirtualClock) -> None:
    with penstock.open(storage=MemoryStorage(), clock=clock, shards=SHARDS, min_free_bytes=0) as broker:
        broker.create_topic("orders", partitions=PARTITIONS, spread=SHARDS)
        slices = broker.shards.slices("orders")[1]
        slices[2].journal._freeze(OSError(5, "input/output error"))
        with pytest.raises(StorageFailed):
            broker.publish_many("orders", keyed())
        counts = [sum(log.messages.committed_end for log in shard.topic("orders").partitions) for shard in slices]
    found = Counter(Spread(SHARDS, PARTITIONS).of_key(key.encode()) for key in KEYS)
    assert counts[2] == 0
    assert all(count in (0, found[number]) for number, count in enumerate(counts))


def test_ids_of_a_batch_are_in_the_order_of_its_messages(broker: penstock.Broker) -> None:
    batch = [*keyed(), Message("anywhere"), Message("asked", partition=6)]
    ids = broker.publish_many("orders", batch)
    stored = {message.id: message.value for message in broker.read("orders")}
    assert [stored[identity].decode() for identity in ids] == [message.value for message in batch]


def test_a_dedupe_id_without_a_key_finds_its_message_again(broker: penstock.Broker, clock: VirtualClock) -> None:
    first = [broker.publish("orders", "v", dedupe_id=f"id-{n}") for n in range(20)]
    assert len({identity.partition % SHARDS for identity in first}) > 1
    clock.advance(100)
    assert [broker.publish("orders", "again", dedupe_id=f"id-{n}") for n in range(20)] == first
    batch = [Message("again", dedupe_id=f"id-{n}") for n in range(20)]
    assert list(broker.publish_many("orders", batch)) == first
    assert values(broker) == {b"v": 20}


def test_L3_a_producer_that_repeats_a_sequence_gets_the_same_ids(broker: penstock.Broker) -> None:
    batches: list[list[Message | bytes | str]] = [[*keyed()], ["a", "b"], [*keyed(), "c"]]
    for sequence, batch in enumerate(batches):
        ids = list(broker.publish_many("orders", batch, producer="p", sequence=sequence))
        assert list(broker.publish_many("orders", batch, producer="p", sequence=sequence)) == ids
    assert values(broker).total() == 2 * len(KEYS) + 3


def test_slices_share_the_limits_of_the_topic(broker: penstock.Broker) -> None:
    broker.create_topic("small", partitions=PARTITIONS, spread=SHARDS, max_backlog=40)
    for number in range(PARTITIONS):
        for _ in range(5):
            broker.publish("small", "v", partition=number)
    for number in range(PARTITIONS):
        with pytest.raises(Overloaded, match="shared by 4 shards"):
            broker.publish("small", "one more", partition=number)
    with pytest.raises(LimitExceeded, match="10"):
        broker.publish_many("small", [Message("v", partition=0)] * 11)
    drain(broker, topic="small")
    assert broker.publish("small", "v", partition=3).offset == 5
    group = broker.create_group("orders", "limited", max_in_flight=8)
    assert group.settings.max_in_flight == 8
    broker.publish_many("orders", [Message("v", partition=n % PARTITIONS) for n in range(80)])
    with broker.consumer("orders", "limited") as consumer:
        assert len(consumer.receive(80)) == 8


# Consuming.


@pytest.mark.parametrize("members", range(1, 7))
def test_partitions_are_balanced_over_the_members_of_an_assigned_group(broker: penstock.Broker, members: int) -> None:
    joined = [broker.consumer("orders", "a", name=f"m{n}", mode="assigned") for n in range(members)]
    told = {member.name: list(member.partitions) for member in broker.group("orders", "a").members}
    owned = [told[consumer.name] for consumer in joined]
    assert sorted(number for own in owned for number in own) == list(range(PARTITIONS))
    assert max(map(len, owned)) - min(map(len, owned)) <= 1
    for consumer in joined:
        consumer.close()


def test_a_partition_changes_its_owner_when_nothing_of_it_is_held(broker: penstock.Broker) -> None:
    broker.publish_many("orders", [Message("v", partition=n) for n in range(PARTITIONS)])
    with broker.consumer("orders", "a", name="first", mode="assigned") as first:
        held = first.receive(PARTITIONS)
        assert len(held) == PARTITIONS
        broker.publish_many("orders", [Message("w", partition=n) for n in range(PARTITIONS)])
        with broker.consumer("orders", "a", name="second", mode="assigned") as second:
            assert second.receive(PARTITIONS) == []
            first.ack(held)
            found = second.receive(PARTITIONS)
            own = next(member.partitions for member in broker.group("orders", "a").members if member.name == "second")
            assert ({message.partition for message in found}, len(own)) == (set(own), PARTITIONS // 2)
            assert len(first.receive(PARTITIONS)) == PARTITIONS // 2


def test_messages_of_a_key_come_in_order_and_lanes_hold_within_a_partition(broker: penstock.Broker) -> None:
    for number in range(6):
        priority = "high" if number >= 3 else "low"
        broker.publish_many("orders", [Message(f"{number}", key=key, priority=priority) for key in KEYS])
    seen: dict[bytes | None, list[bytes]] = defaultdict(list)
    by_partition: dict[int, list[int]] = defaultdict(list)
    with broker.consumer("orders", "g") as consumer:
        while some := consumer.receive(7):
            for message in some:
                seen[message.key].append(message.value)
                by_partition[message.partition].append(message.priority)
            consumer.ack(some)
    assert len(seen) == len(KEYS)
    assert all(found == [b"3", b"4", b"5", b"0", b"1", b"2"] for found in seen.values())
    assert all(lanes == sorted(lanes) for lanes in by_partition.values())


def test_with_order_key_one_message_of_a_key_is_held_at_a_time(broker: penstock.Broker) -> None:
    broker.create_topic("strict", partitions=PARTITIONS, spread=SHARDS, order="key")
    broker.publish_many("strict", [Message(f"{n}", key=key) for n in range(3) for key in KEYS])
    with broker.consumer("strict", "g") as consumer:
        for number in range(3):
            some = consumer.receive(1000)
            assert Counter(message.key for message in some) == Counter(key.encode() for key in KEYS)
            assert {message.value for message in some} == {f"{number}".encode()}
            consumer.ack(some)


# Making and deleting.


def test_a_topic_is_spread_over_no_more_shards_than_there_are(broker: penstock.Broker) -> None:
    with pytest.raises(InvalidArgument, match="there are 4 shards"):
        broker.create_topic("wide", partitions=9, spread=5)
    with pytest.raises(InvalidArgument, match="3 partitions cannot be dealt to 4 shards"):
        broker.create_topic("narrow", partitions=3, spread=4)
    with pytest.raises(TopicExists):
        broker.create_topic("orders", partitions=PARTITIONS, spread=SHARDS)
    with pytest.raises(InvalidArgument):
        broker.configure_topic("orders", spread=2)
    assert [topic.name for topic in broker.topics()] == ["orders"]


@pytest.mark.parametrize("spread", [1, 2, 4])
def test_L3_a_topic_made_again_goes_on_with_higher_offsets(broker: penstock.Broker, spread: int) -> None:
    for before, after in ((SHARDS, spread), (spread, SHARDS)):
        broker.delete_topic("orders")
        broker.create_topic("orders", partitions=PARTITIONS, spread=before)
        ids = broker.publish_many("orders", [Message("v", partition=5)] * 20)
        broker.delete_topic("orders")
        with pytest.raises(TopicNotFound):
            list(broker.read("orders"))
        broker.create_topic("orders", partitions=PARTITIONS, spread=after)
        assert values(broker).total() == 0
        assert broker.publish("orders", "new", partition=5).offset > max(identity.offset for identity in ids)


def _fails_at(broker: penstock.Broker, which: int, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a slice refuse to be made or deleted, as if the process ended there."""
    shard = broker.shards.slices("orders")[1][which]

    def fail(*_: object, **__: object) -> None:
        raise StorageFailed("the process ends here")

    monkeypatch.setattr(shard, what, fail)


@pytest.mark.parametrize("which", range(SHARDS))
def test_a_creation_that_was_interrupted_is_finished_by_the_next_attempt(
    broker: penstock.Broker, which: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make() -> object:
        return broker.create_topic("orders", partitions=PARTITIONS, spread=SHARDS, retention_age="1h")

    with monkeypatch.context() as patched:
        _fails_at(broker, which, "create_topic", patched)
        broker.delete_topic("orders")
        with pytest.raises(StorageFailed):
            make()
    assert broker.topics() == []
    _can_be_used(broker, make)


@pytest.mark.parametrize("which", range(SHARDS))
def test_a_deletion_that_was_interrupted_is_finished_by_the_next_attempt(
    broker: penstock.Broker, which: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = broker.publish_many("orders", keyed())
    with monkeypatch.context() as patched:
        _fails_at(broker, which, "delete_topic", patched)
        with pytest.raises(StorageFailed):
            broker.delete_topic("orders")
    assert [topic.name for topic in broker.topics()] == ["orders"]
    if which < SHARDS - 1:
        with pytest.raises(TopicNotFound, match="delete it again"):
            broker.publish("orders", "v", partition=SHARDS - 1)
        with pytest.raises(TopicNotFound, match="delete it again"):
            broker.consumer("orders", "g")
    broker.delete_topic("orders")
    _can_be_used(broker, lambda: broker.create_topic("orders", partitions=PARTITIONS, spread=SHARDS))
    assert min(message.offset for message in broker.read("orders")) > max(identity.offset for identity in ids)


def test_who_publishes_to_a_slice_that_is_deleted_at_that_moment_makes_no_topic(broker: penstock.Broker) -> None:
    _, (home, *others) = broker.shards.slices("orders")
    broker.delete_topic("orders")
    for shard in others:
        with pytest.raises(TopicNotFound, match="was deleted meanwhile"):
            shard.publish_single("orders", check_message(Message("v"), broker.shards.config, 0), None, 0)
        with pytest.raises(TopicNotFound, match="was deleted meanwhile"):
            shard.publish_intake("orders", check_messages(["v"], broker.shards.config, 0), 0)
    assert broker.topics() == []
    broker.publish("orders", "v")
    assert list(broker.shards.slices("orders")[1]) == [home]


def _can_be_used(broker: penstock.Broker, make: Callable[[], object]) -> None:
    make()
    with pytest.raises(TopicExists):
        make()
    broker.publish_many("orders", keyed())
    assert len(drain(broker)) == len(KEYS)
    assert len(broker.topics()[0].partitions) == PARTITIONS


def test_a_restart_keeps_everything(storage: MemoryStorage, clock: VirtualClock) -> None:
    with penstock.open(storage=storage, clock=clock, shards=SHARDS, min_free_bytes=0) as broker:
        broker.create_topic("orders", partitions=PARTITIONS, spread=SHARDS, max_deliveries=1)
        ids = list(broker.publish_many("orders", keyed(), producer="p", sequence=1))
        with broker.consumer("orders", "g") as consumer:
            first, second, *others = consumer.receive(30)
            first.kill("never")
            second.kill("never")
            consumer.ack(others)
        broker.settle()
        broker.publish_many("orders", keyed("later-"), producer="p", sequence=2)
        delayed = broker.publish("orders", "due", key="k", delay=60)
        before = (broker.topics(), broker.groups(), broker.dead_letters("orders"), values(broker))
    with penstock.open(storage=storage, clock=clock, min_free_bytes=0) as broker:
        assert (broker.dead_letters("orders"), values(broker)) == before[2:]
        assert [topic.config for topic in broker.topics()] == [topic.config for topic in before[0]]
        (group,) = broker.groups("orders")
        assert (group.positions, group.acked, group.lag) == (before[1][0].positions, 28, before[1][0].lag)
        assert list(broker.publish_many("orders", keyed(), producer="p", sequence=1)) == ids
        assert [found.id for found in broker.delayed("orders")] == [delayed]
        assert len(drain(broker)) == 2 * len(KEYS) - 30


# Dead letters, delays, schedules, the past.


def _kill_all(broker: penstock.Broker, topic: str = "orders") -> None:
    with broker.consumer(topic, "g") as consumer:
        for message in consumer.receive(1000):
            message.kill("no milk")


def test_dead_letters_of_all_slices_are_redriven_to_where_they_died(broker: penstock.Broker) -> None:
    broker.publish_many("orders", keyed())
    _kill_all(broker)
    letters = broker.dead_letters("orders")
    assert Counter(letter.value.decode() for letter in letters) == Counter(KEYS)
    assert {letter.id.partition for letter in letters} == set(range(SHARDS))
    assert all(broker.dead_letter(letter.id) == letter for letter in letters)
    assert sorted(values(broker, "orders.dlq")) == sorted(values(broker))
    assert broker.redrive("orders", dry_run=True).selected == len(KEYS)
    chosen = {letters[0].id, letters[-1].id}
    assert broker.redrive("orders", filter=lambda letter: letter.id in chosen).redriven == 2
    assert broker.purge_dead_letters("orders", filter=lambda letter: letter.id == letters[1].id) == 1
    assert broker.redrive("orders").redriven == len(KEYS) - 3
    assert broker.dead_letters("orders") == []
    assert len(drain(broker)) == len(KEYS) - 1


@pytest.mark.parametrize("spread", [1, 3])
def test_dead_letters_are_redriven_to_another_topic(broker: penstock.Broker, spread: int) -> None:
    broker.create_topic("repair", partitions=6, spread=spread)
    broker.publish_many("orders", keyed())
    _kill_all(broker)
    assert broker.redrive("orders", to="repair").copied == len(KEYS)
    assert values(broker, "repair") == values(broker)
    assert broker.dead_letters("orders") == []


def test_dead_letters_of_one_slice_are_read_as_those_of_all(broker: penstock.Broker) -> None:
    broker.publish("orders", "alone", partition=6)
    _kill_all(broker)
    (letter,) = broker.dead_letters("orders")
    assert [message.value for message in broker.read("orders.dlq")] == [b"alone"]
    assert [log.end for log in broker.layout("orders.dlq").messages] == [0, 0, 1]
    broker.configure_topic("orders.dlq", retention_age="1h")
    assert len(drain(broker, topic="orders.dlq")) == 1
    broker.delete_topic("orders.dlq")
    assert (letter.origin.partition, broker.dead_letters("orders")) == (6, [])


def test_delayed_messages_are_listed_cancelled_and_moved(broker: penstock.Broker, clock: VirtualClock) -> None:
    batch = [Message(f"{n}", key=key, delay=10 + n) for n, key in enumerate(KEYS)]
    ids = list(broker.publish_many("orders", batch))
    assert [found.id for found in broker.delayed("orders")] == ids
    assert [found.id for found in broker.delayed("orders", limit=3)] == ids[:3]
    assert all(broker.cancel_delayed(identity) for identity in ids[:10])
    assert broker.reschedule_delayed(ids[10], delay=1000) is not None
    assert drain(broker) == []
    clock.advance(100)
    assert sorted(map(int, drain(broker))) == list(range(11, len(KEYS)))
    assert broker.trace(ids[0]).lines[-1].kind == "cancelled"


def test_a_schedule_with_a_key_publishes_to_the_partition_of_the_key(
    broker: penstock.Broker, clock: VirtualClock
) -> None:
    expected = {key: broker.publish("orders", "x", key=key).partition for key in KEYS[:8]}
    for key in expected:
        broker.schedule(f"of-{key}", "* * * * *", "orders", "tick", key=key)
    broker.schedule("any", "* * * * *", "orders", "tock")
    assert len(broker.schedules()) == 9
    clock.advance(61)
    for shard in broker.shards:
        with shard.lock:
            shard.keep_time()
        shard.flush()
    found = {str(message.key, "utf-8"): message.partition for message in broker.read("orders") if message.key}
    assert found == expected
    for schedule in broker.schedules():
        broker.remove_schedule(schedule.name)
    assert broker.schedules() == []


def test_replay_and_seek_reach_all_slices(broker: penstock.Broker, clock: VirtualClock) -> None:
    broker.publish_many("orders", keyed("old-"))
    clock.advance(100)
    middle = clock.wall_us() / 1e6
    clock.advance(100)
    broker.publish_many("orders", keyed("new-"))
    assert len(drain(broker)) == 2 * len(KEYS)
    assert broker.replay("orders", "again", to_time=middle) == len(KEYS)
    assert sorted(drain(broker, "again")) == sorted(f"old-{key}".encode() for key in KEYS)
    heard: list[bytes] = []
    assert broker.replay("orders", lambda message: heard.append(message.value), from_time=middle) == len(KEYS)
    assert sorted(heard) == sorted(f"new-{key}".encode() for key in KEYS)
    broker.seek_group("orders", "g", middle)
    assert sorted(drain(broker)) == sorted(heard)
    broker.seek_group("orders", "g", 0, partition=5)
    assert len(drain(broker)) == sum(message.partition == 5 for message in broker.read("orders"))
    with pytest.raises(InvalidArgument, match="give the partition"):
        broker.seek_group("orders", "g", 0)
    broker.seek_group("orders", "g", "latest")
    assert drain(broker) == []
    broker.reset_group("orders", "g")
    assert broker.group("orders", "g").lag == 2 * len(KEYS)


def test_trim_removes_segments_of_all_slices(broker: penstock.Broker) -> None:
    broker.publish_many("orders", keyed())
    broker.settle()
    ends = {log.partition: log.end for log in broker.layout("orders").messages}
    broker.publish_many("orders", keyed("kept-"))
    broker.settle()
    assert broker.trim("orders", ends) == PARTITIONS
    assert sorted(values(broker)) == sorted(f"kept-{key}".encode() for key in KEYS)


def test_retention_moves_all_slices_to_one_archive(clock: VirtualClock, storage: MemoryStorage) -> None:
    with penstock.open(storage=storage, clock=clock, shards=SHARDS, min_free_bytes=0) as broker:
        broker.create_topic("cold", partitions=PARTITIONS, spread=SHARDS, retention_age="1h", archive="cold")
        broker.publish_many("cold", keyed())
        broker.settle()
        clock.advance(7200)
        assert broker.retain() == PARTITIONS
        assert values(broker, "cold").total() == 0
        archived = [message.value.decode() for message in broker.read("cold", include_deleted=True)]
        assert Counter(archived) == Counter(KEYS)
