"""Message ids, one by one and by the batch; messages on the way in and as they are stored."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import InvalidArgument
from penstock.model.message import IdRun, Message, MessageId, MessageIds, StoredMessage

TOPICS = st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,20}", fullmatch=True)
RUNS = st.lists(
    st.builds(IdRun, st.integers(0, 9), st.integers(0, 1000), st.integers(1, 6)), max_size=5
)  # a batch: some offsets in a row in each of some partitions
ENDS = st.none() | st.integers(-40, 40)
SLICES = st.builds(slice, ENDS, ENDS, st.none() | st.integers(-5, 5).filter(bool))


def expand(runs: list[IdRun]) -> list[MessageId]:
    return [MessageId("orders", run.partition, run.base + place) for run in runs for place in range(run.count)]


# One id.


@given(TOPICS, st.integers(0, 65_535), st.integers(0, 2**63 - 1))
def test_an_id_goes_to_text_and_back(topic: str, partition: int, offset: int) -> None:
    identity = MessageId(topic, partition, offset)
    assert str(identity) == f"{topic}/{partition}/{offset}"
    assert MessageId.parse(str(identity)) == identity


@pytest.mark.parametrize(
    "text",
    [
        "",
        "orders",
        "orders/2",
        "orders/2/3/4",
        "orders/2/",
        "orders//3",
        "orders/two/3",
        "orders/-1/3",
        "orders/2/-3",
        "orders/2/3.0",
        "orders/2/ 3",
        "orders/2/3\n",
        "orders/²/3",
        "orders/٢/3",
    ],
)
def test_what_is_not_an_id_is_refused_with_what_one_looks_like(text: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        MessageId.parse(text)
    assert str(refused.value) == f"{text!r} is not a message id: they look like 'orders/2/45678'"


@pytest.mark.parametrize("text", ["/2/3", "../2/3", "or ders/2/3"])
def test_an_id_of_an_impossible_topic_is_refused_with_the_names_that_are_allowed(text: str) -> None:
    with pytest.raises(InvalidArgument, match="is not a topic name: use 1 to 200 of letters"):
        MessageId.parse(text)


def test_an_id_with_thousands_of_digits_is_refused_like_any_other_nonsense() -> None:
    with pytest.raises(InvalidArgument, match="message id"):
        MessageId.parse("orders/0/" + "9" * 5000)


def test_ids_order_by_topic_then_partition_then_offset_as_numbers() -> None:
    ordered = [MessageId("a", 0, 9), MessageId("a", 0, 10), MessageId("a", 2, 0), MessageId("a", 10, 0)]
    assert sorted([*reversed(ordered), MessageId("b", 0, 0)]) == [*ordered, MessageId("b", 0, 0)]


def test_an_id_is_a_fixed_value_that_can_be_a_key() -> None:
    assert {MessageId("a", 1, 2): "here"}[MessageId("a", 1, 2)] == "here"
    with pytest.raises(AttributeError, match="immutable"):
        MessageId("a", 1, 2).offset = 3  # type: ignore[misc]


# The ids of a batch.


@given(RUNS)
def test_the_ids_of_a_batch_are_those_of_its_runs_one_after_the_other(runs: list[IdRun]) -> None:
    ids, expected = MessageIds("orders", runs), expand(runs)
    assert len(ids) == len(expected)
    assert list(ids) == expected
    assert [ids[place] for place in range(len(expected))] == expected
    assert [ids[place - len(expected)] for place in range(len(expected))] == expected
    assert list(reversed(ids)) == expected[::-1]


@given(RUNS, st.randoms(use_true_random=False))
def test_places_tell_the_order_of_the_messages_where_runs_cannot(runs: list[IdRun], shuffler: Random) -> None:
    expected = expand(runs)
    shuffler.shuffle(expected)
    ids = MessageIds("orders", runs, [(identity.partition, identity.offset) for identity in expected])
    assert list(ids) == [ids[place] for place in range(len(ids))] == expected
    assert ids.runs == tuple(runs)


@given(RUNS, SLICES, st.booleans())
def test_a_slice_of_the_ids_is_the_slice_of_their_list(runs: list[IdRun], part: slice, placed: bool) -> None:
    expected = expand(runs)
    places = [(identity.partition, identity.offset) for identity in expected] if placed else None
    assert MessageIds("orders", runs, places)[part] == expected[part]


@pytest.mark.parametrize("places", [None, [(3, 7), (3, 8)]])
def test_a_place_outside_of_the_batch_is_an_index_error(places: list[tuple[int, int]] | None) -> None:
    ids = MessageIds("orders", [IdRun(3, 7, 2)], places)
    for place in (2, -3, 10**9):
        with pytest.raises(IndexError):
            ids[place]


def test_the_ids_of_no_messages_are_an_empty_sequence() -> None:
    ids = MessageIds("orders", [])
    assert (len(ids), list(ids), ids[:], bool(ids)) == (0, [], [], False)
    with pytest.raises(IndexError):
        ids[0]


def test_ids_can_be_searched_and_compared_like_any_sequence() -> None:
    ids = MessageIds("orders", [IdRun(0, 5, 2), IdRun(2, 9, 1)])
    assert MessageId("orders", 2, 9) in ids
    assert MessageId("orders", 2, 10) not in ids
    assert ids.index(MessageId("orders", 0, 6)) == 1
    assert ids == [MessageId("orders", 0, 5), MessageId("orders", 0, 6), MessageId("orders", 2, 9)]
    assert ids == MessageIds("orders", [], [(0, 5), (0, 6), (2, 9)])
    assert ids != MessageIds("others", ids.runs)
    assert ids != 3


def test_more_ids_than_memory_holds_are_counted_and_looked_up_without_being_made() -> None:
    ids = MessageIds("orders", [IdRun(0, 10, 10**12), IdRun(1, 0, 10**12)])
    assert len(ids) == 2 * 10**12
    assert ids[-1] == MessageId("orders", 1, 10**12 - 1)
    assert ids[10**12 - 1 : 10**12 + 1] == [MessageId("orders", 0, 10**12 + 9), MessageId("orders", 1, 0)]


def test_ids_are_shown_in_a_few_numbers() -> None:
    ids = MessageIds("orders", [IdRun(0, 5, 1000), IdRun(2, 9, 1)])
    assert repr(ids) == "<1001 message ids: orders/0/5+1000, orders/2/9+1>"


# Messages.


def test_a_message_is_nothing_but_a_value_unless_more_is_said() -> None:
    assert msgspec.structs.asdict(Message(b"v")) == {
        "value": b"v",
        "key": None,
        "headers": None,
        "priority": "normal",
        "delay": None,
        "deliver_at": None,
        "partition": None,
        "dedupe_id": None,
        "expires_in": None,
    }


def test_a_stored_message_tells_its_id_and_its_times_in_utc() -> None:
    stored = StoredMessage("orders", 2, 45678, 1_500_000, b"v", b"k", None, 128, 3_000_001, None, 4_000_002)
    assert stored.id == MessageId("orders", 2, 45678)
    assert stored.timestamp == datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)
    assert stored.deliver_at == datetime(1970, 1, 1, 0, 0, 3, 1, tzinfo=UTC)
    assert stored.expires_at == datetime(1970, 1, 1, 0, 0, 4, 2, tzinfo=UTC)


def test_a_stored_message_that_was_not_delayed_and_lives_for_ever_has_no_such_times() -> None:
    stored = StoredMessage("orders", 0, 0, 0, b"", None, None, 128, None, None)
    assert (stored.deliver_at, stored.expires_at) == (None, None)


def test_a_stored_message_cannot_be_changed() -> None:
    stored = StoredMessage("orders", 0, 0, 0, b"v", None, None, 128, None, None)
    with pytest.raises(AttributeError, match="immutable"):
        stored.value = b"other"  # type: ignore[misc]
