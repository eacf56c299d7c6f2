"""Segments of a shard on a bucket are made by a process of their own, and archived in the bucket or in another one."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.cluster.snapshots import Snapshots
from penstock.embedded.broker import Broker
from penstock.journal.bucket_reading import ReadOnlyBucket
from penstock.journal.bucket_root import BucketRoot
from penstock.model.config import BrokerConfig
from penstock.model.errors import CorruptData, Overloaded
from penstock.model.message import Message
from penstock.segments.window import Window
from penstock.shard.upkeep.segment_process import SegmentProcess
from penstock.storage.buckets import open_objects
from penstock.storage.counted import BucketMeter, CountedObjects
from penstock.testing import FaultyObjects, MemoryObjects, VirtualClock
from penstock.testing.seaweed import BUCKET, Seaweed
from tests.buckets.owning import MIB, Owners

DAY_S = 86400.0
TIMES = ("timestamp", "time", "deliver_at", "due_at")


@pytest.fixture
def owners(clock: VirtualClock) -> Owners:
    return Owners(clock, MemoryObjects())


@pytest.fixture
def process() -> Iterator[SegmentProcess]:
    made = SegmentProcess()
    yield made
    made.close()


def values(broker: Broker, topic: str = "t", **options: Any) -> list[str]:
    return [message.value.decode() for message in broker.read(topic, **options)]


# The process that makes segments.


def live(broker: Broker, clock: VirtualClock) -> None:
    """A bit of everything that a segment may hold, in several runs of blocks."""
    for turn in range(40):
        messages = [Message(f"{turn}.{n}" * 50, key=f"{n}", priority=n % 3, delay=n % 2 or None) for n in range(500)]
        broker.publish_many("mixed", messages)
        clock.advance(1)
    broker.publish("alone", "")
    with broker.consumer("mixed", "g", name="worker") as consumer:
        for message in consumer.receive(20):
            message.ack() if message.offset % 3 else message.fail("cannot")
    broker.settle()


def rows(segment: bytes) -> pa.Table:
    """What a segment holds, but for the times: two clocks are read a different number of times."""
    table = pq.read_table(io.BytesIO(segment))
    return table.select(
        [name for name in table.column_names if name not in ("timestamp", "time", "deliver_at", "due_at")]
    )


def test_L13_the_process_is_given_blocks_and_makes_the_segments_that_the_broker_would(process: SegmentProcess) -> None:
    found: list[dict[str, pa.Table]] = []
    for maker in (process, None):
        clock = VirtualClock()
        objects = MemoryObjects()
        broker, _ = Owners(clock, objects).open(process=maker, journal_file_bytes="1MiB")
        live(broker, clock)
        assert len(values(broker, "mixed")) == 20_000
        found.append({name: rows(data) for name, data in objects.objects.copy().items() if "/topics/" in name})
    assert found[0].keys() == found[1].keys()
    assert all(table.equals(found[1][name]) for name, table in found[0].items())
    assert sorted(map(len, found[0].values())) == [1, 22, 20_000]
    assert process._process is not None
    assert process._process.poll() is None


def test_L1_a_process_that_was_killed_is_replaced_and_nothing_is_lost(
    owners: Owners, process: SegmentProcess, caplog: pytest.LogCaptureFixture
) -> None:
    broker, _ = owners.open(process=process)
    for turn in range(3):
        broker.publish("t", f"{turn}")
        broker.settle()
        child = process._process
        assert (child is None) == (turn == 1)
        if turn == 0:
            assert child is not None
            child.kill()
            child.wait()
    assert "the process that settles is gone" in caplog.text
    assert len(owners.objects.list("shards/0/topics/t/messages/")) == 3
    assert values(broker) == ["0", "1", "2"]


def test_a_block_that_cannot_be_read_is_given_up_and_the_process_makes_the_next_segment(
    owners: Owners, process: SegmentProcess, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker, _ = owners.open(process=process)
    broker.publish("t", "a")
    broker.settle()
    child = process._process
    settler = broker._backgrounds[0].settler
    broker.publish("t", "b")
    with monkeypatch.context() as patched:
        patched.setattr(settler, "_read", _raise(CorruptData("journal file 2", 100, "it is rotten")))
        settler.settle(everything=True)
    assert "t/0 cannot be settled: journal file 2 at byte 100: it is rotten" in caplog.text
    settler.settle(everything=True)
    assert process._process is child
    assert child is not None
    assert child.poll() is None
    assert len(owners.objects.list("shards/0/topics/t/messages/")) == 2


def _raise(error: Exception) -> Any:
    def read(_: object) -> list[bytes]:
        raise error

    return read


# Archives.


def archive_one(broker: Broker, clock: VirtualClock, archive: str) -> None:
    """Have what the topic holds archived."""
    broker.create_topic("t", retention_age="1d", archive=archive)
    broker.publish_many("t", ["a", "b"])
    broker.settle()
    clock.advance(3 * DAY_S)
    broker.retain()


def test_L13_a_relative_archive_lies_in_the_bucket_beside_the_shards(owners: Owners) -> None:
    broker, _ = owners.open()
    archive_one(broker, owners.clock, "cold/here")
    [name] = owners.objects.list("cold/here/t/messages/")
    assert name.endswith("-1.parquet"), "the name says who made it"
    assert values(broker) == []
    again, meter = owners.open()
    assert values(again, include_deleted=True) == ["a", "b"]
    assert meter.bytes["received", "segment"] > 0


def test_L13_an_archive_may_be_another_bucket(owners: Owners, tmp_path: Path) -> None:
    broker, _ = owners.open()
    archive_one(broker, owners.clock, (tmp_path / "other").as_uri())
    assert len(list((tmp_path / "other/t/messages/0").iterdir())) == 1
    again, _ = owners.open()
    assert values(again, include_deleted=True) == ["a", "b"]
    assert not [name for name in owners.objects.list("") if "cold" in name]


@pytest.mark.parametrize("kind", ["relative", "address"])
def test_who_reads_a_bucket_with_no_broker_finds_its_archives(kind: str, owners: Owners, tmp_path: Path) -> None:
    address = (tmp_path / "other").as_uri()
    broker, _ = owners.open()
    archive_one(broker, owners.clock, address if kind == "address" else "cold/here")
    owners.objects.put("penstock.json", b'{"version": 1, "shards": 1}')
    with Snapshots(ReadOnlyBucket(owners.objects)) as found:
        snapshot, [segment] = found.of("t"), found.layout("t").messages[0].segments
        assert segment.path.startswith(f"{address if kind == 'address' else 'memory:/cold/here'}/t/messages/0/")
        reader = snapshot.reader(snapshot.log("t", 0), include_deleted=True)
        assert [message.value for message in reader.messages(Window())] == [b"a", b"b"]


def test_shards_of_a_process_have_one_cache_and_the_same_archive(tmp_path: Path, clock: VirtualClock) -> None:
    objects, meter = MemoryObjects(), BucketMeter()
    root = BucketRoot(CountedObjects(objects, meter), bytes(16), lambda _: None, clock.monotonic_s, meter)
    near = {"cache_dir": str(tmp_path / "near"), "cache_bytes": "1MiB"}
    root.keep_near(BrokerConfig.parse(near))
    for number in range(2):
        config = BrokerConfig.parse({"min_free_bytes": 0, "segment_min_bytes": 0, "journal_file_bytes": "64KiB"})
        broker = Broker(root.part(f"shards/{number}"), config, clock)
        broker.create_topic(f"t{number}", retention_age="1d", archive="cold")
        for _ in range(40):
            broker.publish_many(f"t{number}", ["x" * 1000] * 50)
        broker.settle()
        clock.advance(3 * DAY_S)
        broker.retain()
        assert len(values(broker, f"t{number}", include_deleted=True)) == 2000
        broker.close()
    assert {name.split("/")[1] for name in objects.list("cold/")} == {"t0", "t1"}
    assert 0 < sum(file.stat().st_size for file in (tmp_path / "near").iterdir()) <= meter.cache_bytes <= MIB


@pytest.mark.parametrize("archive", ["/cold", "../cold", "a/../../cold", ".."])
def test_H4_an_archive_outside_of_the_bucket_is_refused_and_holds_up_no_other_topic(
    owners: Owners, archive: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker, _ = owners.open()
    broker.create_topic("fine", retention_age="1d")
    broker.create_topic("t", retention_age="1d", archive=archive)
    for topic in ("t", "fine"):
        broker.publish(topic, "x")
    broker.settle()
    owners.clock.advance(3 * DAY_S)
    broker.retain()
    assert "retention of t will be tried again" in caplog.text
    assert "inside the bucket (a relative path), or at an address" in caplog.text
    assert (values(broker, "t"), values(broker, "fine")) == (["x"], [])


def test_an_archive_that_does_not_answer_holds_up_no_other_topic(
    owners: Owners, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    away = FaultyObjects()
    away.cut_off = True
    monkeypatch.setattr("penstock.journal.object_folder.open_objects", lambda *_: away)
    broker, _ = owners.open()
    broker.create_topic("fine", retention_age="1d")
    broker.create_topic("t", retention_age="1d", archive="s3://away/cold")
    for topic in ("t", "fine"):
        broker.publish(topic, "x")
    broker.settle()
    owners.clock.advance(3 * DAY_S)
    broker.retain()
    assert "retention of t will be tried again" in caplog.text
    away.cut_off = False
    away.is_calm = True
    broker.retain()
    assert values(broker, include_deleted=True) == ["x"]
    away.cut_off = True
    with pytest.raises(Overloaded, match="does not answer: try again later"):
        list(owners.open()[0].read("t", include_deleted=True))


def test_segments_are_archived_on_a_real_store_and_read_again(
    clock: VirtualClock, bucket: Seaweed, process: SegmentProcess
) -> None:
    with contextlib.ExitStack() as stack:
        owners = Owners(clock, open_objects(f"s3://{BUCKET}/archived"))
        broker, _ = owners.open(process=process)
        stack.callback(broker.close)
        archive_one(broker, clock, f"s3://{BUCKET}/cold")
        assert len(open_objects(f"s3://{BUCKET}").list("cold/t/messages/")) == 1
    again, _ = owners.open()
    assert values(again, include_deleted=True) == ["a", "b"]
    again.close()
