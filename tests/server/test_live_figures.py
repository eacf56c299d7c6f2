"""Live figures: what happened in the last second, and the five minutes before."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec
import pytest

from penstock.server.metrics import live, process
from penstock.server.metrics.live import LiveFigures, LivePoint
from tests.server.metrics_harness import Watched, watched


@pytest.fixture
def world() -> Iterator[Watched]:
    with watched() as opened:
        yield opened


@pytest.fixture
def figures(world: Watched) -> LiveFigures:
    return LiveFigures(world.metrics, world.metrics.loop)


def test_before_the_first_point_everything_is_nothing(world: Watched, figures: LiveFigures) -> None:
    assert figures.history() == []
    assert figures.latest() == LivePoint(world.clock.wall_us() / 1_000_000)


def test_a_point_has_the_rates_since_the_last_one(world: Watched, figures: LiveFigures) -> None:
    broker, started_s = world.broker, figures._taken_s
    broker.create_topic("t", max_deliveries=1)
    with broker.consumer("t", "g") as consumer:
        broker.publish_many("t", ["x" * 100] * 20)
        broker.publish("t", "later", delay="1h")
        messages = consumer.receive(10)
        consumer.ack(messages[:6])
        consumer.fail(messages[6:8], "no milk")
        broker.shard.journal.flush()
        world.metrics.connection_opened("http")
        point = figures.take(started_s + 2)
        assert (point.published, point.delivered, point.acked) == (11.5, 5, 3)  # with two dead letters
        assert (point.failed, point.dead, point.leased, point.delayed, point.connections) == (1, 1, 2, 1, 1)
        assert 1000 < point.published_bytes < 3000
        assert point.memory_bytes > 1 << 20
        assert point.time == world.clock.wall_us() / 1_000_000
        again = figures.take(started_s + 3)
        assert (again.published, again.acked, again.leased) == (0, 0, 2)
    assert figures.history() == [point, again]
    assert figures.latest() is again


def test_latencies_are_those_of_the_interval(world: Watched, figures: LiveFigures) -> None:
    def publish_and_take(seconds: float, at_s: float) -> LivePoint:
        world.broker.shard.publish_many("t", ["x"])
        world.clock.advance(seconds)
        world.broker.shard.journal.flush()
        return figures.take(at_s)

    slow, quick = publish_and_take(2.5, 1), publish_and_take(0.0025, 2)
    assert slow.publish_p50_ms == pytest.approx(2500, rel=0.3)
    assert quick.publish_p50_ms == pytest.approx(2.5, rel=0.3)
    assert quick.publish_p99_ms == pytest.approx(2.5, rel=0.3)
    assert quick.fsync_p50_ms is not None
    assert quick.end_to_end_p50_ms is None
    nothing = figures.take(3)
    assert (nothing.publish_p50_ms, nothing.publish_p99_ms, nothing.fsync_p99_ms) == (None, None, None)


def test_end_to_end_is_measured(world: Watched, figures: LiveFigures) -> None:
    with world.broker.consumer("t", "g") as consumer:
        world.broker.publish("t", "x")
        world.clock.advance(4)
        consumer.ack(consumer.receive())
    point = figures.take(1)
    assert point.end_to_end_p99_ms == pytest.approx(4000, rel=0.3)


def test_five_minutes_are_kept_and_no_more(figures: LiveFigures) -> None:
    points = [figures.take(float(second)) for second in range(310)]
    assert figures.history() == points[10:]


def test_points_are_taken_only_while_it_is_started(
    world: Watched, figures: LiveFigures, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "_INTERVAL_S", 0.001)
    monkeypatch.setattr(process, "INTERVAL_S", 0.001)
    loop = world.metrics.loop

    world.broker.publish("t", "before")
    for part in (world.metrics, figures):
        part.start()
        part.start()  # once is enough
    deadline_s = loop.time() + 30
    while len(figures.history()) < 5:
        assert loop.time() < deadline_s
        loop.run_until_complete(asyncio.sleep(0.001))
    for part in (figures, world.metrics):
        part.stop()
        part.stop()
    taken = figures.history()
    assert all(point.published == 0 for point in taken)  # what was before does not count
    assert any(point.loop_delay_ms > 0 for point in taken)
    loop.run_until_complete(asyncio.sleep(0.01))
    assert figures.history() == taken


def test_counting_leases_of_very_many_groups_is_done_less_often(
    world: Watched, figures: LiveFigures, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = iter([(1, 0), (2, 0), (3, 0)])
    times = iter([0.0, 0.005, 0.0, 0.0, 0.0, 0.0])
    monkeypatch.setattr(live, "perf_counter", lambda: next(times))
    monkeypatch.setattr(live, "leased_and_delayed", lambda *_: next(counts))
    assert [figures.take(float(second)).leased for second in range(1, 8)] == [1, 1, 1, 1, 1, 2, 3]


def test_a_point_can_be_sent_as_json(figures: LiveFigures) -> None:
    point = figures.take(1.0)
    assert msgspec.json.decode(msgspec.json.encode(point), type=LivePoint) == point
