"""A bucket that is asked again until it answers."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import TypeVar

from penstock.storage.objects import ObjectStore, Outcome, Range, SomeUnavailable, StoreUnavailable

Pause = Callable[[int], None]
"""Waits the longer, the more often in a row something has failed; what it raises is the end of it."""
T = TypeVar("T")


class PersistentObjects:
    """Repeats whatever is the same when it is done twice. A create is not: its outcome is told as it is."""

    def __init__(self, objects: ObjectStore, pause: Pause) -> None:
        self._objects, self._pause = objects, pause

    @property
    def address(self) -> str:
        return self._objects.address

    def create(self, name: str, data: bytes) -> Outcome:
        return self._objects.create(name, data)

    def make(self, name: str, data: bytes) -> None:
        """Create an object that nobody else makes; raises FileExistsError where another one has its name."""
        attempt = 0
        while self._objects.create(name, data) != Outcome.DONE:
            there = self.get(name)
            if there is not None:
                if there != data:
                    raise FileExistsError(errno.EEXIST, "another object has this name", name)
                return
            attempt += 1
            self._pause(attempt)

    def put(self, name: str, data: bytes) -> None:
        self._ask(lambda: self._objects.put(name, data))

    def get(self, name: str) -> bytes | None:
        return self._ask(lambda: self._objects.get(name))

    def get_many(self, names: Sequence[str]) -> list[bytes | None]:
        return self._ask_many(self._objects.get_many, names)

    def get_range(self, name: str, start: int, length: int) -> bytes | None:
        return self._ask(lambda: self._objects.get_range(name, start, length))

    def get_ranges(self, ranges: Sequence[Range]) -> list[bytes | None]:
        return self._ask_many(self._objects.get_ranges, ranges)

    def _ask_many(
        self, request: Callable[[Sequence[T]], list[bytes | None]], wanted: Sequence[T]
    ) -> list[bytes | None]:
        """Only what was not answered is asked for again: a bucket that is slowed down gets less to do."""
        answers: dict[int, bytes | None] = {}
        attempt = 0
        while len(answers) < len(wanted):
            left = [place for place in range(len(wanted)) if place not in answers]
            try:
                answers.update(zip(left, request([wanted[place] for place in left]), strict=True))
            except SomeUnavailable as error:
                answers.update((left[place], data) for place, data in error.answers.items())
                attempt = 1 if error.answers else attempt + 1
                self._pause(attempt)
            except StoreUnavailable:
                attempt += 1
                self._pause(attempt)
        return [answers[place] for place in range(len(wanted))]

    def list_folder(self, prefix: str) -> list[str]:
        return self._ask(lambda: self._objects.list_folder(prefix))

    def list(self, prefix: str, after: str = "") -> list[str]:
        return self._ask(lambda: self._objects.list(prefix, after))

    def delete(self, names: Sequence[str]) -> None:
        self._ask(lambda: self._objects.delete(names))

    def part(self, prefix: str) -> ObjectStore:
        return PersistentObjects(self._objects.part(prefix), self._pause)

    def _ask(self, request: Callable[[], T]) -> T:
        attempt = 0
        while True:
            try:
                return request()
            except StoreUnavailable:
                attempt += 1
                self._pause(attempt)
