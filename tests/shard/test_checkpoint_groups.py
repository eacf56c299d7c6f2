"""Groups of readers that keep their own position: their lag is seen, and nothing else is made for them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import penstock
import penstock.aio
from penstock.cluster.snapshots import Snapshots
from penstock.model.events import EventKind
from penstock.shard.operations.groups import checkpoint_group, show_group
from penstock.shard.shard import Shard
from penstock.testing import FaultyStorage, MemoryStorage, VirtualClock
from tests.server.harness import Running

ShardOn = Callable[..., Shard]


@pytest.fixture
def broker(clock: VirtualClock) -> Iterator[penstock.Broker]:
    """Two partitions, with ten messages in each."""
    with penstock.open(storage=MemoryStorage(), clock=clock, min_free_bytes=0) as opened:
        fill(opened)
        yield opened


def fill(broker: penstock.Broker, count: int = 10) -> None:
    if "t" not in {topic.name for topic in broker.topics()}:
        broker.create_topic("t", partitions=2, retention_age="3d")
    for partition in range(2):
        broker.publish_many("t", [penstock.Message(f"{n}", partition=partition) for n in range(count)])


def seen(broker: Any, group: str = "spark") -> tuple[int, tuple[int, ...]]:
    """The lag and the positions of the group."""
    info = broker.group("t", group)
    assert info.kind == "checkpoint"
    assert info.published == info.ready + info.lost + info.withdrawn
    assert (info.leased, info.delayed, info.retrying, info.members) == (0, 0, 0, ())
    return info.lag, info.positions


def events_of(broker: penstock.Broker) -> list[tuple[EventKind, int]]:
    return [(event.kind, event.offset) for event in broker.events("t")]


def test_S6_the_lag_of_a_reader_is_what_lies_behind_the_positions_that_it_reports(broker: penstock.Broker) -> None:
    broker.checkpoint_group("t", "spark", {0: 4})
    assert seen(broker) == (6 + 10, (4, 0))
    broker.checkpoint_group("t", "spark", {0: 10, 1: 9})
    assert seen(broker) == (1, (10, 9))
    fill(broker, 5)
    assert seen(broker) == (5 + 6, (10, 9))
    broker.checkpoint_group("t", "spark", {0: 15, 1: 15})
    assert seen(broker) == (0, (15, 15))
    assert broker.groups() == broker.groups("t") == [broker.group("t", "spark")]
    assert broker.status().groups == 1


def test_S6_the_age_of_the_oldest_message_that_was_not_read_is_told(
    broker: penstock.Broker, clock: VirtualClock
) -> None:
    broker.checkpoint_group("t", "spark", {0: 10, 1: 10})
    assert broker.group("t", "spark").oldest_unacked_s is None
    broker.publish("t", "v", partition=1)
    clock.advance(60)
    assert broker.group("t", "spark").oldest_unacked_s == 60


def test_a_position_may_go_back(broker: penstock.Broker) -> None:
    broker.checkpoint_group("t", "spark", {0: 9, 1: 9})
    broker.checkpoint_group("t", "spark", {0: 2})
    assert seen(broker) == (8 + 1, (2, 9))
    broker.checkpoint_group("t", "spark", {0: 0, 1: 0})
    assert seen(broker) == (20, (0, 0))


def test_what_has_not_moved_is_not_written(broker: penstock.Broker) -> None:
    broker.checkpoint_group("t", "spark", {0: 4})
    made = events_of(broker)
    assert made == [(EventKind.CREATED, 4), (EventKind.CREATED, 0)]
    for same in ({0: 4}, {0: 4, 1: 0}, {}):
        broker.checkpoint_group("t", "spark", same)
    assert events_of(broker) == made
    commits = broker.shards.of("t").journal.commits
    broker.checkpoint_group("t", "spark", {0: 4, 1: 3})
    assert events_of(broker) == [*made, (EventKind.SOUGHT, 3)]
    broker.checkpoint_group("t", "spark", {0: 6, 1: 6})
    assert broker.shards.of("t").journal.commits == commits + 2, "all partitions move in one commit"


def test_nothing_is_made_ready_for_a_group_that_nobody_consumes(broker: penstock.Broker) -> None:
    broker.checkpoint_group("t", "spark", {0: 4})
    broker.checkpoint_group("t", "spark", {0: 5})
    assert seen(broker) == (15, (5, 0))
    broker.groups()
    in_use = broker.shards.of("t").dispatcher.in_use
    assert in_use.of(broker.shards.of("t").topic("t")) is None
    assert in_use._indexes == {}


def test_consumers_of_another_group_do_not_notice(broker: penstock.Broker) -> None:
    with broker.consumer("t", group="workers") as consumer:
        first = consumer.receive(max_messages=10, wait=0)
        broker.checkpoint_group("t", "spark", {0: 10, 1: 10})
        consumer.ack(first)
        broker.checkpoint_group("t", "spark", {0: 1, 1: 1})
        consumer.ack(consumer.receive(max_messages=10, wait=0))
        assert broker.group("t", "workers").lag == 0
        assert broker.group("t", "workers").kind == "consumers"
        assert seen(broker) == (18, (1, 1))
        assert "spark" not in broker.shards.of("t").dispatcher.attach("t").active_groups


def test_a_group_is_for_consumers_or_for_a_reader_and_never_for_both(broker: penstock.Broker) -> None:
    broker.checkpoint_group("t", "spark", {0: 4})
    broker.create_group("t", "workers")
    with pytest.raises(
        penstock.GroupInUse, match=r"shows how far a reader is .* consumers need a group of another name"
    ):
        broker.consumer("t", group="spark")
    with pytest.raises(penstock.GroupInUse, match="only the reader moves it"):
        broker.seek_group("t", "spark", 0)
    with pytest.raises(penstock.GroupInUse, match="only the reader moves it"):
        broker.reset_group("t", "spark")
    with pytest.raises(penstock.GroupInUse, match="is for consumers"):
        broker.checkpoint_group("t", "workers", {0: 4})
    with pytest.raises(penstock.GroupInUse, match="already"):
        broker.create_group("t", "spark")
    with pytest.raises(penstock.GroupInUse, match="fresh one"):
        broker.replay("t", "spark")
    assert seen(broker) == (16, (4, 0))


def test_a_deleted_one_is_forgotten_and_may_be_made_again_for_consumers(broker: penstock.Broker) -> None:
    broker.checkpoint_group("t", "spark", {0: 4})
    broker.delete_group("t", "spark")
    with pytest.raises(penstock.GroupNotFound):
        broker.group("t", "spark")
    with broker.consumer("t", group="spark") as consumer:
        assert len(consumer.receive(max_messages=20, wait=0)) == 20


REFUSED: list[tuple[Any, str]] = [
    ({0: 11}, r"offset 11 is not in t/0: give 0 to 10"),
    ({0: 1, 1: 1000}, r"offset 1000 is not in t/1: give 0 to 10"),
    ({0: -1}, "-1 is not an offset: they are whole numbers from 0"),
    ({2: 0}, "t has no partition 2: it has 0 to 1"),
    ({-1: 0}, "-1 is not a partition"),
    ({"one": 0}, "'one' is not a partition"),
    ({0: "4"}, "'4' is not an offset"),
    ({0: 4.0}, "4.0 is not an offset"),
    ({0: True}, "True is not an offset"),
    ({0: None}, "None is not an offset"),
    ([4, 5], "is not a mapping of partitions to offsets"),
    (None, "is not a mapping of partitions to offsets"),
]


@pytest.mark.parametrize(("positions", "problem"), REFUSED)
def test_a_position_that_cannot_be_is_refused_with_what_is_allowed(
    broker: penstock.Broker, positions: Any, problem: str
) -> None:
    for known in (False, True):
        if known:
            broker.checkpoint_group("t", "spark", {0: 3})
        with pytest.raises(penstock.InvalidArgument, match=problem):
            broker.checkpoint_group("t", "spark", positions)
    assert seen(broker) == (17, (3, 0)), "nothing of it was done"
    with pytest.raises(penstock.TopicNotFound):
        broker.checkpoint_group("nowhere", "spark", {0: 0})
    with pytest.raises(penstock.InvalidArgument, match="is not the name of a group"):
        broker.checkpoint_group("t", "a group", {0: 0})


def test_a_position_below_what_retention_kept_is_allowed(broker: penstock.Broker, clock: VirtualClock) -> None:
    broker.settle()
    clock.advance(4 * 86400)
    fill(broker, 5)
    assert broker.retain() > 0
    broker.checkpoint_group("t", "spark", {0: 4, 1: 12})
    assert seen(broker) == (5 + 3, (10, 12))
    assert broker.group("t", "spark").lost == 6
    commits = broker.shards.of("t").journal.commits
    broker.checkpoint_group("t", "spark", {0: 4, 1: 12})
    assert broker.shards.of("t").journal.commits == commits
    broker.checkpoint_group("t", "late", {})
    assert seen(broker, "late") == (10, (10, 10)), "the others begin with the first offset that is kept"


def test_S6_what_retention_takes_from_a_reader_is_lost_and_no_lag(broker: penstock.Broker, clock: VirtualClock) -> None:
    broker.checkpoint_group("t", "spark", {0: 4, 1: 8})
    broker.settle()
    clock.advance(4 * 86400)
    fill(broker, 5)
    broker.retain()
    assert seen(broker) == (10, (10, 10))
    assert broker.group("t", "spark").lost == 6 + 2


def test_S6_the_lag_survives_a_restart_with_and_without_a_checkpoint(shard_on: ShardOn) -> None:
    storage = FaultyStorage(0)
    shard = shard_on(storage, topic_defaults={"partitions": 2})
    _, commit = shard.publish_many("t", [penstock.Message(b"v", partition=n % 2) for n in range(20)])
    assert commit is not None
    shard.journal.wait(commit)
    checkpoint_group(shard, "t", "spark", {0: 3})
    shard.checkpoint()
    checkpoint_group(shard, "t", "spark", {1: 7})
    checkpoint_group(shard, "t", "other", {0: 10, 1: 10})
    info = show_group(shard, "t", "spark")
    assert (info.lag, info.positions) == (10, (3, 7))
    storage = storage.crash()
    for _ in range(2):
        shard = shard_on(storage)
        assert show_group(shard, "t", "spark") == info
        assert show_group(shard, "t", "other").lag == 0
        checkpoint_group(shard, "t", "spark", {0: 3, 1: 7})
        with contextlib.suppress(penstock.GroupInUse):
            shard.dispatcher.open_group("t", "spark")
            pytest.fail("its kind was forgotten")
        shard.close()


def test_many_reports_are_settled_and_go_with_retention_and_are_in_no_trace(
    broker: penstock.Broker, clock: VirtualClock
) -> None:
    for second in range(500):
        broker.checkpoint_group("t", "spark", {0: second % 10, 1: second % 10})
        clock.advance(1)
        if second % 100 == 0:
            broker.settle()
    broker.settle()
    events = broker.shards.of("t").topic("t").partitions[0].events
    assert events is not None
    assert (len(events), sum(segment.rows for segment in events.segments)) == (0, 500)
    assert len(events_of(broker)) == 1000
    assert [line.kind for line in broker.trace("t/0/5").lines] == ["published"]
    clock.advance(4 * 86400)
    broker.retain()
    assert events.segments == []
    assert seen(broker) == (0, (10, 10))
    broker.checkpoint_group("t", "spark", {0: 10, 1: 10})
    assert seen(broker) == (0, (10, 10))


def test_what_a_reader_has_not_read_is_kept_where_the_topic_protects_it(
    broker: penstock.Broker, clock: VirtualClock
) -> None:
    broker.configure_topic("t", protect_unacked=True)
    broker.checkpoint_group("t", "spark", {0: 10})
    broker.settle()
    clock.advance(4 * 86400)
    broker.retain()
    assert seen(broker) == (10, (10, 0))
    assert [partition.first_offset for partition in broker.topics()[0].partitions] == [10, 0]


def test_a_directory_tells_how_far_the_reader_was_without_a_broker(tmp_path: Path) -> None:
    with penstock.open(tmp_path) as broker:
        fill(broker)
        broker.checkpoint_group("t", "spark", {0: 4})
        broker.create_group("t", "workers")
    with Snapshots(tmp_path) as snapshot:
        found = [(group.name, group.kind, group.lag, group.positions) for group in snapshot.groups("t")]
    assert found == [("spark", "checkpoint", 16, (4, 0)), ("workers", "consumers", 20, (0, 0))]


class Positions(Mapping[int, int]):
    """A mapping that is no dict."""

    def __getitem__(self, partition: int) -> int:
        return {0: 7, 1: 8}[partition]

    def __iter__(self) -> Iterator[int]:
        return iter((0, 1))

    def __len__(self) -> int:
        return 2


def test_S6_the_lag_of_a_reader_is_seen_through_a_server(tmp_path: Path) -> None:
    with Running(tmp_path) as server, penstock.connect(server.address) as client:
        client.create_topic("t", partitions=2)
        client.publish_many("t", [penstock.Message("v", partition=n % 2) for n in range(20)])
        client.checkpoint_group("t", "spark", {0: 4, 1: 5})
        assert seen(client) == (11, (4, 5))
        client.checkpoint_group("t", "spark", Positions())
        assert seen(client) == (5, (7, 8))
        client.checkpoint_group("t", "spark", {"0": 9})  # type: ignore[dict-item]
        assert seen(client) == (3, (9, 8))
        with pytest.raises(penstock.InvalidArgument, match="give 0 to 10"):
            client.checkpoint_group("t", "spark", {0: 11})
        with pytest.raises(penstock.InvalidArgument, match="is not a mapping"):
            client.checkpoint_group("t", "spark", [1, 2])  # type: ignore[arg-type]
        with pytest.raises(penstock.GroupInUse, match="another name"):
            client.consumer("t", group="spark")
        assert [group.kind for group in client.groups()] == ["checkpoint"]


def test_it_is_awaited_with_asyncio(tmp_path: Path) -> None:
    async def main() -> None:
        async with penstock.aio.open(tmp_path) as broker:
            await broker.publish_many("t", ["v"] * 5)
            await broker.checkpoint_group("t", "spark", {0: 2})
            assert (await broker.group("t", "spark")).lag == 3

    asyncio.run(main())
