"""Messages that come one a request, from many connections: what came in one turn of the loop is published together.

Each is still published for itself, with its own id, producer and sequence; they only share the way through the broker.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from penstock.model.batch import Origin
from penstock.model.errors import LimitExceeded, Overloaded, PenstockError
from penstock.model.intake import Single
from penstock.model.producers import Names, name_at
from penstock.protocol.publishing import Publish, published_single

if TYPE_CHECKING:
    from penstock.server.native.connection import Connection
    from penstock.server.native.listener import NativeListener

_TOGETHER_MAX = 1000


class _Gathering:
    """Single messages for one topic, which have nothing but a value."""

    __slots__ = ("name", "names", "origins", "requests", "singles")

    def __init__(self) -> None:
        self.singles: list[Single] = []
        self.requests: list[tuple[Connection, int]] = []  # and the correlation
        self.origins: list[Origin] = []
        self.name: str | None = ""  # of whoever sent the last one; nobody is called so
        self.names: Names = []


class Singles:
    """Gathers single messages of all connections."""

    def __init__(self, listener: NativeListener) -> None:
        self._listener = listener
        self._shard = listener.broker.shard
        self._gathering: dict[str, _Gathering] = {}

    def add(self, connection: Connection, correlation: int, request: Publish, single: Single, name: str | None) -> None:
        """Publish a message with the others of this turn."""
        if not self._gathering:
            self._listener.loop.call_soon(self._publish_turn)
        gathering = self._gathering.get(request.topic)
        if gathering is None:
            gathering = self._gathering[request.topic] = _Gathering()
        if request.producer is not None:
            self._note_origin(gathering, request.producer, request.sequence)
        if name != gathering.name:
            gathering.name = name
            gathering.names.append((len(gathering.singles), name))
        gathering.singles.append(single)
        gathering.requests.append((connection, correlation))
        if len(gathering.singles) >= _TOGETHER_MAX:
            self.publish()

    @staticmethod
    def _note_origin(gathering: _Gathering, producer: str, sequence: int) -> None:
        row = len(gathering.singles)
        if gathering.origins:
            first, known, before, count = gathering.origins[-1]
            if known == producer and sequence == before + count and first + count == row:
                gathering.origins[-1] = (first, producer, before, count + 1)
                return
        gathering.origins.append((row, producer, sequence, 1))

    def _publish_turn(self) -> None:
        self.publish()
        self._listener.commits.commit_soon()

    def publish(self) -> None:
        """Publish what was gathered; whatever must come behind it calls this first."""
        gathered, self._gathering = self._gathering, {}
        for topic, gathering in gathered.items():
            self._publish(topic, gathering)

    def _publish(self, topic: str, gathering: _Gathering) -> None:
        now_us = self._shard.clock.wall_us()
        try:
            singles, origins, names = gathering.singles, gathering.origins, gathering.names
            published = self._shard.publish_singles(topic, singles, origins, now_us, names)
        except (LimitExceeded, Overloaded):  # of all together: some of them may fit
            published = None
        except PenstockError as error:
            for connection, correlation in gathering.requests:
                connection.refuse(correlation, error)
            return
        if published is None:
            self._publish_one_by_one(topic, gathering, now_us)
            return
        (partition, base, _), commit = published
        self._listener.commits.when_done(commit, partial(_answer, gathering.requests, partition, base))

    def _publish_one_by_one(self, topic: str, gathering: _Gathering, now_us: int) -> None:
        """Some may have been published before or have no room, or the topic is new."""
        origins: dict[int, tuple[str, int]] = {}
        for row, producer, sequence, count in gathering.origins:
            origins.update({row + place: (producer, sequence + place) for place in range(count)})
        for row, (single, (connection, correlation)) in enumerate(
            zip(gathering.singles, gathering.requests, strict=True)
        ):
            whose, number = origins.get(row, (None, 0))
            name = name_at(gathering.names, row)
            self.publish_one(connection, correlation, topic, single, None, now_us, whose, number, name)

    def publish_one(
        self,
        connection: Connection,
        correlation: int,
        topic: str,
        single: Single,
        partition: int | None,
        now_us: int,
        producer: str | None,
        sequence: int,
        name: str | None,
    ) -> None:
        """Publish one message by itself."""
        try:
            identity, commit = self._shard.publish_single(topic, single, partition, now_us, producer, sequence, name)
        except PenstockError as error:
            connection.refuse(correlation, error)
            return
        reply = published_single(correlation, identity.partition, identity.offset)
        self._listener.commits.reply_after(commit, connection, correlation, reply)


def _answer(requests: list[tuple[Connection, int]], partition: int, base: int, error: PenstockError | None) -> None:
    """Tell everybody where their messages are; the replies of one connection go together."""
    if error is not None:
        for connection, correlation in requests:
            connection.refuse(correlation, error)
        return
    replies: list[bytes] = []
    last = requests[0][0]
    for offset, (connection, correlation) in enumerate(requests, base):
        if connection is not last:
            last.answer_now(replies)
            last, replies = connection, []
        replies.append(published_single(correlation, partition, offset))
    last.answer_now(replies)
