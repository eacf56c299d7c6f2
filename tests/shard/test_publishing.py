"""Publishing through the embedded broker: what is given back, what is refused, what comes only once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

import penstock
from penstock import Message, MessageId
from penstock.log.producers import HISTORY
from penstock.shard.shard import Shard
from penstock.shard.upkeep.settling import Settler
from penstock.testing import MemoryStorage, VirtualClock


def test_a_message_comes_back_as_it_was_published(broker: penstock.Broker) -> None:
    broker.create_topic("orders", max_delay="10000d")
    identity = broker.publish(
        "orders",
        b"two coffees",
        key="alex",
        headers={"traceparent": "00-abc", "größe": "☕"},
        priority="high",
        deliver_at="2030-01-01T00:00:00Z",
        dedupe_id="order 1",
        expires_in="100d",
    )
    assert str(identity) == "orders/0/0"
    (message,) = broker.read("orders")
    assert message.id == identity
    assert (message.value, message.key, message.priority) == (b"two coffees", b"alex", 64)
    assert message.headers == {"traceparent": "00-abc", "größe": "☕"}
    assert message.deliver_at is not None
    assert message.deliver_at.isoformat() == "2030-01-01T00:00:00+00:00"
    assert message.dedupe_id == "order 1"
    assert message.expires_at == message.timestamp + timedelta(days=100)
    broker.settle()
    assert list(broker.read("orders")) == [message]


def test_a_topic_comes_into_being_on_first_publish_with_one_partition(broker: penstock.Broker) -> None:
    broker.publish("new", "value")
    (topic,) = broker.topics()
    assert (topic.name, len(topic.partitions), topic.partitions[0].end_offset) == ("new", 1, 1)


def test_two_first_publishers_at_once_lose_nothing(broker: penstock.Broker) -> None:
    ready = threading.Barrier(16)
    ids: list[MessageId] = []

    def work(number: int) -> None:
        ready.wait()
        ids.append(broker.publish("fresh", f"{number}"))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(identity.offset for identity in ids) == list(range(16))
    assert {message.value for message in broker.read("fresh")} == {b"%d" % n for n in range(16)}


def test_O1_the_same_key_always_goes_to_the_same_partition(broker: penstock.Broker) -> None:
    broker.create_topic("wide", partitions=8)
    keys = [f"key {n}" for n in range(200)]
    first = broker.publish_many("wide", [Message(b"1", key=key) for key in keys])
    again = [broker.publish("wide", b"2", key=key) for key in keys]
    assert [a.partition for a in first] == [b.partition for b in again]
    assert len({identity.partition for identity in first}) == 8


def test_messages_without_a_key_take_turns_among_the_partitions(broker: penstock.Broker) -> None:
    broker.create_topic("wide", partitions=4)
    ids = [broker.publish("wide", b"x") for _ in range(8)]
    assert sorted(identity.partition for identity in ids) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_batch_keeps_the_order_of_its_messages_in_its_ids(broker: penstock.Broker) -> None:
    broker.create_topic("wide", partitions=4)
    messages = [Message(f"{n}", key=f"{n % 10}", partition=2 if n % 7 == 0 else None) for n in range(100)]
    ids = broker.publish_many("wide", messages)
    stored = {message.id: message.value for message in broker.read("wide")}
    assert [stored[identity] for identity in ids] == [b"%d" % n for n in range(100)]
    assert all(ids[n].partition == 2 for n in range(0, 100, 7))


def test_an_empty_batch_publishes_nothing(broker: penstock.Broker) -> None:
    assert len(broker.publish_many("nothing", [])) == 0
    assert broker.topics() == []


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ü", "x" * 201, None, 5])
def test_a_bad_topic_name_is_refused_with_what_is_allowed(broker: penstock.Broker, name: str) -> None:
    with pytest.raises(penstock.InvalidArgument, match="1 to 200 of letters, digits"):
        broker.publish(name, b"x")
    with pytest.raises(penstock.InvalidArgument, match="1 to 200 of letters, digits"):
        broker.create_topic(name)
    assert broker.topics() == []


def test_L4_a_refused_publish_is_never_read_and_makes_no_topic(broker: penstock.Broker) -> None:
    with pytest.raises(penstock.LimitExceeded, match=r"20 MiB; the limit is 16 MiB \(max_value_bytes\)"):
        broker.publish("t", bytes(20 << 20))
    with pytest.raises(penstock.InvalidArgument, match="no partition 3: it has 0 to 0"):
        broker.publish("t", b"x", partition=3)
    with pytest.raises(penstock.InvalidArgument, match="message 1 of the batch"):
        broker.publish_many("t", [Message(b"ok"), Message(b"x", priority=256)])
    assert broker.topics() == []


def test_limits_are_configurable(tmp_path: Path) -> None:
    with penstock.open(tmp_path, max_value_bytes="1KiB", max_batch_bytes="2KiB", max_partitions=4) as broker:
        broker.publish("t", bytes(1024))
        with pytest.raises(penstock.LimitExceeded, match="max_value_bytes"):
            broker.publish("t", bytes(1025))
        with pytest.raises(penstock.LimitExceeded, match="max_batch_bytes"):
            broker.publish_many("t", [bytes(1000)] * 3)
        with pytest.raises(penstock.LimitExceeded, match="max_partitions"):
            broker.create_topic("wide", partitions=5)


def test_L7_the_same_dedupe_id_inside_the_window_gives_the_same_offset_and_one_copy(broker: penstock.Broker) -> None:
    first = broker.publish("t", "a", dedupe_id="1")
    assert broker.publish("t", "a", dedupe_id="1") == first
    batch = broker.publish_many("t", [Message("b", dedupe_id="2"), Message("a", dedupe_id="1"), Message("c")])
    assert batch[1] == first
    again = broker.publish_many("t", [Message("b", dedupe_id="2"), Message("b", dedupe_id="2")])
    assert again[0] == again[1] == batch[0]
    assert [message.value for message in broker.read("t")] == [b"a", b"b", b"c"]


def test_L7_a_dedupe_id_repeated_inside_one_new_batch_is_published_once(broker: penstock.Broker) -> None:
    ids = broker.publish_many("t", [Message("x", dedupe_id="1"), Message("x", dedupe_id="1"), Message("y")])
    assert [identity.offset for identity in ids] == [0, 0, 1]


def test_L7_dedupe_ids_survive_settling_and_restart(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as broker:
        first = broker.publish("t", "a", dedupe_id="1")
        batch = broker.publish_many("t", [Message("b", dedupe_id="2")])
        broker.settle()
    with penstock.open(tmp_path) as broker:
        assert broker.publish("t", "a", dedupe_id="1") == first
        assert broker.publish("t", "b", dedupe_id="2") == batch[0]
        assert len(list(broker.read("t"))) == 2


def test_L7_a_dedupe_id_is_free_again_after_the_window(clock: VirtualClock) -> None:
    with penstock.open(storage=MemoryStorage(), clock=clock, topic_defaults={"dedupe_window": "10s"}) as broker:
        assert broker.publish("t", "a", dedupe_id="1").offset == 0
        clock.advance(9.9)
        assert broker.publish("t", "a", dedupe_id="1").offset == 0
        clock.advance(0.1)
        assert broker.publish("t", "a", dedupe_id="1").offset == 1


def test_L7_an_older_copy_in_the_journal_does_not_hide_a_newer_one(
    shard_on: Callable[..., Shard], clock: VirtualClock
) -> None:
    storage = MemoryStorage()
    shard = shard_on(storage)
    for _ in range(2):
        identity, commit = shard.publish("t", Message(b"x", dedupe_id="1"))
        assert commit is not None
        shard.journal.wait(commit)
        clock.advance(301)
    clock.advance(-200)
    shard.checkpoint()
    storage.close()
    again = shard_on(storage)
    assert again.publish("t", Message(b"x", dedupe_id="1"))[0] == identity


def test_R1_dedupe_ids_are_bounded(tmp_path: Path) -> None:
    with penstock.open(tmp_path, max_dedupe_ids=10) as broker:
        with pytest.raises(penstock.Overloaded, match="max_dedupe_ids"):
            for n in range(20):
                broker.publish("t", "x", dedupe_id=f"{n}")
        assert len(list(broker.read("t"))) == 10
        assert broker.publish("t", "x", dedupe_id="3").offset == 3


def test_L7_a_sequence_published_again_gives_the_same_ids_and_one_copy(tmp_path: Path) -> None:
    batch = [Message(f"{n}", key=None if n % 3 else f"{n}") for n in range(20)]
    with penstock.open(tmp_path) as broker:
        broker.create_topic("wide", partitions=4)
        first = list(broker.publish_many("wide", batch, producer="query 7", sequence=1))
        assert list(broker.publish_many("wide", batch, producer="query 7", sequence=1)) == first
        broker.publish_many("wide", batch, producer="query 7", sequence=5)
        broker.settle()
    with penstock.open(tmp_path) as broker:
        assert list(broker.publish_many("wide", batch, producer="query 7", sequence=1)) == first
        assert len(list(broker.read("wide"))) == 40


def test_a_sequence_repeated_with_other_messages_is_refused(broker: penstock.Broker) -> None:
    broker.publish_many("t", ["a", "b"], producer="p", sequence=1)
    with pytest.raises(penstock.InvalidArgument, match="published with other messages"):
        broker.publish_many("t", ["a"], producer="p", sequence=1)


def test_a_sequence_too_old_to_be_remembered_is_refused(broker: penstock.Broker) -> None:
    for sequence in range(1, 2 * HISTORY + 2):
        broker.publish_many("t", ["x"], producer="p", sequence=sequence)
    with pytest.raises(penstock.StaleSequence, match="no longer remembered"):
        broker.publish_many("t", ["x"], producer="p", sequence=2)
    assert len(list(broker.read("t"))) == 2 * HISTORY + 1


def test_a_sequence_that_was_refused_can_come_later_than_those_behind_it(broker: penstock.Broker) -> None:
    broker.publish_many("t", ["b"], producer="p", sequence=6)
    assert broker.publish_many("t", ["a"], producer="p", sequence=5)[0].offset == 1
    assert broker.publish_many("t", ["b"], producer="p", sequence=6)[0].offset == 0


def test_R1_producers_are_bounded_and_the_idlest_goes_first(tmp_path: Path) -> None:
    with penstock.open(tmp_path, max_producers=3) as broker:
        for name, sequence in (("a", 1), ("b", 1), ("c", 1), ("a", 2), ("d", 1)):
            broker.publish_many("t", [name], producer=name, sequence=sequence)
        assert broker.publish_many("t", ["a"], producer="a", sequence=1)[0].offset == 0
        assert broker.publish_many("t", ["b"], producer="b", sequence=1)[0].offset == 5


@pytest.mark.parametrize(("producer", "sequence"), [("p", None), (None, 1), ("", 1), ("p", -1), ("p", "x")])
def test_a_producer_needs_a_name_and_a_sequence(broker: penstock.Broker, producer: str, sequence: int) -> None:
    with pytest.raises(penstock.InvalidArgument, match="producer"):
        broker.publish_many("t", ["x"], producer=producer, sequence=sequence)


def test_a_closed_broker_says_so(tmp_path: Path) -> None:
    broker = penstock.open(tmp_path)
    broker.publish("t", "x")
    broker.close()
    broker.close()
    for use in (lambda: broker.publish("t", "x"), lambda: list(broker.read("t")), lambda: broker.delete_topic("t")):
        with pytest.raises(penstock.BrokerClosed):
            use()


def test_unknown_options_are_refused_with_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(penstock.InvalidArgument, match=r"synk: unknown option, did you mean sync\?"):
        penstock.open(tmp_path, synk="always")
    assert not list(tmp_path.iterdir())


def test_L5_a_batch_over_several_partitions_is_one_group_of_the_journal(shard_on: Callable[..., Shard]) -> None:
    shard = shard_on(MemoryStorage())
    shard.journal.wait(shard.create_topic("wide", {"partitions": 8}))
    before = shard.journal.commits
    _, commit = shard.publish_many("wide", [Message(b"x", key=b"%d" % n) for n in range(100)])
    assert commit is not None
    shard.journal.wait(commit)
    assert shard.journal.commits == before + 1
    Settler(shard).settle(everything=True)
    assert sum(p.messages.committed_end for p in shard.topic("wide").partitions) == 100
