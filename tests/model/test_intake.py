"""What publishers hand in: the same by the message and by the batch, every limit kept, every refusal explained."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.batch import Batch
from penstock.model.config import BrokerConfig
from penstock.model.errors import InvalidArgument, LimitExceeded
from penstock.model.intake import check_message, check_messages
from penstock.model.message import Message
from penstock.model.names import PRIORITIES
from penstock.model.singles import batch_of
from penstock.model.units import TIME_US_MAX

NOW_US = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z
LIMITS = BrokerConfig()
SMALL = BrokerConfig(max_value_bytes=100, max_key_bytes=10, max_headers_bytes=20, max_batch_bytes=250)

TEXT = st.text(max_size=12)  # never with lone surrogates
DATA = st.binary(max_size=12) | TEXT
BAD: list[Any] = [7, b"far too long a key", ["k"], None]
MESSAGES = st.builds(
    Message,
    value=DATA,
    key=st.none() | DATA,
    headers=st.none() | st.dictionaries(TEXT, TEXT, max_size=3),
    priority=st.sampled_from([*PRIORITIES, 0, 1, 128, 255]),
    delay=st.none() | st.sampled_from([0, 0.5, "250ms", "7d", timedelta(seconds=1)]),
    partition=st.none() | st.integers(0, 3),
    dedupe_id=st.none() | st.text(min_size=1, max_size=8),
    expires_in=st.none() | st.sampled_from([0.000001, 3, "1h", timedelta(days=1)]),
) | st.builds(
    Message,
    value=DATA,
    deliver_at=st.sampled_from([0, NOW_US / 1e6 + 60, "2026-01-02T00:00:00Z", datetime(2025, 1, 1, tzinfo=UTC)]),
)


def refusal(message: dict[str, Any], limits: BrokerConfig = SMALL) -> str:
    """What is said of a message alone; in a batch the same is said, with its place."""
    with pytest.raises(InvalidArgument) as alone:
        check_message(Message(**message), limits, NOW_US)
    good = Message(b"fine", key=b"k")
    with pytest.raises(InvalidArgument) as together:
        check_messages([good, b"fine", Message(**message), good], limits, NOW_US)
    assert str(together.value) == f"message 2 of the batch: {alone.value}"
    assert type(together.value) is type(alone.value)
    return str(alone.value)


def over_limit(message: dict[str, Any]) -> str:
    text = refusal(message)
    with pytest.raises(LimitExceeded):
        check_message(Message(**message), SMALL, NOW_US)
    return text


# A batch is its messages.


@given(st.lists(MESSAGES, max_size=12))
def test_a_batch_checked_by_columns_equals_its_messages_checked_one_by_one(messages: list[Message]) -> None:
    singles = [check_message(message, LIMITS, NOW_US) for message in messages]
    intake = check_messages(messages, LIMITS, NOW_US)
    assert intake.batch == batch_of(singles)
    assert intake.size_bytes == sum(single.size_bytes() for single in singles)
    assert (intake.partitions or [None] * len(messages)) == [message.partition for message in messages]


@given(st.lists(DATA | MESSAGES, max_size=12))
def test_bytes_and_text_in_a_batch_are_messages_of_nothing_but_a_value(rows: list[Message | bytes | str]) -> None:
    wrapped = [row if isinstance(row, Message) else Message(row) for row in rows]
    assert check_messages(rows, LIMITS, NOW_US) == check_messages(wrapped, LIMITS, NOW_US)
    assert check_messages(iter(rows), LIMITS, NOW_US) == check_messages(rows, LIMITS, NOW_US)


@given(st.lists(st.binary(max_size=20), max_size=12))
def test_a_batch_of_bytes_alone_is_a_column_of_values(rows: list[bytes]) -> None:
    assert check_messages(rows, LIMITS, NOW_US) == (Batch(list(rows)), None, sum(map(len, rows)))


def test_columns_that_say_the_same_of_every_message_are_left_out() -> None:
    batch = check_messages([Message(b"v", priority="high", headers={}), Message(b"w", priority=64)], LIMITS, 0).batch
    assert batch == Batch([b"v", b"w"], priority=64)


def test_a_batch_keeps_what_was_handed_in_when_the_list_of_the_caller_changes_later() -> None:
    rows: list[Message | bytes | str] = [b"first"]
    intake = check_messages(rows, LIMITS, NOW_US)
    rows.append(b"late")
    rows[0] = b"other"
    assert intake.batch.values == [b"first"]


def test_a_message_keeps_what_was_handed_in_when_the_headers_of_the_caller_change_later() -> None:
    headers = {"trace": "1"}
    single = check_message(Message(b"", headers=headers), LIMITS, NOW_US)
    batch = check_messages([Message(b"", headers=headers)], LIMITS, NOW_US).batch
    headers["trace"] = "2"
    assert single.headers == {"trace": "1"}
    assert batch.headers == [{"trace": "1"}]


# What fields mean.


def test_text_is_stored_as_utf_8() -> None:
    single = check_message(Message("grüße", key="kaffee ☕"), LIMITS, NOW_US)
    assert (single.value, single.key) == ("grüße".encode(), "kaffee ☕".encode())


@pytest.mark.parametrize("data", [bytearray(b"abc"), memoryview(b"xabcx")[1:4]])
def test_other_buffers_of_bytes_are_copied(data: Any) -> None:
    single = check_message(Message(data, key=data), LIMITS, NOW_US)
    assert (single.value, single.key) == (b"abc", b"abc")
    assert type(single.value) is bytes


def test_an_empty_key_is_a_key_and_no_headers_are_none() -> None:
    single = check_message(Message(b"", key=b"", headers={}), LIMITS, NOW_US)
    assert (single.key, single.headers) == (b"", None)


@pytest.mark.parametrize(
    ("fields", "due_us"),
    [
        ({}, 0),
        ({"delay": 0}, 0),
        ({"delay": "1h"}, NOW_US + 3_600_000_000),
        ({"delay": 0.000001}, NOW_US + 1),
        ({"deliver_at": "2026-01-01T00:00:01Z"}, NOW_US + 1_000_000),
        ({"deliver_at": "2026-01-01T00:00:00Z"}, 0),
        ({"deliver_at": 0}, 0),
        ({"deliver_at": "9999-12-31T23:59:59.999999Z"}, TIME_US_MAX),
    ],
)
def test_a_delay_counts_from_now_and_what_is_due_already_is_not_delayed(fields: dict[str, Any], due_us: int) -> None:
    assert check_message(Message(b"", **fields), LIMITS, NOW_US).deliver_at_us == due_us


@pytest.mark.parametrize(
    ("life", "expires_at_us"),
    [
        (None, 0),
        ("1h", NOW_US + 3_600_000_000),
        (0.000001, NOW_US + 1),
        (timedelta(days=1), NOW_US + 86_400_000_000),
        ((TIME_US_MAX - NOW_US) // 1_000_000, TIME_US_MAX - 999_999),
    ],
)
def test_a_time_to_live_counts_from_now(life: Any, expires_at_us: int) -> None:
    message = Message(b"", delay="5m", expires_in=life)
    assert check_message(message, LIMITS, NOW_US).expires_at_us == expires_at_us
    assert check_message(Message(b"", expires_in=life), LIMITS, NOW_US).expires_at_us == expires_at_us
    expiry = check_messages([message, b"for ever"], LIMITS, NOW_US).batch.expires_at
    assert (expiry.tolist() if expiry else [0, 0]) == [expires_at_us, 0]


# Refusals.


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ({"value": 7}, "the value must be bytes or str, not int"),
        ({"value": None}, "the value must be bytes or str, not NoneType"),
        ({"value": b"", "key": 7}, "the key must be bytes or str, not int"),
        ({"value": b"", "headers": {"a": 1}}, "headers must map str to str"),
        ({"value": b"", "headers": {b"a": "1"}}, "headers must map str to str"),
        ({"value": b"", "headers": [("a", "1")]}, "headers must map str to str"),
        ({"value": b"", "headers": {"a": "\ud800"}}, "headers must be text that UTF-8 can hold"),
        ({"value": b"", "priority": 256}, "256 is not a priority: give 0 (first) to 255 (last)"),
        ({"value": b"", "priority": []}, "[] is not a priority"),
        ({"value": b"", "delay": "soon"}, "'soon' is not a duration: give seconds"),
        ({"value": b"", "delay": -1}, "-1 is not a duration"),
        ({"value": b"", "deliver_at": "noon"}, "'noon' is not a point in time: give a datetime"),
        ({"value": b"", "delay": 1, "deliver_at": 1}, "give delay or deliver_at, not both"),
        ({"value": b"", "delay": 9e11}, "the delivery time lies after the year 9999"),
        ({"value": b"", "expires_in": 0}, "expires_in must be more than 0"),
        ({"value": b"", "expires_in": 1e-7}, "expires_in must be more than 0"),
        ({"value": b"", "expires_in": -1}, "-1 is not a duration"),
        ({"value": b"", "expires_in": "never"}, "'never' is not a duration: give seconds"),
        ({"value": b"", "expires_in": 9e11}, "the time of expiry lies after the year 9999"),
        ({"value": b"", "dedupe_id": ""}, "the dedupe_id must be text of 1 to 1024 bytes"),
        ({"value": b"", "dedupe_id": b"id"}, "the dedupe_id must be text of 1 to 1024 bytes"),
        ({"value": b"", "dedupe_id": "é" * 513}, "the dedupe_id must be text of 1 to 1024 bytes"),
    ],
)
def test_a_field_that_cannot_be_is_refused_alone_and_in_a_batch_with_its_place(
    message: dict[str, Any], said: str
) -> None:
    assert refusal(message).startswith(said)


@pytest.mark.parametrize("field", ["value", "key", "dedupe_id"])
def test_text_that_utf_8_cannot_hold_is_refused_with_its_field(field: str) -> None:
    assert field in refusal({"value": b"", field: "\ud800"})


@pytest.mark.parametrize(("good", "bad"), [(1, True), (0, False), (64, 64.0)])
def test_a_priority_refused_alone_is_refused_beside_an_equal_number_too(good: int, bad: Any) -> None:
    with pytest.raises(InvalidArgument, match="not a priority"):
        check_message(Message(b"", priority=bad), LIMITS, NOW_US)
    for place, lanes in ((1, [good, bad]), (0, [bad, good])):
        with pytest.raises(InvalidArgument, match=f"message {place} of the batch: {bad!r} is not a priority"):
            check_messages([Message(b"", priority=lane) for lane in lanes], LIMITS, NOW_US)


@given(st.lists(MESSAGES | st.builds(Message, value=DATA, key=st.sampled_from(BAD), priority=st.just(300)), max_size=6))
def test_a_batch_is_refused_exactly_when_one_of_its_messages_is_and_for_the_same_reason(rows: list[Message]) -> None:
    said = None
    for place, message in enumerate(rows):
        try:
            check_message(message, SMALL, NOW_US)
        except InvalidArgument as error:
            said = f"message {place} of the batch: {error}"
            break
    if said is None:
        assert len(check_messages(rows, LIMITS, NOW_US).batch) == len(rows)
    else:
        with pytest.raises(InvalidArgument) as refused:
            check_messages(rows, SMALL, NOW_US)
        assert str(refused.value) == said


def test_the_first_bad_message_of_a_batch_is_the_one_that_is_named() -> None:
    rows = [Message(b"", key=b"k"), Message(b"", priority=999), Message(b"", delay="never"), Message(7)]  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"^message 1 of the batch: 999 is not a priority"):
        check_messages(rows, LIMITS, NOW_US)


@pytest.mark.parametrize("row", [7, None, bytearray(b"v"), ("v", "k"), {"value": b"v"}])
def test_what_is_no_message_at_all_is_refused_with_what_a_batch_holds(row: Any) -> None:
    with pytest.raises(InvalidArgument, match=f"a batch holds Message, bytes or str, not {type(row).__name__}"):
        check_messages([b"fine", row], LIMITS, NOW_US)


# Limits.


def test_a_message_right_at_every_limit_is_taken() -> None:
    message = Message(b"v" * 100, key="k" * 10, headers={"n" * 8: "é" * 6}, dedupe_id="é" * 512)
    single = check_message(message, SMALL, NOW_US)
    assert single.size_bytes() == 130
    assert check_messages([message, b"v" * 100, b"v" * 20], SMALL, NOW_US).size_bytes == SMALL.max_batch_bytes


def test_a_value_over_the_limit_is_refused_with_both_sizes_and_the_option() -> None:
    assert over_limit({"value": b"v" * 101}) == "the value has 101 B; the limit is 100 B (max_value_bytes)"
    assert over_limit({"value": "é" * 51}) == "the value has 102 B; the limit is 100 B (max_value_bytes)"


def test_a_key_over_the_limit_is_refused_with_both_sizes_and_the_option() -> None:
    assert over_limit({"value": b"", "key": "é" * 6}) == "the key has 12 B; the limit is 10 B (max_key_bytes)"


def test_headers_over_the_limit_are_refused_with_both_sizes_and_the_option() -> None:
    text = over_limit({"value": b"", "headers": {"a": "é" * 5, "b": "x" * 9}})
    assert text.startswith("the headers ")
    assert text.endswith(" 21 B; the limit is 20 B (max_headers_bytes)")


@pytest.mark.parametrize("plain", [True, False])
def test_a_batch_over_the_limit_is_refused_with_both_sizes_and_the_option(plain: bool) -> None:
    rows = [b"v" * 84] * 3 if plain else [Message(b"v" * 80, key=b"kk", headers={"n": "w"})] * 3
    with pytest.raises(LimitExceeded) as refused:
        check_messages(list(rows), SMALL, NOW_US)
    assert str(refused.value) == "the batch has 252 B; the limit is 250 B (max_batch_bytes)"


@pytest.mark.parametrize("plain", [True, False])
def test_a_value_over_the_limit_in_a_batch_is_refused_with_its_place(plain: bool) -> None:
    rows: list[Message | bytes | str] = [b"fine" if plain else Message("fine", key="k"), b"v" * 101]
    with pytest.raises(LimitExceeded, match=r"^message 1 of the batch: the value has 101 B"):
        check_messages(rows, SMALL, NOW_US)


def test_one_byte_over_a_large_limit_is_not_said_to_be_the_limit_itself() -> None:
    limits = BrokerConfig(max_value_bytes=1 << 20)
    with pytest.raises(LimitExceeded, match="max_value_bytes") as refused:
        check_message(Message(bytes((1 << 20) + 1)), limits, NOW_US)
    size, limit = str(refused.value).removeprefix("the value has ").split("; the limit is ")
    assert size != limit.removesuffix(" (max_value_bytes)")
