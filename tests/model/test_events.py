"""The event codec: what was logged comes back, and what is no log of events is refused and nothing worse."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import InvalidArgument
from penstock.model.events import Event, EventKind, decode_events, encode_events, span_of

NUMBERS = st.integers(0, 2**63 - 1)
TEXTS = st.none() | st.text(max_size=20)
EVENTS = st.builds(
    Event,
    kind=st.sampled_from(EventKind),
    time_us=NUMBERS,
    offset=NUMBERS,
    count=NUMBERS,
    group=TEXTS,
    consumer=TEXTS,
    attempt=st.integers(0, 2**31 - 1),
    detail=TEXTS,
    due_us=NUMBERS,
    offsets=st.none() | st.lists(NUMBERS, max_size=4),
)
PLAIN = st.builds(Event, kind=st.sampled_from(EventKind), time_us=NUMBERS, offset=NUMBERS, count=NUMBERS)
ARCHIVED = Event(EventKind.ARCHIVED, 1_767_225_600_000_000, 45_678, 1000, detail="/old")


@given(st.lists(EVENTS, min_size=1, max_size=20) | st.lists(EVENTS | PLAIN, min_size=1) | st.lists(PLAIN, min_size=1))
def test_events_come_back_as_they_were_logged(events: list[Event]) -> None:
    assert decode_events(encode_events(events)) == events


def test_no_events_come_back_as_no_events() -> None:
    assert decode_events(encode_events([])) == []


@given(st.lists(EVENTS, min_size=1, max_size=3))
def test_events_cut_at_any_byte_are_refused(events: list[Event]) -> None:
    body = encode_events(events)
    for cut in range(len(body)):
        with pytest.raises(InvalidArgument, match="not an encoded batch of events"):
            decode_events(body[:cut])


def test_bytes_behind_the_events_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="not an encoded batch of events"):
        decode_events(encode_events([ARCHIVED]) + b"\0")


@given(st.binary(max_size=200))
def test_garbage_is_refused_and_raises_nothing_else(garbage: bytes) -> None:
    with contextlib.suppress(InvalidArgument):
        assert all(isinstance(event, Event) for event in decode_events(garbage))


@given(st.lists(EVENTS, min_size=1, max_size=3), st.data())
def test_a_changed_byte_is_refused_or_gives_events_and_raises_nothing_else(
    events: list[Event], data: st.DataObject
) -> None:
    body = bytearray(encode_events(events))
    body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(InvalidArgument):
        assert all(isinstance(event, Event) for event in decode_events(bytes(body)))


def test_columns_that_say_nothing_are_left_out() -> None:
    removed = Event(EventKind.REMOVED, 5, 10, 3)
    assert (
        msgspec.msgpack.decode(encode_events([removed] * 2)) == [["removed"] * 2, [5, 5], [10, 10], [3, 3]] + [None] * 6
    )
    told = Event(EventKind.FAILED, 5, 10, 2, "g", "c", 1, "d", 9, [10, 12])
    columns = [["g", None], ["c", None], [1, 0], ["d", None], [9, 0], [[10, 12], None]]
    assert msgspec.msgpack.decode(encode_events([told, removed]))[4:] == columns
    for number in range(4):
        with pytest.raises(InvalidArgument, match="not an encoded batch of events"):
            decode_events(msgspec.msgpack.encode([[1]] * number + [None] * (10 - number)))


def test_columns_of_different_lengths_are_refused() -> None:
    columns: list[list[object]] = [[value] for value in msgspec.structs.astuple(ARCHIVED)]
    assert decode_events(msgspec.msgpack.encode(columns)) == [ARCHIVED]
    for number in range(len(columns)):
        uneven = [column * 2 if place == number else column for place, column in enumerate(columns)]
        with pytest.raises(InvalidArgument, match="not an encoded batch of events"):
            decode_events(msgspec.msgpack.encode(uneven))


def test_an_event_of_an_unknown_kind_is_refused_with_its_kind() -> None:
    columns: list[list[object]] = [[value] for value in msgspec.structs.astuple(ARCHIVED)]
    columns[0] = ["evaporated"]
    with pytest.raises(InvalidArgument, match="evaporated"):
        decode_events(msgspec.msgpack.encode(columns))


def test_a_thousand_like_events_take_little_more_than_their_numbers() -> None:
    events = [Event(EventKind.REMOVED, 1_000_000 + place, place, 1) for place in range(1000)]
    assert len(encode_events(events)) < 20 * len(events)


def test_an_event_speaks_of_a_run_and_of_nobody_unless_told() -> None:
    event = Event(EventKind.REMOVED, 5, 10, 3)
    assert (event.offset, event.count) == (10, 3)
    assert (event.group, event.consumer, event.attempt, event.detail) == (None, None, 0, None)
    assert (event.due_us, event.offsets) == (0, None)


def test_an_event_knows_the_last_offset_it_speaks_of() -> None:
    assert Event(EventKind.ACKED, 5, 10, 3).last == 12
    assert Event(EventKind.ACKED, 5, 10, 1).last == 10
    assert Event(EventKind.CREATED, 5, 10, 0).last == 10
    assert Event(EventKind.ACKED, 5, 10, 3, offsets=[10, 12, 40]).last == 40


def test_an_event_speaks_of_its_offsets_and_of_no_others() -> None:
    for event, offsets in [
        (Event(EventKind.ACKED, 5, 10, 3), [10, 11, 12]),
        (Event(EventKind.ACKED, 5, 10, 3, offsets=[10, 12, 19]), [10, 12, 19]),
        (Event(EventKind.CREATED, 5, 10, 0), []),
    ]:
        assert [offset for offset in range(30) if event.speaks_of(offset)] == offsets


def test_some_events_speak_of_all_between_the_lowest_and_the_highest() -> None:
    events = [Event(EventKind.ACKED, 5, 10, 3), Event(EventKind.ACKED, 5, 7, 2, offsets=[7, 90]), ARCHIVED]
    assert span_of(events[:1]) == (10, 12)
    assert span_of(events) == (7, 46_677)
    assert span_of([]) == (0, 0)


def test_every_kind_is_written_as_its_name() -> None:
    assert [kind.value for kind in EventKind] == [kind.name.lower() for kind in EventKind]


def test_an_event_cannot_be_changed_after_it_happened() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        ARCHIVED.count = 0  # type: ignore[misc]
