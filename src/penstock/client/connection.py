"""One connection to a server, as the client sees it: frames out, replies and pushed messages in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from penstock.protocol.frames import BROKEN, FrameReader, ProtocolError

_FRAMES_TOGETHER = 64
_WRITE_BYTES = 4096
_CLOSING_S = 1.0
_FRAME_BYTES_MAX = 1 << 30  # a server's replies have limits of their own

OnFrame = Callable[[int, int, memoryview], None]


class Connection(asyncio.BufferedProtocol):
    """Frames of one turn of the loop are written together; `drained` tells when the server takes more."""

    def __init__(self, on_frame: OnFrame, on_lost: Callable[[Connection, BaseException | None], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader(_FRAME_BYTES_MAX)
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._unsent: list[bytes] = []
        self._drained = asyncio.Event()
        self._drained.set()
        self._error: BaseException | None = None
        self._gone = asyncio.Event()
        self.lost = False
        self.heard_s = self.sent_s = self._loop.time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are of no class of asyncio
        self._transport.set_write_buffer_limits(high=_WRITE_BYTES)  # uvloop writes at once what is more than this

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.room()

    def buffer_updated(self, nbytes: int) -> None:
        self.heard_s = self._loop.time()
        for command, correlation, body in self._reader.received(nbytes):
            if command == BROKEN:
                self.abort(ProtocolError(f"what came is no frame of the native protocol: {bytes(body)!r}"))
                return
            self._on_frame(command, correlation, body)

    def pause_writing(self) -> None:
        self._drained.clear()

    def resume_writing(self) -> None:
        self._drained.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.lost = True
        self._gone.set()
        self._drained.set()
        self._on_lost(self, self._error or exc)

    def send(self, data: bytes) -> None:
        """Send a frame with the others of this turn of the loop."""
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(data)
        if len(self._unsent) >= _FRAMES_TOGETHER:  # the server can begin with these
            self._flush()

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if self._transport is not None and unsent:
            self.sent_s = self._loop.time()
            self._transport.write(unsent[0] if len(unsent) == 1 else b"".join(unsent))

    async def drained(self) -> None:
        """Wait while the server does not take what was sent before."""
        await self._drained.wait()

    def close(self) -> None:
        """Send what is left, then close."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    async def closed(self) -> None:
        """Wait for the end of a connection that was closed, not for long: TLS has last words to say."""
        try:
            async with asyncio.timeout(_CLOSING_S):
                await self._gone.wait()
        except TimeoutError:
            self.abort()

    def abort(self, error: BaseException | None = None) -> None:
        """Close at once; `error` is what those who wait hear."""
        self._error = error
        if self._transport is not None:
            self._transport.abort()
