"""Frames come out as they were sent, however they were cut on the way; what is no frame is told from it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.protocol.frames import BROKEN, HEADER, HEADER_BYTES, VERSION, FrameReader, ProtocolError, frame

KIB, MIB = 1 << 10, 1 << 20
FRAME_MAX = 8 * MIB
KEPT = MIB  # a buffer that holds little is no larger than this

Whole = tuple[int, int, bytes]
sizes = st.one_of(
    st.integers(0, 40),
    st.sampled_from([64 * KIB - HEADER_BYTES - 1, 64 * KIB - HEADER_BYTES, 64 * KIB, 100_000]),
    st.integers(0, 300_000),
)
frames = st.builds(
    lambda command, correlation, size, fill: (command, correlation, bytes([fill]) * size),
    st.integers(0, 255),
    st.integers(0, 2**32 - 1),
    sizes,
    st.integers(0, 255),
)


def pieces(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    """The data, cut at some places."""
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in itertools.pairwise(places)]


def feed(reader: FrameReader, piece: bytes) -> list[Whole]:
    """What comes out when the bytes go in, as much at once as there is room for."""
    found: list[Whole] = []
    while piece:
        room = reader.room()
        count = min(len(room), len(piece))
        room[:count] = piece[:count]
        for command, correlation, body in reader.received(count):
            if command == BROKEN:
                raise reader.problem(body)
            found.append((command, correlation, bytes(body)))
        piece = piece[count:]
        assert len(reader._view) <= max(KEPT, 4 * reader.unfinished_bytes)
    return found


@given(st.lists(frames, max_size=8), st.lists(st.integers(0, 2_000_000), max_size=12))
def test_frames_that_are_cut_anywhere_come_out_whole(sent: list[Whole], cuts: list[int]) -> None:
    reader = FrameReader(FRAME_MAX)
    data = b"".join(frame(*one) for one in sent)
    assert [found for piece in pieces(data, cuts) for found in feed(reader, piece)] == sent
    assert reader.unfinished_bytes == 0


@given(st.lists(st.tuples(st.integers(0, 255), st.integers(0, 2**32 - 1), st.binary(max_size=12)), max_size=20))
def test_frames_that_come_byte_by_byte_come_out_whole(sent: list[Whole]) -> None:
    reader = FrameReader(FRAME_MAX)
    data = b"".join(frame(*one) for one in sent)
    assert [found for place in range(len(data)) for found in feed(reader, data[place : place + 1])] == sent


@given(st.lists(frames, min_size=1, max_size=8))
def test_the_frames_of_one_read_stay_as_they_are_until_the_next_one(sent: list[Whole]) -> None:
    reader = FrameReader(FRAME_MAX)
    data = b"".join(frame(*one) for one in sent)
    while data:
        room = reader.room()
        count = min(len(room), len(data))
        room[:count], data = data[:count], data[count:]
        kept = reader.received(count)
        assert [(command, about, bytes(body)) for command, about, body in kept] == sent[: len(kept)]
        sent = sent[len(kept) :]


@given(st.lists(st.binary(max_size=300), max_size=10))
@settings(max_examples=300)
def test_garbage_is_a_protocol_error_or_waits_for_more(garbage: list[bytes]) -> None:
    reader = FrameReader(64 * KIB)
    try:
        for piece in garbage:
            feed(reader, piece)
    except ProtocolError as error:
        assert 0 <= error.correlation < 2**32
        assert str(error)


@given(st.lists(frames, min_size=1, max_size=4), st.binary(min_size=9, max_size=40))
def test_frames_that_came_before_garbage_are_not_lost(sent: list[Whole], garbage: bytes) -> None:
    reader = FrameReader(FRAME_MAX)
    data = b"".join(frame(*one) for one in sent) + b"\x02" + garbage
    found: list[Whole] = []
    while data:
        room = reader.room()
        count = min(len(room), len(data))
        room[:count], data = data[:count], data[count:]
        found += [(command, about, bytes(body)) for command, about, body in reader.received(count)]
    assert found[: len(sent)] == sent
    assert found[len(sent)][0] == BROKEN
    assert "version 2" in str(reader.problem(found[len(sent)][2]))


@given(st.binary(max_size=9), st.integers(0, 255).filter(lambda version: version != VERSION))
def test_another_version_is_told_from_the_first_header(rest: bytes, version: int) -> None:
    reader = FrameReader(FRAME_MAX)
    with pytest.raises(ProtocolError, match=r"version|native port"):
        feed(reader, (bytes([version]) + rest).ljust(HEADER_BYTES, b"\0"))


@pytest.mark.parametrize(
    "start", [b"GET / HTTP/1.1\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03", b"PRI * HTTP/2.0"]
)
def test_other_protocols_hear_that_this_is_the_wrong_port(start: bytes) -> None:
    with pytest.raises(ProtocolError, match="HTTP, TLS and text are spoken elsewhere"):
        feed(FrameReader(FRAME_MAX), start)


@given(st.integers(FRAME_MAX + 1, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_a_frame_beyond_the_limit_is_refused_by_its_header_alone(length: int, correlation: int) -> None:
    reader = FrameReader(FRAME_MAX)
    with pytest.raises(ProtocolError, match="too large") as caught:
        feed(reader, HEADER.pack(VERSION, 3, correlation, length))
    assert caught.value.correlation == correlation
    assert len(reader._view) <= 64 * KIB


@given(st.lists(frames, max_size=4), st.integers(0, 20))
def test_frames_come_one_by_one_until_the_limit_is_lifted(sent: list[Whole], early: int) -> None:
    reader = FrameReader(FRAME_MAX, 16 * KIB)
    data = b"".join(frame(*one) for one in sent)
    assert feed(reader, frame(1, 1, b"first") + data[:early]) == [(1, 1, b"first")]
    reader.lift_limit()
    found = [(command, about, bytes(body)) for command, about, body in reader.received(0)]
    assert found + feed(reader, data[early:]) == sent


def test_frames_are_small_until_the_limit_is_lifted() -> None:
    reader = FrameReader(FRAME_MAX, 16 * KIB)
    assert len(feed(reader, frame(1, 1, bytes(16 * KIB)))) == 1
    with pytest.raises(ProtocolError, match="before anybody is known"):
        feed(reader, HEADER.pack(VERSION, 1, 1, 16 * KIB + 1))


def test_a_frame_of_just_the_limit_is_taken() -> None:
    reader = FrameReader(FRAME_MAX)
    whole = (3, 1, bytes(FRAME_MAX))
    assert feed(reader, frame(*whole)) == [whole]


@given(st.integers(0, 3 * MIB), st.integers(1, 70_000))
@settings(max_examples=20)
def test_the_buffer_grows_with_what_arrives_and_not_with_what_is_announced(arriving: int, step: int) -> None:
    reader = FrameReader(1 << 30)
    feed(reader, HEADER.pack(VERSION, 3, 1, 1 << 30))
    arrived = HEADER_BYTES
    while arrived < arriving:
        feed(reader, bytes(step))
        arrived += step
        assert len(reader._view) <= max(64 * KIB, 4 * arrived)


@given(st.integers(0, 200_000))
@settings(max_examples=20)
def test_the_buffer_of_a_large_frame_goes_even_if_the_next_frame_has_begun(begun: int) -> None:
    """Else silent connections could hold far more than they are counted with."""
    reader = FrameReader(64 * MIB)
    following = frame(3, 2, bytes(500_000))
    assert len(feed(reader, frame(3, 1, bytes(4 * MIB)) + following[:begun])) == 1
    assert len(reader._view) <= max(KEPT, 4 * begun)
    assert feed(reader, following[begun:]) == [(3, 2, bytes(500_000))]


def test_the_buffer_of_a_busy_connection_grows_so_that_one_read_takes_more() -> None:
    reader = FrameReader(FRAME_MAX)
    first = len(reader._view)
    for _ in range(10):
        feed(reader, frame(3, 1, bytes(1024 - HEADER_BYTES)) * 2048)
    assert first < len(reader._view) <= KEPT


@given(st.integers(0, 255), st.integers(0, 2**32 - 1), st.binary(max_size=50))
def test_a_frame_is_ten_bytes_and_its_body(command: int, correlation: int, body: bytes) -> None:
    made = frame(command, correlation, body)
    assert made == bytes([1, command]) + correlation.to_bytes(4, "big") + len(body).to_bytes(4, "big") + body
