"""How members of a cluster meet on a network: a greeting in lines, at the native port, before anything else is said.

    →  PENSTOCK-PEER/1 <port> <member> <nonce>      what is wanted (native, http or line), and of whom
    ←  PENSTOCK-PEER/1 <nonce> <proof>              that whoever answers knows the secret of the cluster too
    →  PENSTOCK-PEER/1 <proof>
    ←  PENSTOCK-PEER/1 welcome                      what follows is the protocol of that port

Each line ends with a newline; a nonce is 32 hexadecimal digits, a proof 64. Whoever refuses the other says
`PENSTOCK-PEER/1 refused: <why>` and closes the connection.

A proof is an HMAC-SHA256 by the secret over who says it, the first line, the nonce of the server, and what identifies
the connection where that is encrypted (`tls-unique`). So it is good for one connection, one port, one member and one
side of it: it cannot be said again, and nobody can pass it on from one encrypted connection to another.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Collection
from typing import Literal

PREFIX = b"PENSTOCK-PEER/1 "
"""How every line of a greeting begins."""
LINE_BYTES_MAX = 256
"""The longest line, with its end."""
_WELCOME, _REFUSED = b"welcome", b"refused: "
_WANTED = re.compile(rb"([a-z]{1,16}) (\d{1,18}) ([0-9a-f]{32})")
_CHALLENGE = re.compile(rb"([0-9a-f]{32}) ([0-9a-f]{64})")
_PROOF = re.compile(rb"[0-9a-f]{64}")


class PeerRefused(ConnectionError):
    """One of the two does not take the other for a member of its cluster."""


class Greeting:
    """The side that was connected to. It takes lines without their ends, and gives those that answer them."""

    def __init__(self, secret: bytes, member: int, ports: Collection[str], nonce: str, channel: bytes) -> None:
        """`channel` identifies the encrypted connection; empty where it is not encrypted."""
        self._secret, self._member, self._ports = secret, member, ports
        self._nonce, self._channel = nonce.encode(), channel
        self._wanted: bytes | None = None
        self._port = ""
        self.port: str | None = None
        """What the other is let in to, once that is known."""

    def answer(self, line: bytes) -> bytes:
        """The answer to a line, which is the last one if the port is known now; raises PeerRefused."""
        said = _said(line)
        if self._wanted is None:
            self._port = self._check_wanted(said)
            self._wanted = said
            return _line(self._nonce + b" " + self._proof("server"))
        if not _PROOF.fullmatch(said) or not hmac.compare_digest(said, self._proof("client")):
            raise PeerRefused("the proof is wrong: members of one cluster have the same secret")
        self.port = self._port
        return _line(_WELCOME)

    def _check_wanted(self, said: bytes) -> str:
        wanted = _WANTED.fullmatch(said)
        if wanted is None:
            raise PeerRefused("the first line names a port, the number of a member and a nonce")
        if int(wanted[2]) != self._member:
            raise PeerRefused(f"this is member {self._member}, not {int(wanted[2])}")
        port = wanted[1].decode()
        if port not in self._ports:
            raise PeerRefused(f"this member has no port called {port}: it has {', '.join(sorted(self._ports))}")
        return port

    def _proof(self, side: Literal["server", "client"]) -> bytes:
        assert self._wanted is not None
        return _proof(self._secret, side, self._wanted, self._nonce, self._channel)


class Introduction:
    """The side that connects."""

    def __init__(self, secret: bytes, port: str, member: int, nonce: str, channel: bytes) -> None:
        self._secret, self._channel = secret, channel
        self._wanted = f"{port} {member} {nonce}".encode()
        self._is_proven = False
        self.is_welcome = False

    def first(self) -> bytes:
        """The first line."""
        return _line(self._wanted)

    def answer(self, line: bytes) -> bytes:
        """The answer to a line, which is empty when the other has let this side in; raises PeerRefused."""
        said = _said(line)
        if said.startswith(_REFUSED):
            raise PeerRefused(said.removeprefix(_REFUSED).decode("latin-1"))
        if self._is_proven:
            if said != _WELCOME:
                raise PeerRefused("what was heard is no end of a greeting")
            self.is_welcome = True
            return b""
        challenge = _CHALLENGE.fullmatch(said)
        if challenge is None:
            raise PeerRefused("what was heard is no answer to a greeting")
        nonce, proof = challenge.groups()
        if not hmac.compare_digest(proof, _proof(self._secret, "server", self._wanted, nonce, self._channel)):
            raise PeerRefused("whoever answers does not know the secret of this cluster")
        self._is_proven = True
        return _line(_proof(self._secret, "client", self._wanted, nonce, self._channel))


def refusal(error: PeerRefused) -> bytes:
    """The line that tells the other why it is refused."""
    return _line(_REFUSED + str(error).encode("ascii", "replace"))


def _said(line: bytes) -> bytes:
    if not line.startswith(PREFIX):
        raise PeerRefused(f"a line of a greeting begins with {PREFIX.decode().rstrip()}")
    return line.removeprefix(PREFIX)


def _line(said: bytes) -> bytes:
    return PREFIX + said + b"\n"


def _proof(secret: bytes, side: str, wanted: bytes, nonce: bytes, channel: bytes) -> bytes:
    """What one side says of what both have said; no part but the last can have a newline in it."""
    said = b"\n".join([PREFIX + side.encode(), wanted, nonce, channel])
    return hmac.new(secret, said, hashlib.sha256).hexdigest().encode()
