"""Another number of shards: everything is as it was, and nothing that goes wrong on the way changes the original."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.cluster.directory import Step, shards_of, write_division
from penstock.cluster.resharding.reshard import copy_resharded
from penstock.cluster.resharding.swap import BEFORE, COPY
from penstock.model.errors import (
    InvalidArgument,
    StageNotFound,
    StorageFailed,
)
from penstock.model.names import recovered_name
from penstock.model.placement import shard_of
from penstock.model.schedules import SCHEDULES
from penstock.shard.staging import staged_publishing
from penstock.storage import FileStorage
from penstock.testing import VirtualClock
from tests.cluster.resharding_harness import ONLY, contents, quietly, rich, to
from tests.cluster.rich_directory import Workload, come_to_rest, go_on, open_at, portrait


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return rich(tmp_path / "data", 1)[0]


# Everything is as it was.


@pytest.mark.parametrize(("seed", "before", "after"), [(1, 1, 4), (2, 4, 1), (3, 4, 8), (4, 8, 3), (5, 3, 2)])
def test_everything_is_as_it_was(seed: int, before: int, after: int, tmp_path: Path) -> None:
    workload = Workload(seed, str(tmp_path / "archive"))
    data = tmp_path / "data"
    with open_at(data, workload.clock, before) as broker:
        workload.fill(broker, 200)
    with open_at(data, workload.clock) as broker:
        expected, epoch = portrait(broker), broker.status().epoch
    done = to(data, after)
    assert done.shards == after
    assert done.aside == data / BEFORE
    assert sorted(path.name for path in data.iterdir() if path.name in (COPY, BEFORE)) == [BEFORE]
    with open_at(data, workload.clock) as broker:
        assert broker.shards.count == after
        assert broker.status().epoch > epoch  # no receipt of before fits a lease of now
        found = portrait(broker)
        for face in expected:
            assert found[face] == expected[face], face
    shutil.copytree(data / BEFORE, tmp_path / "old")
    with open_at(tmp_path / "old", workload.clock) as old, open_at(data, workload.clock) as new:
        assert portrait(old) == expected
        for answers in zip(go_on(old, workload), go_on(new, workload), strict=True):
            assert answers[0] == answers[1]
    workload.clock.advance(20_000)  # delays, retries and schedules are due
    with open_at(tmp_path / "old", workload.clock) as old, open_at(data, workload.clock) as new:
        for broker in (old, new):
            come_to_rest(broker)
        for answers in zip(go_on(old, workload), go_on(new, workload), strict=True):
            assert answers[0] == answers[1]


def test_resharding_there_and_back_again_changes_nothing(tmp_path: Path) -> None:
    data, clock = rich(tmp_path / "data", 1)
    with open_at(data, clock) as broker:
        expected = portrait(broker)
    for shards in (5, 2, 1):
        to(data, shards)
        shutil.rmtree(data / BEFORE)
    assert not (data / "penstock.json").exists()
    assert not (data / "shards").exists()
    with open_at(data, clock) as broker:
        assert portrait(broker) == expected


def test_very_many_tiny_topics_stay_in_the_journal(tmp_path: Path) -> None:
    names = [f"tiny-{number}" for number in range(1200)]
    with penstock.open(tmp_path, shards=1, sync="never", **ONLY) as broker:
        for name in names:
            broker.publish(name, name)
    to(tmp_path, 3)
    assert not list(tmp_path.glob("shards/*/topics/*"))
    with penstock.open(tmp_path, **ONLY) as broker:
        assert [topic.name for topic in broker.topics()] == sorted(names)
        assert all(next(broker.read(name)).value == name.encode() for name in names)


def test_segments_are_linked_and_not_copied(tmp_path: Path) -> None:
    with penstock.open(tmp_path, shards=1, **ONLY) as broker:
        broker.publish_many("t", ["v"] * 1000)
        broker.settle()
    (segment,) = tmp_path.glob("topics/t/messages/0/*.parquet")
    inode = segment.stat().st_ino
    to(tmp_path, 4)
    assert (tmp_path / f"shards/{shard_of('t', 4)}" / segment.relative_to(tmp_path)).stat().st_ino == inode


def test_files_are_readable_by_whom_they_were(tmp_path: Path) -> None:
    with penstock.open(tmp_path, shards=2, readable_by="group", **ONLY) as broker:
        broker.publish("t", "v")
    to(tmp_path, 3)
    made = [path for path in (tmp_path / "shards").rglob("*") if path.name != "LOCK"]
    assert {oct(path.stat().st_mode & 0o777) for path in made if path.is_file()} == {"0o640"}
    assert {oct(path.stat().st_mode & 0o777) for path in made if path.is_dir()} == {"0o750"}


def test_each_schedule_is_with_its_topic_and_the_shown_topic_of_them_goes_on(tmp_path: Path) -> None:
    topics = [f"t{number}" for number in range(8)]
    with penstock.open(tmp_path, shards=1, **ONLY) as broker:
        for topic in topics:
            broker.schedule(f"of-{topic}", "0 5 * * *", topic, "v")
        broker.pause_schedule("of-t3")
        expected, before = broker.schedules(), {message.offset: message.value for message in broker.read(SCHEDULES)}
    to(tmp_path, 4)
    with penstock.open(tmp_path, **ONLY) as broker:
        assert broker.schedules() == expected
        for topic in topics:
            with (shard := broker.shards.of(topic)).lock:
                assert shard.schedules.has(f"of-{topic}")
        after = {message.offset: message.value for message in broker.read(SCHEDULES)}
        assert {offset: after[offset] for offset in before} == before
        broker.remove_schedule("of-t3")
        assert len(broker.schedules()) == 7


def test_a_schedule_that_was_moving_to_another_shard_arrives(tmp_path: Path) -> None:
    old, new = (next(name for name in map(str, range(99)) if shard_of(name, 2) == shard) for shard in (0, 1))
    with penstock.open(tmp_path, shards=2, **ONLY) as broker:
        broker.schedule("s", "0 5 * * *", old, "v")
        with (shard := broker.shards.of(new)).lock:  # a crash leaves the old one, too
            _, commit = shard.schedules.put("s", "0 6 * * *", "UTC", new, penstock.Message("v"))
        commit.wait()
        assert [schedule.topic for schedule in broker.schedules()] == [old, new]
    to(tmp_path, 1)
    with penstock.open(tmp_path, **ONLY) as broker:
        assert [(schedule.name, schedule.topic) for schedule in broker.schedules()] == [("s", new)]


def test_topics_of_one_name_that_a_repair_left_in_two_shards_get_two_names(tmp_path: Path) -> None:
    with penstock.open(tmp_path, shards=2, **ONLY) as broker:
        for shard in broker.shards:
            shard.create_topic(recovered_name(7), {}).wait()
            shard.publish(recovered_name(7), penstock.Message(f"of {shard.storage.path}"))
            shard.flush()
    to(tmp_path, 3)
    with penstock.open(tmp_path, **ONLY) as broker:
        names = [topic.name for topic in broker.topics()]
        assert len(names) == 2
        assert "recovered-7" in names
        assert len({next(broker.read(name)).value for name in names}) == 2


# Stages.


def staged(broker: penstock.Broker, name: str, topics: list[str]) -> None:
    for topic in topics:
        broker.stage_many(name, topic, [f"{name} for {topic}"])
    assert broker.seal_stage(name) == len(topics)


TOPICS = [f"t{number}" for number in range(6)]


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (2, 4)])
def test_what_is_staged_can_be_published_later_and_once(before: int, after: int, tmp_path: Path) -> None:
    with penstock.open(tmp_path, shards=before, **ONLY) as broker:
        staged(broker, "done", TOPICS)
        assert broker.publish_staged(["done"], producer="q", sequence=3) == 6
        staged(broker, "waiting", TOPICS)
        broker.stage_many("open", TOPICS[0], ["never sealed"])
    to(tmp_path, after)
    with penstock.open(tmp_path, **ONLY) as broker:
        assert broker.staged_sequence("q") == 3
        assert broker.publish_staged(["done"], producer="q", sequence=3) == 6  # as the first time
        with pytest.raises(StageNotFound, match="was not sealed when the broker stopped"):
            broker.stage_many("open", TOPICS[1], ["a part of it"])
        assert broker.publish_staged(["waiting"], producer="q", sequence=4) == 6
        assert broker.publish_staged(["waiting"], producer="q", sequence=4) == 6
        for topic in TOPICS:
            published = [message.value.decode() for message in broker.read(topic)]
            assert published == [f"done for {topic}", f"waiting for {topic}"]


def test_a_publish_of_stages_that_was_cut_short_is_finished_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged_publishing, "STEP_BYTES", 200)
    with penstock.open(tmp_path, shards=1, **ONLY) as broker:
        for number in range(3):
            staged(broker, f"s{number}", TOPICS)
        publish, steps = broker.shard.publishing.publish_together, iter(range(2))

        def cut_short(*given: Any) -> Any:
            if next(steps, None) is None:
                raise StorageFailed("the power went")
            return publish(*given)

        monkeypatch.setattr(broker.shard.publishing, "publish_together", cut_short)
        with pytest.raises(StorageFailed):
            broker.publish_staged(["s0", "s1", "s2"], producer="q", sequence=1)
    to(tmp_path, 4)
    with penstock.open(tmp_path, **ONLY) as broker:
        assert broker.publish_staged(["s0", "s1", "s2"], producer="q", sequence=1) == 18
        for topic in TOPICS:
            published = [message.value.decode() for message in broker.read(topic)]
            assert published == [f"s{number} for {topic}" for number in range(3)]


def test_a_publish_of_stages_in_some_shards_only_is_refused_until_it_is_done(tmp_path: Path) -> None:
    with penstock.open(tmp_path, shards=2, **ONLY) as broker:
        staged(broker, "s", TOPICS)
        broker.shards[0].staging.publish_staged(["s"], "q", 1)
    before = contents(tmp_path)
    with pytest.raises(InvalidArgument, match="stages of 'q' were published in some shards only"):
        to(tmp_path, 3)
    assert contents(tmp_path) == before
    with penstock.open(tmp_path, **ONLY) as broker:
        broker.publish_staged([], producer="q", sequence=1)  # the rest is given up
        broker.drop_staged(["s"])
        expected = [[message.value for message in broker.read(t.name)] for t in broker.topics()]
    to(tmp_path, 3)
    with penstock.open(tmp_path, **ONLY) as broker:
        assert broker.staged_sequence("q") == 1
        assert [[message.value for message in broker.read(t.name)] for t in broker.topics()] == expected


# A copy elsewhere.


def test_a_copy_elsewhere_leaves_the_original_alone(tmp_path: Path) -> None:
    data, clock = rich(tmp_path / "data", 1)
    (data / "tokens.json").write_text("{}")
    before = contents(data)
    assert copy_resharded(data, 4, tmp_path / "new", quietly).shards == 4
    assert contents(data) == before
    assert (tmp_path / "new/tokens.json").exists()
    found = []
    for path in (data, tmp_path / "new"):
        with open_at(path, clock) as broker:
            found.append(portrait(broker))
    assert found[0] == found[1]


def test_a_copy_elsewhere_has_its_own_archive_if_that_is_in_the_directory(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "data", shards=1, **ONLY) as broker:
        broker.create_topic("t", archive="archive", retention_age=0)
        broker.publish_many("t", ["old"] * 10)
        broker.settle()
        assert broker.retain() == 1
    copy_resharded(tmp_path / "data", 3, tmp_path / "new", quietly)
    shutil.rmtree(tmp_path / "data")
    with penstock.open(tmp_path / "new", **ONLY) as broker:
        assert [message.value for message in broker.read("t", include_deleted=True)] == [b"old"] * 10


def test_a_copy_that_was_cut_short_is_made_anew_and_nothing_else_is_overwritten(data: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    new.mkdir()
    write_division(FileStorage(new), 9, Step.COPYING)
    (new / "shards/8").mkdir(parents=True)
    (new / "shards/8/junk").write_text("half of it")
    copy_resharded(data, 2, new, quietly)
    assert sorted(path.name for path in (new / "shards").iterdir()) == ["0", "1"]
    with pytest.raises(InvalidArgument, match="is not empty"):
        copy_resharded(data, 3, new, quietly)
    assert shards_of(FileStorage(new)) == 2


def test_a_copy_elsewhere_that_fails_leaves_nothing(data: Path, tmp_path: Path) -> None:
    def interrupt(what: str, done: int, total: int) -> None:
        if what.startswith("checking"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy_resharded(data, 2, tmp_path / "new", interrupt)
    assert not (tmp_path / "new").exists()


# Topics that are spread.


def _make_spread(data: Path, clock: VirtualClock, shards: int) -> None:
    """A topic over three shards: settled and not, with groups, dead letters, schedules and a sealed stage."""
    with open_at(data, clock, shards) as broker:
        broker.create_topic("orders", partitions=7, spread=3, max_deliveries=1)
        broker.publish_many("orders", [penstock.Message(f"a{n}", key=f"{n}") for n in range(40)])
        with broker.consumer("orders", "g") as consumer:
            first, *others = consumer.receive(30)
            first.kill("never")
            consumer.ack(others[:20])
        broker.settle()
        broker.publish_many("orders", [penstock.Message(f"b{n}", key=f"{n}", delay=3600) for n in range(40)])
        broker.publish("orders", "once", dedupe_id="once")
        for n in range(4):
            broker.schedule(f"daily-{n}", "0 5 * * *", "orders", "v", key=f"{n}")
        broker.stage_many("stage", "orders", [penstock.Message(f"s{n}", key=f"{n}") for n in range(40)])
        broker.seal_stage("stage")
        for name in ("plain", "gone"):
            broker.create_topic(name, partitions=4, spread=1 if name == "plain" else 3)
            broker.publish_many(name, [penstock.Message("v", partition=n % 4) for n in range(10)])
        broker.delete_topic("gone")


def _told(broker: penstock.Broker) -> dict[str, Any]:
    topics = [topic for topic in broker.topics() if topic.name != SCHEDULES]
    return {
        "topics": [
            (topic.name, [(part.first_offset, part.end_offset) for part in topic.partitions]) for topic in topics
        ],
        "messages": {
            topic.name: [(m.id, m.value, m.timestamp_us) for m in broker.read(topic.name)] for topic in topics
        },
        "groups": broker.groups(),
        "letters": broker.dead_letters("orders"),
        "delayed": broker.delayed("orders"),
        "schedules": broker.schedules(),
    }


@pytest.mark.parametrize(("before", "after"), [(3, 5), (5, 3), (4, 8), (8, 4)])
def test_slices_move_whole_to_another_number_of_shards(before: int, after: int, tmp_path: Path) -> None:
    data, clock = tmp_path / "data", VirtualClock()
    _make_spread(data, clock, before)
    with open_at(data, clock) as broker:
        expected = _told(broker)
    to(data, after)
    with open_at(data, clock) as broker:
        found = _told(broker)
        for what, known in expected.items():
            assert found[what] == known, what
        assert len(broker.shards.slices("orders")[1]) == 3
        once = next(message for message in broker.read("orders") if message.value == b"once")
        assert broker.publish("orders", "once", dedupe_id="once") == once.id
        assert broker.publish_staged(["stage"], producer="p", sequence=1) == 40
        staged = [message for message in broker.read("orders") if message.value.startswith(b"s")]
        first = {message.key: message.partition for message in broker.read("orders") if message.value.startswith(b"a")}
        assert {message.key: message.partition for message in staged} == first
        broker.create_topic("gone", partitions=4, spread=2)
        assert all(part.first_offset >= 3 for part in broker.topics()[0].partitions)


def test_fewer_shards_than_a_topic_needs_are_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    _make_spread(data, VirtualClock(), 4)
    before = contents(data)
    for shards in (1, 2):
        with pytest.raises(InvalidArgument, match=r"orders is spread over 3 shards: .* too few"):
            to(data, shards)
    assert contents(data) == before
