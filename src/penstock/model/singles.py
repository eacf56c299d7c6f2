"""Messages that are published one by one, checked; and what becomes one batch of them."""

from __future__ import annotations

from array import array
from collections.abc import Mapping

import msgspec

from penstock.model.batch import Batch
from penstock.model.errors import InvalidArgument
from penstock.model.names import NORMAL


class Single(msgspec.Struct, frozen=True, gc=False):
    """One checked message."""

    value: bytes
    key: bytes | None = None
    headers: dict[str, str] | None = None
    priority: int = NORMAL
    deliver_at_us: int = 0  # 0: at once
    dedupe_id: str | None = None
    expires_at_us: int = 0  # 0: never

    @property
    def is_plain(self) -> bool:
        """Whether it has nothing but a value."""
        return (
            self.key is None
            and self.headers is None
            and self.priority == NORMAL
            and self.dedupe_id is None
            and not self.deliver_at_us
            and not self.expires_at_us
        )

    def size_bytes(self) -> int:
        """Its size for the limits of batches and buffers."""
        size = len(self.value)
        if self.key is not None:
            size += len(self.key)
        if self.headers is not None:
            size += headers_bytes(self.headers)
        return size


class SingleRun(msgspec.Struct):
    """Messages that one producer published one by one, with consecutive sequences, and that have nothing but values."""

    topic: str
    producer: str
    sequence: int
    """Of the first one."""
    name: str | None
    """Whom traces show as their producer."""
    values: list[bytes]


def batch_of(singles: list[Single]) -> Batch:
    """Checked messages as one batch; uniform columns are left out."""
    if not singles:
        return Batch([])
    values, keys, headers, priorities, due, dedupe_ids, expiry = map(
        list, zip(*map(msgspec.structs.astuple, singles), strict=True)
    )
    uniform = min(priorities) == max(priorities)
    return Batch(
        values=values,
        keys=None if keys.count(None) == len(keys) else keys,
        headers=headers if any(headers) else None,
        priority=priorities[0] if uniform else NORMAL,
        priorities=None if uniform else bytes(priorities),
        deliver_at=array("q", due) if any(due) else None,
        expires_at=array("q", expiry) if any(expiry) else None,
        dedupe_ids=None if dedupe_ids.count(None) == len(dedupe_ids) else dedupe_ids,
    )


def headers_bytes(headers: Mapping[str, str] | None) -> int:
    """The size of headers for the limits."""
    if not headers:
        return 0
    try:
        return len("".join((*headers, *headers.values())).encode())
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"headers must be text that UTF-8 can hold: {error}") from error
