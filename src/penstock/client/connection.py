"""One connection to a server, as the client sees it: frames out, replies and pushed messages in; and its TLS."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Callable
from typing import cast

from penstock.model.errors import ConnectionLost, InvalidArgument
from penstock.protocol.frames import BROKEN, FrameReader, ProtocolError

_FRAMES_TOGETHER = 64
_WRITE_BYTES = 4096
_CLOSING_S = 1.0
_LENT_S = 0.0002  # until another look whether a thread that has the socket has written its request
_FRAME_BYTES_MAX = 1 << 30  # a server's replies have limits of their own

Path = str | os.PathLike[str]
OnFrame = Callable[[int, int, memoryview | bytes], None]


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
        self._lent: socket.socket | None = None
        self._may_write: Callable[[], bool] = lambda: True
        self._reclaim: Callable[[], None] = lambda: None
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
        if self._lent is not None:
            with contextlib.suppress(OSError):
                self._lent.shutdown(socket.SHUT_RDWR)  # whoever reads from it notices
            self._reclaim()
        self._on_lost(self, self._error or exc)

    def send(self, data: bytes) -> None:
        """Send a frame with the others of this turn of the loop."""
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(data)
        if len(self._unsent) >= _FRAMES_TOGETHER:  # the server can begin with these
            self._flush()

    def _flush(self) -> None:
        if self._lent is not None and not self._may_write():
            self._loop.call_later(_LENT_S, self._flush)
            return
        unsent, self._unsent = self._unsent, []
        if self._transport is not None and unsent:
            self.sent_s = self._loop.time()
            self._transport.write(unsent[0] if len(unsent) == 1 else b"".join(unsent))

    def lend(self, may_write: Callable[[], bool], reclaim: Callable[[], None]) -> socket.socket | None:
        """Stop reading, and leave that to whoever has the socket; None if it cannot be lent now.

        Before it writes, the connection asks whether it may; when it is lost, it wants the socket back.
        """
        transport = self._transport
        if transport is None or transport.is_closing() or self._unsent or self._reader.unfinished_bytes:
            return None
        if transport.get_extra_info("sslcontext") is not None or transport.get_write_buffer_size():
            return None
        transport.pause_reading()
        self._may_write, self._reclaim = may_write, reclaim
        self._lent = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
        return self._lent

    def take_back(self, received: list[bytes]) -> None:
        """Read again, what others have received from the socket first."""
        self._lent = None
        for piece in received:
            left = memoryview(piece)
            while left and not self.lost:
                room = self._reader.room()
                count = min(len(room), len(left))
                room[:count] = left[:count]
                left = left[count:]
                self.buffer_updated(count)
        if self._transport is not None and self._lent is None:
            self._transport.resume_reading()

    async def drained(self) -> None:
        """Wait until the server takes more."""
        await self._drained.wait()

    def close(self) -> None:
        """Send what is left, then close."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    async def closed(self) -> None:
        """Wait, not for long, until a connection that was closed is gone: TLS sends a last message."""
        try:
            async with asyncio.timeout(_CLOSING_S):
                await self._gone.wait()
        except TimeoutError:
            self.abort()

    def abort(self, error: BaseException | None = None) -> None:
        """Close at once; callers that wait get `error`."""
        self._error = error
        if self._transport is not None:
            self._transport.abort()


async def connect(where: tuple[str, int], tls: ssl.SSLContext | None, make: Callable[[], Connection]) -> Connection:
    """A connection to a host and port."""
    named = None if tls is None else where[0]
    loop = asyncio.get_running_loop()
    return (await loop.create_connection(make, *where, ssl=tls, server_hostname=named))[1]


# TLS: whom a client trusts, and the certificate that it shows.


class TlsFailed(ConnectionLost):
    """Somebody answers at the address, but client and server do not agree on TLS."""


def explain_tls(address: str, error: ssl.SSLError) -> TlsFailed:
    """What went wrong, and what to give."""
    if "CERTIFICATE_REQUIRED" in (error.reason or ""):
        return TlsFailed(f"{address} asks for a certificate of the client (mutual TLS): give cert and its key")
    return TlsFailed(f"no Penstock server answers at {address} by TLS: {error}")


def explain_end(address: str, error: BaseException | None, *, with_tls: bool) -> ConnectionLost:
    """Why a connection ended before the server said a word."""
    if isinstance(error, ssl.SSLError):
        return explain_tls(address, error)
    told = f"{address} closed the connection at once"
    if error is not None and not isinstance(error, ConnectionResetError):
        return ConnectionLost(f"{told}: {error}")
    if not with_tls:
        return TlsFailed(f"{told} (a server that speaks TLS does: give tls or ca)")
    return TlsFailed(f"{told} (one that asks clients for a certificate does: give cert and its key)")


def client_context(
    tls: bool | ssl.SSLContext, ca: Path | None = None, cert: Path | None = None, key: Path | None = None
) -> ssl.SSLContext | None:
    """The TLS context of a connection; None: it is not encrypted.

    The server must show a certificate for the name that it is reached by, of an authority in the file `ca`, or else
    of one that this machine trusts. A file that is given means TLS.
    """
    files = {"ca": ca, "cert": cert, "key": key}
    given = [name for name, path in files.items() if path is not None]
    if isinstance(tls, ssl.SSLContext):
        if given:
            raise InvalidArgument(f"{', '.join(given)}: load these into the context that is given as tls")
        return tls
    if not isinstance(tls, bool):
        raise InvalidArgument(f"{tls!r:.80} is not True, False or an ssl.SSLContext")
    if not tls and not given:
        return None
    if key is not None and cert is None:
        raise InvalidArgument("key is that of a certificate: give cert too")
    for name, path in files.items():
        _check_readable(name, path)
    try:
        context = ssl.create_default_context(cafile=ca)
    except ssl.SSLError as error:
        raise InvalidArgument(f"ca {ca} has no certificate (PEM)") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if cert is not None:
        try:
            context.load_cert_chain(cert, key, _no_password)
        except ssl.SSLError as error:
            what = f"cert {cert}" + ("" if key is None else f" and key {key}")
            raise InvalidArgument(f"{what} cannot be used ({error.reason}): give PEM files that go together") from error
    return context


def _check_readable(name: str, path: Path | None) -> None:
    try:
        if path is not None:
            with open(path, "rb"):  # noqa: PTH123 - as OpenSSL opens it
                pass
    except OSError as error:
        raise InvalidArgument(f"{name} {os.fspath(path or '')} cannot be read: {error.strerror}") from error


def _no_password() -> str:
    raise InvalidArgument("the key has a password: `openssl pkey -in KEY -out NEW` takes it away")
