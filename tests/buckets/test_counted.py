"""What is asked of a bucket is counted as the bucket answers it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.storage.buckets import open_objects
from penstock.storage.counted import BucketMeter, CountedObjects, kind_of
from penstock.storage.objects import ObjectStore, Outcome, Range, StoreUnavailable
from penstock.storage.persistent import PersistentObjects
from penstock.testing import FaultyObjects, MemoryObjects
from penstock.testing.seaweed import BUCKET, Seaweed


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("shards/3/journal/0000000001/0000000002", "piece"),
        ("journal/0000000001/0000000002", "piece"),
        ("shards/12/bundles/0000000000000001-0000000001.journal", "bundle"),
        ("shards/0/checkpoints/0000000001-0000000002-0000000000", "checkpoint"),
        ("shards/0/topics/orders/messages/0/00000000000000000000-1.parquet", "segment"),
        ("cold/orders/messages/0/00000000000000000000-1.parquet", "segment"),
        ("members/7", "member"),
        ("penstock.json", "other"),
        ("shards/0/staging/1.2", "other"),
    ],
)
def test_a_name_says_what_an_object_is(name: str, kind: str) -> None:
    assert kind_of(name) == kind


def test_requests_are_counted_by_what_became_of_them() -> None:
    meter = BucketMeter()
    objects = CountedObjects(MemoryObjects(), meter)
    shard = objects.part("shards/0/")
    assert [shard.create("journal/1/0", b"four") for _ in range(2)] == [Outcome.DONE, Outcome.EXISTS]
    objects.put("members/1", b"seven..")
    assert shard.get_many(["journal/1/0", "journal/1/1"]) == [b"four", None]
    assert objects.get_ranges([Range("members/1", 0, 3), Range("members/2", 0, 3)]) == [b"sev", None]
    assert shard.get("journal/1/2") is None
    assert objects.list("") == ["members/1", "shards/0/journal/1/0"]
    assert objects.list_folder("shards/") == ["0"]
    objects.delete([f"{number}" for number in range(1001)])
    assert meter.requests == {
        ("create", "done"): 1,
        ("create", "exists"): 1,
        ("put", "done"): 1,
        ("get", "done"): 2,
        ("get", "missing"): 3,
        ("list", "done"): 2,
        ("delete", "done"): 2,
    }
    assert meter.bytes == {
        ("sent", "piece"): 4,
        ("sent", "member"): 7,
        ("received", "piece"): 4,
        ("received", "member"): 3,
    }
    assert {operation: sum(times.counts) for operation, times in meter.request_s.items()} == {
        "create": 2,
        "put": 1,
        "get": 3,
        "list": 2,
        "delete": 1,
    }


def test_what_fails_is_counted_too_and_what_is_asked_again() -> None:
    meter, store = BucketMeter(), FaultyObjects()
    objects = PersistentObjects(CountedObjects(store, meter), meter.counting(_end_after(3)))
    store.cut_off = True
    asks: list[Callable[[], object]] = [
        lambda: objects.put("a", b"v"),
        lambda: objects.get_many(["a", "b"]),
        lambda: objects.list(""),
    ]
    for ask in asks:
        with pytest.raises(StoreUnavailable):
            ask()
    assert meter.requests == {("put", "failed"): 3, ("get", "failed"): 6, ("list", "failed"): 3}
    assert meter.retries == 9
    assert not meter.bytes


def _end_after(attempts: int) -> Callable[[int], None]:
    def pause(attempt: int) -> None:
        if attempt == attempts:
            raise StoreUnavailable("enough")

    return pause


def test_a_create_that_nobody_knows_of_is_counted_as_unknown() -> None:
    meter, store = BucketMeter(), FaultyObjects(seed=1, often=0.15)
    objects = CountedObjects(store, meter)
    outcomes = [objects.create(f"journal/1/{number}", b"v") for number in range(50)]
    for outcome in Outcome:
        assert meter.requests["create", outcome.value] == outcomes.count(outcome) > 0
    assert meter.bytes["sent", "piece"] == outcomes.count(Outcome.DONE)


def test_a_bucket_is_opened_with_a_meter_and_as_long_as_it_may_take(bucket: Seaweed) -> None:
    meter = BucketMeter()
    objects: ObjectStore = open_objects(f"s3://{BUCKET}/counted", meter, timeout_s=2)
    assert objects.create("journal/1/0", b"v") == Outcome.DONE
    assert objects.get("journal/1/0") == b"v"
    assert meter.requests == {("create", "done"): 1, ("get", "done"): 1}
    assert objects.address == f"s3://{BUCKET}/counted"


def test_of_several_objects_only_those_that_were_not_answered_are_asked_for_again() -> None:
    meter, store = BucketMeter(), FaultyObjects(seed=5, often=0.3)
    store.is_calm = True
    names = [f"journal/1/{number}" for number in range(200)]
    for name in names[::2]:
        store.put(name, name.encode())
    store.is_calm = False
    objects = PersistentObjects(CountedObjects(store, meter), meter.counting(lambda _: None))
    expected = [None if place % 2 else name.encode() for place, name in enumerate(names)]
    assert objects.get_many(names) == expected
    assert objects.get_ranges([Range(name, 0, 100) for name in names]) == expected
    assert meter.requests["get", "done"] == meter.requests["get", "missing"] == 200
    assert meter.requests["get", "failed"] > 100
    assert meter.bytes["received", "piece"] == 2 * sum(map(len, names[::2]))
    store.cut_off = True
    patient = PersistentObjects(store, _end_after(3))
    with pytest.raises(StoreUnavailable, match="enough"):
        patient.get_many(names)
