"""The tokens of a server, in a small file of its data directory: what each is for, and a hash of its secret.

The file may be changed while a server runs on the directory: it has a lock of its own, and the server notices.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from penstock.model.bounds import shown
from penstock.model.errors import InvalidArgument, PenstockError
from penstock.model.options import duration
from penstock.model.tokens import NewToken, TokenInfo
from penstock.model.units import Duration
from penstock.server.access.principal import Principal, Scope

FILE = "tokens.json"
_LOCK, _TEMPORARY = "tokens.lock", "tokens.json.tmp"
FILES = (FILE, _LOCK, _TEMPORARY)
"""What tokens put into a data directory, perhaps before a broker does."""
_PREFIX = "pst"
_SECRET = re.compile(r"pst_([0-9a-f]{12})_[A-Za-z0-9_-]{43}", re.ASCII)
_ID = re.compile(r"[0-9a-f]{12}")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PATTERN = re.compile(r"[A-Za-z0-9._*?-]{1,200}")
_FILE_BYTES_MAX = 16 << 20
_LONGEST_S = 100 * 365 * 86_400.0

Signature = tuple[int, ...] | None
"""What tells whether the file is another one than before; None: there is none."""


class TokensDamaged(PenstockError):
    """The file of the tokens cannot be read: until it can, nobody is let in."""


class StoredToken(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token as it is kept."""

    id: str
    name: str
    sha256: str
    """Of the whole secret, in hexadecimal. The secret is random, so that it needs no salt and no slow hash."""
    scopes: tuple[Scope, ...]
    topics: tuple[str, ...]
    created: datetime
    expires: datetime | None = None

    def is_of(self, secret: str) -> bool:
        """Whether this is its secret, found out in the same time whatever is given."""
        return hmac.compare_digest(_hash_of(secret), self.sha256)

    @property
    def principal(self) -> Principal:
        """Whoever shows it."""
        return Principal(self.name, frozenset(self.scopes), self.topics, self.id)

    @property
    def info(self) -> TokenInfo:
        """What is shown of it."""
        return TokenInfo(self.id, self.name, self.scopes, self.topics, self.created, self.expires)


class _Contents(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    tokens: list[StoredToken]


class TokenFile:
    """The tokens of one data directory."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = Path(directory)
        self.path = self._directory / FILE

    def signature(self) -> Signature:
        """Another value whenever the file was changed."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)

    def read(self) -> list[StoredToken]:
        """All tokens; none if there is no file. Raises TokensDamaged for anything that is not just as it should be."""
        try:
            with self.path.open("rb") as file:
                content = file.read(_FILE_BYTES_MAX + 1)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise TokensDamaged(f"{self.path} cannot be read: {error.strerror}") from error
        try:
            found = msgspec.json.decode(content, type=_Contents)
            if found.version != 1:
                raise ValueError(f"it is of version {found.version}, and version 1 is known here")  # noqa: TRY301
            _check_stored(found.tokens)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise TokensDamaged(f"{self.path} is not a file of tokens: {error}") from error
        return found.tokens

    def create(
        self, name: str, scopes: Sequence[str], topics: Sequence[str] = ("*",), expires_in: Duration | None = None
    ) -> NewToken:
        """Make a token; its secret is in what is returned and nowhere else."""
        if not isinstance(name, str) or not _NAME.fullmatch(name) or _ID.fullmatch(name):
            raise InvalidArgument(f"{shown(name)} is not the name of a token: use 1 to 64 letters, digits, '_' and '-'")
        checked = _check_scopes(scopes)
        patterns = _check_patterns(topics)
        life_s = None if expires_in is None else duration(0.001)(expires_in)
        if life_s is not None and life_s > _LONGEST_S:
            raise InvalidArgument(f"{shown(expires_in)} is too long for a token: give up to a hundred years, or no end")
        now = datetime.now(UTC)
        with self._changing() as tokens:
            if any(token.name == name for token in tokens):
                raise InvalidArgument(f"there is a token {shown(name)} already: revoke it first, or give another name")
            identity = secrets.token_hex(6)
            secret = f"{_PREFIX}_{identity}_{secrets.token_urlsafe(32)}"
            expires = None if life_s is None else now + timedelta(seconds=life_s)
            token = StoredToken(identity, name, _hash_of(secret), checked, patterns, now, expires)
            tokens.append(token)
        return NewToken(token.info, secret)

    def revoke(self, token: str) -> TokenInfo:
        """Take a token away, by its id or name."""
        with self._changing() as tokens:
            found = [known for known in tokens if token in (known.id, known.name)]
            if not found:
                raise InvalidArgument(
                    f"there is no token {shown(token)}: give the id or the name of one that is listed"
                )
            tokens.remove(found[0])
        return found[0].info

    @contextlib.contextmanager
    def _changing(self) -> Iterator[list[StoredToken]]:
        """The tokens, to be changed by one at a time; written when that is over."""
        self._directory.mkdir(0o700, parents=True, exist_ok=True)
        with self._open(_LOCK, os.O_RDWR | os.O_CREAT) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            tokens = self.read()
            yield tokens
            self._write(msgspec.json.format(msgspec.json.encode(_Contents(1, tokens)), indent=1) + b"\n")

    def _write(self, content: bytes) -> None:
        """Replace the file: after any crash it is what it was before or what it is now."""
        with contextlib.suppress(FileNotFoundError):
            (self._directory / _TEMPORARY).unlink()
        with self._open(_TEMPORARY, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as file:
            with open(file, "wb", closefd=False) as stream:
                stream.write(content)
            os.fsync(file)
        (self._directory / _TEMPORARY).replace(self.path)
        with self._open(".", os.O_RDONLY | os.O_DIRECTORY) as directory:
            os.fsync(directory)

    @contextlib.contextmanager
    def _open(self, name: str, flags: int) -> Iterator[int]:
        descriptor = os.open(self._directory / name, flags | os.O_CLOEXEC, 0o600)
        try:
            if os.geteuid() == 0:  # whoever owns the directory runs the server, which must be able to read it
                owner = self._directory.stat()
                os.fchown(descriptor, owner.st_uid, owner.st_gid)
            yield descriptor
        finally:
            os.close(descriptor)


def id_of(secret: str) -> str | None:
    """The id in a secret; None: it is no secret of a token at all."""
    found = _SECRET.fullmatch(secret)
    return None if found is None else found[1]


def _hash_of(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


def _check_scopes(scopes: object) -> tuple[Scope, ...]:
    known = ", ".join(Scope)
    if isinstance(scopes, str) or not isinstance(scopes, Sequence) or not scopes:
        raise InvalidArgument(f"say what the token is for: one or more of the scopes {known}")
    for scope in scopes:
        if scope not in list(Scope):
            raise InvalidArgument(f"{shown(scope)} is not a scope: there are {known}")
    return tuple(sorted({Scope(scope) for scope in scopes}))


def _check_patterns(patterns: object) -> tuple[str, ...]:
    if isinstance(patterns, str) or not isinstance(patterns, Sequence) or not patterns:
        raise InvalidArgument("give one or more patterns of topics, such as 'orders.*', or '*' for all")
    for pattern in patterns:
        if not isinstance(pattern, str) or not _PATTERN.fullmatch(pattern):
            raise InvalidArgument(
                f"{shown(pattern)} is not a pattern of topics: use the letters of topics, '*' for any and '?' for one"
            )
    return ("*",) if "*" in patterns else tuple(dict.fromkeys(patterns))


def _check_stored(tokens: list[StoredToken]) -> None:
    """Raise ValueError unless each token is one that could have been made here."""
    for token in tokens:
        if not _ID.fullmatch(token.id) or not _NAME.fullmatch(token.name) or _ID.fullmatch(token.name):
            raise ValueError(f"{token.id!r:.80} ({token.name!r:.80}) is no id and name of a token")
        if not re.fullmatch(r"[0-9a-f]{64}", token.sha256):
            raise ValueError(f"the hash of {token.name} is none")
        if token.created.tzinfo is None or (token.expires is not None and token.expires.tzinfo is None):
            raise ValueError(f"the times of {token.name} have no time zone")
        _check_scopes(token.scopes)
        _check_patterns(token.topics)
    for what, count in (("id", len({token.id for token in tokens})), ("name", len({token.name for token in tokens}))):
        if count < len(tokens):
            raise ValueError(f"two tokens have the same {what}")
