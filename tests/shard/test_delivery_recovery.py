"""What a restart finds of deliveries, and what a disk that refuses leaves of them (Q1, Q2, Q6, Q7, Q10, L10, R5)."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable

import msgspec
import pytest

from penstock.embedded.consumer import Consumer, Delivery
from penstock.journal.layout import file_name
from penstock.model.errors import BrokerClosed, DiskFull, Overloaded, StorageFailed
from penstock.model.info import GroupInfo
from penstock.model.message import Message
from penstock.segments.window import Window
from penstock.shard.operations.burying import bury
from penstock.shard.operations.dead_letters import list_dead_letters, purge_dead_letters
from penstock.shard.operations.groups import seek_group, show_group
from penstock.shard.reading.log_reader import LogReader
from penstock.shard.shard import Shard
from penstock.shard.upkeep.settling import Settler
from penstock.testing import FaultyStorage, MemoryStorage, VirtualClock
from tests.sharding import alone

Opened = Callable[..., Shard]


def publish(shard: Shard, topic: str, *values: str, **options: object) -> None:
    _, commit = shard.publish_many(topic, [Message(value, **options) for value in values])  # type: ignore[arg-type]
    assert commit is not None
    shard.journal.wait(commit)


def consume(shard: Shard, topic: str = "t", group: str = "g") -> Consumer:
    return Consumer(alone(shard), topic, group)


def values(messages: list[Delivery]) -> list[str]:
    return [message.value.decode() for message in messages]


def add_up(shard: Shard, topic: str = "t", group: str = "g") -> GroupInfo:
    info = show_group(shard, topic, group)
    parts = (info.acked, info.ready, info.leased, info.delayed, info.retrying, info.dead, info.lapsed, info.withdrawn)
    assert min(parts) >= 0
    assert info.published == sum(parts) + info.skipped + info.lost, f"Q1: {info}"
    return info


def states(shard: Shard) -> dict[tuple[str, int], bytes]:
    return {
        (topic.name, number): msgspec.msgpack.encode(partition.state.state())
        for topic in shard.catalog.by_name.values()
        for number, partition in enumerate(topic.partitions)
        if partition.state is not None
    }


# Restarts.


def test_Q2_Q6_leases_are_ready_again_after_a_crash_with_their_counters_kept(
    shard_on: Opened, clock: VirtualClock
) -> None:
    storage = FaultyStorage(1)
    shard = shard_on(storage)
    publish(shard, "t", "a", "b", "c")
    consumer = consume(shard)
    first, second, third = consumer.receive(3)
    consumer.fail([first], "broken", delay=50)
    consumer.release([second])
    consumer.ack([third])
    assert [(m.deliveries, m.failures) for m in consumer.receive(3)] == [(2, 0)]
    shard.journal.flush()
    shard = shard_on(storage.crash())
    consumer = consume(shard)
    again = consumer.receive(3)
    assert [(m.value, m.deliveries, m.failures) for m in again] == [(b"b", 3, 0)]
    clock.advance(50)
    late = consumer.receive(3)
    assert [(m.value, m.deliveries, m.failures) for m in late] == [(b"a", 2, 1)]
    add_up(shard)


@pytest.mark.parametrize("end", ["crash", "close", "settle and crash"])
def test_Q10_no_message_of_100000_scattered_acks_comes_again(shard_on: Opened, end: str) -> None:
    storage = FaultyStorage(2)
    shard = shard_on(storage)
    shard.journal.wait(shard.create_topic("t", {"retention_age": None}))
    publish(shard, "t", *(["x"] * 200_000))
    consumer = Consumer(alone(shard), "t", "g", max_in_flight=200_000)
    held = consumer.receive(200_000)
    consumer.ack(held[::2])
    if end == "settle and crash":
        Settler(shard).settle(everything=True)
    if end == "close":
        shard.close()
        shard = shard_on(storage)
    else:
        shard = shard_on(storage.crash())
    info = add_up(shard)
    assert (info.acked, info.ready) == (100_000, 100_000)
    consumer = Consumer(alone(shard), "t", "g", max_in_flight=200_000)
    assert [message.offset for message in consumer.receive(200_000)] == list(range(1, 200_000, 2))


def test_Q1_events_that_settling_carries_on_are_not_applied_twice(shard_on: Opened) -> None:
    storage = FaultyStorage(3)
    shard = shard_on(storage, segment_min_bytes="1MiB", journal_files_max=1)
    shard.journal.wait(shard.create_topic("t", {"max_deliveries": 10}))
    settler = Settler(shard)
    publish(shard, "t", *(str(number) for number in range(4)))
    consumer = consume(shard)
    settler.settle(everything=True)  # that the group was made is not told again
    for _ in range(3):
        consumer.fail(consumer.receive(2), "again", delay=0)
    kept, acked = consumer.receive(2)
    consumer.ack([acked])
    publish(shard, "filler", *(["x" * 1000] * 20))
    shard.journal.wait(shard.delete_topic("filler"))
    shard.journal.seal()
    before = states(shard)
    settler.settle()
    assert settler.blocks_carried > 3
    assert states(shard) == before
    for _ in range(2):
        storage = storage.crash()
        shard = shard_on(storage)
        assert states(shard) == before
        storage = storage.crash()
    consumer = consume(shard_on(storage))
    again = {message.value: (message.deliveries, message.failures) for message in consumer.receive(9)}
    assert again == {kept.value: (5, 3), b"2": (1, 0), b"3": (1, 0)}


def test_L10_checkpoint_and_journal_give_the_state_at_every_cut(shard_on: Opened, clock: VirtualClock) -> None:
    storage = MemoryStorage()
    shard = shard_on(storage)
    shard.journal.wait(shard.create_topic("t", {"max_deliveries": 2}))
    consumer = consume(shard)
    found: list[tuple[int, dict[tuple[str, int], bytes]]] = []

    def note() -> None:
        shard.journal.flush()
        assert shard.journal.current is not None
        found.append((shard.journal.current.end, states(shard)))

    publish(shard, "t", *"abcdefgh")
    shard.checkpoint()
    note()
    consumer.ack(consumer.receive(3)[::2])
    note()
    consumer.fail(consumer.receive(2), "no", delay=0)
    note()
    consumer.fail(consumer.receive(2), "no", delay=5)
    note()
    consumer.kill(consumer.receive(1), "never")
    note()
    clock.advance(40)
    consumer.receive(1)
    note()
    seek_group(shard, "t", "g", 2)
    note()
    consumer.ack(consumer.receive(2))
    note()
    assert len({tuple(state.values()) for _, state in found}) == len(found)
    (sequence,) = shard.journal.files
    whole = bytes(storage.contents[file_name(sequence)])
    for cut in range(found[0][0], found[-1][0] + 1, 7):
        copy = MemoryStorage()
        copy.contents = {name: bytearray(content) for name, content in storage.contents.items()}
        copy.contents[file_name(sequence)] = bytearray(whole[:cut])
        recovered = shard_on(copy)
        before, expected = max((end, number) for number, (end, _) in enumerate(found) if end <= cut)
        if cut - before < 40:  # what is between two of them may be several commits
            assert states(recovered) == found[expected][1]
        first = states(recovered)
        recovered.close()
        assert states(shard_on(copy)) == first


def test_Q1_a_checkpoint_holds_nothing_of_events_that_are_not_committed(shard_on: Opened) -> None:
    storage = FaultyStorage(4)
    shard = shard_on(storage)
    publish(shard, "t", "a", "b")
    consumer = consume(shard)
    before = states(shard)
    commit, lost = consumer._consuming.ack(consumer.receive(1))
    assert commit is not None
    assert lost is None
    assert not commit.done
    shard.checkpoint()
    shard = shard_on(storage.crash())
    assert states(shard) == before
    assert [(m.value, m.deliveries) for m in consume(shard).receive(9)] == [(b"a", 1), (b"b", 1)]


# A disk that refuses.


def test_Q2_R3_an_ack_that_the_disk_refused_is_told_and_delivered_again(shard_on: Opened) -> None:
    storage = FaultyStorage(5)
    shard = shard_on(storage)
    publish(shard, "t", "a", "b")
    consumer = consume(shard)
    held = consumer.receive(2)
    shard.journal.flush()
    storage.fail("write", errno.ENOSPC)
    with pytest.raises(DiskFull):
        consumer.ack(held[:1])
    storage.heal()
    assert add_up(shard).ready == 1
    assert [(m.value, m.deliveries) for m in consumer.receive(9)] == [(b"a", 2)]
    shard = shard_on(storage.crash())
    assert values(consume(shard).receive(9)) == ["a", "b"]


def test_Q2_R3_an_ack_is_not_confirmed_when_the_disk_refuses_it_during_a_burial(
    shard_on: Opened, clock: VirtualClock
) -> None:
    storage = FaultyStorage(6)
    shard = shard_on(storage)
    shard.journal.wait(shard.create_topic("t", {"max_deliveries": 1}))
    publish(shard, "t", "dies", "is acked")
    slow, quick = Consumer(alone(shard), "t", "g", visibility_timeout=1), consume(shard)
    slow.receive(1)
    held = quick.receive(1)
    shard.journal.flush()
    clock.advance(2)  # the lease of the first runs out when the second is acked
    storage.fail("write", errno.ENOSPC)
    with pytest.raises(DiskFull):
        quick.ack(held)
    storage.heal()
    clock.advance(60)
    with shard.lock:
        shard.keep_time()
    if shard.dispatcher.dying:
        bury(shard)
    shard.journal.flush()
    assert add_up(shard).acked == 0
    assert "is acked" in [letter.value.decode() for letter in list_dead_letters(shard, "t")] + values(quick.receive(9))


def test_Q1_a_refused_seek_and_a_refused_ack_leave_nothing_held(shard_on: Opened) -> None:
    storage = FaultyStorage(7)
    shard = shard_on(storage)
    publish(shard, "t", "a", "b", "c")
    consumer = consume(shard)
    held = consumer.receive(3)
    consumer.ack(held[:1])
    consumer._consuming.ack(held[1:2])
    storage.fail("write", errno.ENOSPC)
    with pytest.raises(DiskFull):
        seek_group(shard, "t", "g", "latest")
    storage.heal()
    info = add_up(shard)
    assert (info.acked, info.ready, info.leased) == (1, 2, 0)
    assert values(consumer.receive(9)) == ["b", "c"]


def test_Q7_a_message_that_is_dying_when_its_group_moves_is_not_dead(shard_on: Opened, clock: VirtualClock) -> None:
    shard = shard_on(FaultyStorage(8))
    shard.journal.wait(shard.create_topic("t", {"max_deliveries": 1}))
    publish(shard, "t", "a")
    consumer = consume(shard)
    consumer.receive(1)
    clock.advance(31)
    with shard.lock:
        shard.keep_time()
    assert shard.dispatcher.dying
    seek_group(shard, "t", "g", "earliest")
    bury(shard)
    shard.journal.flush()
    assert list(list_dead_letters(shard, "t")) == []
    info = add_up(shard)
    assert (info.ready, info.dead) == (1, 0)


def test_Q7_R1_the_dead_letter_and_the_death_are_one_commit_however_full_the_buffer(
    shard_on: Opened, clock: VirtualClock
) -> None:
    shard = shard_on(FaultyStorage(9), max_unwritten_bytes=65536)
    shard.journal.wait(shard.create_topic("t", {"max_deliveries": 1}))
    for _ in range(3):
        publish(shard, "t", *(["x" * 10_000] * 3))
    consumer = consume(shard)
    held = consumer.receive(9)
    with contextlib.suppress(Overloaded):
        consumer.kill(held, "never")
    shard.journal.flush()
    letters = {letter.origin.offset for letter in list_dead_letters(shard, "t")}
    progress = shard.topic("t").partitions[0].delivery_state().groups["g"]
    assert letters == set(progress.dead)
    assert len(letters) == 9
    add_up(shard)


def test_Q2_R1_leases_that_run_out_while_the_buffer_is_full_come_again(shard_on: Opened, clock: VirtualClock) -> None:
    shard = shard_on(FaultyStorage(10), max_unwritten_bytes=65536)
    publish(shard, "t", "a", "b")
    consumer = consume(shard)
    assert len(consumer.receive(2)) == 2
    shard.journal.flush()
    clock.advance(31)
    shard.publish("other", Message("x" * 70_000))
    with pytest.raises(Overloaded):
        shard.publish("other", Message("x"))
    with shard.lock, contextlib.suppress(Overloaded):
        shard.keep_time()
    shard.journal.flush()
    with shard.lock:
        shard.keep_time()
    shard.journal.flush()
    assert values(consumer.receive(9)) == ["a", "b"]
    add_up(shard)


def test_Q2_R1_a_seek_that_finds_the_buffer_full_leaves_the_group_working(shard_on: Opened) -> None:
    shard = shard_on(FaultyStorage(11), max_unwritten_bytes=65536)
    publish(shard, "t", "a", "b")
    consumer = consume(shard)
    shard.publish("other", Message("x" * 70_000))
    with pytest.raises(Overloaded):
        shard.publish("other", Message("x"))
    with contextlib.suppress(Overloaded):
        seek_group(shard, "t", "g", "earliest")
    shard.journal.flush()
    assert values(consumer.receive(9)) == ["a", "b"]


def test_Q1_a_dead_letter_that_is_purged_while_it_is_leased_is_counted_once(shard_on: Opened) -> None:
    shard = shard_on(FaultyStorage(12))
    publish(shard, "t", "a", "b")
    consumer = consume(shard)
    consumer.kill(consumer.receive(2), "never")
    reader = consume(shard, "t.dlq", "people")
    held = reader.receive(1)
    assert purge_dead_letters(shard, "t") == 2
    info = add_up(shard, "t.dlq", "people")
    assert info.withdrawn == 2
    assert reader.receive(9) == []
    assert held


def test_Q1_a_new_group_finds_no_hole_where_retention_took_a_segment(shard_on: Opened, clock: VirtualClock) -> None:
    from penstock.shard.upkeep.retention import retain

    shard = shard_on(FaultyStorage(13))
    shard.journal.wait(shard.create_topic("t", {"retention_age": 100, "max_delay": "1d"}))
    publish(shard, "t", "kept: it is not due", delay=50_000)
    Settler(shard).settle(everything=True)
    publish(shard, "t", "goes")
    Settler(shard).settle(everything=True)
    clock.advance(200)
    publish(shard, "t", "stays")
    assert retain(shard) > 0
    stored = [m.value for m in LogReader(shard, shard.topic("t").partitions[0].messages).messages(Window())]
    assert stored == [b"kept: it is not due", b"stays"]
    consumer = consume(shard)
    add_up(shard)
    consumer.ack(consumer.receive(9))
    clock.advance(50_000)
    consumer.ack(consumer.receive(9))
    assert add_up(shard).lag == 0


# Ends.


def test_R5_a_frozen_journal_refuses_to_deliver_and_to_ack_with_a_clear_error(shard_on: Opened) -> None:
    storage = FaultyStorage(14)
    shard = shard_on(storage)
    publish(shard, "t", "a", "b")
    consumer = consume(shard)
    held = consumer.receive(1)
    shard.journal.flush()
    storage.fail("sync", errno.EIO)
    with pytest.raises(StorageFailed, match="writes are frozen until the broker is opened again"):
        consumer.ack(held)
    for attempt in (
        lambda: consumer.ack(held),
        lambda: consumer.receive(1),
        lambda: consumer.fail(held, "no"),
        lambda: consumer.release(held),
        lambda: seek_group(shard, "t", "g", "earliest"),
    ):
        with pytest.raises(StorageFailed, match="writes are frozen until the broker is opened again"):
            attempt()
    consumer.close()
    shard = shard_on(storage.crash())
    assert "b" in values(consume(shard).receive(9))


def test_a_consumer_that_is_closed_after_its_broker_writes_nothing(shard_on: Opened) -> None:
    storage = MemoryStorage()
    shard = shard_on(storage)
    publish(shard, "t", "a")
    consumer = consume(shard)
    held = consumer.receive(1)
    shard.close()
    before = {name: bytes(content) for name, content in storage.contents.items()}
    consumer.close()
    assert {name: bytes(content) for name, content in storage.contents.items()} == before
    with pytest.raises(BrokerClosed):
        consumer.ack(held)
    assert values(consume(shard_on(storage)).receive(9)) == ["a"]
