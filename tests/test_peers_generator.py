"""The raw generator and the clients of the comparison, with a real server: what they count is what the server has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.peers import rounds
from benchmarks.peers.catalogue import ROWS, Row
from benchmarks.peers.plans import Consume, Publish
from benchmarks.peers.rounds import Effort, Measuring, ways_of
from benchmarks.peers.systems.penstock import Penstock
from benchmarks.peers.systems.system import RAW, Peer
from benchmarks.verify import Wrong

EFFORT = Effort(rounds=1, seconds=0.05, part=0.001)
FEW_QUEUES = 20


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    with Penstock().start(tmp_path_factory.mktemp("penstock")) as running:
        yield running


def small(row: Row) -> Row:
    """The row with few queues."""
    if isinstance(row.plan, Publish) and row.plan.queues > 1:
        return replace(row, plan=replace(row.plan, queues=FEW_QUEUES))
    return row


@pytest.mark.parametrize("row", [small(row) for row in ROWS], ids=lambda row: row.name)
def test_every_row_is_measured_and_verified(peer: Peer, row: Row) -> None:
    ways = ways_of(row, Penstock(), peer)
    assert ways
    measuring = Measuring(EFFORT)
    for way in ways:
        figure = measuring.measure(replace(row, name=f"{row.name}-{way}"), Penstock(), peer, way)
        assert figure.messages > 0 and figure.seconds > 0


def test_the_servers_processor_time_is_counted(peer: Peer) -> None:
    figure = Measuring(replace(EFFORT, seconds=0.5)).measure(
        Row("busy", "busy", Publish(batch=1000, window=8)), Penstock(), peer, RAW
    )
    assert 0 < figure.server_s < 10 and 0 < figure.generator_s < 10


def test_a_count_that_is_wrong_is_raised(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    published = peer.published
    monkeypatch.setattr(peer, "published", lambda queues: published(queues) - 1)
    with pytest.raises(Wrong, match="published"):
        Measuring(EFFORT).measure(Row("short", "short", Publish()), Penstock(), peer, RAW)


def test_consuming_stops_when_all_are_acked(peer: Peer) -> None:
    peer.make(["all"])
    filled = peer.fill("all", 10, 1000, 5.0)
    timed = peer.drivers[RAW].consume(Consume(10, ahead=4), "all", filled, 30.0)
    assert timed.messages == filled == 1000
    assert peer.unacked("all") == 0


def test_bare_writes_are_the_floor(tmp_path: Path) -> None:
    figure = rounds.bare(tmp_path, EFFORT)
    assert (figure.system, figure.messages) == ("bare", 100)
    assert (tmp_path / "bare").stat().st_size >= 100 * 100
