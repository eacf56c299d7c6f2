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
from penstock.shard.operations.dead_letters import list_dead_letters, purge
from penstock.shard.operations.groups import seek_group, show_group
from penstock.shard.reading.log_reader import LogReader
from penstock.shard.shard import Engine
from penstock.shard.upkeep.settling import Settler
from penstock.testing import FaultyStorage, MemoryStorage, VirtualClock

Opened = Callable[..., Engine]


def publish(engine: Engine, topic: str, *values: str, **options: object) -> None:
    _, commit = engine.publish_many(topic, [Message(value, **options) for value in values])  # type: ignore[arg-type]
    assert commit is not None
    engine.journal.wait(commit)


def consume(engine: Engine, topic: str = "t", group: str = "g") -> Consumer:
    return Consumer(engine, topic, group)


def values(messages: list[Delivery]) -> list[str]:
    return [message.value.decode() for message in messages]


def add_up(engine: Engine, topic: str = "t", group: str = "g") -> GroupInfo:
    info = show_group(engine, topic, group)
    parts = (info.acked, info.ready, info.leased, info.delayed, info.retrying, info.dead, info.lapsed, info.withdrawn)
    assert min(parts) >= 0
    assert info.published == sum(parts) + info.skipped + info.lost, f"Q1: {info}"
    return info


def states(engine: Engine) -> dict[tuple[str, int], bytes]:
    return {
        (topic.name, number): msgspec.msgpack.encode(partition.state.state())
        for topic in engine.catalog.by_name.values()
        for number, partition in enumerate(topic.partitions)
        if partition.state is not None
    }


# Restarts.


def test_Q2_Q6_leases_are_ready_again_after_a_crash_with_their_counters_kept(
    engine_on: Opened, clock: VirtualClock
) -> None:
    storage = FaultyStorage(1)
    engine = engine_on(storage)
    publish(engine, "t", "a", "b", "c")
    consumer = consume(engine)
    first, second, third = consumer.receive(3)
    consumer.fail([first], "broken", delay=50)
    consumer.release([second])
    consumer.ack([third])
    assert [(m.deliveries, m.failures) for m in consumer.receive(3)] == [(2, 0)]
    engine.journal.flush()
    engine = engine_on(storage.crash())
    consumer = consume(engine)
    again = consumer.receive(3)
    assert [(m.value, m.deliveries, m.failures) for m in again] == [(b"b", 3, 0)]
    clock.advance(50)
    late = consumer.receive(3)
    assert [(m.value, m.deliveries, m.failures) for m in late] == [(b"a", 2, 1)]
    add_up(engine)


@pytest.mark.parametrize("end", ["crash", "close", "settle and crash"])
def test_Q10_no_message_of_100000_scattered_acks_comes_again(engine_on: Opened, end: str) -> None:
    storage = FaultyStorage(2)
    engine = engine_on(storage)
    engine.journal.wait(engine.create_topic("t", {"retention_age": None}))
    publish(engine, "t", *(["x"] * 200_000))
    consumer = Consumer(engine, "t", "g", max_in_flight=200_000)
    held = consumer.receive(200_000)
    consumer.ack(held[::2])
    if end == "settle and crash":
        Settler(engine).settle(everything=True)
    if end == "close":
        engine.close()
        engine = engine_on(storage)
    else:
        engine = engine_on(storage.crash())
    info = add_up(engine)
    assert (info.acked, info.ready) == (100_000, 100_000)
    consumer = Consumer(engine, "t", "g", max_in_flight=200_000)
    assert [message.offset for message in consumer.receive(200_000)] == list(range(1, 200_000, 2))


def test_Q1_events_that_settling_carries_on_are_not_applied_twice(engine_on: Opened) -> None:
    storage = FaultyStorage(3)
    engine = engine_on(storage, segment_min_bytes="1MiB")
    engine.journal.wait(engine.create_topic("t", {"max_deliveries": 10}))
    settler = Settler(engine)
    publish(engine, "t", *(str(number) for number in range(4)))
    consumer = consume(engine)
    settler.settle(everything=True)  # that the group was made is not told again
    for _ in range(3):
        consumer.fail(consumer.receive(2), "again", delay=0)
    kept, acked = consumer.receive(2)
    consumer.ack([acked])
    publish(engine, "filler", *(["x" * 1000] * 20))
    engine.journal.wait(engine.delete_topic("filler"))
    engine.journal.seal()
    before = states(engine)
    settler.settle()
    assert settler.blocks_carried > 3
    assert states(engine) == before
    for _ in range(2):
        storage = storage.crash()
        engine = engine_on(storage)
        assert states(engine) == before
        storage = storage.crash()
    consumer = consume(engine_on(storage))
    again = {message.value: (message.deliveries, message.failures) for message in consumer.receive(9)}
    assert again == {kept.value: (5, 3), b"2": (1, 0), b"3": (1, 0)}


def test_L10_checkpoint_and_journal_give_the_state_at_every_cut(engine_on: Opened, clock: VirtualClock) -> None:
    storage = MemoryStorage()
    engine = engine_on(storage)
    engine.journal.wait(engine.create_topic("t", {"max_deliveries": 2}))
    consumer = consume(engine)
    found: list[tuple[int, dict[tuple[str, int], bytes]]] = []

    def note() -> None:
        engine.journal.flush()
        assert engine.journal.current is not None
        found.append((engine.journal.current.end, states(engine)))

    publish(engine, "t", *"abcdefgh")
    engine.checkpoint()
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
    seek_group(engine, "t", "g", 2, None)
    note()
    consumer.ack(consumer.receive(2))
    note()
    assert len({tuple(state.values()) for _, state in found}) == len(found)
    (sequence,) = engine.journal.files
    whole = bytes(storage.contents[file_name(sequence)])
    for cut in range(found[0][0], found[-1][0] + 1, 7):
        copy = MemoryStorage()
        copy.contents = {name: bytearray(content) for name, content in storage.contents.items()}
        copy.contents[file_name(sequence)] = bytearray(whole[:cut])
        recovered = engine_on(copy)
        before, expected = max((end, number) for number, (end, _) in enumerate(found) if end <= cut)
        if cut - before < 40:  # what is between two of them may be several commits
            assert states(recovered) == found[expected][1]
        first = states(recovered)
        recovered.close()
        assert states(engine_on(copy)) == first


def test_Q1_a_checkpoint_holds_nothing_of_events_that_are_not_committed(engine_on: Opened) -> None:
    storage = FaultyStorage(4)
    engine = engine_on(storage)
    publish(engine, "t", "a", "b")
    consumer = consume(engine)
    before = states(engine)
    commit, lost = consumer._consuming.ack(consumer.receive(1))
    assert commit is not None
    assert lost is None
    assert not commit.done
    engine.checkpoint()
    engine = engine_on(storage.crash())
    assert states(engine) == before
    assert [(m.value, m.deliveries) for m in consume(engine).receive(9)] == [(b"a", 1), (b"b", 1)]


# A disk that refuses.


def test_Q2_R3_an_ack_that_the_disk_refused_is_told_and_delivered_again(engine_on: Opened) -> None:
    storage = FaultyStorage(5)
    engine = engine_on(storage)
    publish(engine, "t", "a", "b")
    consumer = consume(engine)
    held = consumer.receive(2)
    engine.journal.flush()
    storage.fail("write", errno.ENOSPC)
    with pytest.raises(DiskFull):
        consumer.ack(held[:1])
    storage.heal()
    assert add_up(engine).ready == 1
    assert [(m.value, m.deliveries) for m in consumer.receive(9)] == [(b"a", 2)]
    engine = engine_on(storage.crash())
    assert values(consume(engine).receive(9)) == ["a", "b"]


def test_Q2_R3_an_ack_is_not_confirmed_when_the_disk_refuses_it_during_a_burial(
    engine_on: Opened, clock: VirtualClock
) -> None:
    storage = FaultyStorage(6)
    engine = engine_on(storage)
    engine.journal.wait(engine.create_topic("t", {"max_deliveries": 1}))
    publish(engine, "t", "dies", "is acked")
    slow, quick = Consumer(engine, "t", "g", visibility_timeout=1), consume(engine)
    slow.receive(1)
    held = quick.receive(1)
    engine.journal.flush()
    clock.advance(2)  # the lease of the first runs out when the second is acked
    storage.fail("write", errno.ENOSPC)
    with pytest.raises(DiskFull):
        quick.ack(held)
    storage.heal()
    clock.advance(60)
    with engine.lock:
        engine.keep_time()
    if engine.deliveries.dying:
        bury(engine)
    engine.journal.flush()
    assert add_up(engine).acked == 0
    assert "is acked" in [letter.value.decode() for letter in list_dead_letters(engine, "t")] + values(quick.receive(9))


def test_Q1_a_refused_seek_and_a_refused_ack_leave_nothing_held(engine_on: Opened) -> None:
    storage = FaultyStorage(7)
    engine = engine_on(storage)
    publish(engine, "t", "a", "b", "c")
    consumer = consume(engine)
    held = consumer.receive(3)
    consumer.ack(held[:1])
    consumer._consuming.ack(held[1:2])
    storage.fail("write", errno.ENOSPC)
    with pytest.raises(DiskFull):
        seek_group(engine, "t", "g", "latest", None)
    storage.heal()
    info = add_up(engine)
    assert (info.acked, info.ready, info.leased) == (1, 2, 0)
    assert values(consumer.receive(9)) == ["b", "c"]


def test_Q7_a_message_that_is_dying_when_its_group_moves_is_not_dead(engine_on: Opened, clock: VirtualClock) -> None:
    engine = engine_on(FaultyStorage(8))
    engine.journal.wait(engine.create_topic("t", {"max_deliveries": 1}))
    publish(engine, "t", "a")
    consumer = consume(engine)
    consumer.receive(1)
    clock.advance(31)
    with engine.lock:
        engine.keep_time()
    assert engine.deliveries.dying
    seek_group(engine, "t", "g", "earliest", None)
    bury(engine)
    engine.journal.flush()
    assert list(list_dead_letters(engine, "t")) == []
    info = add_up(engine)
    assert (info.ready, info.dead) == (1, 0)


def test_Q7_R1_the_dead_letter_and_the_death_are_one_commit_however_full_the_buffer(
    engine_on: Opened, clock: VirtualClock
) -> None:
    engine = engine_on(FaultyStorage(9), max_unwritten_bytes=65536)
    engine.journal.wait(engine.create_topic("t", {"max_deliveries": 1}))
    for _ in range(3):
        publish(engine, "t", *(["x" * 10_000] * 3))
    consumer = consume(engine)
    held = consumer.receive(9)
    with contextlib.suppress(Overloaded):
        consumer.kill(held, "never")
    engine.journal.flush()
    letters = {letter.origin.offset for letter in list_dead_letters(engine, "t")}
    progress = engine.topic("t").partitions[0].delivery_state().groups["g"]
    assert letters == set(progress.dead)
    assert len(letters) == 9
    add_up(engine)


def test_Q2_R1_leases_that_run_out_while_the_buffer_is_full_come_again(engine_on: Opened, clock: VirtualClock) -> None:
    engine = engine_on(FaultyStorage(10), max_unwritten_bytes=65536)
    publish(engine, "t", "a", "b")
    consumer = consume(engine)
    assert len(consumer.receive(2)) == 2
    engine.journal.flush()
    clock.advance(31)
    engine.publish("other", Message("x" * 70_000))
    with pytest.raises(Overloaded):
        engine.publish("other", Message("x"))
    with engine.lock, contextlib.suppress(Overloaded):
        engine.keep_time()
    engine.journal.flush()
    with engine.lock:
        engine.keep_time()
    engine.journal.flush()
    assert values(consumer.receive(9)) == ["a", "b"]
    add_up(engine)


def test_Q2_R1_a_seek_that_finds_the_buffer_full_leaves_the_group_working(engine_on: Opened) -> None:
    engine = engine_on(FaultyStorage(11), max_unwritten_bytes=65536)
    publish(engine, "t", "a", "b")
    consumer = consume(engine)
    engine.publish("other", Message("x" * 70_000))
    with pytest.raises(Overloaded):
        engine.publish("other", Message("x"))
    with contextlib.suppress(Overloaded):
        seek_group(engine, "t", "g", "earliest", None)
    engine.journal.flush()
    assert values(consumer.receive(9)) == ["a", "b"]


def test_Q1_a_dead_letter_that_is_purged_while_it_is_leased_is_counted_once(engine_on: Opened) -> None:
    engine = engine_on(FaultyStorage(12))
    publish(engine, "t", "a", "b")
    consumer = consume(engine)
    consumer.kill(consumer.receive(2), "never")
    reader = consume(engine, "t.dlq", "people")
    held = reader.receive(1)
    assert purge(engine, "t", None) == 2
    info = add_up(engine, "t.dlq", "people")
    assert info.withdrawn == 2
    assert reader.receive(9) == []
    assert held


def test_Q1_a_new_group_finds_no_hole_where_retention_took_a_segment(engine_on: Opened, clock: VirtualClock) -> None:
    from penstock.shard.upkeep.retention import retain

    engine = engine_on(FaultyStorage(13))
    engine.journal.wait(engine.create_topic("t", {"retention_age": 100, "max_delay": "1d"}))
    publish(engine, "t", "kept: it is not due", delay=50_000)
    Settler(engine).settle(everything=True)
    publish(engine, "t", "goes")
    Settler(engine).settle(everything=True)
    clock.advance(200)
    publish(engine, "t", "stays")
    assert retain(engine) > 0
    stored = [m.value for m in LogReader(engine, engine.topic("t").partitions[0].messages).messages(Window())]
    assert stored == [b"kept: it is not due", b"stays"]
    consumer = consume(engine)
    add_up(engine)
    consumer.ack(consumer.receive(9))
    clock.advance(50_000)
    consumer.ack(consumer.receive(9))
    assert add_up(engine).lag == 0


# Ends.


def test_R5_a_frozen_journal_refuses_to_deliver_and_to_ack_with_a_clear_error(engine_on: Opened) -> None:
    storage = FaultyStorage(14)
    engine = engine_on(storage)
    publish(engine, "t", "a", "b")
    consumer = consume(engine)
    held = consumer.receive(1)
    engine.journal.flush()
    storage.fail("sync", errno.EIO)
    with pytest.raises(StorageFailed, match="writes are frozen until the broker is opened again"):
        consumer.ack(held)
    for attempt in (
        lambda: consumer.ack(held),
        lambda: consumer.receive(1),
        lambda: consumer.fail(held, "no"),
        lambda: consumer.release(held),
        lambda: seek_group(engine, "t", "g", "earliest", None),
    ):
        with pytest.raises(StorageFailed, match="writes are frozen until the broker is opened again"):
            attempt()
    consumer.close()
    engine = engine_on(storage.crash())
    assert "b" in values(consume(engine).receive(9))


def test_a_consumer_that_is_closed_after_its_broker_writes_nothing(engine_on: Opened) -> None:
    storage = MemoryStorage()
    engine = engine_on(storage)
    publish(engine, "t", "a")
    consumer = consume(engine)
    held = consumer.receive(1)
    engine.close()
    before = {name: bytes(content) for name, content in storage.contents.items()}
    consumer.close()
    assert {name: bytes(content) for name, content in storage.contents.items()} == before
    with pytest.raises(BrokerClosed):
        consumer.ack(held)
    assert values(consume(engine_on(storage)).receive(9)) == ["a"]
