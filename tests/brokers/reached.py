"""A bucket as one broker of a simulation reaches it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from penstock.storage.objects import ObjectStore, Outcome, Range, StoreUnavailable
from tests.brokers.schedule import Schedule


class Way(Protocol):
    """Between a broker and the bucket."""

    @property
    def is_cut(self) -> bool:
        """Whether nothing comes through."""


class Reached:
    """The bucket as one broker reaches it: each request takes time, before it is done and after."""

    def __init__(self, schedule: Schedule, way: Way, objects: ObjectStore) -> None:
        self._schedule, self._way, self._objects = schedule, way, objects

    @property
    def address(self) -> str:
        return self._objects.address

    def _go(self) -> None:
        self._schedule.wait()
        if self._way.is_cut:
            self._schedule.sleep(0.3)
            raise StoreUnavailable("the bucket cannot be reached")

    def _back(self) -> None:
        self._schedule.wait()
        if self._way.is_cut:
            raise StoreUnavailable("the answer was lost")

    def create(self, name: str, data: bytes) -> Outcome:
        try:
            self._go()
            outcome = self._objects.create(name, data)
            self._back()
        except StoreUnavailable:
            return Outcome.UNKNOWN
        return outcome

    def put(self, name: str, data: bytes) -> None:
        self._go()
        self._objects.put(name, data)
        self._back()

    def get(self, name: str) -> bytes | None:
        return self.get_many([name])[0]

    def get_many(self, names: Sequence[str]) -> list[bytes | None]:
        self._go()
        found = self._objects.get_many(names)
        self._back()
        return found

    def get_range(self, name: str, start: int, length: int) -> bytes | None:
        return self.get_ranges([Range(name, start, length)])[0]

    def get_ranges(self, ranges: Sequence[Range]) -> list[bytes | None]:
        self._go()
        found = self._objects.get_ranges(ranges)
        self._back()
        return found

    def list_folder(self, prefix: str) -> list[str]:
        self._go()
        found = self._objects.list_folder(prefix)
        self._back()
        return found

    def delete(self, names: Sequence[str]) -> None:
        self._go()
        self._objects.delete(names)
        self._back()

    def part(self, prefix: str) -> Reached:
        return Reached(self._schedule, self._way, self._objects.part(prefix))

    def list(self, prefix: str, after: str = "") -> list[str]:
        self._go()
        found = self._objects.list(prefix, after)
        self._back()
        return found
