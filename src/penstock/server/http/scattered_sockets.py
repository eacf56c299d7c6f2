"""A WebSocket about a topic whose slices are in several processes: there is one to each of them.

Messages of all of them are passed on as they come. What the client says of messages goes to those who gave them out,
and their answers become one, before it is heard again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlencode

import msgspec
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from penstock.server.http.destinations import split_by_process
from penstock.server.http.forwarding import Scope, Send
from penstock.server.http.intake import Receive
from penstock.server.http.scattered_streams import query_of_each, shares_of
from penstock.server.http.websocket_relay import PlaceOf, close_of, connect_to

_MESSAGE = b'{"type":"message"'
_FINISHING = frozenset({"ack", "release", "nack", "reject", "visibility"})
_encode = msgspec.json.encode
Frame = dict[str, Any]


class _Owner:
    """A process that has slices, and the answers that it owes."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self._owed: deque[asyncio.Future[Frame]] = deque()

    async def ask(self, text: str | bytes) -> Frame:
        """What it answers to a frame."""
        answer: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._owed.append(answer)
        await self.connection.send(text)
        return await answer

    async def hear(self, send: Send) -> None:
        """Pass on its messages, and take its answers, until it ends."""
        async for said in self.connection:
            text = said if isinstance(said, str) else said.decode()
            if text.startswith(_MESSAGE.decode()):
                await send({"type": "websocket.send", "text": text})
            elif self._owed:
                self._owed.popleft().set_result(msgspec.json.decode(text))


async def relay_to_all(places: Mapping[int, PlaceOf], scope: Scope, receive: Receive, send: Send) -> None:
    """Talk for a client to all processes that have something of its topic, until one of them ends."""
    await receive()  # that it wants to connect
    async with contextlib.AsyncExitStack() as stack:
        owners: dict[int, _Owner] = {}
        given = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True, max_num_fields=100))
        for (process, place), query in zip(places.items(), query_of_each(given, len(places)), strict=True):
            connection = await connect_to(place, {**scope, "query_string": urlencode(query).encode()})
            stack.push_async_callback(connection.close)
            owners[process] = _Owner(connection)
        await send({"type": "websocket.accept"})
        hearing = {asyncio.create_task(owner.hear(send)): owner for owner in owners.values()}
        saying = asyncio.create_task(_say(owners, receive, send))
        try:
            await asyncio.wait([saying, *hearing], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (saying, *hearing):
                task.cancel()
            await asyncio.gather(saying, *hearing, return_exceptions=True)
        ended = [owner for task, owner in hearing.items() if not task.cancelled()]
        if ended:
            await send(close_of(ended[0].connection))


async def _say(owners: Mapping[int, _Owner], receive: Receive, send: Send) -> None:
    """Pass on what the client says, and answer it."""
    with contextlib.suppress(ConnectionClosed):
        while (event := await receive())["type"] == "websocket.receive":
            text = event.get("text")
            answer = await _answer(owners, event["bytes"] if text is None else text)
            await send({"type": "websocket.send", "text": _encode(answer).decode()})


async def _answer(owners: Mapping[int, _Owner], text: str | bytes) -> Frame:
    """What those that a frame is for answer; one that is not understood is judged by any of them."""
    first = next(iter(owners.values()))
    try:
        frame = msgspec.json.decode(text, type=Frame)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return await first.ask(text)
    kind = frame.get("type")
    credits = frame.get("credits") if kind == "credits" else None
    shares = shares_of(credits, len(owners)) if type(credits) is int else None
    if shares is not None:
        each = [{**frame, "credits": credits_of_one} for credits_of_one in shares]
        return _merged(await _ask_all(list(zip(owners.values(), each, strict=True))), frame)
    handles = _handles_of(frame) if kind in _FINISHING else None
    if handles is None:
        return await first.ask(text)
    parts: dict[_Owner, list[str]] = {}
    for process, some in split_by_process(handles).items():  # whoever gave them out and is not here has lost them
        parts.setdefault(first if process is None else owners.get(process, first), []).extend(some)
    rest = {name: value for name, value in frame.items() if name != "receipt_handle"}
    return _merged(await _ask_all([(owner, {**rest, "receipt_handles": some}) for owner, some in parts.items()]), frame)


def _handles_of(frame: Frame) -> list[str] | None:
    """The receipts that a frame names; None if it is not for us to take it apart."""
    several, one = frame.get("receipt_handles", []), frame.get("receipt_handle")
    handles = [*several, *([] if one is None else [one])] if isinstance(several, list) else []
    return handles if handles and all(isinstance(handle, str) for handle in handles) else None


async def _ask_all(asked: Sequence[tuple[_Owner, Frame]]) -> list[Frame]:
    return await asyncio.gather(*(owner.ask(_encode(frame).decode()) for owner, frame in asked))


def _merged(answers: Sequence[Frame], asked: Frame) -> Frame:
    """One answer: an error if there is one."""
    for answer in answers:
        if answer.get("type") == "error":
            return answer
    if asked["type"] == "credits":
        return {**answers[0], "credits": asked["credits"]}
    lost = [handle for answer in answers for handle in answer["lost"]]
    return {"type": "settled", "settled": sum(answer["settled"] for answer in answers), "lost": lost}
