"""What is kept near of a bucket: it is what the bucket has, it is bounded, and what is damaged is read again."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.model.errors import InvalidArgument
from penstock.storage.buckets import open_objects
from penstock.storage.counted import BucketMeter
from penstock.storage.object_cache import ObjectCache
from penstock.storage.objects import ObjectStore, Range, StoreUnavailable
from penstock.testing import FaultyObjects, MemoryObjects
from penstock.testing.seaweed import BUCKET, Seaweed

KINDS = ["memory", "directory"]


class Asked(MemoryObjects):
    """A bucket that notes what it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[Range] = Counter()
        self.at_once: list[int] = []

    def get_ranges(self, ranges: Sequence[Range]) -> list[bytes | None]:
        self.asked.update(ranges)
        self.at_once.append(len(ranges))
        return super().get_ranges(ranges)


@pytest.fixture(params=KINDS)
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectCache:
    return ObjectCache(100_000, tmp_path / "cache" if request.param == "directory" else None)


def one(cache: ObjectCache, objects: ObjectStore, *range_: str | int) -> bytes | None:
    name, start, length = range_
    assert isinstance(name, str)
    return cache.read(objects, [Range(name, int(start), int(length))])[0]


def files(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache").iterdir(), key=lambda path: path.stat().st_mtime_ns)


def test_what_was_read_is_not_asked_for_again(cache: ObjectCache) -> None:
    objects = Asked()
    objects.put("a", bytes(range(100)))
    for _ in range(3):
        assert one(cache, objects, "a", 10, 5) == bytes(range(10, 15))
    assert one(cache, objects, "a", 10, 6) == bytes(range(10, 16))
    assert objects.asked == {Range("a", 10, 5): 1, Range("a", 10, 6): 1}


def test_what_is_not_there_or_ends_early_is_asked_for_again(cache: ObjectCache) -> None:
    objects = Asked()
    assert one(cache, objects, "a", 0, 5) is None
    objects.put("a", b"abc")
    assert one(cache, objects, "a", 0, 5) == b"abc"
    objects.put("a", b"abcde")
    assert one(cache, objects, "a", 0, 5) == b"abcde"


def test_places_of_the_same_names_are_told_apart(cache: ObjectCache) -> None:
    objects = MemoryObjects()
    for number in (1, 2):
        objects.part(f"shards/{number}/").put("a", b"%d" % number)
    assert [one(cache, objects.part(f"shards/{number}/"), "a", 0, 1) for number in (1, 2)] == [b"1", b"2"]


def test_many_ranges_are_asked_for_at_a_time_and_not_all(cache: ObjectCache) -> None:
    objects = Asked()
    objects.put("a", bytes(200))
    ranges = [Range("a", start, 1) for start in range(0, 200, 2)]
    one(cache, objects, "a", 50, 1)
    assert cache.read(objects, ranges) == [b"\0"] * 100
    assert objects.at_once == [1, 32, 32, 32, 3]


def test_ranges_that_follow_one_another_are_asked_for_together(cache: ObjectCache) -> None:
    objects = Asked()
    for name in ("a", "b"):
        objects.put(name, bytes(range(100)))
    one(cache, objects, "a", 50, 10)
    ranges = [Range(name, start, 10) for name in ("a", "b", "gone") for start in range(0, 100, 10)]
    expected = [bytes(range(start, start + 10)) for start in range(0, 100, 10)]
    assert cache.read(objects, ranges) == [*expected, *expected, *[None] * 10]
    assert cache.read(objects, ranges[:20]) == expected * 2
    asked = [Range("a", 50, 10), Range("a", 0, 50), Range("a", 60, 40), Range("b", 0, 100), Range("gone", 0, 100)]
    assert objects.asked == Counter(asked)


def test_what_is_used_stays_and_what_is_not_goes(cache: ObjectCache) -> None:
    objects = Asked()
    objects.put("a", bytes(200_000))
    for start in range(0, 200_000, 10_000):
        one(cache, objects, "a", 0, 9_000)
        one(cache, objects, "a", start + 1, 9_000)
    assert objects.asked[Range("a", 0, 9_000)] == 1
    assert one(cache, objects, "a", 190_001, 9_000) is not None
    assert objects.asked[Range("a", 190_001, 9_000)] == 1
    one(cache, objects, "a", 1, 9_000)
    assert objects.asked[Range("a", 1, 9_000)] == 2


def test_what_is_large_drives_nothing_out(cache: ObjectCache) -> None:
    objects = Asked()
    objects.put("a", bytes(200_000))
    one(cache, objects, "a", 0, 10)
    for _ in range(2):
        assert one(cache, objects, "a", 0, 90_000) == bytes(90_000)
    one(cache, objects, "a", 0, 10)
    assert objects.asked == {Range("a", 0, 10): 1, Range("a", 0, 90_000): 2}


def test_what_was_just_written_is_kept(cache: ObjectCache) -> None:
    objects = Asked()
    cache.keep(objects, Range("a", 0, 3), b"new")
    assert one(cache, objects, "a", 0, 3) == b"new"
    assert not objects.asked


def test_hits_misses_and_bytes_are_told(tmp_path: Path) -> None:
    meter, objects = BucketMeter(), MemoryObjects()
    cache = ObjectCache(100_000, meter=meter)
    objects.put("a", bytes(100))
    for _ in range(3):
        cache.read(objects, [Range("a", 0, 50), Range("a", 50, 50)])
    assert (meter.cache_hits, meter.cache_misses) == (4, 2)
    assert 100 < meter.cache_bytes < 1000


def test_nothing_is_kept_without_room() -> None:
    objects, cache = Asked(), ObjectCache(0)
    objects.put("a", b"v")
    for _ in range(2):
        assert one(cache, objects, "a", 0, 1) == b"v"
    assert objects.asked.total() == 2


def test_a_bucket_that_fails_leaves_nothing_wrong_behind(cache: ObjectCache) -> None:
    objects = FaultyObjects(seed=3, often=0.1)
    objects.is_calm = True
    objects.put("a", bytes(range(200)))
    objects.is_calm = False
    failed = 0
    for turn in range(1000):
        start = turn % 100
        try:
            assert one(cache, objects, "a", start, 50) == bytes(range(start, start + 50))
        except StoreUnavailable:
            failed += 1
    assert failed > 10
    objects.is_calm = True
    asked = objects.requests
    for start in range(100):
        assert one(cache, objects, "a", start, 50) == bytes(range(start, start + 50))
    assert objects.requests == asked, "all of it is here by now"


# A directory.


def test_a_directory_is_there_after_a_restart(tmp_path: Path) -> None:
    objects = Asked()
    objects.put("a", bytes(range(100)))
    for _ in range(2):
        assert one(ObjectCache(100_000, tmp_path / "cache"), objects, "a", 10, 5) == bytes(range(10, 15))
    assert objects.asked.total() == 1


def test_a_directory_with_too_much_in_it_is_cut_to_the_newest(tmp_path: Path) -> None:
    objects = Asked()
    objects.put("a", bytes(200_000))
    large = ObjectCache(1_000_000, tmp_path / "cache")
    for start in range(20):
        one(large, objects, "a", start, 9_000)
    (tmp_path / "cache" / "1-1.tmp").write_bytes(b"half")
    small = ObjectCache(100_000, tmp_path / "cache")
    assert len(files(tmp_path)) == 10
    one(small, objects, "a", 19, 9_000)
    one(small, objects, "a", 0, 9_000)
    assert (objects.asked[Range("a", 19, 9_000)], objects.asked[Range("a", 0, 9_000)]) == (1, 2)


@pytest.mark.parametrize("damage", ["flipped", "cut", "longer", "empty", "gone", "swapped"])
def test_what_is_damaged_is_dropped_and_read_again(tmp_path: Path, damage: str) -> None:
    objects = Asked()
    objects.put("a", bytes(range(100)))
    cache = ObjectCache(100_000, tmp_path / "cache")
    one(cache, objects, "a", 0, 5)
    one(cache, objects, "a", 5, 5)
    first, second = files(tmp_path)
    content = first.read_bytes()
    match damage:
        case "gone":
            first.unlink()
        case "swapped":
            first.write_bytes(second.read_bytes())
        case _:
            wrong = {"flipped": content[:-1] + b"?", "cut": content[:-1], "longer": content + b"?", "empty": b""}
            first.write_bytes(wrong[damage])
    for start in (0, 5):
        assert one(cache, objects, "a", start, 5) == bytes(range(start, start + 5))
    again = ObjectCache(100_000, tmp_path / "cache")
    for start in (0, 5):
        assert one(again, objects, "a", start, 5) == bytes(range(start, start + 5))
    assert objects.asked == {Range("a", 0, 5): 2, Range("a", 5, 5): 1}


def test_a_directory_that_takes_nothing_more_fails_nobody(tmp_path: Path) -> None:
    objects, cache = Asked(), ObjectCache(100_000, tmp_path / "cache")
    objects.put("a", bytes(100))
    (tmp_path / "cache").rename(tmp_path / "away")
    for _ in range(2):
        assert one(cache, objects, "a", 0, 5) == bytes(5)
    assert objects.asked.total() == 2


def test_a_directory_that_cannot_be_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"in the way")
    with pytest.raises(InvalidArgument, match=r"cache_dir: .*file.*: give a directory that this process may write to"):
        ObjectCache(100_000, tmp_path / "file")


def test_what_is_kept_in_a_directory_is_for_its_owner_alone(tmp_path: Path) -> None:
    objects, cache = MemoryObjects(), ObjectCache(100_000, tmp_path / "cache")
    objects.put("a", b"secret")
    one(cache, objects, "a", 0, 6)
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700
    assert files(tmp_path)[0].stat().st_mode & 0o777 == 0o600


def test_threads_share_it(cache: ObjectCache) -> None:
    objects = MemoryObjects()
    objects.put("a", bytes(range(256)) * 1000)
    wrong: list[int] = []

    def read(seed: int) -> None:
        for turn in range(200):
            start = (seed * 37 + turn * 101) % 60 * 256
            if one(cache, objects, "a", start, 5_000) != (bytes(range(256)) * 20)[:5_000]:
                wrong.append(start)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []


# A model of it.


class CacheMachine(RuleBasedStateMachine):
    """Ranges of two objects that never change, and a cache whose room is for some of them."""

    ROOM = 20_000
    names, starts, lengths = st.sampled_from("ab"), st.integers(0, 40), st.sampled_from([0, 1, 500, 3_000, 5_200])

    @initialize(kind=st.sampled_from(KINDS))
    def start(self, kind: str) -> None:
        import tempfile

        self.temporary = tempfile.TemporaryDirectory()
        self.directory = Path(self.temporary.name) / "cache" if kind == "directory" else None
        self.objects, self.meter = Asked(), BucketMeter()
        self.contents = {name: bytes((place * 7 + ord(name)) % 256 for place in range(8_000)) for name in "ab"}
        for name, content in self.contents.items():
            self.objects.put(name, content)
        self.cache = ObjectCache(self.ROOM, self.directory, self.meter)
        self.used: list[Range] = []

    def teardown(self) -> None:
        self.temporary.cleanup()

    @rule(name=names, start=starts, length=lengths)
    def read(self, name: str, start: int, length: int) -> None:
        wanted = Range(name, start * 100, length)
        is_kept = wanted in self._surely_kept()
        before = self.objects.asked[wanted]
        assert self.cache.read(self.objects, [wanted]) == [self.contents[name][wanted.start :][:length]]
        assert not is_kept or self.objects.asked[wanted] == before, "what was used last is here"
        self._use(wanted)

    @rule(name=names, start=starts, length=lengths)
    def keep(self, name: str, start: int, length: int) -> None:
        wanted = Range(name, start * 100, length)
        self.cache.keep(self.objects, wanted, self.contents[name][wanted.start :][:length])
        self._use(wanted)

    @rule()
    def restart(self) -> None:
        self.cache = ObjectCache(self.ROOM, self.directory, self.meter)
        self.used = []  # a directory says only in which order things were written

    @rule(data=st.data())
    def damage(self, data: st.DataObject) -> None:
        if self.directory is not None and (entries := sorted(self.directory.iterdir())):
            entry = data.draw(st.sampled_from(entries))
            content = bytearray(entry.read_bytes())
            content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
            entry.write_bytes(content)
            self.used = []

    @invariant()
    def is_bounded(self) -> None:
        if hasattr(self, "cache") and self.directory is not None:
            assert sum(entry.stat().st_size for entry in self.directory.iterdir()) <= self.ROOM
        if hasattr(self, "cache"):
            assert 0 <= self.meter.cache_bytes <= self.ROOM

    def _use(self, wanted: Range) -> None:
        if (wanted.length + 200) * 4 <= self.ROOM:
            self.used = [other for other in self.used if other != wanted] + [wanted]

    def _surely_kept(self) -> list[Range]:
        """Those used last for which there is room."""
        kept, left = [], self.ROOM
        for wanted in reversed(self.used):
            left -= wanted.length + 200
            if left < 0:
                break
            kept.append(wanted)
        return kept


TestCacheMachine = pytest.mark.filterwarnings("ignore")(CacheMachine.TestCase)
TestCacheMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_ranges_of_a_real_store_are_kept(bucket: Seaweed, tmp_path: Path) -> None:
    meter = BucketMeter()
    objects = open_objects(f"s3://{BUCKET}/cached", meter)
    content = bytes(range(256)) * 20_000
    objects.put("a", content)
    cache = ObjectCache(64 << 20, tmp_path / "cache", meter)
    ranges = [Range("a", start, 64 << 10) for start in range(0, 4 << 20, 64 << 10)]
    for _ in range(3):
        assert cache.read(objects, ranges) == [content[start : start + (64 << 10)] for _, start, _ in ranges]
    assert meter.requests["get", "done"] == 1
    assert (meter.cache_hits, meter.cache_misses) == (128, 64)
