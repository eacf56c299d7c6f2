"""Bytes in, memory out: whatever is in a request, decoding it takes no more memory than the rule allows."""

from __future__ import annotations

import contextlib
import struct
import tracemalloc
from collections.abc import Callable

import msgspec
import pytest

from penstock.model.batch import decode_large_payload, decode_payload
from penstock.model.bounds import (
    BATCH_HEADERS_MAX,
    LARGE_REQUEST_BYTES_MAX,
    MEMORY_BYTES,
    MEMORY_FACTOR,
    REQUEST_BYTES_MAX,
    UNCOUNTED_BYTES,
)
from penstock.model.errors import InvalidArgument, LimitExceeded
from penstock.model.shapes import check_parts
from penstock.protocol import consuming, publishing, session
from penstock.protocol.decoding import decode_arguments, decode_called, topic_of

encode = msgspec.msgpack.Encoder().encode
DENSE = {
    "empty maps": b"\x80",
    "empty lists": b"\x90",
    "nil": b"\xc0",
    "empty text": b"\xa0",
    "short text": b"\xa2ab",
    "short bytes": b"\xc4\x02ab",
    "numbers": b"\xcd\xff\xff",
    "maps of one": b"\x81\xa0\xa0",
    "lists of one": b"\x91\x90",
    "maps of two": b"\x82\xa2ab\xa2cd\xa2ef\xa2gh",
    "leases": b"\x94\xa0\x00\x00\x90",
    "runs": b"\x92\x00\x01",
}
dense = pytest.mark.parametrize("element", DENSE.values(), ids=DENSE)


def array(element: bytes, size_bytes: int) -> bytes:
    """Very many of one element."""
    count = size_bytes // len(element)
    return b"\xdd" + struct.pack(">I", count) + element * count


def check(decode: Callable[[bytes], object], body: bytes) -> None:
    """Decode it, or refuse it, within the rule."""
    tracemalloc.start()
    try:
        with contextlib.suppress(msgspec.MsgspecError, InvalidArgument):
            decode(body)
        assert tracemalloc.get_traced_memory()[1] <= MEMORY_FACTOR * len(body) + MEMORY_BYTES
    finally:
        tracemalloc.stop()


def called(body: bytes) -> None:
    call = decode_called(body)
    packed = bytes(call.arguments)
    if len(packed) > UNCOUNTED_BYTES:
        check_parts("the arguments", packed)
    decode_arguments(packed)


def payload(body: bytes) -> object:
    return (decode_payload if len(body) <= UNCOUNTED_BYTES else decode_large_payload)(body)


def publish(body: bytes) -> object:
    return (publishing.decode_publish if len(body) <= UNCOUNTED_BYTES else publishing.decode_large_publish)(body)


def stage(body: bytes) -> object:
    return (publishing.decode_stage if len(body) <= UNCOUNTED_BYTES else publishing.decode_large_stage)(body)


REQUESTS: dict[str, tuple[Callable[[bytes], object], bytes]] = {
    "HELLO": (session.decode_hello, b"\x81\xa8versions"),
    "READ": (session.decode_read, b"\x81\xa5topic"),
    "READ, of later versions": (session.decode_read, b"\x83\xa5topic\xa1t\xa9partition\x00\xa5other"),
    "CALL": (called, b"\x92\xa6topics\x81\xa1a"),
    "SUBSCRIBE": (consuming.decode_subscribe, b"\x82\xa5group\xa1g\xa6topics"),
    "RECEIVE": (consuming.decode_receive, b"\x93\x01\x01"),
    "PUSH": (consuming.decode_push, b"\x93\x01\x01"),
    "CANCEL": (consuming.decode_cancel, b"\x93\x01\x01"),
    "HEARTBEAT": (consuming.decode_consumer, b"\x92\x01"),
    "ACK": (consuming.decode_finish, b"\x92\x01"),
    "ACK, one lease": (consuming.decode_finish, b"\x92\x01\x91\x94\xa1t\x00\x01"),
    "PUBLISH, partition": (publish, b"\x96\xa1t\xc4\x00\xc0\x00\x80"),
    "PUBLISH, dedupe ids": (publish, b"\x9a\xa1t\xc4\x00\xc0\x00\x80\xc0\xc0\xc0\xc0"),
    "STAGE": (stage, b"\x94\xa1s\xa1w\x00\x9a\xa1t\xc4\x00\xc0\x00\x80\xc0\xc0\xc0\xc0"),
    "keys": (payload, b"\x93"),
    "values": (payload, b"\x93\xc0"),
    "headers": (payload, b"\x93\xc0\x91\xc4\x00"),
}


@dense
@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("size_bytes", [UNCOUNTED_BYTES, REQUEST_BYTES_MAX - 100], ids=["512K", "1M"])
def test_H2_a_bomb_in_a_request_takes_no_more_memory_than_the_rule_allows(
    name: str, element: bytes, size_bytes: int
) -> None:
    decode, start = REQUESTS[name]
    check(decode, start + array(element, size_bytes - len(start) - 5) + b"\xc0" * 2)


@pytest.mark.parametrize("header", [b"\x80", b"\x81\xa0\xa0", b"\x81\xa2ab\xa2cd"], ids=["none", "empty", "short"])
def test_H2_a_batch_of_tiny_headers_takes_no_more_memory_than_the_rule_allows(header: bytes) -> None:
    count = 400_000
    values = array(b"\xc4\x00", 2 * count)
    check(decode_large_payload, b"\x93\xc0" + values + array(header, len(header) * count))


def test_a_batch_has_so_many_headers_and_no_more() -> None:
    names = {f"{number:05}": "a value of some length" for number in range(10_000)}
    few = BATCH_HEADERS_MAX // len(names)
    assert decode_large_payload(encode((None, [b""] * few, [names] * few)))[2] == [names] * few
    with pytest.raises(LimitExceeded, match="1,010,000 headers; the limit is 1,000,000"):
        decode_large_payload(encode((None, [b""] * (few + 1), [names] * (few + 1))))


def test_a_large_batch_is_decoded_as_a_small_one_is() -> None:
    rows = 50_000
    keys = [None if row % 3 else b"%d" % row for row in range(rows)]
    values = [b"%d of a batch" % row for row in range(rows)]
    headers = [{"row": f"{row}", "of": "a batch"} if row % 2 else None for row in range(rows)]
    for columns in ((keys, values, headers), (None, values, headers), (keys, values, None)):
        assert len(encode(columns)) > UNCOUNTED_BYTES
        assert decode_large_payload(encode(columns)) == columns == decode_payload(encode(columns))


@pytest.mark.parametrize("topic", ["t", "a" * 31, "a" * 32, "a" * 200])
@pytest.mark.parametrize("others", [1, 20, 70_000])
def test_the_topic_of_a_request_is_found_without_the_rest(topic: str, others: int) -> None:
    assert topic_of(encode([topic, *range(others)])) == topic


@pytest.mark.parametrize("start", [7, None, ["t"], "a" * 256])
def test_what_does_not_begin_with_a_topic_is_refused_without_the_rest(start: object) -> None:
    with pytest.raises(InvalidArgument, match="the name of a topic"):
        topic_of(encode([start, 1, 2, 3]))


@pytest.mark.parametrize("decode", [session.decode_hello, session.decode_read, consuming.decode_subscribe])
def test_what_is_no_publish_has_a_small_limit(decode: Callable[[bytes], object]) -> None:
    with pytest.raises(LimitExceeded, match="the limit is 1,048,576"):
        decode(bytes(REQUEST_BYTES_MAX + 1))
    with pytest.raises(LimitExceeded, match="the limit is"):
        decode_called(bytes(LARGE_REQUEST_BYTES_MAX + 1))
