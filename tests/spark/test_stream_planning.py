"""Micro-batches as the stream reader plans them, asked as Spark asks: limits, losses, positions, the lag."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import penstock
from penstock.client.sync import Client
from penstock.model.errors import ConnectionLost, DiskFull, GroupInUse, InvalidArgument, TopicNotFound
from penstock.spark.errors import DataLoss
from penstock.spark.source import PenstockDataSource
from penstock.spark.streaming import StreamReader, limited
from tests.spark.streams import Served, drain, reader_of, rows_of, serving, total


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path / "data") as server:
        yield server


# Limits.

PARTS = st.dictionaries(
    st.tuples(st.sampled_from("abc"), st.integers(0, 3)),
    st.tuples(st.integers(0, 50), st.one_of(st.integers(0, 5), st.integers(0, 10_000))),
    max_size=6,
)


@given(PARTS, st.integers(1, 100))
def test_a_limit_is_kept_and_used_up_and_every_partition_goes_on(
    parts: dict[tuple[str, int], tuple[int, int]], rows: int
) -> None:
    begin: dict[str, dict[int, int]] = {}
    ends: dict[str, dict[int, int]] = {}
    for (topic, number), (start, count) in parts.items():
        begin.setdefault(topic, {})[number] = start
        ends.setdefault(topic, {})[number] = start + count
    found = limited(begin, ends, rows)
    taken = {place: found[place[0]][place[1]] - parts[place][0] for place in parts}
    assert all(0 <= taken[place] <= parts[place][1] for place in parts)
    assert sum(taken.values()) == min(rows, sum(count for _, count in parts.values()))
    waiting = [place for place in parts if parts[place][1]]
    assert sum(1 for place in waiting if taken[place]) >= min(rows, len(waiting))


def test_with_a_limit_below_the_number_of_partitions_a_partition_that_grows_all_the_time_starves_no_other() -> None:
    begin = {"t": {0: 0, 1: 0, 2: 0}}
    ends = {"t": {0: 1_000_000, 1: 3, 2: 5}}
    for _ in range(60):
        ends["t"][0] += 1000
        begin = limited(begin, ends, 1)
    assert begin["t"][1] == 3
    assert begin["t"][2] == 5


def test_S3_limits_of_messages_are_exact_and_nothing_is_left_out(served: Served) -> None:
    served.client.create_topic("t", partitions=3)
    served.fill("t", 500, 3, 0)
    served.client.settle()
    served.fill("t", 40, 0, 7)
    for rows in (1, 7, 100):
        reader = reader_of(served.address, subscribe="t", startingOffsets="earliest", maxMessagesPerTrigger=rows)
        batches = drain(reader, None if rows > 1 else {"t": {"0": 530, "1": 0, "2": 0}})
        assert all(len(batch) == rows for batch in batches[:-1])
        assert 0 < len(batches[-1]) <= rows
        found = sum(map(Counter, batches), Counter())
        assert found == (
            served.places("t") if rows > 1 else Counter(p for p in served.places("t") if p[1] or p[2] >= 530)
        )
    assert [len(b) for b in drain(reader, limit=ReadAllAvailable())] == [550]
    assert [len(b) for b in drain(reader, limit=ReadMaxRows(1000))] == [550]


@pytest.mark.parametrize("settled", [False, True])
def test_a_limit_of_bytes_holds_about_for_messages_that_are_large(served: Served, settled: bool) -> None:
    served.client.create_topic("t")
    served.client.publish_many("t", [os.urandom(200_000) for _ in range(50)])
    if settled:
        served.client.settle()
    reader = reader_of(served.address, subscribe="t", startingOffsets="earliest", maxBytesPerTrigger="1MB")
    batches = drain(reader)
    assert max(map(len, batches)) <= 10
    assert sum(map(len, batches)) == 50
    small = reader_of(served.address, subscribe="t", startingOffsets="earliest", maxBytesPerTrigger="1B")
    assert [len(batch) for batch in drain(small)] == [1] * 50
    both = reader_of(
        *(served.address,),
        subscribe="t",
        startingOffsets="earliest",
        maxBytesPerTrigger="1GB",
        maxMessagesPerTrigger=20,
    )
    assert [len(batch) for batch in drain(both)] == [20, 20, 10]
    assert [len(batch) for batch in drain(both, limit=ReadAllAvailable())] == [50]


def test_available_now_ends_with_what_was_there_although_the_topics_grow(served: Served) -> None:
    served.client.create_topic("t-a", partitions=2)
    served.fill("t-a", 30, 30)
    reader = reader_of(served.address, subscribePattern="t-.*", startingOffsets="earliest", maxMessagesPerTrigger=7)
    reader.prepareForTriggerAvailableNow()
    there = served.places("t-a")
    at, found = reader.initialOffset(), Counter[tuple[str, int, int]]()
    while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
        found.update(rows_of(reader, at, end))
        at = end
        served.fill("t-a", 10, 10)
        served.client.publish("t-later", "came meanwhile")
    assert found == there
    again = reader_of(served.address, subscribePattern="t-.*", startingOffsets="earliest")
    again.prepareForTriggerAvailableNow()
    assert total([[*found], *drain(again, at)]) == served.places("t-a", "t-later")


# Where a stream begins.


def test_a_stream_begins_where_it_is_told_to(served: Served) -> None:
    served.client.create_topic("t", partitions=2)
    served.fill("t", 10, 10)
    time.sleep(0.002)
    between = datetime.now(UTC)
    time.sleep(0.002)
    served.fill("t", 5, 0)

    def initial(**options: object) -> object:
        return reader_of(served.address, subscribe="t", **options).initialOffset()

    assert initial() == initial(startingOffsets="latest") == {"t": {"0": 15, "1": 10}}
    assert initial(startingOffsets="earliest") == {"t": {"0": 0, "1": 0}}
    assert initial(startingOffsets='{"t": {"0": 3, "1": -1}}') == {"t": {"0": 3, "1": 10}}
    assert initial(startingOffsets='{"t": {"1": 4}}') == {"t": {"0": 0, "1": 4}}
    assert initial(startingTimestamp=between.isoformat()) == {"t": {"0": 10, "1": 10}}
    with pytest.raises(InvalidArgument, match="ends at 15"):
        initial(startingOffsets='{"t": {"0": 16}}')
    with pytest.raises(TopicNotFound, match="'x'"):
        reader_of(served.address, subscribe="x", failOnDataLoss=False).initialOffset()


def test_the_initial_offset_stays_what_it_was_however_often_it_is_asked_for(served: Served) -> None:
    served.client.create_topic("t")
    reader = reader_of(served.address, subscribe="t")
    first = reader.initialOffset()
    served.fill("t", 5)
    assert reader.initialOffset() == first
    assert [len(batch) for batch in drain(reader)] == [5]


def test_offsets_are_the_same_text_in_whichever_order_topics_and_partitions_are_named(served: Served) -> None:
    for topic in ("b", "a"):
        served.client.create_topic(topic, partitions=12)
    texts = {
        json.dumps(reader_of(served.address, **options).initialOffset())
        for options in (
            {"subscribe": "a,b"},
            {"subscribe": "b,a"},
            {"subscribePattern": "."},
            {"assign": json.dumps({"b": [*range(11, -1, -1)], "a": [*range(12)]})},
        )
    }
    assert len(texts) == 1


# What is gone.


def test_S4_what_retention_removed_is_told_to_the_last_offset(served: Served) -> None:
    served.client.create_topic("t", partitions=2)
    served.fill("t", 20, 20)
    reader = reader_of(served.address, subscribe="t", startingOffsets="earliest", maxMessagesPerTrigger=10)
    at = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    assert at == {"t": {"0": 5, "1": 5}}
    served.expire("t")
    served.fill("t", 10, 0)
    end = reader.latestOffset(at, reader.getDefaultReadLimit())
    with pytest.raises(DataLoss, match=r"t/0 from 5 to 19, t/1 from 5 to 19"):
        reader.partitions(at, end)
    going_on = reader_of(served.address, subscribe="t", failOnDataLoss=False, maxMessagesPerTrigger=4)
    assert rows_of(going_on, at, end) == [("t", 0, offset) for offset in range(20, end["t"]["0"])]
    batches = drain(going_on, at)
    assert [place for batch in batches for place in batch] == [("t", 0, offset) for offset in range(20, 30)]
    assert len(batches) <= 4, "no batches are spent on what is gone"


def test_S4_a_topic_of_a_pattern_that_lost_its_beginning_before_it_was_read_is_told(served: Served) -> None:
    reader = reader_of(served.address, subscribePattern="t-.*", startingOffsets="latest")
    at = reader.initialOffset()
    served.client.create_topic("t-new")
    served.fill("t-new", 8)
    served.expire("t-new")
    served.fill("t-new", 2)
    end = reader.latestOffset(at, ReadAllAvailable())
    with pytest.raises(DataLoss, match="t-new/0 from 0 to 7"):
        reader.partitions(at, end)


def test_S4_a_topic_that_is_deleted_is_told_and_can_be_done_without(served: Served) -> None:
    for topic in ("t-1", "t-2"):
        served.client.create_topic(topic)
        served.fill(topic, 5)
    at = {"t-1": {"0": 2}, "t-2": {"0": 2}}
    served.client.delete_topic("t-1")
    for options in ({"subscribe": "t-1,t-2"}, {"subscribePattern": "t-.*"}, {"assign": '{"t-1": [0], "t-2": [0]}'}):
        reader = reader_of(served.address, **options)
        with pytest.raises(DataLoss, match="t-1"):
            reader.latestOffset(at, ReadAllAvailable())
        with pytest.raises(DataLoss, match="t-1"):
            reader.partitions(at, {"t-1": {"0": 5}, "t-2": {"0": 5}})
        going_on = reader_of(served.address, failOnDataLoss=False, **options)
        assert rows_of(going_on, at, {"t-1": {"0": 5}, "t-2": {"0": 5}}) == [("t-2", 0, n) for n in (2, 3, 4)]
        assert drain(going_on, at) == [[("t-2", 0, n) for n in (2, 3, 4)]]
    alone = reader_of(served.address, subscribe="t-1", failOnDataLoss=False)
    assert drain(alone, {"t-1": {"0": 2}}) == [[]]
    assert drain(alone, {}) == []


def test_S3_S4_a_topic_that_is_deleted_and_made_again(served: Served) -> None:
    served.client.create_topic("t", partitions=2)
    served.fill("t", 5, 9)
    reader = reader_of(served.address, subscribe="t")
    before = {"t": {"0": 3, "1": 9}}
    served.client.delete_topic("t")
    served.client.create_topic("t", partitions=2)
    served.fill("t", 2, 0)
    end = reader.latestOffset(before, ReadAllAvailable())
    with pytest.raises(DataLoss, match="t/0 from 3 to 8"):
        reader.partitions(before, end)
    going_on = reader_of(served.address, subscribe="t", failOnDataLoss=False)
    assert total(drain(going_on, before)) == served.places("t")
    assert total(drain(going_on, {})) == served.places("t")
    served.client.delete_topic("t")
    served.client.create_topic("t", partitions=1)
    with pytest.raises(DataLoss, match="t/1"):
        reader.latestOffset(end, ReadAllAvailable())


def test_S4_a_log_that_ends_before_what_was_read_is_another_one(served: Served) -> None:
    served.client.create_topic("t")
    served.fill("t", 5)
    with pytest.raises(DataLoss, match="t/0 from 5 to 7"):
        reader_of(served.address, subscribe="t").latestOffset({"t": {"0": 8}}, ReadAllAvailable())
    going_on = reader_of(served.address, subscribe="t", failOnDataLoss=False)
    assert drain(going_on, {"t": {"0": 8}}) == [[]]
    assert served.lag("t", "spark-t") == 0


def test_S4_what_goes_between_planning_and_reading_is_told(served: Served) -> None:
    served.client.create_topic("t")
    served.fill("t", 5)
    served.client.settle()
    reader = reader_of(served.address, subscribe="t")
    parts = reader.partitions({"t": {"0": 0}}, {"t": {"0": 5}})
    served.expire("t")
    with pytest.raises(DataLoss, match="5 of the 5 messages of t/0 from 0 to 4"):
        [list(reader.read(part)) for part in parts]


def test_S3_a_stream_that_is_behind_retention_goes_on_from_the_archive(served: Served, tmp_path: Path) -> None:
    served.client.create_topic("t", archive=str(tmp_path / "archive"))
    served.fill("t", 20)
    served.expire("t")
    served.fill("t", 5)
    options = {"subscribe": "t", "includeDeleted": True, "maxMessagesPerTrigger": 8}
    batches = drain(reader_of(served.address, **options), {"t": {"0": 3}})
    assert [len(batch) for batch in batches] == [8, 8, 6]
    assert total(batches) == Counter(("t", 0, offset) for offset in range(3, 25))


def test_S3_a_directory_without_a_broker_is_read_as_a_stream(tmp_path: Path) -> None:
    path, found, expected = tmp_path / "data", [], Counter[tuple[str, int, int]]()
    source = PenstockDataSource({"path": str(path), "subscribe": "t", "startingOffsets": "earliest"})
    reader, at = None, None
    for round_ in range(3):
        with penstock.open(path) as broker:
            broker.publish_many("t", [f"{round_}.{n}" for n in range(10)])
            if round_ == 1:
                broker.settle()
            expected = Counter((m.topic, m.partition, m.offset) for m in broker.read("t"))
        reader = reader or source.streamReader(source.schema())
        assert isinstance(reader, StreamReader)
        at = at or reader.initialOffset()
        end = reader.latestOffset(at, ReadAllAvailable())
        found.append(rows_of(reader, at, end))
        at = end
    assert [len(batch) for batch in found] == [10, 10, 10]
    assert total(found) == expected


# The lag.


def test_S6_the_lag_is_that_of_what_is_read(served: Served) -> None:
    served.client.create_topic("t", partitions=3)
    served.fill("t", 10, 10, 10)
    reader = reader_of(served.address, subscribe="t", startingOffsets="earliest", maxMessagesPerTrigger=6)
    at = reader.initialOffset()
    seen = []
    while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
        seen.append(served.lag("t", "spark-t"))
        at = end
    assert seen == [30, 24, 18, 12, 6]
    assert served.lag("t", "spark-t") == 0
    served.fill("t", 4)
    assert served.lag("t", "spark-t") == 4
    assert reader.reportLatestOffset() == at, "what is known since the last planning"
    reader.latestOffset({"t": {"0": 0, "1": 10, "2": 10}}, ReadAllAvailable())
    assert served.lag("t", "spark-t") == 14, "an older checkpoint"
    assigned = reader_of(served.address, assign='{"t": [1]}', startingOffsets="latest", group="one:two")
    drain(assigned)
    assert served.lag("t", "one:two") == 0, "what is not read is no lag"
    assert served.client.group("t", "one:two").kind == "checkpoint"


def test_S6_a_group_of_consumers_is_not_taken_and_a_full_disk_does_not_stop_reading(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.client.create_topic("t")
    served.fill("t", 3)
    with served.client.consumer("t", "workers") as consumer:
        consumer.receive(1)
        with pytest.raises(GroupInUse, match="workers"):
            drain(reader_of(served.address, subscribe="t", group="workers", startingOffsets="earliest"))
    reader = reader_of(served.address, subscribe="t", startingOffsets="earliest")
    reader.initialOffset()

    def full(*_: object) -> None:
        raise DiskFull("there is no room")

    monkeypatch.setattr(reader._origin, "note_position", full)
    assert [len(batch) for batch in drain(reader)] == [3]


def test_S6_a_position_is_noted_again_if_the_connection_was_lost(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.client.create_topic("t")
    served.fill("t", 3)
    note, cuts = Client.checkpoint_group, 2

    def cut(*arguments: Any) -> None:
        nonlocal cuts
        note(*arguments)
        cuts -= 1
        if cuts >= 0:
            raise ConnectionLost("it is not known whether it was done")

    monkeypatch.setattr(Client, "checkpoint_group", cut)
    drain(reader_of(served.address, subscribe="t", startingOffsets="earliest"))
    assert cuts < 0
    assert served.lag("t", "spark-t") == 0


def test_S3_events_are_read_as_a_stream(served: Served) -> None:
    served.client.create_topic("t", partitions=2)
    served.fill("t", 10, 10)
    reader = reader_of(
        served.address, subscribe="t", table="events", startingOffsets="earliest", maxMessagesPerTrigger=3
    )
    first = drain(reader)
    assert all(len(batch) <= 3 for batch in first)
    at = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    with served.client.consumer("t", "g") as consumer:
        for delivery in consumer.receive(20):
            delivery.ack()
    served.client.settle()
    found = total([*first, *drain(reader, at)])
    layout = served.client.layout("t")
    assert found == Counter(("t", log.partition, n) for log in layout.events for n in range(log.first, log.end))
    assert not [group for group in served.client.groups("t") if group.name.startswith("spark")]
