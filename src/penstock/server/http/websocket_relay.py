"""A WebSocket about a topic of another process: what both sides say is passed on, and so is how it ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from websockets.asyncio.client import ClientConnection
from websockets.client import ClientProtocol
from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.uri import parse_uri

from penstock.model.errors import BrokerClosed, NotOwner
from penstock.server.http.forwarding import HOP_BY_HOP, Scope, Search, Send
from penstock.server.http.intake import Event, Receive
from penstock.server.peer_places import Place

_OPEN_S = 10.0
PlaceOf = Callable[[], Place | None]
"""Where the process is that is to be talked to, as far as that is known."""


async def relay_websocket(place_of_owner: PlaceOf, scope: Scope, receive: Receive, send: Send) -> None:
    """Talk for a client to the process that has its topic, until one of them ends."""
    await receive()  # that it wants to connect
    owner = await connect_to(place_of_owner, scope)
    try:
        await send({"type": "websocket.accept"})
        said, heard = asyncio.create_task(_say(owner, receive)), asyncio.create_task(_hear(owner, send))
        try:
            await asyncio.wait([said, heard], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (said, heard):
                task.cancel()
            await asyncio.gather(said, heard, return_exceptions=True)
    finally:
        await owner.close()


async def connect_to(place_of_owner: PlaceOf, scope: Scope) -> ClientConnection:
    """A WebSocket to another process, for the same client."""
    headers = [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in scope["headers"]
        if name not in HOP_BY_HOP and name != b"host" and not name.startswith(b"sec-websocket-")
    ]
    host = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "localhost")
    query = b"?" + scope["query_string"] if scope["query_string"] else b""
    address = f"ws://{host}{(scope['raw_path'] + query).decode('latin-1')}"
    loop = asyncio.get_running_loop()
    search = Search(loop.time())
    while True:
        place = place_of_owner()
        if place is not None:
            try:
                return await _open(place, address, headers)
            except InvalidHandshake as error:
                raise BrokerClosed(f"the process that has this topic refused: {error}") from error
            except OSError as error:
                if search.is_over(loop.time()):
                    raise BrokerClosed("the process that has this topic cannot be reached: try again") from error
        elif search.is_over(loop.time()):
            raise NotOwner("its shard is on its way to another process: try again")
        await asyncio.sleep(search.pause_s())


async def _open(place: Place, address: str, headers: list[tuple[str, str]]) -> ClientConnection:
    """A WebSocket to the HTTP port of a member, which has no limits of its own."""
    protocol = ClientProtocol(parse_uri(address), max_size=None)
    connection = await place.connect("http", lambda: ClientConnection(protocol, ping_interval=None))
    try:
        async with asyncio.timeout(_OPEN_S):
            await connection.handshake(headers, None)
    except BaseException:
        connection.transport.abort()
        raise
    return connection


async def _say(owner: ClientConnection, receive: Receive) -> None:
    """Pass on what the client says."""
    with contextlib.suppress(ConnectionClosed):
        while (event := await receive())["type"] == "websocket.receive":
            text = event.get("text")
            await owner.send(event["bytes"] if text is None else text)


async def _hear(owner: ClientConnection, send: Send) -> None:
    """Pass on what the owner says, and how it ends."""
    with contextlib.suppress(ConnectionClosed):
        async for message in owner:
            kind = "text" if isinstance(message, str) else "bytes"
            await send({"type": "websocket.send", kind: message})
    await send(close_of(owner))


def close_of(owner: ClientConnection) -> Event:
    """How the client hears that a process has ended it."""
    code = owner.close_code if owner.close_code not in (None, 1005, 1006) else 1001
    return {"type": "websocket.close", "code": code, "reason": owner.close_reason or ""}
