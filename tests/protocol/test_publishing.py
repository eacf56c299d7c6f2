"""What is published over the wire is what would have been published here: the same columns, the same refusals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.batch import decode_payload
from penstock.model.config import BrokerConfig
from penstock.model.errors import InvalidArgument, LimitExceeded, PenstockError
from penstock.model.intake import Intake, check_message, check_messages, check_producer
from penstock.model.message import Message
from penstock.model.singles import Single
from penstock.model.units import TIME_US_MAX
from penstock.protocol.publishing import Publish, decode_publish, encode_publish, intake_of, plain_publish, single_of

NOW_US = 1_790_000_000_000_000
NOW = datetime.fromtimestamp(NOW_US / 1e6, UTC)
LIMITS = replace(BrokerConfig(), max_value_bytes=24, max_key_bytes=8, max_headers_bytes=12)
WIDE = BrokerConfig()

data = st.one_of(st.binary(max_size=10), st.text(max_size=4), st.sampled_from([b"", "", "é", bytearray(b"ab")]))
durations = st.one_of(
    st.integers(0, 10**6),
    st.floats(0, 1e6),
    st.sampled_from([0, 0.0, 4e-7, 6e-7, 1e9, 2e11, "250ms", "1h30m", timedelta(days=3), timedelta(0)]),
)
times = st.one_of(
    st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC)),  # noqa: DTZ001 - it gets one
    st.integers(0, 2 * 10**9),
    st.floats(0, 2e9),
    st.sampled_from([0, "1970-01-01T00:00:00Z", "2099-01-01T00:00:00+02:00", NOW, NOW + timedelta(microseconds=1)]),
)
right = st.builds(
    Message,
    data,
    st.one_of(st.none(), st.binary(max_size=8), st.sampled_from(["", "key"])),
    st.one_of(st.none(), st.dictionaries(st.sampled_from("abé"), st.text("xyz", max_size=2), max_size=2)),
    st.one_of(st.just("normal"), st.sampled_from(["critical", "high", "low", "background"]), st.integers(0, 255)),
    st.one_of(st.none(), durations),
    st.none(),
    st.one_of(st.none(), st.integers(0, 2**40)),
    st.one_of(st.none(), st.sampled_from(["a", "b", "é" * 512])),
    st.one_of(st.none(), durations.filter(lambda life: life not in (0, 4e-7, timedelta(0)))),
)
dated = st.builds(
    lambda message, time: msgspec.structs.replace(message, delay=None, deliver_at=time), right, st.none() | times
)
plain = st.builds(Message, data)
wrong = st.one_of(
    st.builds(Message, st.sampled_from([None, 5, "\ud800", b"x" * 25, "x" * 25, ["x"]])),
    st.builds(Message, data, st.sampled_from([5, "\ud800", b"x" * 9, {}])),
    st.builds(
        Message, data, headers=st.sampled_from([{"a": 1}, {1: "a"}, "ab", {"a": "\udfff"}, {"a": "x" * 12}, [()]])
    ),
    st.builds(Message, data, priority=st.sampled_from([-1, 256, "urgent", True, None, 1.5, "", [1]])),
    st.builds(Message, data, delay=st.sampled_from([-1, "soon", float("nan"), float("inf"), True, 1e12, [], 10**400])),
    st.builds(Message, data, delay=st.just(TIME_US_MAX / 1e6 - 1)),  # from the beginning of time it would be allowed
    st.builds(Message, data, deliver_at=st.sampled_from([-1, "noon", datetime(2030, 1, 1), float("nan"), 1e300, ""])),  # noqa: DTZ001
    st.builds(Message, data, delay=st.just(5), deliver_at=st.just(NOW)),
    st.builds(Message, data, dedupe_id=st.sampled_from(["", "x" * 1025, 5, "\ud800", b"x"])),
    st.builds(Message, data, expires_in=st.sampled_from([0, -1, 1e-7, "never", float("nan"), 1e12, TIME_US_MAX / 1e6])),
)
rows = st.one_of(
    st.lists(st.one_of(right, dated), max_size=6),
    st.lists(st.one_of(plain, st.binary(max_size=9), st.text(max_size=4)), max_size=6),
    st.lists(st.binary(max_size=12), max_size=12),
)
producers = st.one_of(st.none(), st.tuples(st.sampled_from(["p", "é" * 512, "x" * 300]), st.integers(0, 2**63 - 1)))


def embedded(messages: Sequence[Any], limits: BrokerConfig, producer: str | None, sequence: int | None) -> Intake:
    """As the broker of this process takes them."""
    intake = check_messages(list(messages), limits, NOW_US)
    check_producer(intake.batch, producer, sequence)
    return intake


def wired(messages: Sequence[Any], limits: BrokerConfig, producer: str | None, sequence: int | None) -> Intake:
    """As a server takes them from a client."""
    body, count = encode_publish("orders", list(messages), limits, producer, sequence or 0)
    assert count == len(messages)
    request = decode_publish(body)
    assert request.topic == "orders"
    return intake_of(request, decode_payload(request.payload), limits, NOW_US)


def outcome(how: Any, *arguments: Any) -> Any:
    """What comes of it: the columns, or the class of the error."""
    try:
        intake: Intake = how(*arguments)
    except PenstockError as error:
        return type(error)
    batch = intake.batch
    if batch.payload is not None:
        assert decode_payload(batch.payload) == (batch.keys, batch.values, batch.headers)
    return msgspec.structs.replace(batch, payload=None), intake.partitions, intake.size_bytes


@given(rows, producers)
@settings(max_examples=300)
def test_a_batch_arrives_as_it_would_have_been_taken_here(
    messages: list[Message | bytes | str], producer: tuple[str, int] | None
) -> None:
    if any(isinstance(row, Message) and row.dedupe_id is not None for row in messages):
        producer = None  # dedupe ids are used instead of it
    name, sequence = producer or (None, None)
    wanted = outcome(embedded, messages, WIDE, name, sequence)
    assert not isinstance(wanted, type) or wanted is InvalidArgument  # of a delay that is too long
    assert outcome(wired, messages, WIDE, name, sequence) == wanted


@given(st.lists(st.one_of(right, dated, plain), max_size=4), wrong, st.integers(0, 4))
@settings(max_examples=300)
def test_what_is_refused_here_is_refused_over_the_wire_with_the_same_class(
    messages: list[Message], fault: Message, place: int
) -> None:
    messages.insert(place, fault)
    refused = outcome(embedded, messages, LIMITS, None, None)
    assert refused in (InvalidArgument, LimitExceeded)
    assert outcome(wired, messages, LIMITS, None, None) == refused


@given(st.lists(st.one_of(right, plain, st.binary(max_size=24)), max_size=20))
def test_a_batch_is_as_large_here_as_over_the_wire(messages: list[Message | bytes]) -> None:
    limits = replace(LIMITS, max_batch_bytes=100)
    assert outcome(wired, messages, limits, None, None) == outcome(embedded, messages, limits, None, None)


@given(wrong)
@settings(max_examples=200)
def test_an_error_about_a_single_message_speaks_of_no_batch(message: Message) -> None:
    with pytest.raises(InvalidArgument) as here:
        check_message(message, LIMITS, NOW_US)
    with pytest.raises(type(here.value)) as there:
        wired([message], LIMITS, None, None)
    assert "of the batch" not in str(there.value)


def plain_single(body: bytes) -> Single | None:
    """The message of a request, if that has the shape that most have, and one message with nothing but a value."""
    found = plain_publish(body)
    if found is None:
        return None
    request = decode_publish(body)
    assert found == (request.topic, request.payload, request.producer, request.sequence)
    keys, values, headers = decode_payload(request.payload)
    return Single(values[0]) if keys is None and headers is None and len(values) == 1 else None


@given(st.one_of(right, dated, plain), producers)
@settings(max_examples=300)
def test_a_single_message_arrives_as_it_would_have_been_taken_here(
    message: Message, producer: tuple[str, int] | None
) -> None:
    name, sequence = (producer or (None, 0)) if message.dedupe_id is None else (None, 0)
    wanted: Single | type
    try:
        wanted = check_message(message, WIDE, NOW_US)
    except InvalidArgument as error:
        wanted = type(error)
    found: Single | type | None
    try:
        body, _ = encode_publish("orders", [message], WIDE, name, sequence)
        request = decode_publish(body)
        payload = decode_payload(request.payload)
        found = plain_single(body)
        if found is None:
            found = single_of(intake_of(request, payload, WIDE, NOW_US))
        assert (request.producer, request.sequence) == (name, sequence)
    except InvalidArgument as error:
        found = type(error)
    assert found == wanted


@pytest.mark.parametrize("partition", ["0", True, 1.5, 2**64, -(2**70), b"", object()])
def test_what_is_no_partition_is_refused(partition: Any) -> None:
    with pytest.raises((InvalidArgument, msgspec.ValidationError)):
        wired([Message(b"x", partition=partition)], WIDE, None, None)


@pytest.mark.parametrize(
    ("topic", "producer", "sequence"),
    [("\ud800", None, 0), (None, None, 0), (object(), None, 0), ("t", object(), 1), ("t", "p", 2**70), ("t", "p", "x")],
)
def test_what_cannot_even_be_sent_is_an_invalid_argument(topic: Any, producer: Any, sequence: Any) -> None:
    with pytest.raises((InvalidArgument, msgspec.ValidationError)):
        decode_publish(encode_publish(topic, [b"x"], WIDE, producer, sequence)[0])


# What a client that is not ours may say.


def payload_of(count: int, **columns: Any) -> bytes:
    return msgspec.msgpack.encode([columns.get("keys"), [b"x"] * count, columns.get("headers")])


def _shortest(request: Publish) -> list[object]:
    """The request without what is left out at its end."""
    fields = list(msgspec.structs.astuple(request))
    defaults = list(msgspec.structs.astuple(Publish("", b"")))
    while len(fields) > 2 and fields[-1] == defaults[len(fields) - 1]:
        fields.pop()
    return fields


def taken(count: int, limits: BrokerConfig = WIDE, /, **fields: Any) -> Intake:
    """A request of so many messages, as a server takes it: one message alone has a shorter way."""
    given = Publish("orders", fields.pop("payload", payload_of(count)), **fields)
    body = msgspec.msgpack.encode(_shortest(given))
    request = decode_publish(body)
    assert request == given
    payload = decode_payload(request.payload)
    if count == 1:
        single = plain_single(body)
        if single is not None and len(single.value) <= limits.max_value_bytes:
            return Intake(check_messages([single.value], limits, NOW_US).batch, None, len(single.value))
    return intake_of(request, payload, limits, NOW_US)


@given(st.integers(0, 5), st.data())
def test_one_number_for_all_is_the_same_as_one_for_each(count: int, choice: st.DataObject) -> None:
    name = choice.draw(st.sampled_from(["delay_us", "deliver_at_us", "expires_in_us", "partition"]))
    number = choice.draw(st.one_of(st.integers(1, 10**9), st.integers(NOW_US, NOW_US + 10**9)))
    assert taken(count, **{name: number}) == taken(count, **{name: [number] * count})
    assert taken(count, priority=7) == taken(count, priority=bytes([7]) * count) or not count


@pytest.mark.parametrize("count", [1, 3])
def test_a_column_that_says_nothing_is_the_same_as_none(count: int) -> None:
    bare = taken(count).batch
    for name in ("delay_us", "deliver_at_us", "expires_in_us"):
        batch = taken(count, **{name: [None] * count}).batch
        assert (batch.deliver_at, batch.expires_at, batch.values) == (None, None, bare.values)


@given(st.lists(st.one_of(st.none(), st.integers(0, 10**9)), min_size=1, max_size=5))
def test_delays_count_from_when_the_server_takes_them(delays: list[int | None]) -> None:
    batch = taken(len(delays), delay_us=delays).batch
    assert list(batch.deliver_at or [0] * len(delays)) == [NOW_US + delay if delay else 0 for delay in delays]
    again = taken(len(delays), deliver_at_us=[delay and NOW_US + delay for delay in delays]).batch
    assert again.deliver_at == batch.deliver_at


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(
    "fields",
    [
        {"delay_us": -1},
        {"delay_us": [1, 2, 3, 4]},
        {"delay_us": 2**63},
        {"delay_us": TIME_US_MAX},
        {"delay_us": 1, "deliver_at_us": 1},
        {"deliver_at_us": -1},
        {"deliver_at_us": TIME_US_MAX + 1},
        {"deliver_at_us": 2**64 - 1},
        {"expires_in_us": 0},
        {"expires_in_us": -(2**63)},
        {"expires_in_us": TIME_US_MAX},
        {"expires_in_us": []},
        {"partition": []},
        {"partition": [0] * 9},
        {"priority": -1},
        {"priority": 256},
        {"priority": 2**64 - 1},
        {"priority": b""},
        {"priority": b"\1" * 9},
        {"dedupe_ids": []},
        {"dedupe_ids": ["x"] * 9},
        {"dedupe_ids": [""]},
        {"producer": ""},
        {"producer": "x" * 1025},
        {"producer": "é" * 513},
        {"producer": "p", "sequence": -1},
        {"producer": "p", "sequence": 2**63},
        {"producer": "p", "sequence": 2**64 - 1},
        {"producer": "p", "dedupe_ids": ["a", "b", "c"]},
    ],
    ids=str,
)
def test_what_can_never_be_taken_is_an_invalid_argument(count: int, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        taken(count, **fields)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(
    "payload",
    [
        [None, [b"x" * 25], None],
        [[b"x" * 9], [b"x"], None],
        [None, [b"x"], [{"a": "x" * 12}]],
        [[b"12345678"] * 5, [b"x" * 24] * 5, None],
    ],
    ids=["value", "key", "headers", "batch"],
)
def test_what_is_too_large_is_refused_as_such(count: int, payload: list[Any]) -> None:
    columns = [column and column * count if len(column or ()) == 1 else column for column in payload]
    with pytest.raises(LimitExceeded):
        taken(len(columns[1]), replace(LIMITS, max_batch_bytes=100), payload=msgspec.msgpack.encode(columns))


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc0",
        msgspec.msgpack.encode([None, [b"x"]]),
        msgspec.msgpack.encode([None, [b"x"], None, None]),
        msgspec.msgpack.encode([[b"k"], [b"x", b"y"], None]),
        msgspec.msgpack.encode([None, [b"x"], []]),
        msgspec.msgpack.encode([None, ["x"], None]),
        msgspec.msgpack.encode([None, [None], None]),
        msgspec.msgpack.encode([None, None, None]),
        msgspec.msgpack.encode([None, [b"x"], [{"a": 1}]]),
        msgspec.msgpack.encode([None, [b"x"], None]) + b"\0",
    ],
)
def test_what_is_no_payload_is_an_invalid_argument(payload: bytes) -> None:
    with pytest.raises(InvalidArgument):
        taken(1, payload=payload)


def test_the_payload_is_kept_as_it_came_unless_it_says_nothing_in_many_words() -> None:
    kept = payload_of(2, keys=[b"k", None], headers=[{"a": "b"}, None])
    assert taken(2, payload=kept).batch.payload is not None
    empty = payload_of(2, headers=[{"a": "b"}, {}])
    batch = taken(2, payload=empty).batch
    assert batch.payload is None
    assert batch.headers == [{"a": "b"}, None]


def test_a_sequence_without_a_producer_means_nothing() -> None:
    assert taken(2, sequence=5).batch.producer is None
    assert taken(1, sequence=-5) == taken(1)
