"""Requests that concern all topics: each process is asked about its shards, and what they reply becomes one reply.

Where a process does not answer, for it is being replaced or a shard is on its way, all are asked again for a moment;
then the whole fails, for a part of a list looks like all of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

import msgspec

from penstock.model.errors import BrokerClosed
from penstock.model.units import parse_digits
from penstock.server.http.failures import encode
from penstock.server.http.forwarding import Forwarder, Scope
from penstock.server.http.merging import LIMIT_MAX, SKIP_MAX, Gathered, Query
from penstock.server.membership import Membership
from penstock.server.workers import Workers

_AGAIN_S, _AGAIN_FOR_S = 0.05, 6.0  # one that hangs is ended after three seconds
_NOT_FOR_PARTS = frozenset({b"accept-encoding", b"if-none-match", b"range"})
_JSON = b"application/json"
_METRICS = b"text/plain; version=0.0.4; charset=utf-8"


class Reply(NamedTuple):
    """One reply for all."""

    status: int
    media_type: bytes
    body: bytes


class _Unknown(NamedTuple):
    """One of them knows nothing of it, and need not."""

    body: bytes


class _Refused(Exception):
    """One of them has refused: so is the whole."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(status)
        self.reply = Reply(status, _JSON, body)


class Gatherer:
    """Asks all processes."""

    def __init__(self, forwarder: Forwarder, membership: Membership, workers: Workers) -> None:
        self._forwarder = forwarder
        self._membership = membership
        self._workers = workers

    async def answer(self, gathered: Gathered, scope: Scope, body: bytes = b"") -> Reply:
        """What all processes together reply."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + _AGAIN_FOR_S
        while True:
            try:
                return await self._answer(gathered, scope, body)
            except _Refused as refused:
                return refused.reply
            except BrokerClosed:  # all of these can be done twice
                if loop.time() > until_s:
                    raise
            await asyncio.sleep(_AGAIN_S)

    async def _answer(self, gathered: Gathered, scope: Scope, body: bytes) -> Reply:
        query = parameters(scope)
        headers = [(name, value) for name, value in scope["headers"] if name not in _NOT_FOR_PARTS]
        asked: Scope = {**scope, "headers": headers}
        ask = partial(self._ask_pages, gathered.page) if gathered.page else partial(self._ask, body=body)
        replies = await asyncio.gather(
            *(ask(gathered, process, asked, {**query, **gathered.extra}) for process in self._processes(gathered)),
            return_exceptions=True,  # so that nobody is asked any more when this is over
        )
        failed = [reply for reply in replies if isinstance(reply, BaseException)]
        if failed:
            raise failed[0]
        parts: list[Any] = replies
        found = [part for part in parts if not isinstance(part, _Unknown)]
        if not found:
            raise _Refused(404, parts[0].body)
        merged = await self._workers.run(partial(gathered.merge, found, query))
        if merged is None:
            return Reply(204, _JSON, b"")
        if isinstance(merged, bytes):
            return Reply(200, _METRICS, merged)
        is_well = gathered.refusal is None or merged["status"] == "ok"
        return Reply(200 if is_well else gathered.refusal or 200, _JSON, encode(merged))

    def _processes(self, gathered: Gathered) -> Sequence[int]:
        owners = {place.process for place in self._membership.map.shards}
        if -1 in owners:
            raise BrokerClosed("a shard is in no process now: try again")
        return sorted(owners | set(self._membership.map.addresses)) if gathered.everybody else sorted(owners)

    async def _ask(self, gathered: Gathered, process: int, scope: Scope, query: Query, body: bytes = b"") -> Any:
        """What one replies."""
        asked = {**scope, "query_string": urlencode(query).encode()}
        status, reply = await self._forwarder.fetch(process, asked, body)
        if status == 503 and gathered.refusal != 503:
            raise BrokerClosed(f"process {process} is stopping or starting: try again")
        if status == 404 and gathered.found_anywhere:
            return _Unknown(reply)
        if status >= 400 and status != gathered.refusal:
            raise _Refused(status, reply)
        if status == 204:
            return ()
        return reply if scope["path"] == "/metrics" else msgspec.json.decode(reply)

    async def _ask_pages(self, name: str, gathered: Gathered, process: int, scope: Scope, query: Query) -> Any:
        """All up to the end of the page, for who knows how many come before it elsewhere."""
        skip, limit = query.get("skip", "0"), query.get("limit", "100")
        if parse_digits(skip) is None or int(skip) > SKIP_MAX:
            return await self._ask(gathered, process, scope, query)  # which refuses it
        first = await self._ask(gathered, process, scope, {**query, "skip": "0"})
        if isinstance(first, _Unknown):
            return first
        whole, items, wanted = first, list(first[name]), int(skip) + int(limit)
        got, asked = len(items), int(limit)
        while len(items) < wanted and got == asked:
            asked = min(LIMIT_MAX, wanted - len(items))
            page = await self._ask(gathered, process, scope, {**query, "skip": str(len(items)), "limit": str(asked)})
            if isinstance(page, _Unknown):
                break  # some are gone since
            whole, got = page, len(page[name])
            items += page[name]
        return {**whole, name: items}


def parameters(scope: Scope) -> dict[str, str]:
    """The parameters of a request; the last one of each name counts."""
    return dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True, max_num_fields=100))
