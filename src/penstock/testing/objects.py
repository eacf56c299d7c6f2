"""A bucket in memory, and one that fails as real ones do.

    store = FaultyObjects(seed=7)
    ...                           # creates are done and say nothing, are done late, or meet a conflict; puts too
    store.is_calm = True          # from now on everything is answered

Reads are strong, as those of real buckets are: what was done is there for everybody. `cut_off` is a bucket that cannot
be reached.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from functools import partial

from penstock.storage.objects import Outcome, Range, StoreUnavailable, all_of

_OFTEN, _LATE_MAX = 0.05, 60


class MemoryObjects:
    """A bucket in memory."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.prefix = ""
        self._creating = threading.Lock()

    @property
    def address(self) -> str:
        return f"memory:{self.prefix}".rstrip("/")

    def create(self, name: str, data: bytes) -> Outcome:
        with self._creating:
            if self.prefix + name in self.objects:
                return Outcome.EXISTS
            self.objects[self.prefix + name] = data
            return Outcome.DONE

    def put(self, name: str, data: bytes) -> None:
        self.objects[self.prefix + name] = data

    def get(self, name: str) -> bytes | None:
        return self.objects.get(self.prefix + name)

    def get_many(self, names: Sequence[str]) -> list[bytes | None]:
        return [self.get(name) for name in names]

    def get_range(self, name: str, start: int, length: int) -> bytes | None:
        data = self.get(name)
        return None if data is None else data[start : start + length]

    def get_ranges(self, ranges: Sequence[Range]) -> list[bytes | None]:
        return [self.get_range(*one) for one in ranges]

    def list_folder(self, prefix: str) -> list[str]:
        return sorted({name.removeprefix(prefix).partition("/")[0] for name in self.list(prefix)})

    def list(self, prefix: str, after: str = "") -> list[str]:
        whole = self.prefix + prefix
        names = [name.removeprefix(self.prefix) for name in sorted(self.objects.copy()) if name.startswith(whole)]
        return [name for name in names if name > after]

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            self.objects.pop(self.prefix + name, None)

    def part(self, prefix: str) -> MemoryObjects:
        part = MemoryObjects()
        part.objects, part.prefix, part._creating = self.objects, self.prefix + prefix, self._creating
        return part


class FaultyObjects(MemoryObjects):
    """A bucket whose requests fail, or seem to; all choices come from a seed."""

    def __init__(self, seed: int = 0, often: float = _OFTEN) -> None:
        """`often`: how probable each fault of a request is."""
        super().__init__()
        self.random = random.Random(seed)
        self.often = often
        self.is_calm = False
        self.cut_off = False
        self.requests = 0
        self._late: list[tuple[int, Callable[[], object]]] = []  # when, by number of request

    def create(self, name: str, data: bytes) -> Outcome:
        try:
            self._begin()
        except StoreUnavailable:
            return Outcome.UNKNOWN
        do = super().create
        match self._fault(4):
            case 1:  # it was done; nobody says so
                do(name, data)
                return Outcome.UNKNOWN
            case 2:
                self._do_late(lambda: do(name, data))
                return Outcome.UNKNOWN
            case 3:
                return Outcome.UNKNOWN
            case 4:  # 409: somebody else is creating it, or was
                return Outcome.EXISTS
        return do(name, data)

    def put(self, name: str, data: bytes) -> None:
        self._begin()
        do = super().put
        match self._fault(2):
            case 1:
                do(name, data)
                raise StoreUnavailable("503: it was put, and nobody says so")
            case 2:
                self._do_late(lambda: do(name, data))
                raise StoreUnavailable("no answer in time: it is put later")
        do(name, data)

    def get(self, name: str) -> bytes | None:
        self._read()
        return super().get(name)

    def get_many(self, names: Sequence[str]) -> list[bytes | None]:
        return all_of([self._answer(partial(self.get, name)) for name in names])

    def get_ranges(self, ranges: Sequence[Range]) -> list[bytes | None]:
        return all_of([self._answer(partial(self.get_range, *one)) for one in ranges])

    def _answer(self, request: Callable[[], bytes | None]) -> bytes | StoreUnavailable | None:
        try:
            return request()
        except StoreUnavailable as error:
            return error

    def list(self, prefix: str, after: str = "") -> list[str]:
        self._read()
        return super().list(prefix, after)

    def delete(self, names: Sequence[str]) -> None:
        self._begin()
        do = super().delete
        match self._fault(2):
            case 1:
                do(names[: len(names) // 2])
                raise StoreUnavailable("503: some were removed")
            case 2:
                self._do_late(lambda: do(names))
                raise StoreUnavailable("no answer in time: they are removed later")
        do(names)

    def _read(self) -> None:
        self._begin()
        if self._fault(1):
            raise StoreUnavailable("503: slow down")

    def _begin(self) -> None:
        """Count a request; what was to be done before it is done."""
        self.requests += 1
        if self.cut_off:
            raise StoreUnavailable("the bucket cannot be reached")
        due = [do for when, do in self._late if when <= self.requests or self.is_calm]
        self._late = [] if self.is_calm else [late for late in self._late if late[0] > self.requests]
        for do in due:
            do()

    def _fault(self, kinds: int) -> int:
        """Which of so many faults happens; 0: none."""
        if self.is_calm or not self.often:
            return 0
        number = int(self.random.random() / self.often) + 1
        return number if number <= kinds else 0

    def _do_late(self, do: Callable[[], object]) -> None:
        self._late.append((self.requests + self.random.randint(1, _LATE_MAX), do))
