"""Lines of the text port: from bytes to commands, whatever the bytes are."""

from __future__ import annotations

import json
import re

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.model.errors import InvalidArgument
from penstock.server.line.lines import (
    Ack,
    Auth,
    Command,
    Consume,
    Help,
    LineSplitter,
    NotThisProtocol,
    Ping,
    Produce,
    Quit,
    parse,
    strip_telnet,
)
from penstock.server.line.replies import error_line, message_line

FEW = st.integers(1, 40)


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    """Some bytes as they may arrive."""
    parts = []
    for size in sizes:
        parts.append(data[:size])
        data = data[size:]
    return [*parts, data]


@given(st.binary(max_size=200), st.lists(st.integers(0, 30), max_size=10), FEW)
@example(b"abc\r\nd\n", [4], 3)
@example(b"abcd\r\nd\n", [4], 3)
@example(b"abcd\r", [], 3)
def test_lines_are_the_same_however_they_are_cut(data: bytes, sizes: list[int], max_bytes: int) -> None:
    splitter = LineSplitter(max_bytes)
    lines = [line for part in cut(data, sizes) for line in splitter.feed(part)]
    *ended, rest = data.split(b"\n")
    expected = [line.removesuffix(b"\r") for line in ended]
    whole: list[bytes | None] = [line if len(line) <= max_bytes else None for line in expected]
    if len(rest) > max_bytes + 1:
        whole.append(None)
    assert lines == whole


@given(st.lists(st.binary(max_size=50), max_size=50), FEW)
def test_a_line_that_is_too_long_is_told_once_and_not_kept(parts: list[bytes], max_bytes: int) -> None:
    splitter = LineSplitter(max_bytes)
    for part in parts:
        splitter.feed(part)
        assert len(splitter._unfinished) <= max_bytes + 1
    assert splitter.feed(b"x" * 1000) in ([], [None])
    assert splitter.feed(b"x" * 1000) == []
    assert splitter.feed(b"\nPING\n")[-1:] == ([b"PING"] if max_bytes >= 4 else [None])


@given(st.binary(max_size=300))
@example(b"PRODUCE t 0 \xff\n")
@example(b'{"track": "t", "data": "\\ud800"}')
@example(b'{"track": "t", "data": ' + b"[" * 100_000)
@example(b"produce t 0 \x00")
@example(b"\xef\xbb\xbfPING")
def test_any_bytes_are_a_command_or_an_error_that_says_so(line: bytes) -> None:
    parse_or_refuse(line)


@given(
    st.sampled_from([b"PRODUCE", b"consume", b"Ack", b"AUTH", b"PING", b"HELP", b"QUIT", b"{", b"GET"]),
    st.binary(max_size=60) | st.text(max_size=60).map(str.encode),
)
def test_a_known_word_with_anything_behind_it_is_a_command_or_an_error(word: bytes, rest: bytes) -> None:
    parse_or_refuse(word + rest)
    parse_or_refuse(word + b" " + rest)


def parse_or_refuse(line: bytes) -> None:
    stripped, _ = strip_telnet(line)
    try:
        parse(stripped)
    except InvalidArgument as error:
        said = error_line(error)
        assert said.startswith(b"ERROR: ") and said.index(b"\n") == len(said) - 1 and len(said) < 4100


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("PRODUCE user-signups 0 new user: alex", Produce("user-signups", 0, b"new user: alex")),
        ("produce user-signups 0 new user: alex", Produce("user-signups", 0, b"new user: alex")),
        ("Produce  t \t 12 x", Produce("t", 12, b"x")),
        ("PRODUCE t 0   two  spaces ", Produce("t", 0, b"  two  spaces ")),
        ("PRODUCE t 0  ", Produce("t", 0, b" ")),
        ("PRODUCE t 0\tx", Produce("t", 0, b"x")),
        ('PRODUCE t 0 "in quotes"', Produce("t", 0, b'"in quotes"')),
        ('PRODUCE t 0 "one" and "two', Produce("t", 0, b'"one" and "two')),
        ('PRODUCE t 0 12" of pipe', Produce("t", 0, b'12" of pipe')),
        ('PRODUCE t 0 {"a": 1}', Produce("t", 0, b'{"a": 1}')),
        ("PRODUCE t 0 grün\u2028", Produce("t", 0, "grün\u2028".encode())),
        ("PRODUCE t 0 a\x00b", Produce("t", 0, b"a\x00b")),
        ("PRODUCE t 007 x", Produce("t", 7, b"x")),
        ("  CONSUME t 0", Consume("t", 0)),
        ("consume t 0 all ", Consume("t", 0, all=True)),
        ("CONSUME\tt\t0\tAll", Consume("t", 0, all=True)),
        ("ack t 3 12", Ack("t", 3, 12)),
        ("Auth pst_secret", Auth("pst_secret")),
        ("ping", Ping()),
        ("HELP me", Help()),
        ("quit ", Quit()),
        ('{"priority": 3, "data": "x\\ny", "track": "t"}', Produce("t", None, b"x\ny", 3)),
        ('  {"track": "t", "data": ""}', Produce("t", None, b"")),
        (
            '{"track": "t", "data": {"a":  [1, 2.50]}, "priority": "high"}',
            Produce("t", None, b'{"a":  [1, 2.50]}', "high"),
        ),
        ('{"track": "t", "data": null}', Produce("t", None, b"null")),
        ("", None),
        (" \t", None),
    ],
)
def test_what_a_line_means(line: str, command: Command | None) -> None:
    assert parse(line.encode()) == command


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"PRODUCE", "say PRODUCE <topic> <partition> <message>"),
        (b"PRODUCE t 0", "say PRODUCE"),
        (b"PRODUCE t 0 ", "say PRODUCE"),
        (b"PRODUCE t zero x", "'zero' is not a partition"),
        (b"PRODUCE t -1 x", "'-1' is not a partition"),
        (b"PRODUCE t " + b"9" * 5000 + b" x", "is not a partition"),
        ("PRODUCE t ٣ x".encode(), "is not a partition"),
        (b'PRODUCE t 0 "begun', "not closed on its line"),
        (b'PRODUCE t 0 "', "not closed on its line"),
        (b'PRODUCE t 0 "begun \\"', "not closed on its line"),
        (b"PRODUCE gr\xfcn 0 x", "not UTF-8 (byte 0xfc)"),
        (b"PRODUCE t \xfc x", "not UTF-8 (byte 0xfc)"),
        (b"CONSUME gr\xfcn 0", "not UTF-8 (byte 0xfc)"),
        (b"AUTH \xff\xfb\x01", "not UTF-8 (byte 0xff)"),
        (b'{"track": "t", "data": {"a": "\xfc"}}', "not UTF-8 (byte 0xfc)"),
        (b"CONSUME t", "say CONSUME"),
        (b"CONSUME t 0 SOME", "say CONSUME"),
        (b"CONSUME t 0 ALL 1", "say CONSUME"),
        (b"ACK t 0", "say ACK"),
        (b"ACK t 0 x", "'x' is not the id of a message"),
        (b"AUTH", "say AUTH"),
        (b"PING PONG", "stands alone"),
        (b"QUIT now", "stands alone"),
        (b"DELETE t", "there is no command 'DELETE': say HELP"),
        (b"\x1b[A", "there is no command"),
        (b"\xef\xbb\xbfPING", "there is no command"),
        (b"{", "the JSON line cannot be read"),
        (b'{"track": "t"}', "required field `data`"),
        (b'{"data": 1}', "required field `track`"),
        (b'{"track": "t", "data": 1, "delay": 5}', "unknown field `delay`"),
        (b'{"track": "t", "data": 1, "priority": 1.5}', "priority"),
        (b'{"track": 1, "data": 1}', "track"),
        (b'{"track": "t", "data": 1} x', "the JSON line cannot be read"),
    ],
)
def test_what_is_wrong_with_a_line_is_told(line: bytes, says: str) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(says)):
        parse(line)


@pytest.mark.parametrize(
    "line",
    [
        *(b"GET / HTTP/1.1", b"POST /x?y HTTP/1.0", b"OPTIONS * HTTP/2", b"Host: 127.0.0.1:3000", b"host: x"),
        *(b"get / http/1.1", b"Brew /pot HtTp/1.1", b"PRI * HTTP/2.0", b"GET /", b"head  http://x", b"HOST:x"),
    ],
)
def test_who_speaks_http_has_come_to_the_wrong_port(line: bytes) -> None:
    with pytest.raises(NotThisProtocol, match="not HTTP"):
        parse(line)


@pytest.mark.parametrize(
    "line",
    [
        *(bytes.fromhex("16030100f8010000f40303"), b"\x80\x2e\x01\x00\x02", b"\x00\x00\x00\x08\x04\xd2\x16\x2f"),
        *(b"\x00", b"PI\x00NG", b"SSH\xff", b"\xff\xfaPING", b"gr\xfcn"),
    ],
)
def test_bytes_that_are_no_text_have_come_to_the_wrong_port(line: bytes) -> None:
    with pytest.raises(NotThisProtocol, match="no text"):
        parse(line)


@given(st.binary(min_size=1, max_size=100), st.lists(st.integers(0, 30), max_size=10))
@example(b"\xff\xfe\xfd", [])
@example(b"hel\xff\xf1lo", [14])
def test_L2_a_message_is_published_as_the_bytes_that_it_is(value: bytes, sizes: list[int]) -> None:
    value = b"x" + value.replace(b"\n", b"\r") + b"x"
    splitter = LineSplitter(1000)
    (line,) = [line for part in cut(b"PRODUCE t 0 " + value + b"\r\n", sizes) for line in splitter.feed(part)]
    assert line is not None
    assert parse(strip_telnet(line)[0]) == Produce("t", 0, value)


@pytest.mark.parametrize(
    ("line", "left", "answer"),
    [
        (b"PING", b"PING", b""),
        (b"\xff\xfd\x03\xff\xfb\x18PING", b"PING", b"\xff\xfc\x03\xff\xfe\x18"),
        (b"\xff\xfe\x01\xff\xfc\x01PING", b"PING", b""),
        (b"PI\xff\xfe\x01NG\xff\xfb\x01", b"PI\xff\xfe\x01NG\xff\xfb\x01", b""),
        (b"\xff\xfa\x18\x00xterm\xff\xf0PING", b"PING", b""),
        (b"\xff\xf4\xff\xfd\x06PING", b"PING", b"\xff\xfc\x06"),
        (b"a\xff", b"a\xff", b""),
        (b"\xff", b"\xff", b""),
        (b"\xff\xfd", b"\xff\xfd", b""),
        (b"\xff\xff", b"\xff\xff", b""),
        (b"\xff\xf4\xff\xfaPING", b"\xff\xfaPING", b""),
        ("grün".encode(), "grün".encode(), b""),
    ],
)
def test_what_telnet_negotiates_before_a_line_is_taken_out_and_refused(line: bytes, left: bytes, answer: bytes) -> None:
    assert strip_telnet(line) == (left, answer)


def test_H1_telnet_that_never_ends_is_looked_at_once() -> None:
    for endless in (b"\xff\xfa" * 1_000_000, b"\xff\xfa\xff" * 700_000, b"\xff" * 2_000_000):
        assert strip_telnet(endless) == (endless, b"")
    left, answer = strip_telnet(b"\xff\xfd\x01" * 500_000 + b"PING")
    assert len(left) > 1_000_000 and len(answer) < 1000


@given(st.text())
def test_text_is_never_taken_for_telnet(text: str) -> None:
    assert strip_telnet(text.encode()) == (text.encode(), b"")


def body_of(shown: bytes) -> bytes:
    """What the page of the protocol tells clients to do."""
    if shown.startswith(b'"') and b"\\" in shown:
        return str(json.loads(shown)).encode("utf-8", "surrogateescape")
    return shown


@given(st.integers(0, 2**62), st.binary() | st.text().map(str.encode) | st.text(alphabet='"\\\n\ra').map(str.encode))
def test_a_body_is_shown_on_one_line_and_can_be_read_back(offset: int, value: bytes) -> None:
    line = message_line(offset, value)
    assert line.endswith(b"\n") and b"\n" not in line[:-1] and b"\r" not in line and b"\x00" not in line
    number, _, shown = line[:-1].partition(b" ")
    assert int(number) == offset
    shown.decode()
    assert body_of(shown) == value


def test_a_body_is_shown_as_it_is_where_that_can_be() -> None:
    assert message_line(3, b"new user: alex") == b"3 new user: alex\n"
    assert message_line(3, b'"in quotes"\tand tabs') == b'3 "in quotes"\tand tabs\n'
    assert message_line(3, b"") == b"3 \n"
    assert message_line(3, "grün\nblau".encode()) == '3 "grün\\nblau"\n'.encode()
    assert message_line(3, b"\xff\x1b[2J") == b'3 "\\udcff\\u001b[2J"\n'


@given(st.text(max_size=100))
def test_json_text_and_produced_text_are_the_same_message(text: str) -> None:
    found = parse(msgspec.json.encode({"track": "t", "data": text}))
    assert found == Produce("t", None, text.encode())
