"""What the comparison with peers is computed from: replies, schedules, traces, medians, ratios, the page."""

from __future__ import annotations

import doctest
import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers.catalogue import BY_NAME, ROWS, SYSTEMS
from benchmarks.peers.generator import Receiver
from benchmarks.peers.page import page_of
from benchmarks.peers.plans import Refused
from benchmarks.peers.replies import Frames, Lines, Replies
from benchmarks.peers.requests import Built, Numbered, Repeated
from benchmarks.peers.rounds import Figure, measured
from benchmarks.peers.steady import Schedule, stamped, stamps_in
from benchmarks.peers.summary import cells
from benchmarks.peers.systems import beanstalkd, kafka_wire, nats, redis
from benchmarks.peers.systems.penstock import frame
from benchmarks.peers.targets import RATIOS, judge

ROOT = Path(__file__).parent.parent
DOCUMENTED = ("requests", "steady", "processor", "syncs", "page", "systems.redis", "systems.kafka_wire")


@pytest.mark.parametrize("name", DOCUMENTED)
def test_the_examples_in_the_docstrings_are_true(name: str) -> None:
    found = doctest.testmod(import_module(f"benchmarks.peers.{name}"))
    assert found.attempted and not found.failed


# Requests.


def test_requests_that_may_be_repeated_come_over_and_over() -> None:
    requests = Repeated([b"aa", b"bb", b"cc"])
    assert b"".join(requests.take(2)) == b"aabb"
    assert b"".join(requests.take(5)) == b"ccaabbccaa"


def test_numbered_requests_end() -> None:
    requests = Numbered([b"a....", b"b...."], [1], 3)
    assert b"".join(requests.take(1)) == b"a\0\0\0\1"
    assert b"".join(requests.take(2)) == b"b\0\0\0\2a\0\0\0\3"
    assert requests.left == 0
    with pytest.raises(ValueError, match="1 requests are wanted of 0"):
        requests.take(1)


def test_large_requests_are_built_when_they_are_taken() -> None:
    requests = Built(lambda number: [b"%d" % number, b"-"])
    assert b"".join(requests.take(2)) + b"".join(requests.take(1)) == b"0-1-2-"


# Rounds.


class _Failing:
    def measure(self, *_: object) -> Figure:
        raise Refused("no\nreply")


def test_what_a_peer_fails_to_do_is_noted_and_a_failure_of_penstock_ends_the_run() -> None:
    by_name = {system.name: system for system in SYSTEMS}
    failing: Any = _Failing()
    peer: Any = None
    noted: list[str] = []
    assert measured(failing, BY_NAME["alone"], by_name["redis"], peer, "raw", noted) is None
    assert noted == ["publish, one at a time, Redis, AOF always, raw, is left out once: no reply"]
    for ours in ("penstock", "penstock-used"):
        with pytest.raises(Refused):
            measured(failing, BY_NAME["alone"], by_name[ours], peer, "raw", noted)


# Replies.


def in_parts(replies: Replies, data: bytes, size: int) -> int:
    return sum(replies.feed(data[start : start + size]) for start in range(0, len(data), size))


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_replies_are_counted_however_they_are_cut(size: int) -> None:
    assert in_parts(Lines(2, redis.refused), b"$15\r\n1763424242424-0\r\n" * 5, size) == 5
    assert in_parts(Lines(1, beanstalkd.refused), b"INSERTED 1\r\n" * 5, size) == 5
    assert in_parts(Lines(2, nats.refused), b'MSG in.1 1 25\r\n{"stream":"q","seq":1234}\r\n' * 5, size) == 5
    assert in_parts(Frames(0x83), frame(0x83, 1, [[[0, 1, 1]]]) * 3 + frame(0x83, 2, [[[0, 99999, 1]]]) * 2, size) == 5


@pytest.mark.parametrize(
    ("replies", "data"),
    [
        (Lines(2, redis.refused), b"$15\r\n1763424242424-0\r\n-ERR no\r\n"),
        (Lines(1, beanstalkd.refused), b"INSERTED 1\r\nOUT_OF_MEMORY\r\n"),
        (Lines(2, nats.refused), b'MSG in.1 1 25\r\n{"error":{"code":503}}\r\n'),
        (Frames(0x83), frame(0x83, 1, []) + frame(0xFF, 2, [10, "later"])),
        (Frames(0x83), frame(0xFF, 2, [10, "later"])),
    ],
)
def test_an_error_among_replies_is_raised(replies: Replies, data: bytes) -> None:
    with pytest.raises(Refused):
        replies.feed(data)


# Receivers.

VALUE = b"x" * 100


def redis_entries(*ids: bytes) -> bytes:
    entries = b"".join(b"*2\r\n$%d\r\n%b\r\n*2\r\n$1\r\nv\r\n$100\r\n%b\r\n" % (len(i), i, VALUE) for i in ids)
    return b"*1\r\n*2\r\n$1\r\nq\r\n*%d\r\n%b" % (len(ids), entries)


def nats_message(number: int) -> bytes:
    return b"MSG q 1 $JS.ACK.q.%d 100\r\n%b\r\n" % (number, VALUE)


def nats_receiver() -> Receiver:
    receiver = nats.NatsReceiver("q", b"in.1", b"in.1.acks")
    receiver.ask(2)
    return receiver


def beanstalkd_receiver() -> Receiver:
    receiver = beanstalkd.BeanstalkdReceiver()
    receiver.ask(2)
    return receiver


RECEIVED = [
    (lambda: redis.RedisReceiver(b"q"), redis_entries(b"17-0", b"18-0") + b":2\r\n"),
    (nats_receiver, nats_message(7) + nats_message(8) + b"MSG in.1.acks 2 0\r\n\r\n" * 2),
    (beanstalkd_receiver, b"RESERVED 7 100\r\n%b\r\nRESERVED 8 100\r\n%b\r\nDELETED\r\nDELETED\r\n" % (VALUE, VALUE)),
]


@pytest.mark.parametrize("size", [1, 50, 1000])
@pytest.mark.parametrize(("make", "data"), RECEIVED, ids=["redis", "nats", "beanstalkd"])
def test_a_receiver_finds_messages_and_acks_however_they_are_cut(make: Any, data: bytes, size: int) -> None:
    receiver, deliveries, acked = make(), [], 0
    for start in range(0, len(data), size):
        found, done = receiver.feed(data[start : start + size])
        deliveries += found
        acked += done
    assert [delivery.count for delivery in deliveries] == [2] and acked == 2
    assert deliveries[0].data.count(VALUE) == 2


def test_a_record_batch_of_kafka_tells_its_count_and_its_end() -> None:
    two, three = (kafka_wire.record_batch([VALUE] * count) for count in (2, 3))
    assert list(kafka_wire.batches_in(two + three + three[:-1])) == [(0, 2), (0, 3)]


# The schedule.


def test_no_message_is_due_before_its_time_and_none_is_forgotten() -> None:
    schedule = Schedule(start_ns=123_456_789, per_second=7, count=1000)
    for number in range(1000):
        due_ns = schedule.due_ns(number)
        assert schedule.due_by(due_ns - 1) == number
        assert schedule.due_by(due_ns) == number + 1


def test_the_time_in_a_value_is_found_again() -> None:
    value = stamped(VALUE, 1_763_424_242_424_242_424)
    assert len(value) == len(VALUE)
    assert stamps_in(b"head" + value + b"between" + value) == [1_763_424_242_424_242_424] * 2


# Tables.


def figure(row: str, system: str, rate: float, way: str = "raw", p50_s: float = 0.001) -> Figure:
    return Figure(row, system, way, round(rate), 1.0, p50_s, 3 * p50_s, 0.5, 0.25)


def test_a_cell_is_the_median_of_the_rounds_with_their_spread() -> None:
    (cell,) = cells([figure("alone", "redis", rate) for rate in (100, 400, 200)])
    assert (cell.least, cell.rate, cell.most) == (100, 200, 400)
    assert cell.server_us == pytest.approx(0.5 / 200 * 1e6)


def test_a_ratio_is_judged_if_both_sides_were_measured() -> None:
    ours = [figure("window-256", "penstock", 130), figure("connections", "penstock", 1)]
    (row,) = judge([*ours, figure("window-256", "redis", 100)])
    assert row.what == "window of 256" and row.ratio == pytest.approx(1.3) and row.holds
    (row,) = judge([*ours, figure("window-256", "redis", 101)])
    assert not row.holds


def test_latency_is_good_where_it_is_lower() -> None:
    figures = [figure("steady", "penstock", 1, p50_s=0.001), figure("steady", "redis", 1, p50_s=0.002)]
    assert [(row.ratio, row.holds) for row in judge(figures)] == [(0.5, True), (0.5, True)]


def test_every_ratio_is_one_of_known_rows_and_systems() -> None:
    systems = {"bare", *(system.name for system in SYSTEMS)}
    for ratio in RATIOS:
        for side in (ratio.ours, ratio.theirs):
            assert side is None or (side.row in BY_NAME and side.system in systems)


def results_of(figures: list[Figure]) -> dict[str, Any]:
    moment = {"date": "2026-11-18T00:00:00+00:00", "load": [0.5, 0.5, 0.5]}
    return {
        "machine": {"cores": 2, "memory_bytes": 24 << 30, "system": "Linux", "python": "3.11"},
        "start": moment,
        "end": moment,
        "rounds": 1,
        "seconds": 1.0,
        "systems": {
            system.name: {
                "title": system.title,
                "version": "1",
                "settings": system.settings,
                "durable": system.durable,
            }
            for system in SYSTEMS
        },
        "left_out": ["Kafka is left out: java is not installed"],
        "syncs": {"penstock": {"publish": 1.0, "receive": 1.0}},
        "figures": [found.as_json() for found in figures],
    }


def test_the_page_has_every_row_and_system_and_its_tables_are_whole() -> None:
    figures = [figure("alone", "bare", 8000, "write + fdatasync")]
    for row in ROWS:
        way = "plain" if row.by_client else "raw"
        figures += [figure(row.name, system.name, 1000, way) for system in SYSTEMS]
    page = page_of(json.loads(json.dumps(results_of(figures))))
    assert all(row.title in page for row in ROWS) and all(system.title in page for system in SYSTEMS)
    assert all(ratio.what in page for ratio in RATIOS) and "falls short" in page and "holds" in page
    for table in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
        assert len({line.count("|") for line in table.splitlines()}) == 1


def test_a_page_that_is_there_is_that_of_the_results() -> None:
    page, results = ROOT / "docs/benchmarks/peers.md", ROOT / "benchmarks/results/peers.json"
    assert page.exists() == results.exists()
    if page.exists():
        assert page.read_text() == page_of(json.loads(results.read_text()))


def test_no_peer_listens_on_all_interfaces() -> None:
    sources = [path.read_text() for path in (ROOT / "benchmarks/peers").rglob("*.py")]
    assert len(sources) > 20
    assert not any(".".join("0000") in source for source in sources)
