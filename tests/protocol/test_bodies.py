"""Bodies come back as they were sent; what is no body is refused in one way; runs and offsets are the same."""

from __future__ import annotations

import contextlib
import itertools
import tracemalloc
from array import array
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.batch import Batch, decode_payload
from penstock.model.cluster_map import ClusterMap, ShardPlace
from penstock.model.errors import InvalidArgument
from penstock.model.events import Event, EventKind
from penstock.model.message import IdRun, MessageId
from penstock.protocol import consuming, decoding, publishing, session
from penstock.protocol.consuming import (
    Cancel,
    ConsumerRequest,
    Delivery,
    Finish,
    Held,
    Push,
    Receive,
    Rows,
    Subscribe,
    Subscribed,
    ranges_of,
    rows_of,
    runs_of,
)
from penstock.protocol.failures import Failure
from penstock.protocol.frames import REPLY, Command, FrameReader
from penstock.protocol.publishing import Publish, Published, Stage, Staged
from penstock.protocol.session import Call, Goodbye, Hello, Moved, Page, Read, Welcome

Decode = Callable[[bytes | memoryview], Any]
encode = msgspec.msgpack.encode

numbers = st.one_of(st.integers(-(2**63), 2**64 - 1), st.sampled_from([0, 2**62 - 1, 2**62, 2**63 - 1]))
offsets = st.one_of(st.integers(0, 100), st.integers(2**62 - 100, 2**62 - 1))
texts = st.text(max_size=20)
seconds = st.one_of(st.floats(allow_nan=False), st.sampled_from([0.0, 0.001, 1e12]))
data = st.binary(max_size=30)


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), values)


micros = st.one_of(st.none(), numbers, st.lists(maybe(numbers), max_size=5))
plain = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, st.floats(allow_nan=False), texts, data),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=8,
)
rows = st.builds(
    Rows,
    texts,
    numbers,
    st.one_of(offsets, st.lists(offsets, max_size=5)),
    st.one_of(numbers, st.lists(numbers, max_size=5)),
    data,
    st.one_of(st.integers(0, 255), data),
    maybe(st.lists(numbers, max_size=5)),
    maybe(st.lists(numbers, max_size=5)),
    maybe(st.lists(maybe(texts), max_size=5)),
    numbers,
    seconds,
    st.dictionaries(offsets, st.tuples(numbers, numbers), max_size=4),
)
held = st.builds(Held, texts, numbers, numbers, st.lists(numbers, max_size=6))
events = st.builds(
    Event,
    st.sampled_from(EventKind),
    numbers,
    offsets,
    numbers,
    maybe(texts),
    maybe(texts),
    numbers,
    maybe(texts),
    numbers,
    maybe(st.lists(offsets, max_size=4)),
)
publishes = st.builds(
    Publish,
    texts,
    data,
    maybe(texts),
    numbers,
    st.one_of(numbers, data),
    st.one_of(st.none(), numbers, st.lists(maybe(numbers), max_size=5)),
    micros,
    micros,
    micros,
    maybe(st.lists(maybe(texts), max_size=5)),
)


def whole_call(body: bytes | memoryview) -> Call:
    """A call with its arguments, which a server decodes later than the rest."""
    called = decoding.decode_called(body)
    return Call(called.operation, decoding.decode_arguments(called.arguments))


BODIES: dict[type, tuple[Decode, st.SearchStrategy[Any]]] = {
    Hello: (session.decode_hello, st.builds(Hello, st.lists(numbers, max_size=4), texts, maybe(texts))),
    Welcome: (
        session.decode_welcome,
        st.builds(Welcome, numbers, texts, texts, numbers, texts, seconds, st.dictionaries(texts, numbers, max_size=4)),
    ),
    Goodbye: (session.decode_goodbye, st.builds(Goodbye, texts)),
    Moved: (
        session.decode_moved,
        st.builds(
            Moved,
            st.builds(
                ClusterMap,
                st.lists(st.builds(ShardPlace, numbers, numbers), min_size=1, max_size=4),
                st.dictionaries(numbers, texts, max_size=4),
            ),
        ),
    ),
    Read: (
        session.decode_read,
        st.builds(
            Read,
            texts,
            numbers,
            offsets,
            maybe(offsets),
            maybe(numbers),
            maybe(numbers),
            maybe(numbers),
            st.booleans(),
            st.booleans(),
            texts,
        ),
    ),
    Page: (
        session.decode_page,
        st.builds(Page, st.lists(rows, max_size=3), maybe(data), st.lists(events, max_size=3), maybe(offsets), numbers),
    ),
    Call: (whole_call, st.builds(Call, texts, st.dictionaries(texts, plain, max_size=4))),
    Publish: (publishing.decode_publish, publishes),
    Stage: (publishing.decode_stage, st.builds(Stage, texts, texts, numbers, publishes)),
    Staged: (publishing.decode_staged, st.builds(Staged, numbers)),
    Published: (
        publishing.decode_published,
        st.builds(
            Published,
            st.lists(st.builds(IdRun, numbers, offsets, numbers), max_size=4),
            maybe(st.lists(st.tuples(numbers, offsets), max_size=4)),
        ),
    ),
    Subscribe: (
        consuming.decode_subscribe,
        st.builds(
            Subscribe,
            st.lists(texts, max_size=3),
            texts,
            texts,
            numbers,
            maybe(seconds),
            st.booleans(),
            st.one_of(texts, numbers, seconds),
            seconds,
            maybe(texts),
        ),
    ),
    Subscribed: (consuming.decode_subscribed, st.builds(Subscribed, numbers, texts)),
    Receive: (consuming.decode_receive, st.builds(Receive, numbers, numbers, seconds, maybe(seconds))),
    Push: (consuming.decode_push, st.builds(Push, numbers, numbers)),
    Delivery: (
        consuming.decode_delivery,
        st.builds(Delivery, st.lists(rows, max_size=3), numbers, maybe(st.builds(Failure, numbers, texts))),
    ),
    Finish: (
        consuming.decode_finish,
        st.builds(Finish, numbers, st.lists(held, max_size=3), texts, maybe(seconds)),
    ),
    ConsumerRequest: (consuming.decode_consumer, st.builds(ConsumerRequest, numbers)),
    Cancel: (consuming.decode_cancel, st.builds(Cancel, numbers, numbers)),
}
DECODERS: dict[str, Decode] = {kind.__name__: decode for kind, (decode, _) in BODIES.items()}
DECODERS["payload"] = cast("Decode", decode_payload)
REFUSED = (msgspec.MsgspecError, InvalidArgument)
each_body = pytest.mark.parametrize("kind", BODIES, ids=lambda kind: kind.__name__)
each_decoder = pytest.mark.parametrize("name", DECODERS)


def test_every_decoder_of_the_protocol_is_among_those_that_are_tested() -> None:
    found = {
        decode
        for module in (consuming, publishing, session)
        for name, decode in vars(module).items()
        if name.startswith("decode_") and not name.startswith("decode_large_")  # which end in the others
    }
    assert found == {decode for decode, _ in BODIES.values()} - {whole_call}


@each_body
@given(choice=st.data())
@settings(max_examples=60)
def test_a_body_comes_back_as_it_was(kind: type, choice: st.DataObject) -> None:
    decode, bodies = BODIES[kind]
    body = choice.draw(bodies)
    found = decode(encode(body))
    assert type(found) is kind
    assert found == body
    assert decode(memoryview(encode(body))) == body


@each_body
@given(choice=st.data())
@settings(max_examples=30)
def test_a_body_with_more_than_we_know_of_is_understood(kind: type, choice: st.DataObject) -> None:
    """What a later version adds at the end of an array, or as a key of a map, is left out."""
    decode, bodies = BODIES[kind]
    body = choice.draw(bodies)
    more = choice.draw(plain)
    sent = msgspec.msgpack.decode(encode(body))
    larger = [*sent, more] if isinstance(sent, list) else {**sent, "of a later version": more}
    assert decode(encode(larger)) == body


_MAP = ClusterMap([ShardPlace()], {0: ":9000"})


@each_body
def test_a_body_may_leave_out_what_has_a_default(kind: type) -> None:
    decode, _ = BODIES[kind]
    examples = {str: "x", int: 1, float: 1.0, bytes: b"x", Publish: Publish("x", b"x"), ClusterMap: _MAP}
    needed: dict[str, object] = {}
    for field in msgspec.structs.fields(kind):
        if field.required:
            needed[field.name] = examples.get(field.type, [])
    if kind is Welcome:
        needed["limits"] = {}
    is_array = kind.__struct_config__.array_like  # type: ignore[attr-defined]
    assert decode(encode(list(needed.values()) if is_array else needed)) == kind(**needed)


@each_decoder
@given(garbage=st.one_of(st.binary(max_size=60), plain.map(encode), st.lists(plain, max_size=12).map(encode)))
@settings(max_examples=50)
def test_garbage_is_refused_in_one_way(name: str, garbage: bytes) -> None:
    with contextlib.suppress(*REFUSED):
        DECODERS[name](garbage)


@each_body
@given(choice=st.data())
@settings(max_examples=60)
def test_a_body_that_was_changed_on_the_way_is_refused_in_one_way(kind: type, choice: st.DataObject) -> None:
    decode, bodies = BODIES[kind]
    body = bytearray(encode(choice.draw(bodies)))
    for _ in range(choice.draw(st.integers(1, 3))):
        body[choice.draw(st.integers(0, len(body) - 1))] = choice.draw(st.integers(0, 255))
    with contextlib.suppress(msgspec.MsgspecError):
        decode(bytes(body[: choice.draw(st.integers(0, len(body)))]))


@each_decoder
def test_what_is_announced_and_does_not_come_takes_no_memory(name: str) -> None:
    lists, maps, binary, text, extension = b"\xdd", b"\xdf", b"\xc6", b"\xdb", b"\xc9"
    for opening, before, length in itertools.product(
        (lists, maps, binary, text, extension),
        (b"", b"\x91", b"\x92\xa1a", b"\x92\xa1a\x81\xa1a", b"\x93\x90\xc0", b"\x93\xc0", b"\x81\xa1a"),
        (2**24, 2**31 - 1, 2**32 - 1),
    ):
        body = before + opening + length.to_bytes(4, "big") + b"\x00" * 50
        tracemalloc.start()
        try:
            with pytest.raises(REFUSED):
                DECODERS[name](body)
            assert tracemalloc.get_traced_memory()[1] < 1 << 20
        finally:
            tracemalloc.stop()


@each_decoder
def test_what_is_nested_too_deeply_is_refused(name: str) -> None:
    for opening, before in itertools.product(
        (b"\x91", b"\x81\xa1a", b"\x81"),
        (b"", b"\x92\xa1a\x81\xa1a", b"\x9f" + b"\xc0" * 14, b"\x82\xa1a", b"\x93\x90\xc0", b"\x93\xc0"),
    ):
        with pytest.raises(REFUSED):
            DECODERS[name](before + opening * 100_000)


@pytest.mark.parametrize(
    ("decode", "body"),
    [
        (publishing.decode_publish, b"\x92\xa2\xff\xfe\xc4\x00"),
        (whole_call, b"\x92\xa1a\x81\xa1a\xa1\xff"),
        (session.decode_goodbye, b"\x81\xa6reason\xa1\xff"),
    ],
)
def test_text_that_is_not_utf_8_is_refused(decode: Decode, body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError, match="not UTF-8"):
        decode(body)


# Runs.

growing = st.one_of(
    st.lists(st.integers(0, 40), unique=True, max_size=30).map(sorted),
    st.lists(offsets, unique=True, max_size=30).map(sorted),
    st.builds(lambda first, count: list(range(first, first + count)), offsets, st.integers(0, 50)),
)


@given(growing)
def test_runs_say_the_same_as_the_offsets(wanted: list[int]) -> None:
    runs = runs_of(wanted)
    assert [offset for some in ranges_of(runs) for offset in some] == wanted
    gaps = sum(1 for before, after in itertools.pairwise(wanted) if after != before + 1)
    assert len(runs) == (2 * (gaps + 1) if wanted else 0)


@given(st.lists(st.tuples(st.integers(0, 2**62 - 1), st.integers(1, 10_000_000)), max_size=6))
def test_ranges_of_any_runs_cost_nothing_to_make(pairs: list[tuple[int, int]]) -> None:
    found = list(ranges_of([number for pair in pairs for number in pair]))
    assert [(some.start, len(some)) for some in found] == pairs


@pytest.mark.parametrize(
    "runs", [[1], [1, 0], [1, -1], [-1, 1], [2**62, 1], [1, 10_000_001], [1, 2**64 - 1], [1, 1, 3], [0, 1, 2, 0]]
)
def test_what_is_no_run_is_refused(runs: list[int]) -> None:
    with pytest.raises(ValueError, match="run"):
        list(ranges_of(runs))


# Rows.


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[int], list[int], Batch]:
    count = draw(st.integers(1, 6))

    def column(values: st.SearchStrategy[Any]) -> Any:
        return draw(maybe(st.lists(values, min_size=count, max_size=count)))

    times = column(st.integers(0, 2**60))
    ends = column(st.integers(0, 2**60))
    priorities = column(st.integers(0, 255))
    batch = Batch(
        draw(st.lists(data, min_size=count, max_size=count)),
        keys=column(maybe(data)),
        headers=column(maybe(st.dictionaries(texts, texts, max_size=2))),
        priority=draw(st.integers(0, 255)),
        priorities=None if priorities is None else bytes(priorities),
        deliver_at=None if times is None else array("q", times),
        expires_at=None if ends is None else array("q", ends),
        dedupe_ids=column(maybe(texts)),
    )
    places = draw(st.lists(offsets, min_size=count, max_size=count, unique=True).map(sorted))
    stamps = draw(st.lists(st.sampled_from([5, 6, 2**60]), min_size=count, max_size=count))
    return places, stamps, batch


@given(batches())
def test_rows_hold_everything_of_a_batch(chosen: tuple[list[int], list[int], Batch]) -> None:
    places, stamps, batch = chosen
    count = len(batch)
    (sent,) = consuming.decode_delivery(encode(Delivery([rows_of("orders", 3, places, stamps, batch)]))).rows
    keys, values, headers = decode_payload(sent.payload)
    first = sent.offsets
    assert (list(range(first, first + count)) if isinstance(first, int) else first) == places
    assert ([sent.timestamps_us] * count if isinstance(sent.timestamps_us, int) else sent.timestamps_us) == stamps
    assert (keys, values, headers) == (batch.keys, batch.values, batch.headers)
    assert sent.priority == (batch.priority if batch.priorities is None else batch.priorities)
    assert sent.deliver_at_us == (None if batch.deliver_at is None else list(batch.deliver_at))
    assert sent.expires_at_us == (None if batch.expires_at is None else list(batch.expires_at))
    assert sent.dedupe_ids == batch.dedupe_ids
    assert (sent.topic, sent.partition, sent.lease, sent.visibility_s, sent.again) == ("orders", 3, 0, 0.0, {})


@given(st.lists(st.builds(IdRun, st.integers(0, 3), offsets, st.integers(1, 5)), max_size=4))
def test_the_ids_of_a_reply_are_those_of_its_runs(runs: list[IdRun]) -> None:
    ids = publishing.decode_published(encode(Published(runs))).ids("orders")
    assert list(ids) == [
        MessageId("orders", run.partition, offset) for run in runs for offset in range(run.base, run.base + run.count)
    ]
    places = [(identity.partition, identity.offset) for identity in reversed(ids)]
    assert list(publishing.decode_published(encode(Published(runs, places))).ids("orders")) == list(reversed(ids))


@given(st.integers(0, 2**32 - 1), st.integers(0, 65_535), offsets)
def test_the_reply_to_a_single_message_says_what_any_other_reply_says(about: int, partition: int, offset: int) -> None:
    reader = FrameReader(1000)
    data = publishing.published_single(about, partition, offset)
    reader.room()[: len(data)] = data
    ((command, correlation, body),) = reader.received(len(data))
    assert (command, correlation) == (Command.PUBLISH | REPLY, about)
    assert publishing.decode_published(body) == Published([IdRun(partition, offset, 1)])
