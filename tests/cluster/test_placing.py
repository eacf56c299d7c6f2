"""Who is to have which shard: whatever happens in whatever order, no shard has two owners, and all find one."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.model.errors import InvalidArgument
from penstock.server.processes.orders import Release, Take
from penstock.server.processes.placing import STABLE_S, Placing

_SHARDS = 6
_PROCESSES = 3


class PlacingMachine(RuleBasedStateMachine):
    """Processes that take and release shards as they are told, at any pace, and end at any moment."""

    @initialize()
    def begin(self) -> None:
        self.now_s = 0.0
        self.placing = Placing.of(_SHARDS, range(_PROCESSES))
        self.alive: set[int] = set()
        self.held: dict[int, int] = {}  # shards and the process that has their lock
        self.epochs = [0] * _SHARDS
        self.told: list[tuple[int, Take | Release]] = []

    def _order(self) -> None:
        for process, order in self.placing.orders(self.now_s, 0.5):
            assert process in self.alive, "only who is there is told anything"
            if isinstance(order, Take):
                assert order.shard not in self.held, "C19: a shard is opened where nobody has it"
            else:
                assert self.held[order.shard] == process
            self.told.append((process, order))

    @precondition(lambda self: len(self.alive) < _PROCESSES)
    @rule(data=st.data())
    def start(self, data: st.DataObject) -> None:
        process = data.draw(st.sampled_from(sorted(set(range(_PROCESSES)) - self.alive)))
        self.alive.add(process)
        self.placing.started(process, self.now_s)
        self._order()

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), often=st.booleans())
    def end(self, data: st.DataObject, often: bool) -> None:
        process = data.draw(st.sampled_from(sorted(self.alive)))
        self.alive.discard(process)
        self.held = {shard: owner for shard, owner in self.held.items() if owner != process}
        self.told = [(told, order) for told, order in self.told if told != process]
        self.placing.ended(process)
        if often:
            self.placing.give_up(process)
        self._order()

    @precondition(lambda self: self.told)
    @rule(data=st.data(), fails=st.booleans())
    def obey(self, data: st.DataObject, fails: bool) -> None:
        process, order = data.draw(st.sampled_from(self.told))
        self.told.remove((process, order))
        if isinstance(order, Release):
            del self.held[order.shard]
            self.placing.released(process, order.shard, self.now_s)
        elif fails:
            self.placing.not_opened(process, order.shard, "no", self.now_s)
        else:
            assert order.shard not in self.held
            self.held[order.shard] = process
            self.epochs[order.shard] += 1
            self.placing.opened(process, order.shard, self.epochs[order.shard], self.now_s, self.now_s)
        self._order()

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), shard=st.integers(0, _SHARDS - 1))
    def move(self, data: st.DataObject, shard: int) -> None:
        process = data.draw(st.sampled_from(sorted(self.alive)))
        if process in self.placing.draining:
            with pytest.raises(InvalidArgument):
                self.placing.move(shard, process)
        else:
            self.placing.move(shard, process)
        self._order()

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def drain(self, data: st.DataObject) -> None:
        process = data.draw(st.sampled_from(sorted(self.alive)))
        if self.alive - self.placing.draining - {process}:
            self.placing.drain(process)
        else:
            with pytest.raises(InvalidArgument):
                self.placing.drain(process)
        self._order()

    @precondition(lambda self: self.alive)
    @rule()
    def balance(self) -> None:
        self.placing.balance()
        self._order()

    @rule(time_s=st.sampled_from([1.0, STABLE_S / 2]))
    def wait(self, time_s: float) -> None:
        self.now_s += time_s
        self._order()

    @invariant()
    def C19_the_map_names_nobody_but_owners(self) -> None:
        if not hasattr(self, "placing"):
            return
        found = self.placing.map({})
        for shard, place in enumerate(found.shards):
            assert place.process in (-1, self.held.get(shard)), "a shard is where its lock is, or on its way"

    @invariant()
    def one_shard_moves_at_a_time(self) -> None:
        if hasattr(self, "placing"):
            assert sum(placed.state == "moving" for placed in self.placing.shards) <= 1

    def teardown(self) -> None:
        """When nothing goes wrong any more, every shard is where it ought to be."""
        if not hasattr(self, "placing"):
            return
        for process in set(range(_PROCESSES)) - self.alive:
            self.alive.add(process)
            self.placing.started(process, self.now_s)
        were_failing = bool(self.placing.failing)
        for _ in range(100):
            self.now_s += 2.0
            self._order()
            while self.told:
                process, order = self.told.pop(0)
                if isinstance(order, Release):
                    del self.held[order.shard]
                    self.placing.released(process, order.shard, self.now_s)
                else:
                    self.held[order.shard] = process
                    self.epochs[order.shard] += 1
                    self.placing.opened(process, order.shard, self.epochs[order.shard], self.now_s, self.now_s)
        assert self.placing.is_complete
        assert self.placing.is_at_home()
        assert len(self.held) == _SHARDS
        assert not self.placing.failing, "whoever is up for long enough is trusted again"
        if were_failing:
            counts = Counter(self.held.values())
            shares = [counts[process] for process in self.alive - self.placing.draining]
            assert max(shares) - min(shares) <= 1, "and has its share"


TestPlacing = PlacingMachine.TestCase


def _settled(shards: int, processes: int) -> Placing:
    placing = Placing.of(shards, range(processes))
    for process in range(processes):
        placing.started(process, 0.0)
    for process, order in placing.orders(0.0, 0.5):
        placing.opened(process, order.shard, 1, 0.0, 0.0)
    return placing


def _obey(placing: Placing, now_s: float) -> None:
    """Do what is ordered, until nothing is."""
    while orders := placing.orders(now_s, 0.5):
        for process, order in orders:
            if isinstance(order, Release):
                placing.released(process, order.shard, now_s)
            else:
                placing.opened(process, order.shard, placing.shards[order.shard].epoch + 1, now_s, now_s)


def test_shards_are_dealt_evenly_at_the_start() -> None:
    homes = [placed.home for placed in _settled(10, 4).shards]
    assert sorted(homes.count(process) for process in range(4)) == [2, 2, 3, 3]


def test_a_process_that_was_replaced_gets_its_shards_back() -> None:
    placing = _settled(8, 4)
    before = placing.map({})
    placing.ended(2)
    assert placing.orders(1.0, 0.5) == []
    placing.started(2, 1.0)
    lost = [number for number, place in enumerate(before.shards) if place.process == 2]
    assert placing.orders(1.0, 0.5) == [(2, Take(number)) for number in lost]


def test_shards_of_a_process_that_ends_again_and_again_go_to_the_others() -> None:
    placing = _settled(8, 4)
    placing.ended(2)
    placing.give_up(2)
    taken = placing.orders(1.0, 0.5)
    assert len(taken) == 2
    assert all(isinstance(order, Take) and process != 2 for process, order in taken)


def test_a_process_that_failed_gets_shards_again_when_it_has_been_up_for_a_while() -> None:
    placing = _settled(8, 4)
    placing.ended(2)
    placing.give_up(2)
    _obey(placing, 1.0)
    placing.started(2, 10.0)
    _obey(placing, 10.0 + STABLE_S / 2)
    placing.ended(2)
    placing.started(2, 50.0)  # its time begins anew
    placing.drain(3)
    _obey(placing, 49.0 + STABLE_S)
    assert {placed.process for placed in placing.shards} == {0, 1}, "nobody deals it any meanwhile"
    _obey(placing, 50.0 + STABLE_S)
    homes = [placed.process for placed in placing.shards]
    assert sorted(homes.count(process) for process in (0, 1, 2)) == [2, 3, 3]


def test_balancing_gives_shards_to_a_process_that_failed_at_once() -> None:
    placing = _settled(8, 4)
    placing.ended(2)
    placing.give_up(2)
    placing.started(2, 1.0)
    placing.balance()
    _obey(placing, 1.0)
    assert [placed.process for placed in placing.shards].count(2) == 2


def test_a_process_that_failed_has_shards_if_no_other_can() -> None:
    placing = _settled(4, 2)
    placing.ended(1)
    placing.give_up(1)
    placing.started(1, 1.0)
    placing.drain(0)
    _obey(placing, 1.0)
    assert {placed.process for placed in placing.shards} == {1}


def test_the_last_process_that_can_have_shards_is_not_drained() -> None:
    placing = _settled(4, 2)
    placing.drain(0)
    with pytest.raises(InvalidArgument, match="only one"):
        placing.drain(1)


@pytest.mark.parametrize(("shard", "process"), [(-1, 0), (4, 0), (0, 7)])
def test_what_is_not_there_cannot_be_moved(shard: int, process: int) -> None:
    with pytest.raises(InvalidArgument):
        _settled(4, 2).move(shard, process)
