"""A loop that stays awake for the next request: a moment, and only where that pays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise

import pytest

from penstock.server.native.lingering import Lingering


class Turns:
    """A loop whose turns are counted; each runs what was there when it began."""

    def __init__(self) -> None:
        self._soon: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._soon.append(callback)

    def turn(self) -> None:
        soon, self._soon = self._soon, []
        for callback in soon:
            callback()

    def until_asleep(self) -> int:
        """How many turns it takes until there is nothing to do."""
        turns = 0
        while self._soon:
            self.turn()
            turns += 1
            assert turns < 1000, "it never sleeps"
        return turns


@pytest.fixture
def turns() -> Turns:
    return Turns()


def lingering_on(turns: Turns, processors: int = 2) -> Lingering:
    return Lingering(turns, processors)  # type: ignore[arg-type]


def test_after_a_reply_the_loop_looks_for_a_while_and_then_sleeps(turns: Turns) -> None:
    lingering = lingering_on(turns)
    assert turns.until_asleep() == 0
    lingering.replied()
    assert 50 < turns.until_asleep() < 200
    assert turns.until_asleep() == 0


def test_it_sleeps_at_once_when_a_request_came_that_is_not_answered_yet(turns: Turns) -> None:
    lingering = lingering_on(turns)
    lingering.replied()
    turns.turn()
    lingering.heard()
    assert turns.until_asleep() == 1


def test_it_stays_awake_as_long_as_every_reply_is_followed_by_a_request(turns: Turns) -> None:
    lingering = lingering_on(turns)
    lingering.replied()
    for _ in range(100):
        for _ in range(20):
            turns.turn()
        lingering.heard()
        lingering.replied()
        assert turns._soon, "it looks"
    assert turns.until_asleep() > 50


def test_where_it_is_in_vain_it_is_tried_less_and_less_often(turns: Turns) -> None:
    lingering = lingering_on(turns)
    looked = []
    for number in range(2000):
        lingering.replied()
        if turns.until_asleep():
            looked.append(number)
    apart = [later - earlier for earlier, later in pairwise(looked)]
    assert apart[:8] == [2, 4, 8, 16, 32, 64, 128, 256]
    assert set(apart[8:]) == {256}


def test_one_look_that_paid_brings_the_others_back(turns: Turns) -> None:
    lingering = lingering_on(turns)
    for _ in range(1000):
        lingering.replied()
        turns.until_asleep()
    while not turns._soon:
        lingering.replied()
    lingering.heard()
    turns.until_asleep()
    for _ in range(10):
        lingering.replied()
        assert turns._soon, "it looks"
        lingering.heard()
        turns.until_asleep()


def test_where_there_is_one_processor_it_is_left_to_the_client(turns: Turns) -> None:
    lingering = lingering_on(turns, processors=1)
    lingering.replied()
    assert turns.until_asleep() == 0


def test_a_real_loop_that_looks_does_its_other_work() -> None:
    async def main() -> int:
        lingering = Lingering(asyncio.get_running_loop(), 2)
        done = 0
        for _ in range(10):
            lingering.replied()
            await asyncio.sleep(0)
            done += 1
        return done

    assert asyncio.run(main()) == 10
