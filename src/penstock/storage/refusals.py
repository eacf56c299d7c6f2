"""Refusals of a storage: nothing was done and nothing is broken, so it can be retried later.

A full disk is one, and so is a process (or a machine) that has no file descriptor left. Every other `OSError` is a
failure, after which it is not known what is on the disk.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

from penstock.model.errors import DiskFull, Overloaded
from penstock.storage.objects import StoreUnavailable

_FULL = (errno.ENOSPC, errno.EDQUOT)
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


def is_refusal(error: OSError) -> bool:
    """Whether the error is a refusal."""
    return error.errno in _FULL or lacks_descriptors(error)


def lacks_descriptors(error: OSError) -> bool:
    """Whether there was no file descriptor left."""
    return error.errno in _NO_DESCRIPTORS


def refusal_of(error: OSError, what: str) -> DiskFull | Overloaded | None:
    """The error that callers get for a refusal, with what it means for them; None for a failure."""
    if error.errno in _FULL:
        return DiskFull(f"the disk is full: {what}")
    if lacks_descriptors(error):
        return Overloaded(f"too many files and connections are open: {what}")
    return None


@contextlib.contextmanager
def told_as_refusals(what: str) -> Iterator[None]:
    """Turn refusals of the storage into the errors that callers get; failures pass unchanged."""
    try:
        yield
    except OSError as error:
        refusal = refusal_of(error, what)
        if refusal is not None:
            raise refusal from error
        raise


@contextlib.contextmanager
def told_as_overload() -> Iterator[None]:
    """Turn the failure of a bucket that is only read, such as an archive, into an error to try again after."""
    try:
        yield
    except StoreUnavailable as error:
        raise Overloaded(f"{error.strerror or error}: try again later") from error
