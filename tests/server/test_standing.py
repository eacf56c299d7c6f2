"""A group stands where it stands, whoever is asked: list, details, metrics, a directory without a broker, Spark."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.model.info import GroupInfo
from penstock.shard.operations.burying import bury
from penstock.shard.upkeep.settling import Settler
from penstock.spark.listed import listed_rows
from penstock.spark.options import read_options
from penstock.testing import VirtualClock
from penstock.views.listing import list_groups
from penstock.views.snapshot import GroupProgress, Snapshot
from tests.server.metrics_harness import Page, metrics_of

OPTIONS: dict[str, Any] = {"min_free_bytes": 0, "sync": "never", "journal_file_bytes": 4096, "segment_min_bytes": 700}
LISTED = [field.name for field in dataclasses.fields(GroupInfo) if field.name != "oldest_unacked_s"]
"""What a list tells as exactly as the details do: of ages it knows only what is in memory."""
DURABLE = [field.name for field in dataclasses.fields(GroupProgress) if field.name != "retrying"]
MEASURED = ("lag", "leased", "retrying", "lost", "ready", "delayed")
DONE = ("acked", "dead", "lapsed", "skipped", "withdrawn", "lost")

Step = Callable[[penstock.Broker, VirtualClock], object]
_topics, _counts = st.sampled_from(["one", "wide"]), st.integers(1, 6)


def _publish(topic: str, count: int, delay: float | None, expires_in: float | None) -> Step:
    messages = [
        penstock.Message("x" * 40, key=f"{n}", priority=n % 3, delay=delay, expires_in=expires_in) for n in range(count)
    ]
    return lambda broker, _: broker.publish_many(topic, messages)


def _consume(topic: str, group: str, count: int, fate: str) -> Step:
    def step(broker: penstock.Broker, _: VirtualClock) -> None:
        consumer = broker.consumer(topic, group)
        messages = consumer.receive(count)
        if messages and fate == "ack":
            consumer.ack(messages[::2])  # the others stay leased until the consumer is closed
        elif messages and fate == "fail":
            consumer.fail(messages, "later", delay=600)
        elif messages and fate == "kill":
            consumer.kill(messages, "never")
        if fate != "hold":
            consumer.close()

    return step


def _replay(topic: str, start: int, length: int) -> Step:
    def step(broker: penstock.Broker, _: VirtualClock) -> None:
        name = f"again{len(broker.groups())}"
        broker.replay(topic, name, from_offset=start, to_offset=start + length)
        broker.consumer(topic, name).receive(1)

    return step


def _seek(topic: str, group: str, to: str) -> Step:
    def step(broker: penstock.Broker, _: VirtualClock) -> None:
        if (topic, group) in {(info.topic, info.name) for info in broker.groups()}:
            broker.seek_group(topic, group, to)

    return step


def _checkpoint(topic: str, position: int) -> Step:
    def step(broker: penstock.Broker, _: VirtualClock) -> None:
        end = next(info for info in broker.topics() if info.name == topic).partitions[0].end_offset
        broker.checkpoint_group(topic, "reader", {0: min(position, end)})

    return step


def _cancel(broker: penstock.Broker, _: VirtualClock) -> None:
    for delayed in broker.delayed("one")[:2]:
        broker.cancel_delayed(delayed.id)


def _retain(broker: penstock.Broker, clock: VirtualClock) -> None:
    """Let the messages that are settled grow old, and go."""
    Settler(broker.shard).settle()
    clock.advance(7200)
    broker.retain()


STEPS: st.SearchStrategy[Step] = st.one_of(
    st.builds(_publish, _topics, _counts, st.sampled_from([None, None, 60]), st.sampled_from([None, None, 30])),
    st.builds(_publish, _topics, st.just(40), st.none(), st.none()),
    st.builds(_consume, _topics, st.sampled_from("ab"), _counts, st.sampled_from(["ack", "fail", "kill", "hold"])),
    st.builds(_replay, _topics, st.integers(0, 8), st.integers(1, 30)),
    st.builds(_seek, _topics, st.sampled_from("ab"), st.sampled_from(["earliest", "latest"])),
    st.builds(_checkpoint, _topics, st.integers(0, 9)),
    st.just(_cancel),
    st.just(lambda broker, _: broker.redrive("one")),
    st.just(lambda _, clock: clock.advance(45)),
    st.just(_retain),
)  # fmt: skip


def settled(broker: penstock.Broker) -> list[GroupInfo]:
    """The details of all groups, when time has done what it does and everything is written down."""
    broker.groups()  # puts all of them to use
    with broker.shard.lock:
        broker.shard.keep_time()
    bury(broker.shard)
    broker.shard.journal.flush()
    return broker.groups()


def told(groups: list[Any], names: list[str]) -> list[tuple[Any, ...]]:
    return [tuple(getattr(group, name) for name in names) for group in groups]


def check_live(broker: penstock.Broker, details: list[GroupInfo]) -> None:
    """Lists and metrics tell what the details tell."""
    listed, total = list_groups(broker.shards, lambda _: True)
    assert told([group.info for group in listed], LISTED) == told(details, LISTED)
    assert total == len(listed)
    assert all(group.in_use for group in listed)
    with metrics_of(broker.shard) as metrics:
        page = Page(metrics.render())
    for info in details:
        of_page = [page.value(f"penstock_group_{name}", topic=info.topic, group=info.name) for name in MEASURED]
        assert of_page == [getattr(info, name) for name in MEASURED], info
        parts = (info.ready, info.leased, info.delayed, info.retrying)
        assert info.lag == sum(parts), f"Q1: {info}"
        assert info.published == sum(getattr(info, name) for name in DONE) + info.lag, f"Q1: {info}"


def check_at_rest(path: Path, details: list[GroupInfo]) -> list[GroupProgress]:
    """A directory that nobody has open tells the durable part of it, and so does Spark."""
    with Snapshot(path) as snapshot:
        groups = snapshot.groups()
    assert told(groups, DURABLE) == told(details, DURABLE)
    for group, info in zip(groups, details, strict=True):
        assert info.retrying <= group.retrying <= info.retrying + info.ready  # ready, if its time to wait is over
    rows = list(listed_rows(read_options({"path": str(path), "table": "groups"}, streaming=False)))
    assert [row["group"] for row in rows] == [group.name for group in groups]
    for row, group in zip(rows, groups, strict=True):
        for name in row.keys() - {"group", "positions"}:
            assert row[name] == getattr(group, name)
        assert row["positions"] == list(group.positions)
    return groups


def check_idle(broker: penstock.Broker, groups: list[GroupProgress]) -> None:
    """After a restart, lists and metrics open nothing, and tell all but how much of what can be taken is delayed."""
    listed, _ = list_groups(broker.shards, lambda _: True)
    names = [*DURABLE, "retrying"]
    assert told([group.info for group in listed], names) == told(groups, names)
    with metrics_of(broker.shard) as metrics:
        page = Page(metrics.render())
    for group, in_use in listed:
        assert (group.ready, group.leased, group.delayed) == (group.lag - group.retrying, 0, 0)
        assert in_use == (group.kind == "checkpoint")
        labels = {"topic": group.topic, "group": group.name}
        assert page.value("penstock_group_lag", **labels) == group.lag
        assert page.value("penstock_group_retrying", **labels) == group.retrying
        assert page.find("penstock_group_ready", **labels) == (group.ready if in_use else None)


@settings(max_examples=40, deadline=None)
@given(rounds=st.lists(st.lists(STEPS, min_size=1, max_size=14), min_size=1, max_size=2))
def test_Q1_F1_a_group_stands_where_it_stands_whoever_is_asked(
    rounds: list[list[Step]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path, clock = tmp_path_factory.mktemp("standing") / "data", VirtualClock()
    at_rest: list[GroupProgress] = []
    for steps in rounds:
        with penstock.open(path, clock=clock, **OPTIONS) as broker:
            broker._backgrounds[0].stop()  # or it would let old messages go between two answers
            check_idle(broker, at_rest)
            for topic, partitions in (("one", 1), ("wide", 3)):
                if topic not in {info.name for info in broker.topics()}:
                    broker.create_topic(topic, partitions=partitions, retention_age="1h", max_deliveries=2)
            for step in steps:
                step(broker, clock)
            details = settled(broker)
            check_live(broker, details)
        at_rest = check_at_rest(path, details)


def test_Q1_F1_a_replay_of_ten_messages_is_ten_published_everywhere(tmp_path: Path) -> None:
    clock = VirtualClock()
    with penstock.open(tmp_path / "data", clock=clock, **OPTIONS) as broker:
        broker.publish_many("t", [b"x"] * 100)
        broker.replay("t", "again", from_offset=10, to_offset=20)
        details = settled(broker)
        assert [(info.published, info.lag, info.positions) for info in details] == [(10, 10, (10,))]
        check_live(broker, details)
    check_at_rest(tmp_path / "data", details)
