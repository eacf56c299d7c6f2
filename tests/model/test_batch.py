"""The batch codec: columns come back as they were, and bytes that are no batch are refused and nothing worse."""

from __future__ import annotations

import contextlib
from array import array

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.batch import (
    DELIVER_AT,
    EXPIRES,
    PRIORITIES,
    TAGS,
    Batch,
    decode_batch,
    decode_tags,
    head_of,
    join_batches,
)
from penstock.model.errors import InvalidArgument
from penstock.model.names import NORMAL
from penstock.model.producers import Names, name_at

HEADERS = st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=3)
TIMES = st.integers(0, 2**63 - 1)


@st.composite
def batches(draw: st.DrawFn, min_size: int = 0, max_size: int = 12) -> Batch:
    """Any batch: each optional column there or not."""
    count = draw(st.integers(min_size, max_size))

    def column(cells: st.SearchStrategy[object]) -> list[object] | None:
        return draw(st.none() | st.lists(cells, min_size=count, max_size=count))

    due, expiry = column(TIMES), column(TIMES)
    producer = draw(st.none() | st.text(min_size=1, max_size=8))
    return Batch(
        values=draw(st.lists(st.binary(max_size=20), min_size=count, max_size=count)),
        keys=column(st.none() | st.binary(max_size=8)),  # type: ignore[arg-type]
        headers=column(st.none() | HEADERS),  # type: ignore[arg-type]
        priority=draw(st.integers(0, 255)),
        priorities=draw(st.none() | st.binary(min_size=count, max_size=count)),
        deliver_at=None if due is None else array("q", due),  # type: ignore[arg-type]
        expires_at=None if expiry is None else array("q", expiry),  # type: ignore[arg-type]
        dedupe_ids=column(st.none() | st.text(min_size=1, max_size=8)),  # type: ignore[arg-type]
        producer=producer,
        sequence=0 if producer is None else draw(TIMES),
    )


def encoded(batch: Batch) -> bytes:
    return b"".join(batch.encode())


# There and back.


@settings(max_examples=60)
@given(batches())
def test_a_batch_comes_back_as_it_was_written(batch: Batch) -> None:
    # The sequence stands beside the producer or the dedupe ids; it is 0 where there are neither.
    assert decode_batch(encoded(batch), len(batch)) == batch


@settings(max_examples=60)
@given(batches())
def test_the_front_of_a_batch_is_known_without_its_payload(batch: Batch) -> None:
    front = decode_tags(encoded(batch), len(batch))
    assert (front.values, front.keys, front.headers) == ([], None, None)
    for name in ("priority", "priorities", "deliver_at", "expires_at", "dedupe_ids", "producer", "sequence"):
        assert getattr(front, name) == getattr(batch, name), name


@settings(max_examples=60)
@given(batches())
def test_the_first_two_bytes_of_a_batch_tell_its_columns_and_its_priority(batch: Batch) -> None:
    assert head_of(encoded(batch)) == head_of(encoded(batch)[:2]) == (batch.flags, batch.priority)
    with pytest.raises(InvalidArgument, match="not an encoded batch"):
        head_of(encoded(batch)[:1])


def test_the_flags_of_a_batch_say_which_columns_it_has() -> None:
    assert encoded(Batch([b"v"]))[0] == 0
    assert encoded(Batch([b"v"], priorities=b"\1"))[0] == PRIORITIES
    assert encoded(Batch([b"v"], deliver_at=array("q", [9])))[0] == DELIVER_AT
    assert encoded(Batch([b"v"], expires_at=array("q", [9])))[0] == EXPIRES
    assert encoded(Batch([b"v"], dedupe_ids=["one"]))[0] == encoded(Batch([b"v"], producer="p"))[0] == TAGS


def test_F4_a_batch_of_a_version_without_names_is_read_as_it_was() -> None:
    written = bytes.fromhex("04801000000094c0c000919400a674696c6c2d3107029392c4016bc092c40176c40177c0")
    found = decode_batch(written, 2)
    assert (found.values, found.keys, found.origins) == ([b"v", b"w"], [b"k", None], [(0, "till-1", 7, 2)])
    assert found.producer_names is decode_tags(written, 2).producer_names is None


def test_names_are_said_once_for_a_run_and_follow_their_rows() -> None:
    names: Names = [(1, "shop"), (3, None), (4, "till-1")]
    batch = Batch([b"0", b"1", b"2", b"3", b"4", b"5"], producer_names=names)
    assert decode_batch(encoded(batch), 6) == batch and not batch.tagged
    by_row = [name_at(names, row) for row in range(6)]
    assert by_row == [None, "shop", "shop", None, "till-1", "till-1"]
    for start in range(6):
        for end in range(start + 1, 7):
            cut = batch.slice(start, end)
            assert [name_at(cut.producer_names, row) for row in range(len(cut))] == by_row[start:end]
    picked = batch.select([5, 0, 2, 1])
    assert [name_at(picked.producer_names, row) for row in range(4)] == ["till-1", None, "shop", "shop"]
    joined = join_batches([batch, Batch([b"6"]), batch.slice(4, 6), batch.slice(1, 2)])
    expected = [*by_row, None, *by_row[4:], "shop"]
    assert [name_at(joined.producer_names, row) for row in range(len(joined))] == expected
    assert join_batches([Batch([b"v"]), Batch([b"w"])]).producer_names is None


def test_one_name_costs_a_batch_no_more_than_itself() -> None:
    plain, named = Batch([b"v"] * 1000), Batch([b"v"] * 1000, producer_names=[(0, "order-service")])
    assert len(encoded(named)) - len(encoded(plain)) < 30


def test_the_layout_on_disk_is_the_one_that_is_documented() -> None:
    batch = Batch(
        [b"v", b"w"],
        priority=7,
        priorities=b"\1\2",
        deliver_at=array("q", [0, 258]),
        expires_at=array("q", [3, 0]),
        producer="p",
        sequence=5,
    )
    tags = msgspec.msgpack.encode([None, "p", 5, None, None])
    assert encoded(batch) == b"".join(
        [
            bytes([PRIORITIES | DELIVER_AT | TAGS | EXPIRES, 7, 1, 2]),
            bytes(8) + (258).to_bytes(8, "little"),
            (3).to_bytes(8, "little") + bytes(8),
            len(tags).to_bytes(4, "little") + tags,
            msgspec.msgpack.encode([None, [b"v", b"w"], None]),
        ]
    )


def test_a_batch_of_one_plain_message_costs_ten_bytes_besides_its_value() -> None:
    assert len(encoded(Batch([b"x" * 100]))) <= 110


def test_a_batch_is_tagged_when_publishing_it_again_must_be_recognised() -> None:
    assert not Batch([b"v"], keys=[b"k"], priorities=b"\1").tagged
    assert Batch([b"v"], dedupe_ids=["one"]).tagged
    assert Batch([b"v"], producer="p").tagged


def test_messages_are_of_normal_priority_unless_told() -> None:
    assert decode_batch(encoded(Batch([b"v"])), 1).priority == NORMAL


# What is not a batch.


@settings(max_examples=60)
@given(batches(min_size=1, max_size=4))
def test_a_batch_cut_at_any_byte_is_refused(batch: Batch) -> None:
    body = encoded(batch)
    for cut in range(len(body)):
        with pytest.raises(InvalidArgument, match="not an encoded batch"):
            decode_batch(body[:cut], len(batch))


@settings(max_examples=60)
@given(batches(min_size=1, max_size=4))
def test_the_front_of_a_batch_cut_at_any_byte_is_refused_unless_the_cut_is_behind_it(batch: Batch) -> None:
    *front, payload = batch.encode()
    whole = decode_tags(encoded(batch), len(batch))
    for cut in range(len(b"".join(front))):
        with pytest.raises(InvalidArgument, match="not an encoded batch"):
            decode_tags(b"".join(front)[:cut], len(batch))
    for cut in range(len(payload)):
        assert decode_tags(b"".join(front) + payload[:cut], len(batch)) == whole


@settings(max_examples=60)
@given(batches(), st.integers(0, 20))
def test_a_batch_taken_for_one_of_another_length_is_refused(batch: Batch, count: int) -> None:
    if count != len(batch):
        with pytest.raises(InvalidArgument, match="not an encoded batch"):
            decode_batch(encoded(batch), count)


@settings(max_examples=60)
@given(batches(), st.binary(min_size=1, max_size=8))
def test_bytes_behind_a_batch_are_refused(batch: Batch, rest: bytes) -> None:
    with pytest.raises(InvalidArgument, match="not an encoded batch"):
        decode_batch(encoded(batch) + rest, len(batch))


@given(st.binary(max_size=200), st.integers(0, 50))
def test_garbage_is_refused_and_raises_nothing_else(garbage: bytes, count: int) -> None:
    with contextlib.suppress(InvalidArgument):
        assert len(decode_batch(garbage, count)) == count
    with contextlib.suppress(InvalidArgument):
        assert decode_tags(garbage, count).values == []


@settings(max_examples=60)
@given(batches(min_size=1), st.data())
def test_a_changed_byte_is_refused_or_gives_a_batch_and_raises_nothing_else(batch: Batch, data: st.DataObject) -> None:
    body = bytearray(encoded(batch))
    body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(InvalidArgument):
        found = decode_batch(bytes(body), len(batch))
        for name in ("values", "keys", "headers", "priorities", "deliver_at", "expires_at", "dedupe_ids"):
            column = getattr(found, name)
            assert column is None or len(column) == len(batch)


@pytest.mark.parametrize(
    "payload",
    [
        b"\x93\xc0\xdd\xff\xff\xff\xff",  # four thousand million values
        b"\x93\xc0\x91\xc6\xff\xff\xff\xff",  # a value of four gigabytes
        b"\x93\xc0\x91\xc4\0\x91\xdf\xff\xff\xff\xff",  # four thousand million headers
        b"\x91" * 100_000,  # lists in lists in lists
    ],
    ids=["values", "bytes", "headers", "nesting"],
)
def test_a_few_bytes_that_claim_to_be_huge_are_refused_at_once(payload: bytes) -> None:
    with pytest.raises(InvalidArgument, match="not an encoded batch"):
        decode_batch(b"\0\x80" + payload, 1)


@pytest.mark.parametrize("count", [1_000, 1 << 31, (1 << 32) - 1])
def test_a_count_that_the_bytes_cannot_hold_is_refused_at_once(count: int) -> None:
    for flags in (PRIORITIES, DELIVER_AT, EXPIRES, PRIORITIES | DELIVER_AT | TAGS):
        with pytest.raises(InvalidArgument, match="not an encoded batch"):
            decode_batch(bytes([flags, 0]) + encoded(Batch([b"v"]))[2:], count)


def test_text_where_bytes_belong_is_refused_with_the_place() -> None:
    with pytest.raises(InvalidArgument, match="Expected `bytes`, got `str`"):
        decode_batch(b"\0\x80" + msgspec.msgpack.encode([None, ["text"], None]), 1)


# Some of the rows.


@settings(max_examples=60)
@given(batches(min_size=1), st.data())
def test_some_rows_of_a_batch_are_the_batch_of_these_rows_in_that_order(batch: Batch, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, len(batch) - 1), max_size=15))
    part = batch.select(rows)
    assert len(part) == len(rows)
    assert (part.priority, part.producer, part.sequence) == (batch.priority, batch.producer, batch.sequence)
    for name in ("values", "keys", "headers", "priorities", "deliver_at", "expires_at", "dedupe_ids"):
        column, whole = getattr(part, name), getattr(batch, name)
        assert (column is None) == (whole is None), name
        assert column is None or list(column) == [whole[row] for row in rows], name
    assert decode_batch(encoded(part), len(rows)) == part


@settings(max_examples=60)
@given(batches(min_size=1))
def test_all_rows_of_a_batch_are_an_equal_batch_of_its_own(batch: Batch) -> None:
    copy = batch.select(list(range(len(batch))))
    assert copy == batch
    copy.values.append(b"more")
    assert len(copy) == len(batch) + 1
