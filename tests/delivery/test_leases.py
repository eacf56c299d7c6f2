"""Leases: one holder at a time, by the monotonic clock; what is over stays over."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.delivery.lease_book import LeaseBook
from penstock.delivery.leases import Lease, Leases
from penstock.delivery.offsets import Offsets
from penstock.model.events import EventKind
from tests.delivery.harness import PureTopic, taken


@pytest.fixture
def topic() -> PureTopic:
    made = PureTopic(visibility_timeout=30, max_deliveries=100)
    made.create("g")
    return made


def lease_of(leases: Leases, number: int, deadline_s: float, *offsets: int, consumer: str = "c") -> Lease:
    lease = Lease(number, 0, consumer, deadline_s, Offsets(offsets))
    leases.grant(lease)
    return lease


def ended(leases: Leases, now_s: float) -> list[tuple[int, list[int]]]:
    return [(lease.id, list(offsets)) for lease, offsets in leases.expired(now_s)]


def named(topic: PureTopic, lease_id: int, consumer: str, *offsets: int) -> list[int]:
    """What is refused of an ack by a client that names a lease by its number."""
    group, some = topic.open("g"), Offsets(offsets)
    lease = group.find_lease(lease_id, 0, consumer, some)
    return list(offsets) if lease is None or lease.consumer != consumer else topic.ack(lease, offsets)


# Handing out.


def test_Q3_while_a_lease_lives_nobody_else_gets_the_message(topic: PureTopic) -> None:
    topic.publish(2)
    assert taken(topic.fetch(number=1, consumer="ann")) == [0]
    assert taken(topic.fetch(consumer="bob")) == [1]
    topic.commit()
    topic.advance(29.999)
    assert topic.fetch(consumer="bob") == []
    topic.advance(0.001)
    topic.commit()
    assert taken(topic.fetch(consumer="bob")) == [0, 1]


def test_Q3_a_settled_message_is_not_delivered_before_that_is_written(topic: PureTopic) -> None:
    topic.publish(4)
    (pick,) = topic.fetch()
    topic.ack(pick.lease, [0])
    topic.release(pick.lease, [1])
    topic.fail(pick.lease, [2], delay_s=0)
    topic.kill(pick.lease, [3])
    assert topic.fetch() == []
    assert topic.account() == {"held": 4}
    topic.commit()
    assert taken(topic.fetch()) == [1, 2]


def test_a_lease_lasts_as_long_as_the_fetch_asks_for(topic: PureTopic) -> None:
    topic.publish(2)
    (short,) = topic.fetch(number=1, visibility_s=2)
    (usual,) = topic.fetch(number=1)
    assert (short.lease.deadline_s, usual.lease.deadline_s) == (2, 30)
    assert topic.groups["g"].leases.next_deadline_s() == 2


# Acking.


def test_Q4_an_ack_with_an_expired_receipt_is_refused_and_changes_nothing(topic: PureTopic) -> None:
    topic.publish(1)
    (old,) = topic.fetch(consumer="ann")
    topic.advance(30)
    assert topic.ack(old.lease, [0]) == [0]
    topic.commit()
    assert topic.account() == {"ready": 1}
    (new,) = topic.fetch(consumer="bob")
    assert topic.ack(old.lease, [0]) == [0]
    assert topic.release(old.lease, [0]) == [0]
    assert topic.fail(old.lease, [0]) == [0]
    assert topic.kill(old.lease, [0]) == [0]
    assert topic.extend(old.lease, 60, [0]) == [0]
    topic.commit()
    assert topic.account() == {"held": 1}
    assert topic.ack(new.lease, [0]) == []
    topic.commit()
    assert topic.account() == {"acked": 1}


def test_Q4_an_ack_of_what_the_lease_never_held_is_refused(topic: PureTopic) -> None:
    topic.publish(3)
    (mine,) = topic.fetch(number=1, consumer="ann")
    (theirs,) = topic.fetch(number=1, consumer="bob")
    assert topic.ack(mine.lease, [0, 1, 2, 99]) == [1, 2, 99]
    topic.commit()
    assert topic.account() == {"acked": 1, "held": 1, "ready": 1}
    assert topic.ack(theirs.lease, [1]) == []


def test_Q4_a_receipt_from_before_a_restart_is_refused(topic: PureTopic) -> None:
    topic.publish(1)
    (pick,) = topic.fetch()
    topic.commit()
    topic.crash()
    assert topic.ack(pick.lease, [0]) == [0]
    topic.commit()
    assert topic.account() == {"ready": 1}


def test_Q4_acking_twice_is_harmless(topic: PureTopic) -> None:
    topic.publish(3)
    (pick,) = topic.fetch()
    assert topic.ack(pick.lease, [0, 1]) == []
    assert topic.ack(pick.lease, [1, 2]) == []
    topic.commit()
    assert topic.ack(pick.lease, [0, 1, 2]) == []
    assert topic.log == []
    assert topic.account() == {"acked": 3}


def test_Q4_an_ack_that_could_not_be_written_is_not_taken_for_one(topic: PureTopic) -> None:
    topic.publish(2)
    (pick,) = topic.fetch()
    topic.commit()
    topic.ack(pick.lease, [0])
    topic.refuse()
    assert topic.ack(pick.lease, [0]) == [0]
    assert topic.ack(pick.lease, [1]) == []
    topic.commit()
    assert topic.take() == [0]


@pytest.mark.parametrize("way", ["release", "fail", "kill"])
def test_Q4_what_was_given_back_cannot_be_acked(topic: PureTopic, way: str) -> None:
    topic.publish(1)
    (pick,) = topic.fetch()
    getattr(topic, way)(pick.lease)
    assert topic.ack(pick.lease, [0]) == [0]


def test_Q4_R1_a_lease_that_ended_is_kept_as_a_few_numbers_once_its_acks_are_on_disk(topic: PureTopic) -> None:
    topic.publish(4)
    leases = topic.open("g").leases
    (pick,) = topic.fetch(number=3, consumer="ann")
    topic.ack(pick.lease, [0, 2])
    topic.release(pick.lease, [1])
    assert leases.find(pick.lease.id) is pick.lease  # its acks may still be refused
    topic.commit()
    known = leases.find(pick.lease.id)
    assert known is not None
    assert known is not pick.lease
    assert (known.consumer, known.partition, list(known.acked or ()), list(known.messages)) == ("ann", 0, [0, 2], [])
    assert topic.ack(known, [0, 1, 2, 3]) == [1, 3]
    assert (topic.log, len(topic.book), len(leases._ended)) == ([], 1, 0)


def test_Q4_a_late_ack_of_what_somebody_else_acked_is_refused(topic: PureTopic) -> None:
    topic.publish(1)
    (old,) = topic.fetch(consumer="ann")
    topic.advance(30)
    topic.commit()
    topic.take(consumer="bob")
    assert named(topic, old.lease.id, "ann", 0) == [0]
    assert topic.account() == {"acked": 1}


def test_Q4_acking_twice_is_harmless_however_many_leases_ended_since(
    topic: PureTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.delivery.lease_book.BOOK_BYTES", 10_000)
    topic.publish(1000)
    (first,) = topic.fetch(number=1, consumer="ann")
    topic.ack(first.lease)
    (failed,) = topic.fetch(number=1, consumer="ann")
    topic.fail(failed.lease, delay_s=1e6)
    topic.commit()
    while topic.take(number=1, consumer="bob"):
        assert len(topic.book) <= 10_000 // 256
    assert topic.open("g").leases.find(first.lease.id) is None
    assert named(topic, first.lease.id, "ann", 0) == []
    assert named(topic, failed.lease.id, "ann", 1) == [1], "it is not done"
    assert named(topic, first.lease.id, "ann", 1001) == [1001], "there is no such message"
    assert named(topic, topic.book.new_id() + 1, "ann", 0) == [0], "no such lease was ever given"
    assert topic.log == []
    topic.crash()
    topic.book = LeaseBook(1 << 32)
    topic.groups.clear()
    assert named(topic, first.lease.id, "ann", 0) == [0], "it is of another life of the broker"


def test_R1_leases_of_all_groups_that_ended_share_one_limit() -> None:
    topic = PureTopic(visibility_timeout=30)
    for number in range(20):
        topic.create(f"g{number}")
    topic.publish(5000)
    for _ in range(5000 // 5):
        for number in range(20):
            topic.take(f"g{number}", 5)
    assert len(topic.book) == 20_000  # all of them, far below the limit
    topic.clock.advance(400)
    topic.create("late")
    topic.take("late", 1)
    topic.clock.advance(400)
    topic.take("late", 1)
    assert len(topic.book) == 2, "they ended long ago"


def test_R1_what_has_gaps_counts_by_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.delivery.lease_book.BOOK_BYTES", 100_000)
    book = LeaseBook()
    for number in range(1000):
        book.end(number, 1, 0, "c", Offsets(range(0, 2000, 2)))
    assert 1 <= len(book) < 50
    found = book.find(999)
    assert found is not None
    assert found.acked_offsets() == Offsets(range(0, 2000, 2))


def test_what_nobody_had_seen_when_a_lease_ended_is_kept(topic: PureTopic) -> None:
    topic.publish(3)
    (pick,) = topic.fetch()
    pick.lease.unseen = Offsets([1, 2])
    topic.ack(pick.lease)
    topic.commit()
    known = topic.open("g").leases.find(pick.lease.id)
    assert known is not None
    assert known.unseen == Offsets([1, 2])


def test_Q4_R1_a_seek_does_not_keep_leases_that_ended(topic: PureTopic) -> None:
    topic.publish(3)
    (pick,) = topic.fetch()
    topic.ack(pick.lease)
    topic.seek(0)
    topic.commit()
    assert len(topic.open("g").leases._ended) == 0
    assert named(topic, pick.lease.id, "c", 0) == []
    assert topic.account() == {"ready": 3}


def test_an_idle_group_keeps_no_deadlines() -> None:
    leases = Leases(LeaseBook())
    for number in range(1000):
        lease = lease_of(leases, number, 30.0, number)
        leases.take(lease, Offsets([number]), acked=True)
    assert (leases.total, dict(leases.in_flight), leases.next_deadline_s(), leases._deadlines) == (0, {}, None, [])


@given(st.sets(st.integers(0, 8), min_size=1), st.lists(st.tuples(st.integers(0, 8), st.integers(1, 4)), max_size=12))
def test_Q4_a_run_is_acked_as_a_set_of_it_or_not_at_all(held: set[int], runs: list[tuple[int, int]]) -> None:
    leases, others = Leases(LeaseBook()), Leases(LeaseBook())
    lease, other = lease_of(leases, 1, 30.0, *sorted(held)), lease_of(others, 1, 30.0, *sorted(held))
    for first, count in runs:
        run = list(range(first, first + count))
        whole = sorted(lease.messages) == run
        assert leases.take_run(lease, first, count) == (whole or (count == 1 and first in other.messages))
        if sorted(lease.messages) != sorted(other.messages):
            assert list(others.take(other, Offsets(run), acked=True)) == run
        assert (lease.messages, lease.acked or Offsets()) == (other.messages, other.acked or Offsets())
        assert (leases.total, leases.in_flight) == (others.total, others.in_flight)


# Extending.


def test_Q5_extending_moves_the_deadline_forward_only(topic: PureTopic) -> None:
    topic.publish(1)
    (pick,) = topic.fetch()
    assert topic.extend(pick.lease, 10) == []
    assert pick.lease.deadline_s == 30
    topic.advance(10)
    assert topic.extend(pick.lease, 50) == []
    topic.advance(49.9)
    assert topic.ack(pick.lease) == []


def test_Q5_extending_never_revives_a_lease(topic: PureTopic) -> None:
    topic.publish(1)
    (pick,) = topic.fetch()
    topic.advance(30)
    assert topic.extend(pick.lease, 50, [0]) == [0]
    topic.commit()
    assert taken(topic.fetch()) == [0]
    assert EventKind.EXTENDED not in [event.kind for _, event in topic.log]


def test_Q5_single_messages_of_a_lease_are_extended_by_themselves() -> None:
    leases = Leases(LeaseBook())
    lease = lease_of(leases, 1, 30.0, 1, 2, 3, 4)
    assert list(leases.extend(lease, Offsets([2, 9]), 40.0)) == [2]
    assert list(leases.extend(lease, Offsets([2, 3]), 35.0)) == [2, 3]
    assert [lease.deadline_of(offset) for offset in (1, 2, 3)] == [30, 40, 35]
    assert ended(leases, 29.9) == []
    assert ended(leases, 30) == [(1, [1, 4])]
    assert ended(leases, 34.9) == []
    assert ended(leases, 35) == [(1, [3])]
    leases.extend(lease, Offsets([2]), 50.0)
    assert ended(leases, 49.9) == []
    assert ended(leases, 50) == [(1, [2])]
    assert leases.total == 0


def test_Q5_a_whole_lease_is_extended_after_some_of_its_messages_were() -> None:
    leases = Leases(LeaseBook())
    lease = lease_of(leases, 1, 30.0, 1, 2)
    leases.extend(lease, Offsets([1]), 60.0)
    leases.extend(lease, Offsets([1, 2]), 50.0)
    assert [lease.deadline_of(offset) for offset in (1, 2)] == [60, 50]
    assert (ended(leases, 49), ended(leases, 55), ended(leases, 60)) == ([], [(1, [2])], [(1, [1])])


def test_a_lease_that_is_extended_for_ever_takes_no_more_room() -> None:
    leases = Leases(LeaseBook())
    lease = lease_of(leases, 0, 30.0, 1)
    for number in range(1, 20_000):
        leases.extend(lease, Offsets([1]), 30.0 + number)
        leases.take(lease_of(leases, number, 1e9, number), Offsets([number]))
        assert ended(leases, float(number)) == []
    assert len(leases._deadlines) < 2000


# Clocks.


@pytest.mark.parametrize("hours", [1, -1])
def test_T7_a_step_of_the_wall_clock_changes_no_lease(topic: PureTopic, hours: int) -> None:
    topic.publish(2)
    (pick,) = topic.fetch(number=1)
    topic.commit()
    topic.clock.step_wall(3600 * hours)
    topic.tick()
    assert topic.log == []
    topic.advance(29.9)
    assert topic.log == []
    assert taken(topic.fetch(consumer="other")) == [1]
    assert topic.extend(pick.lease, 30) == []
    topic.clock.step_wall(-3600 * hours)
    topic.advance(29.9)
    assert topic.ack(pick.lease) == []


def test_T7_a_lease_runs_out_while_the_wall_clock_stands_an_hour_back(topic: PureTopic) -> None:
    topic.publish(1)
    topic.fetch()
    topic.commit()
    topic.clock.step_wall(-3600)
    topic.advance(30)
    topic.commit()
    assert taken(topic.fetch()) == [0]


# Who holds what.


def test_what_a_consumer_holds_is_counted_until_it_is_settled(topic: PureTopic) -> None:
    topic.publish(6)
    (pick,) = topic.fetch(number=3, consumer="ann")
    topic.fetch(number=2, consumer="bob")
    leases = topic.groups["g"].leases
    assert (leases.in_flight["ann"], leases.in_flight["bob"], leases.total) == (3, 2, 5)
    topic.ack(pick.lease, [0])
    topic.release(pick.lease, [1, 2])
    assert (leases.in_flight["ann"], leases.total) == (0, 2)
    assert leases.held_by("ann") == []
    assert [list(lease.messages) for lease in leases.held_by("bob", 0)] == [[3, 4]]
    assert leases.held_by(partition=1) == []


@pytest.mark.parametrize(("kind", "failures"), [(EventKind.RELEASED, 0), (EventKind.EXPIRED, 1)])
def test_Q2_what_a_consumer_that_went_away_held_goes_to_others(
    topic: PureTopic, kind: EventKind, failures: int
) -> None:
    topic.publish(3)
    topic.fetch(number=2, consumer="ann")
    topic.fetch(number=1, consumer="bob")
    topic.leave("ann", kind=kind)
    topic.commit()
    assert taken(topic.fetch(consumer="bob")) == [0, 1]
    topic.commit()
    assert topic.progress().counts_of(0) == (2, failures)
    assert topic.progress().counts_of(2) == (1, 0)
