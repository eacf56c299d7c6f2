"""A directory read with no broker: what a broker would read, and not a byte of it changes."""

from __future__ import annotations

import errno
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock
from penstock.journal.layout import file_name
from penstock.segments.window import Window
from penstock.storage.read_only import ReadOnlyStorage
from penstock.testing import VirtualClock
from penstock.views.snapshot import GroupProgress, Snapshot, read_blocks

pytestmark = pytest.mark.one_shard("it is one shard that is read; tests/cluster reads several")
DAY_S = 86400


def fill(path: Path, close: bool = True) -> None:
    """Archived, settled and in the journal; keys, headers and delays; acked, failed and dead, in two groups."""
    clock = VirtualClock()
    broker = penstock.open(path, clock=clock, journal_file_bytes="256KiB")
    broker.create_topic("t", partitions=3, retention_age="3d", archive="old", max_deliveries=50)
    broker.create_topic("empty", partitions=2)
    for day in range(6):
        some = [
            penstock.Message(f"{day}.{n}" * 20, key=f"{n}" if n % 3 else None, priority="high" if n % 7 == 0 else "low")
            for n in range(30)
        ]
        broker.publish_many("t", some)
        broker.publish("t", "later", headers={"day": str(day)}, delay="1h", expires_in="9d", dedupe_id=f"day {day}")
        with broker.consumer("t", group="workers") as consumer:
            messages = consumer.receive(max_messages=20, wait=0)
            consumer.ack(messages[:15])
            messages[16].fail("no")
            messages[17].kill("never")
        if day < 5:
            broker.settle()
        clock.advance(DAY_S)
    assert broker.retain() > 0
    broker.create_group("t", "idle", start="latest")
    broker.publish("t", "the last", partition=2)
    if close:
        broker.close()


def everything(path: Path) -> dict[str, tuple[bytes, int] | None]:
    """The bytes and the time of each file, and the directories."""
    return {
        str(entry.relative_to(path)): None if entry.is_dir() else (entry.read_bytes(), entry.stat().st_mtime_ns)
        for entry in sorted(path.rglob("*"))
    }


def told(reader: Any, place: str) -> Any:
    """What is read of a place, whoever reads it: messages, archived ones, events, or Arrow."""
    window = Window()
    if place == "events":
        return list(reader.events(window))
    return list(reader.messages(window)) if place == "messages" else pa.Table.from_batches(reader.arrow(window))


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("filled") / "data"
    fill(path)
    return path


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, killed before it was closed, and in the middle of a write."""
    path = tmp_path_factory.mktemp("killed") / "data"
    script = (
        "import os, sys, signal; from pathlib import Path\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from test_snapshot import fill\n"
        "fill(Path(sys.argv[1]), close=False)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True)
    assert done.returncode == -9, done.stderr
    with Snapshot(path) as snapshot:
        sequence, file = max(snapshot.journal.files.items())
        group = snapshot.blocks("t", 2)[-1]
        start = file.handle.read(group.position - 200, 200)
        position = start.rindex(file.mark.to_bytes(4, "little")) + group.position - 200
        torn = file.handle.read(position, file.end - position - 3)  # a group like the last one, not whole
    with (path / file_name(sequence)).open("r+b") as journal:
        journal.truncate(file.end)
        journal.seek(file.end)
        journal.write(torn)
    return path


@pytest.fixture(params=["filled", "killed"])
def data(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A directory of either kind, to be read and then opened."""
    import shutil

    path: Path = request.getfixturevalue(request.param)
    copy = tmp_path / "data"
    shutil.copytree(path, copy)
    return copy


def test_what_is_read_is_what_a_broker_reads(data: Path) -> None:
    with Snapshot(data) as snapshot:
        topics = snapshot.topics()
        logs = [
            (topic.name, partition.number, table) for topic in topics for partition in topic.partitions
            for table in ("messages", "events")
        ]  # fmt: skip
        found = {}
        for topic, partition, table in logs:
            for deleted in (False, True):
                reader = snapshot.reader(snapshot.log(topic, partition, table), include_deleted=deleted)
                found[topic, partition, table, deleted] = told(reader, table)
            if table == "messages":
                reader = snapshot.reader(snapshot.log(topic, partition))
                found[topic, partition, "arrow", False] = list(reader.arrow(Window()))
        letters = list(snapshot.dead_letters("t"))
        times = [message.timestamp_us for message in found["t", 0, "messages", True]]
        offsets = [snapshot.offset_at("t", time_us) for time_us in times]
    assert found["t", 0, "messages", True] != found["t", 0, "messages", False] != []
    assert len(letters) == 6
    with penstock.open(data, clock=VirtualClock()) as broker:
        assert topics == broker.topics()
        for (topic, partition, table, deleted), rows in found.items():
            if table == "messages":
                assert rows == list(broker.read(topic, partition, include_deleted=deleted))
            elif table == "arrow":
                assert rows == list(broker.read_arrow(topic, partition))
            elif not deleted:
                assert rows == list(broker.events(topic, partition))
        assert letters == broker.dead_letters("t")
        assert offsets == [broker.offset_at("t", time_us / 1_000_000) for time_us in times]


def test_groups_are_told_as_far_as_they_were(data: Path) -> None:
    with Snapshot(data) as snapshot:
        groups = snapshot.groups()
        assert groups == snapshot.groups("t")
        assert snapshot.groups("empty") == []
    assert [group.name for group in groups] == ["idle", "workers"]
    with penstock.open(data, clock=VirtualClock()) as broker:
        for group, known in zip(groups, broker.groups(), strict=True):
            for field in GroupProgress.__dataclass_fields__:
                assert getattr(group, field) == getattr(known, field), field
    assert groups[0].lag == 1
    assert groups[1].acked == 90
    assert groups[1].dead == 6


def test_nothing_of_the_directory_changes(data: Path) -> None:
    (data / "LOCK").unlink()
    before = everything(data)
    with Snapshot(data) as snapshot:
        assert snapshot.groups()
        assert list(snapshot.dead_letters("t"))
        for partition in range(3):
            for table in ("messages", "events"):
                assert told(snapshot.reader(snapshot.log("t", partition, table), include_deleted=True), table)
                list(read_blocks(snapshot.storage, snapshot.blocks("t", partition, table), table, partition))
        snapshot.close()
    assert everything(data) == before


def test_a_torn_tail_is_cut_in_memory_only(killed: Path) -> None:
    before = everything(killed)
    with Snapshot(killed) as snapshot:
        assert snapshot.recovery.torn_bytes > 0
        assert [m.value for m in told(snapshot.reader(snapshot.log("t", 2)), "messages")].count(b"the last") == 1
    with Snapshot(killed) as snapshot:
        assert snapshot.recovery.torn_bytes > 0
    assert everything(killed) == before


READ = """
import pickle, sys
from penstock.views.snapshot import read_blocks
from penstock.storage.read_only import ReadOnlyStorage
path, blocks, table, partition, start, end = pickle.loads(sys.stdin.buffer.read())
batches = list(read_blocks(ReadOnlyStorage(path), blocks, table, partition, start, end))
sys.stdout.buffer.write(pickle.dumps(batches))
"""


@pytest.mark.parametrize("table", ["messages", "events"])
def test_another_process_reads_blocks_by_their_places_alone(killed: Path, table: str) -> None:
    with Snapshot(killed) as snapshot:
        number = 2
        blocks = snapshot.blocks("t", number, table)
        assert len(blocks) > 1
        first, end = blocks[0].base + 1, blocks[-1].end - 1
        assert snapshot.blocks("t", number, table, start=blocks[0].end) == blocks[1:]
        assert snapshot.blocks("t", number, table, end=blocks[1].base) == blocks[:1]
        reader = snapshot.reader(snapshot.log("t", number, table))
        window = Window(first, end)
        if table == "messages":
            wanted = pa.Table.from_batches(list(reader.arrow(window)))
        else:
            from penstock.segments.schema import events_to_arrow

            wanted = pa.Table.from_batches([events_to_arrow(first, list(reader.events(window)), number)])
    order = pickle.dumps((str(killed), blocks, table, number, first, end))
    child = subprocess.run([sys.executable, "-c", READ], input=order, capture_output=True)
    assert child.returncode == 0, child.stderr
    batches = pickle.loads(child.stdout)
    assert pa.Table.from_batches(batches).combine_chunks() == wanted.combine_chunks()


def test_a_damaged_block_is_said_and_not_read(filled: Path, tmp_path: Path) -> None:
    with Snapshot(filled) as snapshot:
        block = snapshot.blocks("t", 2)[-1]
    journal = tmp_path / file_name(block.sequence)
    journal.parent.mkdir()
    content = bytearray((filled / file_name(block.sequence)).read_bytes())
    content[block.position + 1] ^= 1
    journal.write_bytes(content)
    with pytest.raises(penstock.CorruptData, match="does not match its checksum"):
        list(read_blocks(ReadOnlyStorage(tmp_path), [block], "messages", 2))


def test_it_is_refused_while_a_broker_is_open_and_that_is_not_disturbed(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as broker:
        broker.publish("t", "v")
        before = everything(tmp_path)
        with pytest.raises(penstock.DirectoryLocked, match=r"in use by a broker \(process \d+\).*servers="):
            Snapshot(tmp_path)
        assert everything(tmp_path) == before
        broker.publish("t", "v")
    with Snapshot(tmp_path) as snapshot:
        assert snapshot.topics()[0].partitions[0].end_offset == 2
        with penstock.open(tmp_path) as broker:  # a snapshot keeps nobody out
            broker.publish("t", "v")
        assert snapshot.topics()[0].partitions[0].end_offset == 2


def test_what_is_no_data_directory_is_said_and_left_alone(tmp_path: Path) -> None:
    with pytest.raises(penstock.InvalidArgument, match="there is no such directory"):
        Snapshot(tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    with pytest.raises(penstock.InvalidArgument, match="there is no such directory"):
        Snapshot(tmp_path / "file")
    with pytest.raises(penstock.InvalidArgument, match="it has no checkpoint"):
        Snapshot(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_damage_is_told_as_recovery_tells_it(data: Path) -> None:
    (journal,) = sorted((data / "journal").glob("*.journal"))[-1:]
    content = bytearray(journal.read_bytes())
    content[300] ^= 1
    journal.write_bytes(content)
    with pytest.raises(penstock.CorruptData, match="penstock check"):
        Snapshot(data)
    for copy in ("checkpoint-a", "checkpoint-b"):
        (data / copy).unlink()
    with pytest.raises(penstock.CorruptData, match="missing, although there is data"):
        Snapshot(data)


def test_topics_partitions_and_tables_that_are_not_there_are_said(filled: Path) -> None:
    with Snapshot(filled) as snapshot:
        with pytest.raises(penstock.TopicNotFound, match="there is no topic 'other'"):
            snapshot.log("other", 0)
        with pytest.raises(penstock.TopicNotFound, match="it has 0 to 2"):
            snapshot.log("t", 3)
        with pytest.raises(penstock.InvalidArgument, match="there are messages and events"):
            snapshot.log("t", 0, "letters")
        assert snapshot.blocks("empty", 1, "events") == snapshot.blocks("empty", 1) == []


WRITES: list[tuple[str, Callable[[ReadOnlyStorage], object]]] = [
    ("create", lambda storage: storage.create("new")),
    ("rename", lambda storage: storage.rename("a", "b")),
    ("remove", lambda storage: storage.remove("a")),
    ("lock", lambda storage: storage.lock()),
    ("write", lambda storage: storage.open("a").write(0, [b"x"])),
    ("create elsewhere", lambda storage: storage.elsewhere("archive").create("a")),
]


@pytest.mark.parametrize(("_", "write"), WRITES)
def test_a_storage_that_is_only_read_refuses_whatever_would_change_it(
    tmp_path: Path, _: str, write: Callable[[ReadOnlyStorage], object]
) -> None:
    (tmp_path / "a").write_bytes(b"content")
    storage = ReadOnlyStorage(tmp_path)
    before = everything(tmp_path)
    with pytest.raises(OSError, match="only read") as refused:
        write(storage)
    assert refused.value.errno == errno.EROFS
    file = storage.open("a")
    file.truncate(1)
    file.sync()
    assert file.read(0, 10) == b"content"
    file.close()
    assert storage.list("") == ["a"]
    assert storage.list("nowhere") == storage.elsewhere("nowhere").list("") == []
    assert everything(tmp_path) == before
