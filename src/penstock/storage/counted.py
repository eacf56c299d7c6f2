"""What is asked of a bucket, counted: how many requests with what outcome, how long they took, and their bytes."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from penstock.model.clock import SystemClock
from penstock.model.histograms import REQUEST_S, Histogram
from penstock.storage.objects import ObjectStore, Outcome, Range, SomeUnavailable
from penstock.storage.persistent import Pause

_PAGE = 1000  # names that a bucket lists or removes by one request
_SHARD = re.compile(r"shards/\d+/")
_KINDS = {
    "journal": "piece",
    "bundles": "bundle",
    "checkpoints": "checkpoint",
    "topics": "segment",
    "members": "member",
}
DONE, MISSING, FAILED = "done", "missing", "failed"
T = TypeVar("T")


def kind_of(name: str) -> str:
    """What an object is, by its name in the bucket; a seal has the name of a piece, and counts as one."""
    folder = _SHARD.sub("", name, count=1).partition("/")[0]
    return _KINDS.get(folder, "segment" if name.endswith(".parquet") else "other")


class BucketMeter:
    """Counts that only grow, of all that one process asks of its bucket; from any thread."""

    def __init__(self, monotonic_s: Callable[[], float] = SystemClock.monotonic_s) -> None:
        self.monotonic_s = monotonic_s
        self._lock = threading.Lock()
        self.requests: Counter[tuple[str, str]] = Counter()
        """By operation and outcome."""
        self.bytes: Counter[tuple[str, str]] = Counter()
        """By direction (`sent`, `received`) and kind of object."""
        self.request_s: dict[str, Histogram] = {}
        """By operation; objects that were read at once count as one wait."""
        self.retries = 0
        self.cache_hits = self.cache_misses = self.cache_bytes = 0

    def counting(self, pause: Pause) -> Pause:
        """The same pause, each of which is counted: there is one before a request is made again."""

        def count(attempt: int) -> None:
            with self._lock:
                self.retries += 1
            pause(attempt)

        return count

    def asked(self, operation: str, outcomes: Iterable[str], seconds: float) -> None:
        """Requests were answered, or not, at the same time."""
        with self._lock:
            for outcome in outcomes:
                self.requests[operation, outcome] += 1
            self.request_s.setdefault(operation, Histogram(REQUEST_S)).observe(seconds)

    def looked_up(self, hits: int, misses: int) -> None:
        """Ranges were looked for in the cache."""
        with self._lock:
            self.cache_hits += hits
            self.cache_misses += misses

    def moved(self, direction: str, name: str, size_bytes: int) -> None:
        """Bytes of an object were sent or received."""
        with self._lock:
            self.bytes[direction, kind_of(name)] += size_bytes


class CountedObjects:
    """A bucket, or a place in one, of which a meter hears."""

    def __init__(self, objects: ObjectStore, meter: BucketMeter, prefix: str = "") -> None:
        """`prefix`: where this place is in the bucket."""
        self._objects, self._meter, self._prefix = objects, meter, prefix

    @property
    def address(self) -> str:
        return self._objects.address

    def create(self, name: str, data: bytes) -> Outcome:
        outcome = self._ask("create", lambda: self._objects.create(name, data), lambda outcome: [outcome.value])
        if outcome == Outcome.DONE:
            self._moved("sent", name, data)
        return outcome

    def put(self, name: str, data: bytes) -> None:
        self._ask("put", lambda: self._objects.put(name, data), _done)
        self._moved("sent", name, data)

    def get(self, name: str) -> bytes | None:
        return self.get_many([name])[0]

    def get_many(self, names: Sequence[str]) -> list[bytes | None]:
        return self._ask_many(lambda: self._objects.get_many(names), names)

    def get_range(self, name: str, start: int, length: int) -> bytes | None:
        return self.get_ranges([Range(name, start, length)])[0]

    def get_ranges(self, ranges: Sequence[Range]) -> list[bytes | None]:
        return self._ask_many(lambda: self._objects.get_ranges(ranges), [one.name for one in ranges])

    def _ask_many(self, request: Callable[[], list[bytes | None]], names: Sequence[str]) -> list[bytes | None]:
        """The answers to requests for objects of these names that are made at once."""
        started_s = self._meter.monotonic_s()
        answers: Mapping[int, bytes | None] = {}
        try:
            found = request()
        except SomeUnavailable as error:
            answers = error.answers
            raise
        else:
            answers = dict(enumerate(found))
            return found
        finally:
            told = [MISSING if data is None else DONE for data in answers.values()]
            told += [FAILED] * (len(names) - len(answers))
            self._meter.asked("get", told, self._meter.monotonic_s() - started_s)
            for place, data in answers.items():
                self._moved("received", names[place], data)

    def list_folder(self, prefix: str) -> list[str]:
        return self._ask("list", lambda: self._objects.list_folder(prefix), _pages)

    def list(self, prefix: str, after: str = "") -> list[str]:
        return self._ask("list", lambda: self._objects.list(prefix, after), _pages)

    def delete(self, names: Sequence[str]) -> None:
        self._ask("delete", lambda: self._objects.delete(names), lambda _: _pages(names))

    def part(self, prefix: str) -> CountedObjects:
        return CountedObjects(self._objects.part(prefix), self._meter, self._prefix + prefix)

    def _ask(self, operation: str, request: Callable[[], T], outcomes: Callable[[T], Sequence[str]]) -> T:
        started_s = self._meter.monotonic_s()
        told: Sequence[str] = [FAILED]
        try:
            answer = request()
            told = outcomes(answer)
            return answer
        finally:
            self._meter.asked(operation, told, self._meter.monotonic_s() - started_s)

    def _moved(self, direction: str, name: str, data: bytes | None) -> None:
        if data is not None:
            self._meter.moved(direction, self._prefix + name, len(data))


def _done(_: object) -> list[str]:
    return [DONE]


def _pages(names: Sequence[str]) -> list[str]:
    """One request for each page of names, and one that finds out that there is none."""
    return [DONE] * max(1, -(-len(names) // _PAGE))
