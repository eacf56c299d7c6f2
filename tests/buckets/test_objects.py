"""What is asked of a bucket holds on a real one, in a directory and in memory."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from penstock.model.errors import InvalidArgument
from penstock.storage.buckets import open_objects
from penstock.storage.object_directory import DirectoryObjects
from penstock.storage.object_trial import check_creates
from penstock.storage.objects import ObjectStore, Outcome, Range, StoreUnavailable
from penstock.testing import FaultyObjects, MemoryObjects
from penstock.testing.seaweed import BUCKET, Seaweed

KINDS = ["bucket", "directory", "memory"]


@pytest.fixture(params=KINDS)
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "bucket":
        request.getfixturevalue("bucket")
        return open_objects(f"s3://{BUCKET}/{tmp_path.name}")
    return open_objects(tmp_path.as_uri() + "/bucket") if request.param == "directory" else MemoryObjects()


def test_C3_a_name_is_created_once(objects: ObjectStore) -> None:
    assert objects.create("a/1", b"first") == Outcome.DONE
    assert objects.create("a/1", b"second") == Outcome.EXISTS
    assert objects.get("a/1") == b"first"


def test_of_many_that_create_one_name_at_once_one_succeeds(objects: ObjectStore) -> None:
    with ThreadPoolExecutor(8) as threads:
        for number in range(10):
            outcomes = list(threads.map(lambda n, name=f"race/{number}": objects.create(name, b"%d" % n), range(8)))
            counted = Counter(outcomes)
            assert counted[Outcome.DONE] == 1
            assert counted[Outcome.EXISTS] == 7
            assert objects.get(f"race/{number}") == b"%d" % outcomes.index(Outcome.DONE)


def test_what_is_put_takes_the_place_of_what_was_there(objects: ObjectStore) -> None:
    for value in (b"one", b"two", b"", b"x" * 3_000_000):
        objects.put("deep/down/name", value)
        assert objects.get("deep/down/name") == value


def test_what_is_not_there_is_none(objects: ObjectStore) -> None:
    objects.put("a", b"v")
    assert objects.get("b") is None
    assert objects.get_range("b", 0, 1) is None
    assert objects.get_many(["b", "a", "c"]) == [None, b"v", None]
    objects.delete(["b", "a", "a"])
    assert objects.get("a") is None
    objects.delete([])


def test_a_part_of_an_object_can_be_read(objects: ObjectStore) -> None:
    objects.put("a", bytes(range(100)))
    assert objects.get_range("a", 10, 5) == bytes(range(10, 15))
    assert objects.get_range("a", 95, 5) == bytes(range(95, 100))
    assert objects.get_range("a", 95, 10) == bytes(range(95, 100))
    assert objects.get_range("a", 100, 1) == b""


def test_several_parts_of_objects_can_be_read_at_a_time(objects: ObjectStore) -> None:
    objects.put("a", bytes(range(100)))
    objects.put("b", b"other")
    asked = [Range("b", 1, 2), Range("c", 0, 1), *(Range("a", start, 1) for start in range(100))]
    assert objects.get_ranges(asked) == [b"th", None, *(bytes([number]) for number in range(100))]
    assert objects.get_ranges([]) == []


def test_names_are_listed_in_order_behind_another_one(objects: ObjectStore) -> None:
    names = [f"journal/{epoch:010d}/{n:010d}" for epoch in (1, 2, 10) for n in (0, 9, 10)]
    for name in reversed(names):
        objects.put(name, b"v")
    objects.put("journals", b"v")
    objects.put("checkpoints/1", b"v")
    assert objects.list("journal/") == names
    assert objects.list("journal/", names[4]) == names[5:]
    assert objects.list("checkpoints/") == ["checkpoints/1"]
    assert objects.list("nothing/") == []
    assert objects.list("") == sorted([*names, "journals", "checkpoints/1"])


def test_a_folder_is_listed_without_what_is_below_its_folders(objects: ObjectStore) -> None:
    for name in ("topics/a/messages/0/1.parquet", "topics/a/messages/0/2.parquet", "topics/b", "topicsc", "top/d"):
        objects.put(name, b"v")
    assert objects.list_folder("topics/") == ["a", "b"]
    assert objects.list_folder("topics/a/messages/0/") == ["1.parquet", "2.parquet"]
    assert objects.list_folder("nothing/") == []
    assert objects.list_folder("") == ["top", "topics", "topicsc"]
    assert objects.part("topics/").list_folder("a/") == ["messages"]


def test_a_part_has_names_of_its_own(objects: ObjectStore) -> None:
    one, two = objects.part("shards/1/"), objects.part("shards/2/")
    one.put("a", b"1")
    two.put("a", b"2")
    assert (one.get("a"), two.get("a")) == (b"1", b"2")
    assert one.list("") == ["a"]
    assert objects.list("shards/") == ["shards/1/a", "shards/2/a"]
    assert one.address.endswith("shards/1")


def test_more_than_a_thousand_names_are_listed_and_removed(objects: ObjectStore) -> None:
    names = [f"many/{number:05d}" for number in range(1100)]
    with ThreadPoolExecutor(16) as threads:
        list(threads.map(lambda name: objects.put(name, b"v"), names))
    assert objects.list("many/") == names
    objects.delete(names)
    assert objects.list("many/") == []


# Whom to trust.


def test_C17_a_store_that_creates_once_is_trusted(objects: ObjectStore) -> None:
    check_creates(objects, os.urandom(16))
    assert objects.list("") == [], "nothing is left of it"


class Forgetful(MemoryObjects):
    """Ignores the condition."""

    def create(self, name: str, data: bytes) -> Outcome:
        self.put(name, data)
        return Outcome.DONE


class Racing(MemoryObjects):
    """Looks, and then puts: who comes meanwhile is overwritten."""

    def create(self, name: str, data: bytes) -> Outcome:
        if self.prefix + name in self.objects:
            return Outcome.EXISTS
        together.wait()
        self.put(name, data)
        return Outcome.DONE


class Lying(MemoryObjects):
    """Says that it is there, and overwrites it."""

    def create(self, name: str, data: bytes) -> Outcome:
        outcome = super().create(name, data)
        self.put(name, data)
        return outcome


together = threading.Barrier(4)


@pytest.mark.parametrize("kind", [Forgetful, Racing, Lying])
def test_C17_a_store_that_creates_twice_is_refused(kind: type[MemoryObjects]) -> None:
    with pytest.raises(InvalidArgument, match="messages would be lost on it"):
        check_creates(kind(), bytes(16))


def test_C17_a_store_that_fails_now_and_then_is_trusted_or_tried_again() -> None:
    trusted = 0
    for seed in range(30):
        try:
            check_creates(FaultyObjects(seed), bytes(16))
            trusted += 1
        except StoreUnavailable:
            pass
    assert trusted > 5


# Addresses, and what cannot be reached.


@pytest.mark.parametrize("address", ["", "bucket", "s3://", "file://", "file://host/path", "ftp://x/y", "/data"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(InvalidArgument, match="no address of a bucket"):
        open_objects(address)


def test_a_store_that_does_not_answer_leaves_creates_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret")
    objects = open_objects("s3://bucket/place")
    assert objects.create("a", b"v") == Outcome.UNKNOWN
    for ask in (lambda: objects.get("a"), lambda: objects.put("a", b""), lambda: objects.list("")):
        with pytest.raises(StoreUnavailable) as failed:
            ask()
        assert "very-secret" not in str(failed.value)
        assert "s3://bucket/place" in str(failed.value)


def test_who_may_not_hears_it_at_once(bucket: Seaweed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    objects = open_objects(f"s3://{BUCKET}/place")
    with pytest.raises(PermissionError):
        objects.create("a", b"v")
    with pytest.raises(PermissionError):
        objects.get("a")


def _use_in_child(objects: ObjectStore) -> None:
    try:
        objects.get("a")
    except RuntimeError:
        os._exit(7)


def test_a_forked_process_is_told_instead_of_hanging(bucket: Seaweed) -> None:
    objects = open_objects(f"s3://{BUCKET}/place")
    objects.put("a", b"v")
    child = multiprocessing.get_context("fork").Process(target=_use_in_child, args=(objects,))
    child.start()
    child.join(30)
    assert child.exitcode == 7


def test_a_directory_shows_nothing_of_what_is_being_written(tmp_path: Path) -> None:
    objects = DirectoryObjects(tmp_path)
    objects.put("a/b", b"v")
    (tmp_path / "a" / "c.1-1.tmp").write_bytes(b"half")
    assert objects.list("") == ["a/b"]


def test_keys_are_taken_from_the_files_of_profiles_too(
    bucket: Seaweed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = tmp_path / "keys"
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    keys.write_text("[shop]\n" + "".join(f"{name.lower()} = {bucket.environment[name]}\n" for name in names))
    for name in names:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(keys))
    monkeypatch.setenv("AWS_PROFILE", "shop")
    objects = open_objects(f"s3://{BUCKET}/{tmp_path.name}")
    objects.put("a", b"value")
    assert objects.get("a") == b"value"


class SlowAnswers(BaseHTTPRequestHandler):
    """Takes whatever is put, and says so a while later."""

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(1.5)
        with contextlib.suppress(OSError):
            self.send_response(200)
            self.send_header("ETag", '"1"')
            self.send_header("Content-Length", "0")
            self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


def test_what_is_large_may_take_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), SlowAnswers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
            monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
            monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
            objects = open_objects("s3://bucket/place", timeout_s=0.5)
            assert objects.create("small", b"v") == Outcome.UNKNOWN
            assert objects.create("large", bytes(9 << 20)) == Outcome.DONE
        finally:
            server.shutdown()
            thread.join()


def test_a_bucket_that_is_not_there_is_named(bucket: Seaweed) -> None:
    assert bucket.port
    with pytest.raises(InvalidArgument, match="s3://there-is-none: there is no such bucket: make it first"):
        open_objects("s3://there-is-none/place").list("")
    with pytest.raises(InvalidArgument, match="make it first"):
        open_objects("s3://there-is-none/place").get("name")
