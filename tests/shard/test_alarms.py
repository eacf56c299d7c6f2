"""The alarm clock: each is woken at the earliest time it asked for, once, and the clock does not fill up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.shard.dispatch.alarms import Alarms


def test_the_earliest_alarm_of_each_counts() -> None:
    alarms = Alarms()
    assert alarms.set(1, 50)
    assert not alarms.set(1, 60)
    assert not alarms.set(2, 70)
    assert alarms.set(2, 20)
    assert alarms.next_time() == 20
    assert alarms.ring(19) == []
    assert alarms.ring(55) == [2, 1]
    assert alarms.ring(1000) == []
    assert alarms.next_time() is None


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(0, 50))))
def test_alarms_ring_as_a_table_of_the_earliest_times_says(steps: list[tuple[bool, int, int]]) -> None:
    alarms, table = Alarms(), dict[int, int]()
    for sets, who, time in steps:
        if sets:
            alarms.set(who, time)
            table[who] = min(time, table.get(who, time))
        else:
            due = {sleeper for sleeper, when in table.items() if when <= time}
            assert set(alarms.ring(time)) == due
            table = {sleeper: when for sleeper, when in table.items() if sleeper not in due}
        assert alarms.next_time() == min(table.values(), default=None)


def test_setting_alarms_again_and_again_takes_no_more_room() -> None:
    alarms = Alarms()
    for time in range(100_000, 0, -1):
        alarms.set(1, time)
        alarms.set(2, 10**9)
    assert len(alarms) < 2000
