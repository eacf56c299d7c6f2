"""Bytes in, memory out: how much memory a request may take, the same on every port.

**The rule.** A client that is not authenticated yet costs a small constant. A request of n bytes never takes more than
`MEMORY_FACTOR` × n + `MEMORY_BYTES`, whatever it contains. This holds because

1. permission comes first: a request that is not allowed is refused before its body is decoded;
2. a request that does not publish has at most `REQUEST_BYTES_MAX`, or the limit of its route;
3. up to `UNCOUNTED_BYTES`, the densest thing that can be written (an empty map: one byte, 72 as an object) stays within
   the rule. Above, elements are counted before any is made (`shapes`), and what would break the rule is refused;
4. a body of more than `ON_LOOP_BYTES_MAX` is decoded in a thread, so that the event loop is not blocked;
5. errors repeat only a part of a long text (`shown`), and names are compared with others only if they are short
   (`nearest`).
"""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable

from penstock.model.errors import LimitExceeded

MEMORY_FACTOR = 16
MEMORY_BYTES = 32 << 20
UNCOUNTED_BYTES = 512 << 10
ON_LOOP_BYTES_MAX = 1 << 20
REQUEST_BYTES_MAX = 1 << 20
LARGE_REQUEST_BYTES_MAX = 17 << 20
"""For a request that may name all messages of a topic, or has the value of one: 16 MiB and some overhead."""
MANY_NAMES_BYTES_MAX = 4 << 20
"""For a request that settles messages by leases or receipts; by HTTP also for a schedule with its value."""
BATCH_MESSAGES_MAX = 1_000_000
BATCH_HEADERS_MAX = 1_000_000
TEXT_MAX = 64
"""The most characters of a number, a duration, a size or a time."""
_SHOWN_MAX = 80
_ERROR_MAX = 10_000
_NAME_MAX = 64

_short = reprlib.Repr()
_short.maxlevel = 3
_short.maxlist = _short.maxtuple = _short.maxdict = _short.maxset = _short.maxfrozenset = 10
_short.maxstring = _short.maxother = _SHOWN_MAX


def check_memory(what: str, size_bytes: int, memory_bytes: int) -> None:
    """Raise LimitExceeded if decoding a request of this size would take more memory than the rule allows."""
    if memory_bytes > MEMORY_FACTOR * size_bytes + MEMORY_BYTES:
        raise LimitExceeded(f"{what} has very many small parts for its size: send it in several requests")


def check_size(what: str, size_bytes: int, limit_bytes: int) -> None:
    """Raise LimitExceeded if something is too large."""
    if size_bytes > limit_bytes:
        raise LimitExceeded(f"{what} has {size_bytes:,} bytes; the limit is {limit_bytes:,}")


def shown(value: object, most: int = _SHOWN_MAX) -> str:
    """A value from outside, shortened for an error message."""
    if isinstance(value, str):
        return repr(value) if len(value) <= most else repr(f"{value[:most]}…")
    if isinstance(value, bytes):
        return repr(value) if len(value) <= most else f"{value[:most]!r}…"
    if isinstance(value, int) and value.bit_length() > 3 * most:  # more digits than are shown
        return f"a number of {value.bit_length()} bits"
    try:
        text = _short.repr(value)
    except ValueError:  # a number with more digits than Python writes
        text = f"something of type {type(value).__name__}"
    return text if len(text) <= 2 * most else f"{text[: 2 * most]}…"


def error_text(error: BaseException) -> str:
    """The text of an error, shortened, as it is sent to clients and logged."""
    text = str(error)
    return text if len(text) <= _ERROR_MAX else f"{text[:_ERROR_MAX]}…"


def nearest(name: object, known: Iterable[str], most: int = 1) -> list[str]:
    """The known names that are most similar to an unknown one; none if that is too long to be a typing error."""
    if not isinstance(name, str) or len(name) > _NAME_MAX:
        return []
    return difflib.get_close_matches(name, known, n=most)
