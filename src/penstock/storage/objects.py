"""The object seam: everything that is asked of a bucket, which is less than buckets can do.

Names are relative, with `/`. What was put is there for every reader from then on. Safety rests on `create` alone: of
all that create one name, one succeeds, however often each of them has tried. Its outcome may be unknown: the request
may have been done, may be done later, or never. Whoever must know looks what is there; so objects say whose they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple, Protocol


class StoreUnavailable(OSError):
    """The store did not answer, or not with what was asked for: it may the next time."""


class SomeUnavailable(StoreUnavailable):
    """Some of several objects that were asked for at a time were not answered; what the others are, by their places."""

    def __init__(self, error: StoreUnavailable, answers: Mapping[int, bytes | None]) -> None:
        super().__init__(*error.args)
        self.answers = answers


def all_of(found: Sequence[bytes | StoreUnavailable | None]) -> list[bytes | None]:
    """What several requests of one moment came to; raises SomeUnavailable if one of them has failed."""
    failed = [answer for answer in found if isinstance(answer, StoreUnavailable)]
    answers = {place: answer for place, answer in enumerate(found) if not isinstance(answer, StoreUnavailable)}
    if failed:
        raise SomeUnavailable(failed[0], answers) from failed[0]
    return list(answers.values())


class Outcome(Enum):
    """What became of a create."""

    DONE = "done"
    EXISTS = "exists"
    """Something is there, or somebody else is creating it: look."""
    UNKNOWN = "unknown"


class Range(NamedTuple):
    """Bytes of an object."""

    name: str
    start: int
    length: int


class ObjectStore(Protocol):
    """A bucket, or a place in it. All but `create` raise StoreUnavailable where the outcome is not known."""

    @property
    def address(self) -> str:
        """Where it is, as people write it; no secrets."""

    def create(self, name: str, data: bytes) -> Outcome:
        """Make an object, unless there is one of that name."""

    def put(self, name: str, data: bytes) -> None:
        """Make an object, in place of any that has the name."""

    def get(self, name: str) -> bytes | None:
        """All of an object; None if there is none."""

    def get_many(self, names: Sequence[str]) -> list[bytes | None]:
        """Several objects at a time, in the order of their names; it may raise SomeUnavailable."""

    def get_range(self, name: str, start: int, length: int) -> bytes | None:
        """So many bytes of an object; fewer at its end, None if there is none."""

    def get_ranges(self, ranges: Sequence[Range]) -> list[bytes | None]:
        """Several such parts at a time, in their order; it may raise SomeUnavailable."""

    def list_folder(self, prefix: str) -> list[str]:
        """What follows a prefix that is empty or ends with `/`, up to the next one: objects and folders, sorted."""

    def list(self, prefix: str, after: str = "") -> list[str]:
        """All names that begin with the prefix and come behind another, sorted."""

    def delete(self, names: Sequence[str]) -> None:
        """Remove objects; one that is not there is no error."""

    def part(self, prefix: str) -> ObjectStore:
        """The names below a prefix, as a place of its own."""
