"""Brokers on a bucket that fails, in simulated time: whatever happens to them, nothing acknowledged is lost.

`python -m tests.brokers.test_simulation 1000` tries a thousand seeds.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable

import pytest

from penstock.cluster.registry import Tenure
from penstock.journal.chain import Chain, Conversation, Put
from penstock.journal.chain_layout import Kind, Mark, Piece, encode_piece, piece_name
from tests.brokers.simulation import World, simulate

EVENTS = 12


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """What goes wrong on purpose is not worth a line."""
    caplog.set_level(logging.CRITICAL, logger="penstock")


@pytest.mark.parametrize("seed", range(20))
def test_C2_C9_C12_Q4_nothing_is_lost_or_doubled_whatever_happens_to_brokers(seed: int) -> None:
    world = simulate(seed, EVENTS, often=(0.0, 0.02, 0.1)[seed % 3])
    assert len(world.published) > 50, "clients were at work"
    assert len(world.acked) > 20


@pytest.mark.parametrize("seed", range(3))
def test_C2_C18_nothing_is_lost_when_nothing_happens(seed: int) -> None:
    world = simulate(seed, 0, often=0.0)
    assert len(world.published) > 100


def test_one_seed_makes_one_course_of_events() -> None:
    first, again = (simulate(7, EVENTS, often=0.05) for _ in range(2))
    assert first.schedule.log == again.schedule.log
    assert (first.published, first.acked) == (again.published, again.acked)
    assert first.schedule.turns == again.schedule.turns > 1000


# Rules that are switched off.


def _always_holds(_: Tenure, __: int) -> bool:
    return True


def _append_by_put(self: Chain, sequence: int, position: int, body: bytes) -> Conversation[Piece]:
    """Write the next piece, whatever lies there."""
    piece = Piece(Kind.PIECE, self.end, self.incarnation, sequence, position, body)
    yield Put(piece_name(piece.mark), encode_piece(self.shard, piece))
    self.end = Mark(piece.mark.epoch, piece.mark.n + 1)
    return piece


@pytest.mark.parametrize(
    ("where", "rule", "instead", "seeds"),
    [
        (Tenure, "holds", _always_holds, (10,)),
        (Chain, "append", _append_by_put, (0, 3)),
    ],
)
def test_a_rule_that_is_switched_off_is_noticed(
    monkeypatch: pytest.MonkeyPatch, where: type, rule: str, instead: Callable[..., object], seeds: tuple[int, ...]
) -> None:
    monkeypatch.setattr(where, rule, instead)
    with pytest.raises(AssertionError, match=r"C2|C9|after it was acked"):
        for seed in seeds:
            simulate(seed, EVENTS, often=0.02)


def main() -> None:
    """Try as many seeds as are asked for."""
    logging.disable(logging.CRITICAL)
    hours, published = 0.0, 0
    for seed in range(int(sys.argv[1])):
        world: World = simulate(seed, EVENTS, often=(0.0, 0.02, 0.1)[seed % 3])
        hours, published = hours + (world.schedule.now_s - 1000) / 3600, published + len(world.published)
    print(f"{sys.argv[1]} seeds: {hours:.1f} hours, {published:,} messages were acknowledged, and nothing was lost")


if __name__ == "__main__":
    main()
