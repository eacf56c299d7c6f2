"""A request about a topic whose slices are in several processes, as those are asked it that have the slices."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple
from urllib.parse import quote, urlencode

from penstock.model.placement import Spread, part_name, slice_name
from penstock.server.http.forwarding import Forwarder, Scope, Send, hand_over_nothing
from penstock.server.http.intake import Event, Incoming
from penstock.server.scattered import ScatteredTopics

_TOPICS = "/topics/"
_NOT_FOR_PARTS = frozenset({b"accept-encoding", b"if-none-match", b"range"})


class Part(NamedTuple):
    """What one process replies."""

    status: int
    body: bytes


class Asked:
    """A request about such a topic."""

    def __init__(self, forwarder: Forwarder, scattered: ScatteredTopics, scope: Scope, topic: str) -> None:
        self._forwarder, self._scattered = forwarder, scattered
        self.scope, self.topic = scope, topic

    def processes(self, spread: Spread) -> list[int]:
        """Those that have slices of the topic."""
        return sorted(self._scattered.processes(self.topic, spread))

    async def slice(
        self, spread: Spread, number: int, body: bytes = b"", query: Mapping[str, str] | None = None
    ) -> Part:
        """What the process replies that has a slice, to the same request about that slice, or with other parameters."""
        received: list[bytes] = []

        async def take(event: Event) -> None:
            received.append(event.get("body", b""))

        asked = self._named(slice_name(self.topic, number), for_part=True)
        if query is not None:
            asked["query_string"] = urlencode(query).encode()
        owner = partial(self._scattered.owner_of, self.topic, spread, number)
        status = await self._forwarder.forward(owner, asked, hand_over_nothing, take, body)
        return Part(status, b"".join(received))

    async def pass_on(self, spread: Spread, number: int, incoming: Incoming, send: Send, body: bytes) -> int:
        """Have the process that has a slice answer the request for that slice; the status."""
        owner = partial(self._scattered.owner_of, self.topic, spread, number)
        return await self._forwarder.forward(
            owner,
            self._named(slice_name(self.topic, number)),
            incoming.receive,
            send,
            body,
        )

    async def pass_on_as_it_is(self, spread: Spread, number: int, incoming: Incoming, send: Send) -> int | None:
        """Have the process that has a slice answer, of the whole topic's name; None if that is this process."""
        owner = partial(self._scattered.owner_of, self.topic, spread, number)
        if self._scattered.is_here(owner()):
            return None
        body = await incoming.read()
        return await self._forwarder.forward(owner, self.scope, incoming.receive, send, body)

    async def process(self, process: int, query: Mapping[str, str], verb: str) -> Part:
        """What a process replies about all slices that it has, to these parameters."""
        return Part(*await self._forwarder.fetch(process, self._of_part(query, verb), b""))

    async def listen(self, process: int, query: Mapping[str, str], verb: str, take: Send) -> None:
        """Have somebody take what a process sends about all slices that it has, until it ends."""
        await self._forwarder.listen(process, self._of_part(query, verb), take)

    def of_part(self) -> Scope:
        """The request, about all slices that whoever is asked has."""
        return self._named(part_name(self.topic), for_part=True)

    def _of_part(self, query: Mapping[str, str], verb: str) -> Scope:
        asked = self.of_part()
        asked["path"] = f"{asked['path'].rpartition('/')[0]}/{verb}"
        asked["raw_path"] = quote(asked["path"]).encode()
        asked["query_string"] = urlencode(query).encode()
        return asked

    async def other(self, process: int, path: str, body: bytes) -> Part:
        """What a process replies to something else, which is posted for the same client."""
        headers = [pair for pair in self.scope["headers"] if pair[0] not in _NOT_FOR_PARTS | {b"content-type"}]
        asked = {
            **self.scope,
            "method": "POST",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [*headers, (b"content-type", b"application/json")],
        }
        return Part(*await self._forwarder.fetch(process, asked, body))

    def _named(self, name: str, *, for_part: bool = False) -> Scope:
        """The request with another name in its path."""
        path = self.scope["path"]
        before, _, behind = path.partition(_TOPICS)
        changed = f"{before}{_TOPICS}{name}{behind[len(self.topic) :]}"
        headers = self.scope["headers"]
        if for_part:
            headers = [pair for pair in headers if pair[0] not in _NOT_FOR_PARTS]
        return {**self.scope, "path": changed, "raw_path": quote(changed).encode(), "headers": headers}


async def all_of(asked: list[asyncio.Task[Part]]) -> list[Part]:
    """What all reply, also where one fails before others are done."""
    found = await asyncio.gather(*asked, return_exceptions=True)
    failed = [part for part in found if isinstance(part, BaseException)]
    if failed:
        raise failed[0]
    return [part for part in found if not isinstance(part, BaseException)]
