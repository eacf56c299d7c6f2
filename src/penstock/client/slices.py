"""Topics that are spread over several shards: what a client knows of them, and requests that go to several slices.

A client asks the home of a topic first. Where that answers that the topic is spread (TopicSpread: nothing was done),
the client notes how, and asks the slices from then on; a slice that is not there any more has it ask the home again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from penstock.client.pending import OnReply
from penstock.model.errors import ConnectionLost, PenstockError, TopicSpread
from penstock.model.message import Message
from penstock.model.placement import Spread, is_slice, slice_name, whole_name
from penstock.protocol.frames import Command
from penstock.protocol.slices import join, renamed, split

_DIVIDED = frozenset({Command.PUBLISH, Command.STAGE})
_TRIES = 5  # a topic that is deleted and made again meanwhile, spread and not spread

Send = Callable[[str, bytes, OnReply], None]
"""Send a request about a topic, or about a slice of it."""


class Slices:
    """How topics are spread, as far as this client has heard of it."""

    def __init__(self) -> None:
        self._known: dict[str, Spread] = {}

    def __bool__(self) -> bool:
        return bool(self._known)

    def of(self, topic: str) -> Spread | None:
        """How a topic is spread; None: it is in one shard, as far as is known."""
        return self._known.get(topic)

    def note(self, error: TopicSpread) -> None:
        """Somebody says how a topic is spread."""
        if error.slices > 1:
            self._known[error.topic] = Spread(error.slices, error.partitions)
        else:
            self._known.pop(error.topic, None)

    def name_of_partition(self, topic: str, partition: int) -> str:
        """The slice that has a partition; the topic itself where it is not spread."""
        spread = self._known.get(topic)
        return topic if spread is None else slice_name(topic, spread.of_partition(partition))

    def name_of(self, topic: str, message: Message, turn: int) -> str:
        """The slice that a message goes to; the topic itself where it is not spread."""
        spread = self._known.get(topic)
        if spread is None:
            return topic
        key = message.key.encode() if isinstance(message.key, str) else message.key
        try:
            number = spread.of_message(topic, message.partition, None if key is None else bytes(key), message.dedupe_id)
        except (PenstockError, TypeError, ValueError):  # a slice says what is wrong with it
            number = 0
        return slice_name(topic, turn % spread.slices if number is None else number)

    def send(self, topic: str, command: int, body: bytes, on_reply: OnReply, send: Send) -> None:
        """Send a request to publish or to stage messages, wherever they go; `topic` may be spread or not."""
        _Divided(self, topic, command, on_reply, send).begin(body, _TRIES)


def is_divided(topic: str, command: int) -> bool:
    """Whether a request goes to slices."""
    return command in _DIVIDED and not is_slice(topic)


class _Divided:
    """A request of which each slice gets a part, and the reply that is put together."""

    def __init__(self, slices: Slices, topic: str, command: int, on_reply: OnReply, send: Send) -> None:
        self._slices, self._topic, self._command, self._on_reply, self._send = slices, topic, command, on_reply, send
        self._missing = 0
        self._replies: list[tuple[Sequence[int], bytes]] = []
        self._error: PenstockError | None = None

    def begin(self, body: bytes, tries: int) -> None:
        """Send all of it; nothing of it is done yet."""
        self._ask(body, None, tries)

    def _ask(self, body: bytes, rows: Sequence[int] | None, tries: int) -> None:
        """Send some rows, all of which are in this body, to wherever they belong as far as is known now."""
        spread = self._slices.of(self._topic)
        if spread is None:
            self._missing += 1
            self._send(self._topic, renamed(self._command, body, self._topic), partial(self._told, body, rows, tries))
            return
        parts = split(self._command, body, self._topic, spread)
        self._missing += len(parts)
        for part in parts:
            own = part.rows if rows is None else [rows[row] for row in part.rows]
            self._send(part.topic, part.body, partial(self._told, part.body, own, tries))

    def _told(
        self, body: bytes, rows: Sequence[int] | None, tries: int, reply: bytes | None, error: PenstockError | None
    ) -> None:
        self._missing -= 1
        if isinstance(error, TopicSpread) and whole_name(error.topic) == self._topic and tries:
            self._slices.note(error)
            try:
                self._ask(body, rows, tries - 1)
            except PenstockError as failed:
                self._error = self._error or failed
        elif error is not None or reply is None:
            self._error = self._error or error or ConnectionLost("no reply")
        elif rows is None:
            self._on_reply(reply, None)
            return
        else:
            self._replies.append((rows, reply))
        if not self._missing:
            self._on_reply(None if self._error else join(self._command, self._replies), self._error)
