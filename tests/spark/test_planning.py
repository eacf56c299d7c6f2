"""What a batch read plans and what its tasks give, without Spark: ranges, slices, and what is missing."""

from __future__ import annotations

import json
import random
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import GreaterThan

import penstock
from penstock.model.errors import CorruptData, InvalidArgument, TopicNotFound
from penstock.spark import DataLoss
from penstock.spark.planning import slices
from penstock.spark.slices import Span
from penstock.testing import VirtualClock
from tests.spark.harness import ALL, FULL, Planned, Served, of_all_kinds, stored

Topics = dict[str, dict[int, int]]


class Directory:
    """A data directory, and all that is in it."""

    def __init__(self, path: Path, messages: list[penstock.StoredMessage]) -> None:
        self.path, self.messages = path, messages


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Directory:
    """Two topics in segments and journal, one with nothing, one with an empty partition; all that is in them."""
    path = tmp_path_factory.mktemp("planning")
    with penstock.open(path, segment_max_bytes="4KiB", journal_file_bytes="4KiB", min_free_bytes=0) as broker:
        broker.create_topic("a", partitions=3)
        broker.create_topic("b", partitions=2)
        broker.create_topic("empty", partitions=2)
        for turn in range(4):
            for partition in range(3):
                broker.publish_many("a", [penstock.Message(f"{turn}.{n}", partition=partition) for n in range(37)])
            broker.publish_many("b", [penstock.Message(b"x" * n, partition=1) for n in range(turn + 1)])
            if turn < 3:
                broker.settle()
        return Directory(path, [message for topic in ("a", "b") for message in broker.read(topic)])


def _choose(messages: list[penstock.StoredMessage], start: Topics, end: Topics) -> list[penstock.StoredMessage]:
    return [
        m
        for m in messages
        if start.get(m.topic, {}).get(m.partition, 0) <= m.offset < end.get(m.topic, {}).get(m.partition, 1 << 62)
    ]


_places = st.fixed_dictionaries(
    {}, optional={0: st.integers(0, 148), 1: st.integers(0, 148), 2: st.integers(0, 148)}
)  # each partition of `a` has 148


@settings(max_examples=40)
@given(start=_places, end=_places, parts=st.integers(1, 60))
def test_S1_a_batch_is_exactly_the_offsets_between_two_positions_however_it_is_cut(
    directory: Directory, start: dict[int, int], end: dict[int, int], parts: int
) -> None:
    path, messages = directory.path, directory.messages
    planned = Planned(
        path=path,
        subscribe="a,b,empty",
        startingOffsets=json.dumps({"a": start}),
        endingOffsets=json.dumps({"a": end}),
        minPartitions=parts,
    )
    expected = stored(_choose(messages, {"a": start}, {"a": end}), 10)
    assert planned.rows() == expected
    assert planned.count == len(expected)
    assert len(planned.slices) >= max(1, min(parts, len(expected)))


@settings(max_examples=150)
@given(
    counts=st.lists(st.integers(1, 400_000), min_size=1, max_size=30),
    first=st.integers(0, 1 << 40),
    parts=st.integers(1, 500),
)
def test_S1_slices_hold_every_offset_once_and_are_as_many_as_was_asked_for(
    counts: list[int], first: int, parts: int
) -> None:
    spans = [Span("t", number, first, first + count) for number, count in enumerate(counts)]
    found = slices(spans, parts)
    assert len(found) >= min(parts, sum(counts))
    assert all(part.spans for part in found)
    pieces = sorted((span.partition, span.start, span.end) for part in found for span in part.spans)
    joined: list[tuple[int, int, int]] = []
    for number, start, end in pieces:
        assert start < end
        if joined and joined[-1][0] == number:
            assert joined[-1][2] == start
            joined[-1] = (number, joined[-1][1], end)
        else:
            joined.append((number, start, end))
    assert joined == [(span.partition, span.start, span.end) for span in spans]


def test_S1_positions_are_words_or_numbers(directory: Directory) -> None:
    path, messages = directory.path, directory.messages
    in_a = [m for m in messages if m.topic == "a"]

    def places(**options: Any) -> list[tuple[str, int, int]]:
        return Planned(path=path, **options).places()

    everything = sorted((m.topic, m.partition, m.offset) for m in in_a)
    assert places(subscribe="a", startingOffsets="earliest", endingOffsets="latest") == everything
    assert places(subscribe=" a , a,", startingOffsets="EARLIEST") == everything
    assert places(subscribe="a", startingOffsets='{"a": {"0": -2, "1": -1, "2": 140}}') == [
        place for place in everything if place[1] == 0 or (place[1] == 2 and place[2] >= 140)
    ]
    assert places(subscribe="a", endingOffsets='{"a": {"0": -2, "1": -1, "2": 0}}') == [
        place for place in everything if place[1] == 1
    ]
    assert places(assign='{"a": [2, 0, 2], "empty": [1]}') == [place for place in everything if place[1] != 1]
    assert places(subscribePattern="a|nothing.*") == everything
    assert places(subscribePattern="nothing") == places(subscribe="empty") == []
    assert places(subscribe="a", startingOffsets='{"a": {"0": 100}}', endingOffsets='{"a": {"0": 50}}') == [
        place for place in everything if place[1] != 0
    ]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"subscribe": "nowhere"}, "nowhere"),
        ({"assign": '{"a": [3]}'}, "a has no partition 3: it has 0 to 2"),
        ({"subscribe": "a", "startingOffsets": '{"b": {"0": 1}}'}, "startingOffsets: b/0 is not among the partitions"),
        ({"subscribe": "a", "endingOffsets": '{"a": {"7": 1}}'}, "endingOffsets: a/7 is not among the partitions"),
        ({"subscribe": "a", "endingOffsets": '{"a": {"0": 149}}'}, "a/0 ends at 148, before offset 149"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"0": 9999999999999999999}}'}, "ends at 148"),
    ],
)
def test_a_position_that_is_not_there_is_told(directory: Directory, options: dict[str, str], told: str) -> None:
    with pytest.raises((InvalidArgument, TopicNotFound), match=told):
        Planned(FULL, (), path=directory.path, **options)


@pytest.mark.parametrize("settled", [0, 1, 2])
@pytest.mark.parametrize("through", ["server", "directory", "archive"])
def test_L12_times_find_what_a_linear_scan_finds_also_when_the_clock_stepped_back(
    tmp_path: Path, through: str, settled: int
) -> None:
    clock, chance = VirtualClock(), random.Random(settled)
    path = tmp_path / "data"
    with penstock.open(path, clock=clock, min_free_bytes=0) as broker:
        broker.create_topic("t", partitions=2, retention_age=None, archive=str(tmp_path / "archive"))
        for n in range(40):
            clock.step_wall(chance.choice([0.001, 1.0, 0.25, -7.5, 3.0, 0.0]))
            broker.publish("t", str(n), partition=n % 2)
            if settled and n % (10 * settled) == 9:
                broker.settle()
        if through == "archive":
            broker.settle()
            broker.configure_topic("t", retention_age=0)
            clock.step_wall(1000)
            broker.retain()
        messages = [*broker.read("t", include_deleted=True)]
    where: dict[str, Any] = {"path": tmp_path / "archive" if through == "archive" else path}

    def check(**options: Any) -> None:
        times = sorted({m.timestamp_us for m in messages})
        for time_us in [times[0] - 1_000_000, *times[::3], times[-1] + 1000]:
            low_us = time_us - time_us % 1000  # milliseconds are what both forms can say
            high_us = low_us + 4_000_000
            start, end = _scan(messages, low_us), _scan(messages, high_us)
            expected = stored(_choose(messages, start, end), 10)
            for first, last in (
                (low_us // 1000, high_us // 1000),
                (penstock.model.units.to_datetime(low_us).isoformat(), f"{high_us // 1000} "),
            ):
                found = Planned(subscribe="t", startingTimestamp=first, endingTimestamp=last, **options)
                assert found.rows() == expected

    if through != "server":
        check(**where)
        return
    with Served(path, broker={"topic_defaults": {"retention_age": None}}) as served:
        check(servers=served.address)


def _scan(messages: list[penstock.StoredMessage], time_us: int) -> Topics:
    """The first offset at or after a time, partition by partition, by looking at every message."""
    return {
        "t": {
            number: next(
                (m.offset for m in messages if m.partition == number and m.timestamp_us >= time_us),
                max(m.offset for m in messages if m.partition == number) + 1,
            )
            for number in (0, 1)
        }
    }


def test_L12_with_includeDeleted_times_are_found_in_the_archive_too(tmp_path: Path) -> None:
    clock = VirtualClock()
    with penstock.open(tmp_path / "data", clock=clock, min_free_bytes=0) as broker:
        broker.create_topic("t", retention_age=5, archive="../archive")
        for n in range(10):
            broker.publish("t", str(n))
            clock.advance(1)
            broker.settle()
        clock.advance(1)
        assert broker.retain() > 3
        begin = clock.START_US // 1000 + 2000
        options: dict[str, Any] = {"subscribe": "t", "startingTimestamp": begin}
    for include, first in (("true", 2), ("false", 6)):
        planned = Planned(path=tmp_path / "data", includeDeleted=include, **options)
        assert planned.places() == [("t", 0, n) for n in range(first, 10)]
    with Served(tmp_path / "data") as served:
        planned = Planned(servers=served.address, includeDeleted="true", **options)
        assert planned.places() == [("t", 0, n) for n in range(2, 10)]


def test_S1_a_topic_that_grows_while_it_is_read_gives_the_rows_of_the_plan(server: Served) -> None:
    server.client.publish_many("t", of_all_kinds(2000))
    server.client.settle()
    server.client.publish_many("t", of_all_kinds(500, 2000))
    planned = Planned(servers=server.address, subscribe="t", minPartitions=7)
    expected = stored(server.client.read("t"), 10)
    stopping, growing = threading.Event(), threading.Event()

    def grow() -> None:
        while not stopping.is_set():
            server.client.publish_many("t", of_all_kinds(100, 10_000))
            growing.set()

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        assert growing.wait(30)
        assert planned.rows() == expected
        at_once = Planned(servers=server.address, subscribe="t", minPartitions=7)
        count = at_once.count
        assert len(at_once.rows()) == count > len(expected)
    finally:
        stopping.set()
        thread.join()


def test_S2_a_plan_reads_the_same_rows_after_settling_and_after_archiving(server: Served, tmp_path: Path) -> None:
    server.client.create_topic("t", partitions=2, retention_age=None, archive=str(tmp_path / "archive"))
    server.client.publish_many("t", of_all_kinds(300, delayed=False))
    server.client.settle()
    server.client.publish_many("t", of_all_kinds(300, 300, delayed=False))
    planned = Planned(ALL, servers=server.address, subscribe="t", includeDeleted="true")
    expected = stored(server.client.read("t"))
    assert planned.rows() == expected
    server.client.settle()
    assert planned.rows() == expected
    server.client.configure_topic("t", retention_bytes=0)
    assert server.client.retain() == 4
    assert planned.rows() == expected
    again = Planned(ALL, servers=server.address, subscribe="t", includeDeleted="true")
    assert again.rows() == expected
    shutil.copytree(tmp_path / "archive", tmp_path / "copy")
    assert Planned(ALL, path=tmp_path / "copy", subscribe="t").rows() == expected


def test_L2_a_task_that_cannot_see_a_file_asks_the_server(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.spark import slices as module

    server.client.create_topic("t", partitions=2)
    server.client.publish_many("t", of_all_kinds(500))
    server.client.settle()
    server.client.publish_many("t", of_all_kinds(100, 500))
    expected = stored(server.client.read("t"))
    for error in (FileNotFoundError("not here"), PermissionError("not you"), CorruptData("x", 0, "another file")):

        def cannot(*_: object, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(module, "open_segment", cannot)
        assert Planned(ALL, servers=server.address, subscribe="t", minPartitions=5).rows() == expected
    monkeypatch.undo()
    assert Planned(ALL, servers=server.address, subscribe="t", minPartitions=5).rows() == expected


def test_S4_what_is_gone_when_a_read_is_planned_is_told(server: Served) -> None:
    _publish_in_segments(server)
    server.client.configure_topic("t", retention_bytes=1)
    assert server.client.retain() == 3
    options: dict[str, Any] = {"servers": server.address, "subscribe": "t", "startingOffsets": '{"t": {"0": 5}}'}
    with pytest.raises(DataLoss, match=r"t/0 from 5 to 29.*failOnDataLoss"):
        Planned(**options)
    assert Planned(failOnDataLoss="false", **options).places() == [("t", 0, n) for n in range(30, 40)]
    assert Planned(servers=server.address, subscribe="t").places() == [("t", 0, n) for n in range(30, 40)]


@pytest.mark.parametrize("timed", [False, True])
def test_S4_what_goes_between_planning_and_reading_is_told(server: Served, timed: bool) -> None:
    _publish_in_segments(server)
    filters = [GreaterThan(("timestamp",), penstock.model.units.to_datetime(1))] if timed else []
    planned = Planned(FULL, filters, servers=server.address, subscribe="t")
    resigned = Planned(FULL, filters, servers=server.address, subscribe="t", failOnDataLoss="false")
    server.client.configure_topic("t", retention_bytes=1)
    assert server.client.retain() == 3
    with pytest.raises(DataLoss, match=r"30 of the 40 messages of t/0 from 0 to 39 are gone"):
        planned.rows()
    assert resigned.places() == [("t", 0, n) for n in range(30, 40)]


def _publish_in_segments(server: Served) -> None:
    """Three segments of ten messages, and ten more in the journal."""
    server.client.create_topic("t")
    for turn in range(4):
        server.client.publish_many("t", [f"{turn}.{n}" for n in range(10)])
        if turn < 3:
            server.client.settle()
