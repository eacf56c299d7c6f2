"""Progress: what is done, how often the rest was tried, and nothing of it is lost on the way to disk and back."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.delivery.offsets import Offsets, first_absent, from_range, lowest, offsets_of, written
from penstock.delivery.partition import PartitionState
from penstock.delivery.progress import Progress
from penstock.model.events import Event, EventKind
from penstock.model.group_settings import GroupSettings, encode_settings
from tests.delivery.harness import from_disk

DONE = (EventKind.ACKED, EventKind.DEAD, EventKind.LAPSED, EventKind.SKIPPED)


def happened(
    kind: EventKind,
    *offsets: int,
    group: str | None = "g",
    attempt: int = 0,
    due_us: int = 0,
    detail: str | None = None,
) -> Event:
    first, count, others = written(Offsets(offsets))
    return Event(kind, 1, first, count, group, "c", attempt, detail, due_us, others)


def with_group(start: int = 0, settings: GroupSettings | None = None) -> tuple[PartitionState, Progress]:
    state = PartitionState()
    detail = encode_settings(settings or GroupSettings())
    state.apply(Event(EventKind.CREATED, 1, start, 0, "g", detail=detail))
    return state, state.groups["g"]


def test_the_floor_stands_at_the_first_message_that_is_not_done() -> None:
    state, progress = with_group()
    state.apply(happened(EventKind.ACKED, 1, 2, 4))
    assert (progress.floor, list(progress.done)) == (0, [1, 2, 4])
    state.apply(happened(EventKind.ACKED, 0))
    assert (progress.floor, list(progress.done)) == (3, [4])
    assert list(progress.pending(7)) == [3, 5, 6]
    assert progress.backlog(7) == 3


@pytest.mark.parametrize("kind", DONE)
def test_what_is_done_stays_done_for_the_reason_it_was_done_first(kind: EventKind) -> None:
    state, progress = with_group()
    state.apply(happened(kind, 0, 2))
    for other in DONE:
        state.apply(happened(other, 0, 2))
    assert getattr(progress.tally, kind.value) == progress.tally.total() == 2
    assert list(progress.undone(Offsets([0, 1, 2, 3]))) == [1, 3]


def test_Q6_deliveries_and_failures_are_counted_message_by_message() -> None:
    state, progress = with_group()
    state.apply(happened(EventKind.DELIVERED, 0, 1, 2, attempt=1))
    assert [progress.counts_of(offset) for offset in range(4)] == [(1, 0), (1, 0), (1, 0), (0, 0)]
    state.apply(happened(EventKind.FAILED, 1, due_us=50))
    state.apply(happened(EventKind.DELIVERED, 1, attempt=2))
    state.apply(happened(EventKind.EXPIRED, 1, due_us=60))
    assert progress.counts_of(1) == (2, 2)
    assert progress.waiting == {1: 60}
    assert from_disk(state).groups["g"].counts_of(1) == (2, 2)


def test_Q6_what_failed_was_delivered_also_when_that_could_not_be_written() -> None:
    state, progress = with_group()
    state.apply(happened(EventKind.FAILED, 0, due_us=50))
    assert progress.counts_of(0) == (1, 1)
    state.apply(happened(EventKind.FAILED, 0, due_us=60))
    assert progress.counts_of(0) == (2, 2)
    state.apply(happened(EventKind.DELIVERED, 0, attempt=3))
    assert progress.counts_of(0) == (3, 2)


def test_a_message_that_was_delivered_waits_for_no_other_try() -> None:
    state, progress = with_group()
    state.apply(happened(EventKind.FAILED, 0, 1, due_us=50))
    state.apply(happened(EventKind.DELIVERED, 0, attempt=2))
    assert progress.waiting == {1: 50}


@pytest.mark.parametrize("kind", [*DONE, EventKind.CANCELLED])
def test_nothing_is_kept_of_what_is_done(kind: EventKind) -> None:
    state, progress = with_group()
    state.apply(happened(EventKind.DELIVERED, 0, 1, attempt=1))
    state.apply(happened(EventKind.FAILED, 0, 1, due_us=50))
    state.apply(happened(kind, 0, 1, group=None if kind == EventKind.CANCELLED else "g"))
    assert (progress.waiting, list(progress.touched)) == ({}, [])
    assert bool(progress.counts) == (kind == EventKind.DEAD)  # it may be redriven


def test_what_is_told_of_a_message_that_is_done_changes_nothing() -> None:
    state, progress = with_group()
    state.apply(happened(EventKind.DELIVERED, 0, 3, attempt=1))
    state.apply(happened(EventKind.PURGED, 0, 3, group=None))
    before = progress.state()
    state.apply(happened(EventKind.DELIVERED, 0, 3, attempt=2))
    state.apply(happened(EventKind.FAILED, 0, 3, due_us=50))
    assert progress.state() == before


def test_Q7_a_redriven_message_lives_again_with_its_failures_forgiven_and_its_deliveries_counted() -> None:
    state, progress = with_group()
    state.apply(happened(EventKind.DELIVERED, 0, 1, 2, attempt=1))
    state.apply(happened(EventKind.FAILED, 1, due_us=5))
    state.apply(happened(EventKind.DELIVERED, 1, attempt=2))
    state.apply(happened(EventKind.DEAD, 1))
    state.apply(happened(EventKind.ACKED, 0, 2))
    assert (progress.floor, progress.tally.dead, list(progress.dead)) == (3, 1, [1])
    state.apply(happened(EventKind.REDRIVEN, 1))
    assert list(progress.pending(3)) == [1]
    assert (progress.tally.dead, progress.tally.acked, list(progress.dead)) == (0, 2, [])
    assert progress.counts_of(1) == (2, 0)
    state.apply(happened(EventKind.REDRIVEN, 0, 1, 2))  # none of them is dead
    assert list(progress.pending(3)) == [1]


def test_Q6_a_message_that_died_undelivered_was_delivered_never_also_when_it_is_redriven() -> None:
    state, progress = with_group()
    state.apply(happened(EventKind.DEAD, 0))
    state = from_disk(state)
    state.apply(happened(EventKind.REDRIVEN, 0))
    progress = state.groups["g"]
    assert progress.counts_of(0) == (0, 0)
    state.apply(happened(EventKind.DELIVERED, 0, attempt=1))
    assert progress.counts_of(0) == (1, 0)


def test_Q1_what_is_withdrawn_is_done_for_every_group_also_for_those_to_come_and_those_that_are_moved() -> None:
    state, progress = with_group()
    state.apply(happened(EventKind.CANCELLED, 1, 5, group=None))
    assert progress.tally.withdrawn == 2
    state.apply(Event(EventKind.CREATED, 1, 2, 0, "late"))
    assert state.groups["late"].tally.withdrawn == 1
    state.apply(Event(EventKind.SOUGHT, 1, 1, 0, "g"))
    assert (progress.tally.withdrawn, progress.start, progress.floor) == (2, 1, 2)


def test_a_group_that_is_moved_begins_again_with_the_settings_it_has() -> None:
    state, progress = with_group(settings=GroupSettings(max_in_flight=3))
    state.apply(happened(EventKind.DELIVERED, 0, 1, 2, attempt=1))
    state.apply(happened(EventKind.FAILED, 1, due_us=50))
    state.apply(happened(EventKind.ACKED, 0))
    state.apply(Event(EventKind.SOUGHT, 1, 0, 0, "g"))
    assert state.groups["g"] is progress
    assert progress.state() == Progress(0, GroupSettings(max_in_flight=3)).state()


def test_what_retention_removes_is_lost_to_those_who_had_not_done_it() -> None:
    state, progress = with_group()
    state.apply(happened(EventKind.ACKED, 1))
    state.apply(happened(EventKind.FAILED, 2, due_us=50))
    state.apply(happened(EventKind.DEAD, 3))
    state.apply(happened(EventKind.CANCELLED, 4, group=None))
    state.apply(Event(EventKind.RESCHEDULED, 1, 5, 1, due_us=70))
    state.apply(Event(EventKind.REMOVED, 1, 0, 6))
    tally = progress.tally
    assert (tally.acked, tally.dead, tally.withdrawn, tally.lost) == (1, 1, 1, 3)
    assert (progress.floor, progress.counts, progress.waiting, list(progress.dead)) == (6, {}, {}, [])
    assert (state.moved, list(state.withdrawn)) == ({}, [])


def test_what_is_archived_is_lost_to_all_groups_but_those_that_read_the_archive() -> None:
    state, progress = with_group()
    replay = encode_settings(GroupSettings(archived=True))
    state.apply(Event(EventKind.CREATED, 1, 0, 0, "replay", detail=replay))
    state.apply(Event(EventKind.ARCHIVED, 1, 0, 6))
    assert (progress.tally.lost, state.groups["replay"].tally.lost) == (6, 0)


def test_a_group_that_is_forgotten_is_gone_and_events_of_unknown_groups_are_passed_over() -> None:
    state, _ = with_group()
    state.apply(Event(EventKind.FORGOTTEN, 1, 0, 0, "g"))
    state.apply(happened(EventKind.ACKED, 0))
    assert state.groups == {}


def test_Q10_a_hundred_thousand_scattered_acks_survive_a_restart_in_little_space() -> None:
    state, progress = with_group()
    scattered = sorted(Random(7).sample(range(1, 1_000_000), 100_000))
    for start in range(0, len(scattered), 1000):
        state.apply(happened(EventKind.ACKED, *scattered[start : start + 1000]))
    again = from_disk(state).groups["g"]
    assert again.state() == progress.state()
    assert list(again.done) == scattered
    assert (again.floor, again.backlog(1_000_000), again.tally.acked) == (0, 900_000, 100_000)
    assert len(progress.state().done) < 300_000


events = st.builds(
    lambda kind, offsets, attempt, due_us: happened(kind, *offsets, attempt=attempt, due_us=due_us),
    st.sampled_from(
        [*DONE, EventKind.DELIVERED, EventKind.FAILED, EventKind.EXPIRED, EventKind.RELEASED, EventKind.REDRIVEN]
    ),
    st.sets(st.integers(0, 20), min_size=1),
    st.integers(1, 3),
    st.sampled_from([0, 5, 9]),
)


@given(st.lists(events, max_size=30), st.integers(0, 30), st.integers(0, 5))
def test_L10_a_state_restored_anywhere_in_the_log_ends_where_the_other_does(
    log: list[Event], cut: int, start: int
) -> None:
    state, progress = with_group(start)
    for event in log[:cut]:
        state.apply(event)
    other = from_disk(state)
    assert other.state() == state.state()
    for event in log[cut:]:
        state.apply(event)
        other.apply(event)
    assert other.state() == state.state()
    assert progress.tally.total() + progress.backlog(21) == 21 - start  # Q1
    assert not progress.touched & progress.done
    assert all(offset in progress.pending(21) for offset in progress.waiting)


@given(st.lists(events, max_size=30), st.integers(0, 5), st.sampled_from([None, 12]))
def test_L10_a_run_leads_to_what_its_messages_lead_to_as_a_set(log: list[Event], start: int, until: int | None) -> None:
    """What is known as a run is folded without a set of it: `offsets` is None for those, and is given here."""
    settings = GroupSettings(until=until)
    (state, progress), (other, spelled) = with_group(start, settings), with_group(start, settings)
    for event in log:
        state.apply(event)
        other.apply(replace(event, offsets=list(offsets_of(event))))
        assert _plain(progress) == _plain(spelled)


def _plain(progress: Progress) -> object:
    sets = (sorted(found) for found in (progress.done, progress.dead, progress.touched))
    return progress.floor, progress.counts, progress.waiting, progress.tally, *sets


@given(st.sets(st.integers(0, 200), min_size=1), st.integers(0, 210), st.integers(1, 20))
def test_sets_of_offsets_are_what_they_are_as_plain_sets(plain: set[int], start: int, count: int) -> None:
    offsets = Offsets(plain)
    first, number, others = written(offsets)
    assert set(offsets_of(Event(EventKind.ACKED, 1, first, number, offsets=others))) == plain
    assert list(lowest(offsets, count)) == sorted(plain)[:count]
    assert first_absent(offsets, start) == next(offset for offset in range(start, 300) if offset not in plain)


def test_the_first_absent_offset_is_found_behind_a_long_run() -> None:
    assert first_absent(from_range(3, 5_000_000), 3) == 5_000_000
    assert first_absent(from_range(3, 5_000_000), 2) == 2
    assert list(from_range(5, 5)) == []
