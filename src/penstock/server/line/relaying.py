"""Lines about topics of other processes: said to their owner as they came, and answered with what it answers."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Awaitable, Callable

import msgspec

from penstock.server.membership import Membership
from penstock.server.peer_places import Place, open_streams

Take = Callable[[bytes | None], Awaitable[bool]]
"""Takes a line of an answer, and tells whether it was the last; None: there is no answer, for the process ended."""

_REPLY_BYTES_MAX = 256 << 20  # a message of any port, with all that a line makes of it
_BUFFERED_BYTES = 256 << 10  # of lines that a process has not taken


_TOPIC = re.compile(rb"(\s*+\S++\s++)\S++")


def renamed(line: bytes, topic: str) -> bytes:
    """The same line, which was parsed, about a slice of its topic."""
    if line.lstrip().startswith(b"{"):
        said = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
        return msgspec.json.encode({**said, "track": topic})
    return _TOPIC.sub(rb"\g<1>" + topic.encode(), line, count=1)


class Relay:
    """The ways from one connection to the processes that have its topics."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._links: dict[int, _Link] = {}
        self._token: str | None = None

    def send(self, topic: str, line: bytes, take: Take) -> None:
        """Say a line to the process that has a topic; raises NotOwner while none has."""
        process = self._membership.owner_of(topic)
        if process < 0:
            raise self._membership.not_owner(self._membership.map.shard_of(topic))
        link = self._links.get(process)
        if link is None or link.closed:
            link = self._links[process] = _Link(self._membership.place_of(process))
            if self._token is not None:
                link.send(b"AUTH " + self._token.encode(), _ignore)
        link.send(line, take)

    def log_in(self, token: str) -> None:
        """Say to all who is there, also to those that are reached later."""
        self._token = token
        for link in self._links.values():
            if not link.closed:
                link.send(b"AUTH " + token.encode(), _ignore)

    async def drain(self) -> None:
        """Wait until nobody has much that was said and not taken."""
        for link in list(self._links.values()):
            await link.drain()

    def close(self) -> None:
        """The client is gone: what it holds elsewhere is given back."""
        for link in self._links.values():
            link.close()


class _Link:
    """A connection to the text port of another process; its answers come in the order of the lines."""

    def __init__(self, place: Place) -> None:
        self._waiting: deque[Take] = deque()
        self._unsent: list[bytes] = []
        self._writer: asyncio.StreamWriter | None = None
        self.closed = False
        self._running = asyncio.create_task(self._run(place))

    def send(self, line: bytes, take: Take) -> None:
        self._waiting.append(take)
        if self._writer is None:
            self._unsent.append(line)
        else:
            self._writer.writelines([line, b"\n"])

    async def drain(self) -> None:
        while self._writer is None and not self.closed:
            if sum(map(len, self._unsent)) <= _BUFFERED_BYTES:
                return
            await asyncio.sleep(0.001)
        if self._writer is not None and self._writer.transport.get_write_buffer_size() > _BUFFERED_BYTES:
            try:
                await self._writer.drain()
            except OSError:  # whoever waits for an answer hears of it
                return

    async def _run(self, place: Place) -> None:
        try:
            reader, writer = await open_streams(place, "line", _REPLY_BYTES_MAX)
            self._writer = writer
            writer.write(b"".join(line + b"\n" for line in self._unsent))
            self._unsent.clear()
            while (line := await reader.readline()).endswith(b"\n") and self._waiting:
                if await self._waiting[0](line):
                    self._waiting.popleft()
        except (OSError, ValueError):  # it ended, or says what no line can be
            pass
        finally:
            self.closed = True
            if self._writer is not None:
                self._writer.close()
            for take in self._waiting:
                await take(None)

    def close(self) -> None:
        self._running.cancel()


async def _ignore(_: bytes | None) -> bool:
    return True
