"""The topic of the schedules: clients read it and do nothing else there; what is in it is not trusted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import penstock
from penstock.log.checkpoint import decode_checkpoint
from penstock.model.batch import Batch
from penstock.model.config import BrokerConfig
from penstock.model.events import Event
from penstock.model.intake import check_messages
from penstock.model.message import StoredMessage
from penstock.model.schedules import SCHEDULES, Schedule
from penstock.model.singles import Single
from penstock.segments.window import Window
from penstock.shard.checking import check_directory
from penstock.shard.checkpoint_files import read_checkpoint, write_checkpoint
from penstock.shard.reading.log_reader import LogReader
from penstock.shard.staging.stage_files import encode_record, path_of
from penstock.storage import FileStorage
from penstock.testing import MemoryStorage, VirtualClock
from penstock.views.snapshot import Snapshot
from tests.shard.passing_time import pass_time
from tests.shard.test_schedules import published
from tests.sharding import home_of

HOUR_S = 3600.0


def forge(broker: penstock.Broker, value: bytes, key: bytes | None = None) -> None:
    """Write into the topic as a client of an earlier version could."""
    with broker.shard.lock:
        _, commit = broker.shard.publishing.append_schedules(Batch([value], keys=[key]), broker.shard.clock.wall_us())
    assert commit is not None
    broker.shard.journal.wait(commit)


def entry(name: str, **fields: Any) -> bytes:
    return msgspec.msgpack.encode(Schedule(**{**_GOOD, "name": name, **fields}))


_GOOD: dict[str, Any] = {
    "cron": "0 * * * *",
    "zone": "UTC",
    "topic": "t",
    "message": Single(b"x"),
    "next_us": 1_767_229_200_000_000,
}


@pytest.fixture
def broker(clock: VirtualClock) -> Iterator[penstock.Broker]:
    with penstock.open(storage=MemoryStorage(), clock=clock) as opened:
        opened.schedule("real", "0 * * * *", "t", "x")
        yield opened


CHANGES: dict[str, Callable[[penstock.Broker], object]] = {
    "publish": lambda broker: broker.publish(SCHEDULES, "x"),
    "publish to a partition": lambda broker: broker.publish(SCHEDULES, "x", partition=0),
    "publish later": lambda broker: broker.publish(SCHEDULES, "x", delay=60),
    "publish many": lambda broker: broker.publish_many(SCHEDULES, ["x"]),
    "publish once": lambda broker: broker.publish_many(SCHEDULES, ["x"], producer="p", sequence=1),
    "stage": lambda broker: broker.stage_many("s", SCHEDULES, ["x"]),
    "consume": lambda broker: broker.consumer(SCHEDULES, "g"),
    "consume with another": lambda broker: broker.consumer(["t", SCHEDULES], "g"),
    "cancel": lambda broker: broker.cancel_delayed(f"{SCHEDULES}/0/0"),
    "reschedule": lambda broker: broker.reschedule_delayed(f"{SCHEDULES}/0/0", delay=1),
    "schedule into it": lambda broker: broker.schedule("other", "0 * * * *", SCHEDULES, entry("forged")),
    "redrive": lambda broker: broker.redrive(SCHEDULES),
    "redrive its letters": lambda broker: broker.redrive(SCHEDULES + ".dlq"),
    "redrive into it": lambda broker: broker.redrive("t", to=SCHEDULES),
    "trim": lambda broker: broker.trim(SCHEDULES, {0: 1}),
    "create": lambda broker: broker.create_topic(SCHEDULES),
    "configure": lambda broker: broker.configure_topic(SCHEDULES, retention_age=1),
    "delete": lambda broker: broker.delete_topic(SCHEDULES),
    "create a group": lambda broker: broker.create_group(SCHEDULES, "g"),
    "replay": lambda broker: broker.replay(SCHEDULES, "g"),
    "checkpoint": lambda broker: broker.checkpoint_group(SCHEDULES, "g", {0: 0}),
}


def kept(broker: penstock.Broker) -> list[tuple[list[StoredMessage], list[Event]]]:
    """The messages and events of the topic, in each shard that has schedules."""
    found = []
    for shard in broker.shards:
        for partition in shard.topic(SCHEDULES).partitions if SCHEDULES in shard.catalog.by_name else ():
            messages = list(LogReader(shard, partition.messages).messages(Window()))
            events = [] if partition.events is None else list(LogReader(shard, partition.events).events(Window()))
            found.append((messages, events))
    assert found
    return found


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_H7_no_client_changes_the_topic_of_the_schedules(
    broker: penstock.Broker, change: Callable[[penstock.Broker], object]
) -> None:
    broker.publish("t", "x")
    before = kept(broker)
    refusals = (penstock.InvalidArgument, penstock.TopicNotFound)  # the shard of its name may have no schedules
    with pytest.raises(refusals, match=r"the broker's own|there is no topic 'penstock\.schedules'"):
        change(broker)
    assert kept(broker) == before
    assert [schedule.name for schedule in broker.schedules()] == ["real"]
    assert broker.groups() == []


@pytest.mark.one_shard("each shard keeps its schedules, and one of these topics is shown")
def test_the_topic_of_the_schedules_can_be_read(broker: penstock.Broker) -> None:
    assert [message.key for message in broker.read(SCHEDULES)] == [b"real"]
    assert [delayed.id.offset for delayed in broker.delayed(SCHEDULES)] == [0]
    assert broker.trace(f"{SCHEDULES}/0/0").id.topic == SCHEDULES
    assert broker.replay(SCHEDULES, lambda message: None) == 1


def test_a_stage_that_an_earlier_version_took_for_the_schedules_is_not_published(clock: VirtualClock) -> None:
    storage = MemoryStorage()
    with penstock.open(storage=storage, clock=clock) as broker:
        broker.schedule("real", "0 * * * *", "t", "x")
        broker.stage_many("s", "t", ["before"])
        stage = broker.shard.stages._stages["s"]
        record = encode_record(SCHEDULES, check_messages([entry("forged")], BrokerConfig(), clock.wall_us()))
        stage.end = storage.open(path_of(stage.file, ".open")).write(stage.end, record)
        stage.messages += 1
        broker.seal_stage("s")
    with penstock.open(storage=storage, clock=clock) as broker:
        for _ in range(2):
            with pytest.raises(penstock.InvalidArgument, match="the broker's own"):
                broker.publish_staged(["s"], producer="p", sequence=1)
        assert published(broker) == []
        assert [schedule.name for schedule in broker.schedules()] == ["real"]


BAD: dict[str, bytes] = {
    "text": b"not a schedule",
    "a name that is none": entry("a/b"),
    "a topic that leaves the directory": entry("bad", topic="../../outside"),
    "a topic that is the parent": entry("bad", topic=".."),
    "the topic itself": entry("bad", topic=SCHEDULES),
    "a priority that is none": entry("bad", message=Single(b"x", priority=1000)),
    "a priority below all": entry("bad", message=Single(b"x", priority=-1)),
    "a time beyond all": entry("bad", next_us=2**62),
    "a time before all": entry("bad", next_us=-1),
    "a life beyond all": entry("bad", life_us=2**62),
    "a cron expression that is none": entry("bad", cron="61 * * * *"),
    "a cron expression without end": entry("bad", cron="*," * 100_000),
    "a zone that is none": entry("bad", zone="../../etc/passwd"),
    "a message with a time": entry("bad", message=Single(b"x", deliver_at_us=1)),
    "a message with an end": entry("bad", message=Single(b"x", expires_at_us=1)),
    "a message with a dedupe id": entry("bad", message=Single(b"x", dedupe_id="d")),
}


@pytest.mark.parametrize("value", BAD.values(), ids=BAD)
def test_what_is_no_schedule_is_left_out_and_the_others_fire(
    clock: VirtualClock, value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    storage = MemoryStorage()
    with penstock.open(storage=storage, clock=clock) as broker:
        broker.schedule("early", "0 * * * *", "t", "early")
        forge(broker, value)
        broker.schedule("late", "0 * * * *", "t", "late")
    with caplog.at_level(logging.ERROR, "penstock"), penstock.open(storage=storage, clock=clock) as broker:
        assert "penstock.schedules/0/1 is left out" in caplog.text
        assert [schedule.name for schedule in broker.schedules()] == ["early", "late"]
        assert [schedule.next_at is not None for schedule in broker.schedules()] == [True, True]
        pass_time(broker, clock, HOUR_S)
        assert sorted(published(broker)) == [b"early", b"late"]
        assert {topic.name for topic in broker.topics()} == {"t", SCHEDULES}


def test_a_schedule_that_is_there_twice_is_removed_for_good(clock: VirtualClock) -> None:
    storage = MemoryStorage()
    with penstock.open(storage=storage, clock=clock) as broker:
        broker.schedule("real", "0 * * * *", "t", "x")
        forge(broker, entry("real", message=Single(b"forged")))
    with penstock.open(storage=storage, clock=clock) as broker:
        assert [schedule.message.value for schedule in broker.schedules()] == [b"forged"]
        broker.remove_schedule("real")
    with penstock.open(storage=storage, clock=clock) as broker:
        assert broker.schedules() == []


def test_a_schedule_that_breaks_does_not_keep_the_others_waiting(
    broker: penstock.Broker, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    schedules = broker.shard.schedules
    with broker.shard.lock:
        broken, offsets = schedules._find("real")
    schedules._table.known["real"] = (msgspec.structs.replace(broken, life_us="x"), offsets)  # no check lets it through
    broker.schedule("sound", "0 * * * *", "t", "sound")
    pass_time(broker, clock, HOUR_S)
    assert published(broker) == [b"sound"]
    assert "the schedule real failed" in caplog.text


def test_H4_a_redrive_makes_no_topic_of_a_name_that_leaves_the_directory(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "data") as broker:
        broker.publish("...dlq", "a letter by hand, which would go back to the topic ..")
        with pytest.raises(penstock.InvalidArgument, match="not a topic name"):
            broker.redrive("...dlq")
        assert [topic.name for topic in broker.topics()] == ["...dlq"]


@pytest.mark.parametrize("settled", [False, True])
def test_H4_a_directory_with_a_topic_of_a_bad_name_opens_and_nothing_is_written_outside(
    tmp_path: Path, settled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    bad = "../../outside"
    with penstock.open(data, sync="never") as broker:
        broker.publish("good", "kept")
        with monkeypatch.context() as earlier:  # which checked no name where a topic was made
            earlier.setattr("penstock.log.reservations.check_topic_name", lambda name: name)
            with broker.shard.lock:
                broker.shard.topics.make(bad, BrokerConfig().topic_defaults, 0)
                broker.shard.append_internal(bad, Batch([b"stays readable"]), 0)
            broker.shard.journal.flush()
        if settled:
            broker.shard.checkpoint()
        state = {file.name: file.read_bytes() for file in data.iterdir() if file.is_file()}
        journal = {file.name: file.read_bytes() for file in (data / "journal").iterdir()}
    for name, content in state.items():  # as it was before closing: in the journal alone, or in the checkpoint too
        (data / name).write_bytes(content)
    for name, content in journal.items():
        (data / "journal" / name).write_bytes(content)
    assert check_directory(FileStorage(data)).problems == []
    with Snapshot(data) as snapshot:
        names = [topic.name for topic in snapshot.topics()]
    with penstock.open(data) as broker:
        assert [topic.name for topic in broker.topics()] == names == ["good", "recovered-2"]
        assert [message.value for message in broker.read("recovered-2")] == [b"stays readable"]
        broker.settle()
        assert [message.value for message in broker.read("recovered-2")] == [b"stays readable"]
    with penstock.open(data) as broker:
        broker.delete_topic("recovered-2")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    assert not list(tmp_path.parent.glob("outside*"))


def test_H4_a_checkpoint_names_no_file_outside_of_the_directory(tmp_path: Path) -> None:
    data, outside = tmp_path / "data", tmp_path / "precious"
    outside.write_text("not a file of the broker")
    with penstock.open(data) as broker:
        broker.publish("t", "x")
        broker.settle()
    storage = FileStorage(home_of(data, "t"))
    checkpoint = read_checkpoint(storage)
    assert checkpoint is not None
    checkpoint.doomed = ["../precious", str(outside), "topics/t/../../../precious"]
    checkpoint.topics[0].name = "../../t"
    write_checkpoint(storage, checkpoint)
    mended = decode_checkpoint((home_of(data, "t") / "checkpoint-a").read_bytes())
    assert mended is not None
    assert mended.doomed == []
    with penstock.open(data) as broker:
        assert [topic.name for topic in broker.topics()] == ["recovered-1"]
        for shard in broker.shards:
            shard.checkpoint()
    assert outside.read_text() == "not a file of the broker"
