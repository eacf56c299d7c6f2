"""Errors as one line with a hint, and the exit code of each kind."""

from __future__ import annotations

from typing import NamedTuple

import typer

from penstock.cli.terminal import ERROR, NOTE, echo
from penstock.model.bounds import nearest

REFUSED = 1
USAGE = 2
UNREACHABLE = 3
INTERRUPTED = 130

Mistake: type[Exception] = typer.BadParameter.__mro__[2]
"""The base of everything that is wrong with a command line, wherever typer keeps it."""


class CommandError(Exception):
    """An error that a command finds by itself."""

    def __init__(self, text: str, hint: str, code: int = USAGE) -> None:
        super().__init__(text)
        self.hint = hint
        self.code = code


class Told(NamedTuple):
    """An error as it is shown."""

    text: str
    hint: str
    code: int


_HINTS: dict[str, tuple[str, int]] = {
    "DirectoryLocked": (
        "if that is a server, use --server instead of --dir; else wait until it is closed",
        UNREACHABLE,
    ),
    "ConnectionLost": ("start a server with `penstock serve DIR`, or work on a directory with --dir DIR", UNREACHABLE),
    "TlsFailed": ("see --tls, --ca, and --cert with --cert-key", UNREACHABLE),
    "RequestTimeout": ("the server may be busy: see whether it was done, then try again", UNREACHABLE),
    "ConnectionError": ("start a server with `penstock serve DIR`, or work on a directory with --dir DIR", UNREACHABLE),
    "TimeoutError": ("start a server with `penstock serve DIR`, or work on a directory with --dir DIR", UNREACHABLE),
    "LimitExceeded": ("the limit is an option of the topic or of the broker", REFUSED),
    "TopicNotFound": ("`penstock topic list` shows what is there", REFUSED),
    "TopicExists": ("change its options with `penstock topic set`", REFUSED),
    "GroupNotFound": ("`penstock group list` shows what is there", REFUSED),
    "GroupInUse": ("`penstock group show` tells who uses it; a replay needs a new name", REFUSED),
    "MessageNotFound": ("`penstock topic show` tells which offsets are kept", REFUSED),
    "ScheduleNotFound": ("`penstock schedule list` shows what is there", REFUSED),
    "Overloaded": ("nothing of it was done: try again later", REFUSED),
    "DiskFull": ("make room on the broker's disk; reading goes on", REFUSED),
    "StorageFailed": ("look at the broker's disk, then start the broker again", REFUSED),
    "CorruptData": ("close the broker and run `penstock check DIR`", REFUSED),
    "Unauthenticated": ("give a token with --token or PENSTOCK_TOKEN; `penstock token create` makes one", REFUSED),
    "Forbidden": ("`penstock token list` tells what tokens are for; `penstock token create` makes others", REFUSED),
    "TokensDamaged": ("put the file back as it was, or remove it and make new tokens", REFUSED),
    "LeaseLost": ("it comes again", REFUSED),
    "PenstockError": ("`penstock status` may tell more", REFUSED),
    "OSError": ("look at the name, at the permissions and at the disk", REFUSED),
}


def explain(error: Exception, command: str) -> Told:
    """The error of a command that ran."""
    if isinstance(error, CommandError):
        return Told(str(error), error.hint, error.code)
    text = "; ".join([_plain(error), *getattr(error, "__notes__", ())])
    kinds = [kind.__name__ for kind in type(error).__mro__]
    if "InvalidArgument" in kinds and "LimitExceeded" not in kinds:
        return Told(text, f"`{command} --help`", USAGE)
    return Told(text, *next(_HINTS[kind] for kind in kinds if kind in _HINTS))


def explain_mistake(error: Exception) -> Told:
    """What is wrong with a command line that could not be read."""
    text = str(getattr(error, "message", error) or "")
    possible = getattr(error, "possibilities", None)
    if not possible:
        text = error.format_message()  # type: ignore[attr-defined]
    context = getattr(error, "ctx", None)
    hint = f"`{context.command_path if context is not None else 'penstock'} --help`"
    if possible:
        near = nearest(getattr(error, "option_name", ""), possible) or sorted(possible)
        hint = f"did you mean {near[0]}? See {hint}"
    return Told(text.rstrip("."), hint, getattr(error, "exit_code", USAGE))


def tell(told: Told) -> None:
    """Write it to standard error."""
    echo(f"{' '.join(told.text.split())} (hint: {told.hint})", err=True, mark=ERROR)


def warn(text: str) -> None:
    """Write something that people should know to standard error."""
    echo(text, err=True, mark=NOTE)


def _plain(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror
    return str(error).partition(": a data directory has one owner")[0] or type(error).__name__
