"""The ids of many messages are the same as those of each."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.message import MessageId
from penstock.spark.tables import message_ids


@given(
    st.integers(0, 10**12) | st.integers(9_990, 10_010) | st.integers(99_990, 100_010),
    st.integers(0, 100) | st.integers(9_999, 20_001),
)
def test_consecutive_offsets_have_the_ids_that_they_have_one_by_one(first: int, count: int) -> None:
    ids = message_ids("orders", 7, pa.array(range(first, first + count), pa.int64())).to_pylist()
    assert ids == [str(MessageId("orders", 7, offset)) for offset in range(first, first + count)]


@pytest.mark.parametrize("offsets", [[3, 1, 2], [20_000, 20_005, 20_006], [9_999, 10_001], [10_000, 10_002, 10_003]])
def test_so_do_those_with_gaps_between_them(offsets: list[int]) -> None:
    ids = message_ids("a-b", 0, pa.array(offsets, pa.int64())).to_pylist()
    assert ids == [f"a-b/0/{offset}" for offset in offsets]


def test_a_slice_of_offsets_has_its_own_ids() -> None:
    offsets = pa.array(range(50_000), pa.int64()).slice(12_345, 3)
    assert message_ids("t", 1, offsets).to_pylist() == ["t/1/12345", "t/1/12346", "t/1/12347"]
