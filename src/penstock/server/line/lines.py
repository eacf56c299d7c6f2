"""The lines of the text protocol: bytes in, commands out. Nothing here knows of connections or of the broker."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import msgspec

from penstock.model.errors import InvalidArgument
from penstock.model.names import NORMAL, Priority

_TELNET = 0xFF  # begins what a telnet client says to its server and not to us; in no UTF-8
_SUBNEGOTIATION, _SUBNEGOTIATION_END = 0xFA, b"\xff\xf0"
_WILL, _WONT, _DO, _DONT = 0xFB, 0xFC, 0xFD, 0xFE
_REFUSALS = {_WILL: _DONT, _DO: _WONT}
_SINGLE_COMMANDS = range(0xF0, 0xFA)
_TELNET_MAX = 100  # times that a client says something before a line; real ones say about ten
_PRODUCE = re.compile(rb"[ \t]++([^ \t]++)[ \t]++([^ \t]++)[ \t](.+)", re.DOTALL)
_CLOSED_QUOTE = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_NUMBER = re.compile(rb"[0-9]{1,18}")
_HTTP = re.compile(
    rb"[a-z]++ \S++ http/[0-9]|(?:get|head|post|put|patch|delete|options|trace|connect|pri) ++(?:[/*]|https?:)|host:",
    re.IGNORECASE,
)
_BINARY = re.compile(rb"[\x00-\x07\x0a-\x0c\x0e-\x1a\x1c-\x1f]")  # what no keyboard puts into a line


class NotThisProtocol(InvalidArgument):
    """A browser, or whoever else speaks HTTP, TLS or noise: what follows may look like commands, and is not obeyed."""


@dataclass(frozen=True, slots=True)
class Produce:
    """Publish a message, to a partition or to any."""

    topic: str
    partition: int | None
    value: bytes
    priority: Priority = NORMAL


@dataclass(frozen=True, slots=True)
class Consume:
    """Take the next message of a partition, or all that are ready."""

    topic: str
    partition: int
    all: bool = False


@dataclass(frozen=True, slots=True)
class Ack:
    """A message is done."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Auth:
    """Who is there."""

    token: str


@dataclass(frozen=True, slots=True)
class Ping:
    """Whether anybody is there."""


@dataclass(frozen=True, slots=True)
class Help:
    """What can be said."""


@dataclass(frozen=True, slots=True)
class Quit:
    """That was all."""


Command = Produce | Consume | Ack | Auth | Ping | Help | Quit


class LineSplitter:
    """Finds the lines in what arrives; of a line that is too long nothing is kept."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._unfinished = bytearray()
        self._skipping = False  # the rest of a line that was too long

    @property
    def unfinished_bytes(self) -> int:
        """How much is kept of a line that has no end yet."""
        return len(self._unfinished)

    def feed(self, data: bytes) -> list[bytes | None]:
        """The lines that are whole now, without their ends; None for one that is too long."""
        *ended, rest = data.split(b"\n")
        lines: list[bytes | None] = []
        for part in ended:
            if self._skipping:
                self._skipping = False
                continue
            line = part
            if self._unfinished:
                self._unfinished += part
                line = bytes(self._unfinished)
                self._unfinished.clear()
            line = line.removesuffix(b"\r")
            lines.append(line if len(line) <= self._max_bytes else None)
        if not self._skipping:
            self._unfinished += rest
            if len(self._unfinished) > self._max_bytes + 1:  # the one may be the \r of its end
                self._unfinished = bytearray()
                self._skipping = True
                lines.append(None)
        return lines

    def cut_foreign(self) -> bytes | None:
        """The beginning of a line that cannot be text, such as a TLS greeting: its end may never come."""
        if not self._unfinished or not _BINARY.match(self._unfinished):
            return None
        start = bytes(self._unfinished[:16])
        self._unfinished = bytearray()
        return start


def strip_telnet(line: bytes) -> tuple[bytes, bytes]:
    """A line without what a telnet client says before it, and the answer to that: none of its options is wanted.

    Further on in a line such bytes belong to a message.
    """
    place, end, answer = 0, len(line), bytearray()
    for _ in range(_TELNET_MAX):
        if end - place < 2 or line[place] != _TELNET:
            break
        said = line[place + 1]
        if said == _SUBNEGOTIATION:
            found = line.find(_SUBNEGOTIATION_END, place + 2)
            if found < 0:
                break
            place = found + 2
        elif _WILL <= said <= _DONT and end - place > 2:
            if said in _REFUSALS:
                answer += bytes([_TELNET, _REFUSALS[said], line[place + 2]])
            place += 3
        elif said in _SINGLE_COMMANDS:
            place += 2
        else:
            break
    return line[place:], bytes(answer)


def parse(line: bytes) -> Command | None:
    """The command that a line is; None if it is blank. Raises InvalidArgument for what is no command.

    The message of PRODUCE may be any bytes; all else is UTF-8.
    """
    line = line.lstrip(b" \t")
    if not line.strip():
        return None
    word = line.split(None, 1)[0]
    reader = _READERS.get(word.upper())
    try:
        if reader is not None:
            return reader(line[len(word) :])
        if line.startswith(b"{"):
            return _parse_json(line)
    except UnicodeDecodeError as error:
        raise InvalidArgument(
            f"the line is not UTF-8 (byte {error.object[error.start]:#04x}): it was ignored"
        ) from error
    raise _no_command(line, word)


def _no_command(line: bytes, word: bytes) -> InvalidArgument:
    if _HTTP.match(line):
        return NotThisProtocol("this port speaks the text protocol and not HTTP: the connection is closed")
    if _BINARY.search(line) or not _is_text(line):
        return NotThisProtocol("this is no text (TLS is spoken elsewhere): the connection is closed")
    return InvalidArgument(f"there is no command {_shown(word)}: say HELP to see all of them")


def _is_text(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _parse_produce(rest: bytes) -> Produce:
    found = _PRODUCE.fullmatch(rest)
    if found is None:
        raise InvalidArgument("say PRODUCE <topic> <partition> <message>, all of it on one line")
    topic, partition, message = found.groups()
    if message.startswith(b'"') and not _CLOSED_QUOTE.match(message):
        raise InvalidArgument(
            "a quote is opened at the start of the message and not closed on its line; a message ends with its line: "
            'for one with a newline in it, say {"track": "…", "data": "first\\nsecond"}'
        )
    return Produce(topic.decode(), _number(partition, "a partition"), message)


def _parse_consume(rest: bytes) -> Consume:
    words = rest.split(None, 3)
    if len(words) not in (2, 3) or (len(words) == 3 and words[2].upper() != b"ALL"):
        raise InvalidArgument("say CONSUME <topic> <partition>, or CONSUME <topic> <partition> ALL")
    return Consume(words[0].decode(), _number(words[1], "a partition"), len(words) == 3)


def _parse_ack(rest: bytes) -> Ack:
    words = rest.split(None, 3)
    if len(words) != 3:
        raise InvalidArgument("say ACK <topic> <partition> <id>")
    return Ack(words[0].decode(), _number(words[1], "a partition"), _number(words[2], "the id of a message"))


def _parse_auth(rest: bytes) -> Auth:
    words = rest.split(None, 1)
    if len(words) != 1:
        raise InvalidArgument("say AUTH <token>")
    return Auth(words[0].decode())


def _parse_word(command: type[Ping | Quit], rest: bytes) -> Command:
    if rest.strip():
        raise InvalidArgument(f"{command.__name__.upper()} stands alone on its line")
    return command()


_READERS: dict[bytes, Callable[[bytes], Command]] = {
    b"PRODUCE": _parse_produce,
    b"CONSUME": _parse_consume,
    b"ACK": _parse_ack,
    b"AUTH": _parse_auth,
    b"PING": partial(_parse_word, Ping),
    b"HELP": lambda _: Help(),  # whatever it is about, the answer is short
    b"QUIT": partial(_parse_word, Quit),
}


class _JsonLine(msgspec.Struct, forbid_unknown_fields=True):
    """A message for a track, which is a topic."""

    track: str
    data: msgspec.Raw
    priority: int | str = NORMAL


_json_line = msgspec.json.Decoder(_JsonLine)
_json_text = msgspec.json.Decoder(str)


def _parse_json(line: bytes) -> Produce:
    line.decode()  # also in what is not looked into
    try:
        found = _json_line.decode(line)
        data = bytes(found.data)
        value = _json_text.decode(data).encode() if data.startswith(b'"') else data
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidArgument(
            f'the JSON line cannot be read: {error}. Say {{"priority": 0 to 255, "data": anything, "track": "a topic"}}'
        ) from error
    return Produce(found.track, None, value, found.priority)


def _number(word: bytes, what: str) -> int:
    if not _NUMBER.fullmatch(word):
        raise InvalidArgument(f"{_shown(word)} is not {what}: give a number from 0 on")
    return int(word)


def _shown(word: bytes) -> str:
    return f"{word.decode()!r:.60}"
