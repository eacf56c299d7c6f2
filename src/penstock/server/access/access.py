"""Authentication: a secret gives a principal, for as long as its token is valid."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime

from penstock.model.errors import Unauthenticated
from penstock.server.access.principal import ANYBODY, Principal
from penstock.server.access.tokens import Signature, StoredToken, TokenFile, TokensDamaged, id_of
from penstock.server.settings.options import ServerConfig

_log = logging.getLogger("penstock.server")
_LOOK_S = 1.0  # how long the file is trusted to be the same


class _Valid:
    """A token that is in the file, with what is asked of it often."""

    __slots__ = ("expires_s", "principal", "token")

    def __init__(self, token: StoredToken) -> None:
        self.token = token
        self.principal = token.principal
        self.expires_s = None if token.expires is None else token.expires.timestamp()


class Access:
    """The tokens of a server as they are now; used on the server's event loop only."""

    def __init__(self, config: ServerConfig, now_s: Callable[[], float] = time.time) -> None:
        self.required = config.auth == "tokens"
        """Whether the server asks for tokens."""
        self._file = TokenFile(config.tokens_dir or config.data_dir)
        self._now_s = now_s
        self._valid: dict[str, _Valid] = {}  # by id
        self._signature: Signature = None
        self._looked_s = 0.0
        self._damage: str | None = None
        if self.required:
            self.read_again()
            if not self._valid and self._damage is None:
                _log.warning(
                    "auth is tokens and there is no token yet, so nobody gets in: "
                    "make the first with `penstock token create admin --scope admin --dir %s`",
                    config.tokens_dir or config.data_dir,
                )

    def authenticate(self, secret: str | None) -> Principal:
        """The principal of a secret; ANYBODY on a server that asks for none. Raises Unauthenticated."""
        if not self.required:
            return ANYBODY
        self._look()
        if secret is None or not secret:
            raise Unauthenticated("this server asks for a token, and none was given")
        identity = id_of(secret)
        if identity is None:
            raise Unauthenticated("this is no token of a Penstock server: they begin with pst_")
        if identity not in self._valid:
            self._look(now=True)  # it may just have been made
        valid = self._valid.get(identity)
        if valid is None or not valid.token.is_of(secret):
            raise Unauthenticated(self._damage or "the token is not valid: it is unknown here, or was revoked")
        self._check_time(valid)
        return valid.principal

    def log_in(self, secret: str | None, known: Principal | None, peer: str) -> Principal:
        """As `authenticate`, for a connection that stays open: it keeps the principal that it began with, if any."""
        try:
            principal = self.authenticate(secret)
        except Unauthenticated as error:
            _log.warning("a client was refused: %s", error, extra={"peer": peer})
            raise
        if known not in (None, principal):
            raise Unauthenticated("a connection keeps the token that it began with: connect anew with another")
        return principal

    def check(self, principal: Principal, *, now: bool = False) -> None:
        """Raise Unauthenticated if somebody who was let in would not be any more: for connections that stay open.

        With `now`, which is for whatever is about to be sent, the file is looked at whenever it was looked at last.
        """
        if principal.token is None:
            return
        self._look(now=now)
        valid = self._valid.get(principal.token)
        if valid is None or valid.principal != principal:
            raise Unauthenticated(self._damage or f"the token {principal.name} was revoked")
        self._check_time(valid)

    def is_valid(self, principal: Principal) -> bool:
        """Whether somebody who was let in would still be: for whatever is about to be sent."""
        try:
            self.check(principal, now=True)
        except Unauthenticated:
            return False
        return True

    def read_again(self) -> None:
        """Read the file now."""
        self._looked_s = time.monotonic()
        try:
            self._signature = self._file.signature()
            tokens = self._file.read()
        except (TokensDamaged, OSError) as error:
            self._valid, self._signature = {}, (-1,)  # it is read again when it is looked at again
            if self._damage is None:
                _log.error("nobody is let in, for the tokens cannot be read: %s", error)
            self._damage = "the server cannot read its tokens, and lets nobody in until it can: its log tells more"
            return
        if self._damage is not None:
            _log.info("the tokens can be read again")
            self._damage = None
        self._valid = {token.id: _Valid(token) for token in tokens}

    def _look(self, *, now: bool = False) -> None:
        """Read the file again if it has changed; looks at most once a second, unless `now` is set."""
        time_s = time.monotonic()
        if not now and time_s - self._looked_s < _LOOK_S:
            return
        self._looked_s = time_s
        try:
            changed = self._file.signature() != self._signature
        except OSError:
            changed = True
        if changed:
            self.read_again()

    def _check_time(self, valid: _Valid) -> None:
        if valid.expires_s is not None and self._now_s() >= valid.expires_s:
            when = datetime.fromtimestamp(valid.expires_s, UTC).isoformat(timespec="seconds")
            raise Unauthenticated(f"the token {valid.principal.name} expired at {when}")
