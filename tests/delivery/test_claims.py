"""Claims: of everything that is ready, the lowest lane, and in it the lowest offset; what comes back has its place."""

from __future__ import annotations

import pytest

from penstock.model.events import EventKind
from penstock.model.group_settings import GroupSettings
from tests.delivery.harness import PureTopic, taken


@pytest.fixture
def topic() -> PureTopic:
    made = PureTopic()
    made.create("g")
    return made


def test_O3_lanes_are_emptied_from_the_lowest_number_on(topic: PureTopic) -> None:
    topic.publish(priorities=[9, 1, 5, 1, 9])
    assert taken(topic.fetch(number=3)) == [1, 3, 2]
    topic.publish(priorities=[5, 1])
    assert taken(topic.fetch()) == [6, 5, 0, 4]
    assert topic.groups["g"].claims[0].lanes() == []


def test_a_message_of_a_lower_number_that_comes_later_goes_first(topic: PureTopic) -> None:
    topic.publish(10, priority=5)
    assert taken(topic.fetch(number=2)) == [0, 1]
    topic.publish(1, priority=0)
    assert taken(topic.fetch(number=2)) == [10, 2]


def test_O2_a_message_that_is_given_back_keeps_its_place_and_its_lane(topic: PureTopic) -> None:
    topic.publish(priorities=[5, 5, 1, 5, 1])
    (urgent, plain) = topic.fetch(number=4)
    assert taken([urgent, plain]) == [2, 4, 0, 1]
    topic.release(urgent.lease, [0, 4])
    topic.commit()
    assert taken(topic.fetch()) == [4, 0, 3]


def test_what_was_given_back_and_is_not_wanted_yet_stays_in_its_place(topic: PureTopic) -> None:
    topic.publish(10)
    (pick,) = topic.fetch(number=8)
    topic.release(pick.lease, [1, 3, 5])
    topic.commit()
    assert taken(topic.fetch(number=2)) == [1, 3]
    assert taken(topic.fetch(number=2)) == [5, 8]
    assert topic.account() == {"held": 9, "ready": 1}


def test_T1_a_delayed_message_is_shown_at_its_time_also_behind_the_cursor(topic: PureTopic) -> None:
    topic.publish(deliver_at=[0, topic.in_s(5), 0, topic.in_s(9)])
    assert topic.account() == {"ready": 2, "delayed": 2}
    assert topic.take() == [0, 2]
    topic.advance(4.999999)
    assert topic.take() == []
    topic.advance(0.000001)
    assert topic.take() == [1]
    topic.publish(1)
    topic.advance(4)
    assert topic.take() == [3, 4]
    assert topic.account() == {"acked": 5}


def test_T3_delays_survive_a_restart_and_what_is_past_due_comes_once(topic: PureTopic) -> None:
    topic.publish(deliver_at=[topic.in_s(5), topic.in_s(50)])
    topic.advance(10)
    topic.crash()
    assert topic.take() == [0]
    topic.crash()
    assert topic.take() == []
    topic.advance(40)
    assert topic.take() == [1]


@pytest.mark.parametrize("restart", [False, True])
def test_T4_a_cancelled_message_is_never_delivered_and_cancelling_delivers_nothing(
    topic: PureTopic, restart: bool
) -> None:
    topic.publish(deliver_at=[topic.in_s(5), topic.in_s(6), 0])
    assert topic.cancel(0)
    assert not topic.cancel(0)
    assert not topic.cancel(2)
    topic.commit()
    if restart:
        topic.crash()
    assert topic.account() == {"withdrawn": 1, "ready": 1, "delayed": 1}
    assert topic.take() == [2]
    topic.advance(100)
    assert topic.take() == [1]
    assert topic.account() == {"withdrawn": 1, "acked": 2}


def test_T4_a_message_that_is_being_cancelled_does_not_fall_due_until_that_is_decided(topic: PureTopic) -> None:
    topic.publish(deliver_at=[topic.in_s(5)] * 2)
    assert topic.cancel(0)
    assert topic.cancel(1)
    topic.advance(10)
    assert topic.fetch() == []
    assert not topic.cancel(0)
    topic.refuse(1)
    assert topic.take() == [0]
    assert topic.account() == {"acked": 1, "withdrawn": 1}


@pytest.mark.parametrize("restart", [False, True])
def test_T1_a_rescheduled_message_falls_due_once_at_its_new_time(topic: PureTopic, restart: bool) -> None:
    topic.publish(deliver_at=[topic.in_s(5), topic.in_s(20)])
    assert topic.reschedule(0, topic.in_s(30))
    assert topic.reschedule(1, topic.in_s(3))
    topic.commit()
    if restart:
        topic.crash()
    seen = []
    for _ in range(40):
        topic.advance(1)
        seen.append(topic.take())
    assert {second: offsets for second, offsets in enumerate(seen, 1) if offsets} == {3: [1], 30: [0]}


def test_a_message_that_lapses_is_not_delivered_wherever_it_waits(topic: PureTopic) -> None:
    topic.publish(6, expires_at=[topic.in_s(10)] * 6, deliver_at=[0, 0, 0, 0, topic.in_s(5), topic.in_s(50)])
    (pick,) = topic.fetch(number=3)
    topic.commit()
    topic.release(pick.lease, [0])  # behind the cursor
    topic.fail(pick.lease, [1], delay_s=30)  # waits; 2 is leased, 3 ahead, 4 falls due, 5 delayed
    topic.commit()
    assert topic.account() == {"ready": 2, "held": 1, "waiting": 1, "delayed": 2}
    topic.advance(10)
    assert topic.fetch() == []
    topic.commit()
    assert topic.account() == {"held": 1, "lapsed": 5}
    assert topic.release(pick.lease, [2]) == []
    topic.commit()
    assert topic.fetch() == []
    topic.commit()
    assert topic.account() == {"lapsed": 6}
    topic.advance(100)
    assert (topic.fetch(), topic.account()) == ([], {"lapsed": 6})


def test_a_message_that_is_leased_may_be_acked_after_its_time_to_live(topic: PureTopic) -> None:
    topic.publish(expires_at=[topic.in_s(10)])
    (pick,) = topic.fetch()
    topic.advance(20)
    assert topic.ack(pick.lease) == []
    topic.commit()
    assert topic.account() == {"acked": 1}


@pytest.mark.parametrize("fetched", [False, True])
def test_Q1_a_message_whose_delay_and_life_end_between_two_ticks_lapses(topic: PureTopic, fetched: bool) -> None:
    topic.publish(deliver_at=[topic.in_s(1)], expires_at=[topic.in_s(2)])
    if fetched:
        assert topic.fetch() == []  # the cursor is behind it
    topic.advance(3)
    assert topic.account() == {"held": 1}
    topic.commit()
    assert topic.account() == {"lapsed": 1}


def test_Q7_a_message_that_lapses_before_it_is_due_dies_once(topic: PureTopic) -> None:
    topic = PureTopic(dead_letter_lapsed=True)
    topic.create("g")
    topic.publish(deliver_at=[topic.in_s(5)], expires_at=[topic.in_s(2)])
    topic.advance(3)
    assert topic.account() == {"held": 1}
    topic.advance(3)  # now it would be due
    topic.commit()
    assert topic.letters == [("g", 0, 0)]
    assert topic.account() == {"dead": 1}


def test_Q1_a_group_that_is_used_late_counts_what_waited_and_lapsed_once(topic: PureTopic) -> None:
    topic.create("other")
    topic.publish(expires_at=[topic.in_s(2)])
    (pick,) = topic.fetch()
    topic.fail(pick.lease, delay_s=10)
    topic.commit()
    topic.crash("other")
    topic.advance(3)
    topic.commit()
    topic.open("g")
    assert topic.account() == {"lapsing": 1}
    topic.tick()
    topic.commit()
    topic.advance(20)
    assert topic.account() == {"lapsed": 1}


@pytest.mark.parametrize("end", ["ack", "release", "fail", "expire"])
def test_a_message_that_is_withdrawn_while_it_is_leased_does_not_come_back(topic: PureTopic, end: str) -> None:
    topic.publish(2)
    (pick,) = topic.fetch(number=1)
    topic.purge(0)
    topic.commit()
    if end == "ack":
        topic.ack(pick.lease)
    elif end == "release":
        topic.release(pick.lease)
    elif end == "fail":
        topic.fail(pick.lease, delay_s=1)
    else:
        topic.advance(31)
    topic.commit()
    topic.advance(100)
    assert topic.take() == [1]
    assert topic.account() == {"withdrawn": 1, "acked": 1}
    topic.crash()
    assert topic.take() == []


def test_what_is_done_below_the_floor_is_not_ready_in_a_lane_that_was_never_looked_at(topic: PureTopic) -> None:
    topic.publish(deliver_at=[topic.in_s(5), 0], priorities=[9, 1])
    topic.cancel(0)
    assert topic.take(number=1) == [1]
    topic.publish(1, priority=9)
    assert topic.account() == {"withdrawn": 1, "acked": 1, "ready": 1}
    assert topic.take() == [2]


def test_a_redriven_message_takes_its_old_place_below_the_floor(topic: PureTopic) -> None:
    topic.publish(5)
    (pick,) = topic.fetch(number=3)
    topic.kill(pick.lease, [1])
    topic.ack(pick.lease, [0, 2])
    topic.commit()
    assert topic.progress().floor == 3
    topic.redrive(1)
    topic.commit()
    assert topic.take() == [1, 3, 4]


def test_Q9_a_group_with_an_end_gets_nothing_from_there_on() -> None:
    topic = PureTopic()
    topic.create("g", GroupSettings(until=3), start=1)
    topic.publish(priorities=[5, 9, 5, 5, 1])
    claims = topic.open("g").claims[0]
    assert (claims.ready(), claims.end()) == (2, 3)
    assert topic.take() == [2, 1]
    assert (claims.ready(), claims.lanes()) == (0, [])


def test_ready_messages_are_found_behind_a_long_stretch_of_others(topic: PureTopic) -> None:
    topic.publish(deliver_at=[topic.in_s(60)] * 5000)
    topic.publish(3)
    assert taken(topic.fetch(number=2)) == [5000, 5001]
    assert taken(topic.fetch(number=2)) == [5002]
    assert topic.account() == {"delayed": 5000, "held": 3}


def test_Q2_seeking_back_delivers_again_and_seeking_forward_skips(topic: PureTopic) -> None:
    topic.publish(5)
    assert topic.take(number=3) == [0, 1, 2]
    (pick,) = topic.fetch(number=1)
    topic.seek(1)
    assert topic.fetch() == []  # until it is written
    assert topic.ack(pick.lease, [3]) == [3]
    topic.commit()
    assert topic.account() == {"ready": 4}
    assert topic.take(number=2) == [1, 2]
    topic.seek(4)
    topic.commit()
    assert topic.take() == [4]


def test_Q2_a_seek_that_could_not_be_written_gives_back_what_it_took(topic: PureTopic) -> None:
    topic.publish(3)
    (pick,) = topic.fetch(number=2)
    topic.commit()
    topic.seek(3)
    assert topic.fetch() == []
    topic.refuse()
    assert topic.account() == {"ready": 3}
    assert topic.ack(pick.lease, [0]) == [0]
    assert topic.take() == [0, 1, 2]


def test_Q3_nothing_is_handed_out_between_two_seeks_of_which_one_is_written(topic: PureTopic) -> None:
    topic.publish(3)
    topic.seek(0)
    topic.seek(1)
    topic.commit(1)
    assert topic.fetch() == []
    topic.commit(1)
    assert topic.take() == [1, 2]


def test_Q1_what_lapses_during_a_seek_lapses_after_it(topic: PureTopic) -> None:
    topic.publish(expires_at=[topic.in_s(1)])
    topic.seek(0)
    topic.advance(2)
    assert [event.kind for _, event in topic.log] == [EventKind.SOUGHT]
    topic.commit()
    topic.tick()
    topic.commit()
    assert topic.account() == {"lapsed": 1}


def test_Q7_what_was_dying_when_the_group_was_moved_lives_again(topic: PureTopic) -> None:
    topic.publish(1)
    (pick,) = topic.fetch()
    topic.kill(pick.lease)
    topic.seek(0)
    topic.commit()
    assert topic.letters == []
    assert topic.account() == {"ready": 1}
    assert topic.take() == [0]


def test_a_redrive_that_a_seek_overtook_brings_back_nothing_that_is_done(topic: PureTopic) -> None:
    topic.publish(3)
    (pick,) = topic.fetch(number=1)
    topic.kill(pick.lease)
    topic.commit()
    topic.seek(2)
    topic.redrive(0)
    topic.commit()
    assert topic.take() == [2]
