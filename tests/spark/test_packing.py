"""Rows that are packed column by column are the messages that they would be one by one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.batch import Payload
from penstock.model.config import BrokerConfig
from penstock.model.intake import Intake
from penstock.model.message import Message
from penstock.protocol.publishing import decode_publish, encode_publish, intake_of
from penstock.spark.packing import Columns, request_of, requests
from penstock.spark.rows import by_topic, columns_of, messages_of

LIMITS = BrokerConfig()
NOW_US = 1_800_000_000_000_000
KINDS = {
    "value": pa.binary(),
    "key": pa.string(),
    "headers": pa.map_(pa.string(), pa.string()),
    "priority": pa.int8(),
    "deliver_at": pa.timestamp("us", "UTC"),
    "partition": pa.int32(),
}
TIMES = st.datetimes(datetime(1970, 1, 1), datetime(9999, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - their zone
KAFKA = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))
WORDS = st.text(max_size=40)
ROWS = st.tuples(
    st.binary(max_size=300),
    st.none() | WORDS,
    st.none() | st.dictionaries(WORDS, WORDS, max_size=4),
    st.none() | st.integers(0, 127),
    st.none() | TIMES,
    st.none() | st.integers(0, 3),
)


def batch_of(rows: list[Any], **kinds: pa.DataType) -> pa.RecordBatch:
    chosen = {**KINDS, **kinds}
    return pa.record_batch(
        [pa.array([row[place] for row in rows], kind) for place, kind in enumerate(chosen.values())], names=[*chosen]
    )


def taken(body: bytes) -> Intake:
    """What a server makes of a request."""
    request = decode_publish(body)
    return intake_of(request, msgspec.msgpack.decode(request.payload, type=Payload), LIMITS, NOW_US)


def told(intake: Intake) -> list[object]:
    batch, count = intake.batch, len(intake.batch)
    return [
        batch.values,
        batch.keys or [None] * count,
        batch.headers or [None] * count,
        batch.priorities or bytes([batch.priority]) * count,
        list(batch.deliver_at or [0] * count),
        intake.partitions or [None] * count,
    ]


@given(st.lists(ROWS, min_size=1, max_size=30), st.integers(0, 5))
def test_packed_rows_are_the_messages_that_they_would_be_one_by_one(rows: list[Any], skipped: int) -> None:
    batch = batch_of(rows).slice(min(skipped, len(rows) - 1))
    columns = columns_of(batch, LIMITS)
    assert columns is not None
    body, _ = encode_publish("t", messages_of(batch), LIMITS)
    assert told(taken(request_of("t", columns))) == told(taken(body))


@given(st.lists(ROWS, min_size=1, max_size=30))
def test_parts_of_a_request_have_all_of_it_in_order(rows: list[Any]) -> None:
    small = BrokerConfig.parse({"max_batch_bytes": 400, "max_value_bytes": 300})
    columns = columns_of(batch_of(rows), LIMITS)
    assert columns is not None
    parts = list(requests(columns, small))
    assert sum(map(len, parts)) == len(rows)
    values = [value for part in parts for value in taken(request_of("t", part)).batch.values]
    assert values == [row[0] for row in rows]
    assert all(part.size_bytes <= 400 or len(part) == 1 for part in parts)


GOOD: tuple[Any, ...] = (b"x", None, None, None, None, None)


@pytest.mark.parametrize(
    ("row", "kinds"),
    [
        ((b"x" * (LIMITS.max_value_bytes + 1), *GOOD[1:]), {}),
        ((b"x", "k" * (LIMITS.max_key_bytes + 1), *GOOD[2:]), {}),
        ((b"x", None, {"h": "t" * LIMITS.max_headers_bytes}, *GOOD[3:]), {}),
        ((b"x", None, {f"{n}": "" for n in range(16)}, *GOOD[3:]), {}),
        ((b"x", None, None, -1, None, None), {}),
        ((b"x", None, None, None, datetime(1969, 12, 31, tzinfo=UTC), None), {}),
        ((b"x", None, None, 256, None, None), {"priority": pa.int64()}),
        ((b"x", None, [{"key": "a", "value": b"b"}], *GOOD[3:]), {"headers": KAFKA}),
    ],
)  # fmt: skip
def test_rows_with_something_unusual_are_looked_at_one_by_one(row: Any, kinds: dict[str, Any]) -> None:
    assert columns_of(batch_of([row], **kinds), LIMITS) is None
    assert columns_of(batch_of([GOOD], **kinds), LIMITS) is not None or kinds.get("headers")


def test_rows_go_to_their_topics_in_order() -> None:
    batch = pa.record_batch({"topic": ["a", "b", "a", "b", "a"], "value": [b"1", b"2", b"3", b"4", b"5"]})
    found = {topic: rows.to_pydict() for topic, rows in by_topic(batch, None)}
    assert found == {"a": {"value": [b"1", b"3", b"5"]}, "b": {"value": [b"2", b"4"]}}
    assert [(topic, len(rows)) for topic, rows in by_topic(batch, "all")] == [("all", 5)]


TEXTS = st.one_of(st.none(), st.text(max_size=5), st.just("x" * 300))


@given(
    st.lists(
        st.tuples(
            st.one_of(st.binary(max_size=300), st.just(b"x" * 70_000)),
            st.one_of(st.none(), st.binary(max_size=4)),
            TEXTS,
            TEXTS,
            st.integers(0, 255),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_columns_of_files_are_packed_as_messages_are(
    messages: list[tuple[bytes, bytes | None, str | None, str | None, int]],
) -> None:
    values, keys, first, second, lanes = (list(column) for column in zip(*messages, strict=True))
    columns = Columns(
        pa.array(values, pa.binary()),
        pa.array(keys, pa.binary()),
        [("a", pa.array(first, pa.string())), ("b" * 40, pa.array(second, pa.string()))],
        None,
        pa.array(lanes, pa.uint8()),
    )
    headers = [
        {name: text for name, text in (("a", one), ("b" * 40, two)) if text is not None} or None
        for one, two in zip(first, second, strict=True)
    ]
    plain = [Message(*message) for message in zip(values, keys, headers, lanes, strict=True)]
    ours, theirs = (decode_publish(body) for body in (request_of("t", columns), encode_publish("t", plain, LIMITS)[0]))
    assert msgspec.msgpack.decode(ours.payload) == msgspec.msgpack.decode(theirs.payload)
    assert ours.priority == bytes(lanes)
