"""One fold: what a broker holds is what the next one finds, with the same caps, and what a reader without one finds."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.cluster.snapshots import Snapshots
from penstock.delivery.partition import DeliveryState, PartitionState
from penstock.log.checkpoint import topic_state
from penstock.log.producers import ProducerHistories
from penstock.log.topics import Catalog
from penstock.model.clock import SystemClock
from penstock.model.config import BrokerConfig
from penstock.model.info import GroupInfo
from penstock.model.message import IdRun
from penstock.model.singles import Single
from penstock.shard.recovery import recover
from penstock.shard.upkeep.settling import Settler
from penstock.storage.read_only import ReadOnlyStorage
from penstock.views.snapshot import GroupProgress, Snapshot

PRODUCERS_MAX = 4
OPTIONS: dict[str, Any] = {
    "max_producers": PRODUCERS_MAX,
    "min_free_bytes": 0,
    "journal_file_bytes": 4096,
    "segment_min_bytes": 700,
    "journal_files_max": 2,
    "sync": "never",
}
_NOTHING = PartitionState().state()


def state_of(catalog: Catalog) -> dict[str, object]:
    """Everything durable of every topic, without what says nothing."""
    found: dict[str, object] = {"floors": dict(catalog.floors), "next": catalog.next_id}
    for topic in catalog.by_id.values():
        state = topic_state(topic)
        delivery = [_told(partition) for partition in state.delivery or [None] * len(state.messages)]
        events = [None if log is None or not log.end else (log.end, log.settled_end) for log in state.events]
        logs = [(log.end, log.settled_end, log.segments) for log in state.messages]
        found[topic.name] = (state.id, state.config, logs, events, state.dedupe, state.producers, delivery)
    return found


def _told(state: DeliveryState | None) -> object:
    return None if state is None or state == _NOTHING else state


def held_by(broker: penstock.Broker) -> tuple[dict[str, object], list[object]]:
    """The durable state of a broker, and its staged publishes."""
    with broker.shard.lock:
        return state_of(broker.shard.catalog), list(broker.shard.state.staged.values())


def found_in(path: Path) -> tuple[dict[str, object], list[object]]:
    """The same, as recovery makes it of a directory, which is only read."""
    state = recover(ReadOnlyStorage(path), BrokerConfig.parse(OPTIONS), SystemClock())
    for file in state.files.values():
        file.handle.close()
    return state_of(state.state.catalog), list(state.state.staged.values())


def copy_of(path: Path) -> Path:
    """The directory as it is now, as if the broker had been killed."""
    copy = Path(tempfile.mkdtemp(dir=path.parent))
    shutil.copytree(path, copy / "data", ignore=shutil.ignore_patterns("LOCK"))
    return copy / "data"


def durable_part(info: GroupInfo) -> GroupProgress:
    """What a group is without its leases, as a reader of the directory sees it."""
    common = {name: getattr(info, name) for name in GroupProgress.__dataclass_fields__}
    return GroupProgress(**common)


def check_all_agree(broker: penstock.Broker, path: Path) -> None:
    """Live, recovered from the journal, reopened, and a snapshot: one state."""
    groups = sorted(broker.groups(), key=lambda info: (info.topic, info.name))
    with broker.shard.upkeep_lock:  # nobody settles while it is copied
        broker.shard.journal.flush()
        held, copy = held_by(broker), copy_of(path)
    assert found_in(copy) == held
    with Snapshot(copy) as snapshot:
        assert [group.published for group in snapshot.groups()] == [info.published for info in groups]
        assert snapshot.groups() == [durable_part(info) for info in groups]
    with penstock.open(copy, **OPTIONS) as reopened:
        assert held_by(reopened) == held
        reopened.shard.checkpoint()
        assert found_in(copy_of(copy)) == held
    assert found_in(copy) == held
    shutil.rmtree(copy.parent)


def test_F1_the_cap_on_producers_is_the_same_after_a_restart(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "data", **OPTIONS) as broker:
        for number in range(20):
            broker.publish_many("t", ["x"], producer=f"p{number}", sequence=1)
        producers = broker.shard.topic("t").producers
        assert producers is not None
        assert len(producers) == PRODUCERS_MAX
        check_all_agree(broker, tmp_path / "data")


def test_F1_the_cap_on_staged_publishing_is_the_same_after_a_restart(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "data", **OPTIONS) as broker:
        for number in range(20):
            broker.stage_many("s", "t", ["x"])
            broker.seal_stage("s")
            broker.publish_staged(["s"], producer=f"p{number}", sequence=1)
        assert [record.producer for record in broker.shard.state.staged.values()] == ["p16", "p17", "p18", "p19"]
        check_all_agree(broker, tmp_path / "data")


def test_F1_a_lower_cap_counts_when_a_directory_is_opened(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "data") as broker:
        for number in range(20):
            broker.publish_many("t", ["x"], producer=f"p{number}", sequence=1)
    with penstock.open(tmp_path / "data", **OPTIONS) as broker:
        producers = broker.shard.topic("t").producers
        assert producers is not None
        assert {producer for producer, _, _ in producers.entries()} == {"p16", "p17", "p18", "p19"}


def test_F1_what_a_replay_group_was_given_is_counted_alike_in_a_snapshot(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "data") as broker:
        broker.publish_many("t", [b"x"] * 100)
        broker.replay("t", "again", from_offset=10, to_offset=20)
        assert broker.group("t", "again").published == 10
    with Snapshots(tmp_path / "data") as snapshot:
        assert [group.published for group in snapshot.groups("t")] == [10]


def test_F2_a_refused_publish_leaves_the_producers_as_they_were(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "data", **OPTIONS) as broker:
        for number in range(PRODUCERS_MAX):
            broker.publish_many("t", ["x"], producer=f"p{number}", sequence=1)
        before = held_by(broker)
        broker.shard.publish_many("t", ["refused"], "other", 1)
        broker.shard.publish_many("t", ["refused"], "p0", 2)
        with broker.shard.lock:
            broker.shard.journal.take_back(0, 0)  # as a full disk does it
        assert held_by(broker) == before
        check_all_agree(broker, tmp_path / "data")


def test_F1_a_block_that_was_carried_on_does_not_make_its_producer_the_newest(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "data", **{**OPTIONS, "journal_files_max": 1}) as broker:
        broker.create_topic("wide", partitions=2)
        small, large = penstock.Message("x", partition=0), penstock.Message("x" * 900, partition=1)
        broker.publish_many("wide", [small], producer="small", sequence=1)
        log = broker.shard.topic("wide").partitions[0].messages
        first_file = log.block(0).sequence
        for sequence in range(12):
            broker.publish_many("wide", [large], producer="large", sequence=sequence)
        Settler(broker.shard).settle()
        assert log.block(0).sequence > first_file
        producers = broker.shard.topic("wide").producers
        assert producers is not None
        assert next(iter(producers.entries()))[0] == "small"
        check_all_agree(broker, tmp_path / "data")


def test_L7_what_is_on_its_way_to_the_disk_is_known_already(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "data", **OPTIONS) as broker:
        broker.create_topic("wide", partitions=3)
        messages = [penstock.Message(f"{number}", partition=number) for number in range(3)]
        first, _ = broker.shard.publish_many("wide", messages, "p", 1)
        second, _ = broker.shard.publish_many("wide", messages, "p", 1)
        assert list(first) == list(second)
        assert len(list(broker.read("wide"))) == 0
        broker.shard.journal.flush()
        third, _ = broker.shard.publish_many("wide", messages, "p", 1)
        assert list(third) == list(first)
        assert len(list(broker.read("wide"))) == 3


Step = Callable[[penstock.Broker, list[Any]], object]
_topics = st.sampled_from(["one", "wide"])
_producers = st.integers(0, 9).map("p{}".format)


def _publish(topic: str, count: int, dedupe: bool) -> Step:
    def step(broker: penstock.Broker, _: list[Any]) -> None:
        for number in range(count):
            broker.publish(topic, "x" * 40, key=f"{number}", dedupe_id=f"d{number % 3}" if dedupe else None)

    return step


def _publish_for(topic: str, producers: list[str], count: int) -> Step:
    """Publish for several producers in one commit, batches and single messages in turn."""

    def step(broker: penstock.Broker, numbers: list[Any]) -> None:
        shard, now_us = broker.shard, broker.shard.clock.wall_us()
        for place, producer in enumerate(producers):
            numbers.append(0)
            if place % 2:
                shard.publish_single(topic, Single(b"z" * 20), None, now_us, producer, len(numbers))
            else:
                shard.publish_many(topic, [b"y" * 30] * count, producer, len(numbers))
        shard.journal.flush()

    return step


def _stage(producer: str) -> Step:
    def step(broker: penstock.Broker, numbers: list[Any]) -> None:
        numbers.append(0)
        broker.stage_many("s", "wide", [b"staged"] * 2)
        broker.seal_stage("s")
        broker.publish_staged(["s"], producer=producer, sequence=len(numbers))

    return step


def _consume(topic: str, group: str, count: int, fate: str) -> Step:
    def step(broker: penstock.Broker, _: list[Any]) -> None:
        with broker.consumer(topic, group) as consumer:
            messages = consumer.receive(count)
            if messages and fate == "ack":
                consumer.ack(messages)
            elif messages and fate == "fail":
                consumer.fail(messages, "bad", delay=3600)
            elif messages and fate == "kill":
                consumer.kill(messages, "bad")

    return step


def _replay(topic: str) -> Step:
    def step(broker: penstock.Broker, numbers: list[Any]) -> None:
        numbers.append(0)
        broker.replay(topic, f"again{len(numbers)}", from_offset=1, to_offset=5)

    return step


def _delete(broker: penstock.Broker, _: list[Any]) -> None:
    broker.publish("gone", "x")
    broker.delete_topic("gone")


STEPS: st.SearchStrategy[Step] = st.one_of(
    st.builds(_publish, _topics, st.integers(1, 4), st.booleans()),
    st.builds(_publish_for, _topics, st.lists(_producers, min_size=1, max_size=6), st.integers(1, 3)),
    st.builds(_stage, _producers),
    st.builds(
        _consume, _topics, st.sampled_from("ab"), st.integers(1, 5), st.sampled_from(["ack", "fail", "kill", "none"])
    ),
    st.builds(_replay, _topics),
    st.just(_delete),
    st.just(lambda broker, _: broker.settle()),
    st.just(lambda broker, _: Settler(broker.shard).settle()),
    st.just(lambda broker, _: broker.shard.checkpoint()),
    st.just(lambda broker, _: broker.checkpoint_group("wide", "reader", {0: 0})),
)


@settings(max_examples=25, deadline=None)
@given(before=st.lists(STEPS, min_size=1, max_size=12), after=st.lists(STEPS, max_size=6))
def test_F1_live_recovered_reopened_and_snapshot_are_one_state(
    before: list[Step], after: list[Step], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("fold") / "data"
    numbers: list[Any] = []
    for steps in (before, after):  # the second broker goes on where the first one was closed
        with penstock.open(path, **OPTIONS) as broker:
            for topic, partitions in (("one", 1), ("wide", 3)):
                if topic not in {info.name for info in broker.topics()}:
                    broker.create_topic(topic, partitions=partitions)
            for step in steps:
                step(broker, numbers)
            check_all_agree(broker, path)


def test_L7_what_is_on_its_way_to_the_disk_is_known_until_it_arrives() -> None:
    known = ProducerHistories()
    known.expect_singles("p", 10, 0, 100, 5)
    known.expect_singles("p", 15, 0, 105, 1)
    known.expect_singles("p", 16, 0, 106, 4)
    known.expect_singles("p", 30, 1, 7, 2)
    assert known.find("p", 12) == [IdRun(0, 102, 1)]
    assert known.find("p", 15) == [IdRun(0, 105, 1)]
    assert known.find("p", 31) == [IdRun(1, 8, 1)]
    assert known.find("p", 20) is None
    assert not known.expect_new_singles("p", 5, 0, 200, 6) and not known.expect_new_singles("p", 19, 0, 200, 1)
    assert known.find("p", 5) is None, "where one is known, nothing is noted of the others"
    assert known.expect_new_singles("p", 20, 0, 200, 10) and known.expect_new_singles("q", 12, 0, 210, 1)
    assert (known.find("p", 29), known.find("q", 12)) == ([IdRun(0, 209, 1)], [IdRun(0, 210, 1)])
    known.arrive("p", 20, 10)  # they were refused
    known.arrive("q", 12)
    known.arrive("p", 10, 10)  # three publishes, merged into one run by their block
    assert [known.find("p", sequence) for sequence in (10, 15, 19)] == [None] * 3
    assert known.find("p", 30) == [IdRun(1, 7, 1)]
    known.arrive("p", 30, 2)
    assert known.expect_new_singles("p", 0, 0, 0, 100)


def test_L7_of_consecutive_singles_those_of_one_commit_arrive_and_the_others_are_still_known() -> None:
    known = ProducerHistories()
    for sequence in range(1, 7):  # two commits of three are under way
        assert known.expect_new_singles("p", sequence, 0, 100 + sequence, 1)
    known.arrive_singles([(0, "p", 1, 3)], 0, 101)
    assert known.find("p", 2) == [IdRun(0, 102, 1)]
    assert known.find("p", 5) == [IdRun(0, 105, 1)]
    assert not known.expect_new_singles("p", 3, 0, 200, 1) and not known.expect_new_singles("p", 6, 0, 200, 2)
    known.arrive("p", 6)  # the newest is refused first
    known.arrive("p", 4, 2)
    assert [known.find("p", sequence) for sequence in (3, 4, 5, 6)] == [[IdRun(0, 103, 1)], None, None, None]
    assert known.expect_new_singles("p", 4, 0, 104, 3)


def test_L7_singles_that_came_before_and_behind_a_commit_arrive_as_the_one_run_that_they_are() -> None:
    known = ProducerHistories()
    for sequence, offset in ((10, 0), (12, 1)):  # of the first commit
        assert known.expect_new_singles("p", sequence, 0, offset, 1)
    assert known.expect_new_singles("p", 13, 0, 2, 1)
    known.arrive_singles([(0, "p", 10, 1), (1, "p", 12, 1)], 0, 0)
    assert known.expect_new_singles("p", 14, 0, 3, 1)
    assert [known.find("p", sequence) for sequence in (13, 14)] == [[IdRun(0, 2, 1)], [IdRun(0, 3, 1)]]
    known.arrive_singles([(0, "p", 13, 2)], 0, 2)
    assert [known.find("p", sequence) for sequence in (13, 14, 15)] == [[IdRun(0, 2, 1)], [IdRun(0, 3, 1)], None]
    assert known.expect_new_singles("p", 15, 0, 4, 1)
