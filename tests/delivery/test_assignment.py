"""Assigned groups: one owner for each partition, as few moves as can be, and a balance in the end."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.delivery.assignment import Assignment, MemberInfo
from penstock.model.errors import InvalidArgument

NAMES = ["ann", "bob", "cat", "dan", "eve", "fay", "gus"]
names = st.sampled_from(NAMES)
timeouts = st.sampled_from([5.0, 10.0, 30.0])


def held(group: Assignment, member: str) -> set[int]:
    return group.owned(member) | group.revoking(member)


def being_revoked(group: Assignment) -> list[tuple[str, int]]:
    return [(name, partition) for name, info in group.members().items() for partition in sorted(info.revoking)]


def settle(group: Assignment) -> None:
    """Answer every revocation, which must not start new ones."""
    for name, partition in being_revoked(group):
        group.revoked(name, partition)
    assert being_revoked(group) == []


def settled(partitions: int, members: int) -> Assignment:
    group = Assignment(partitions)
    for number in range(members):
        group.join(f"m{number}", 0.0, 30.0)
        settle(group)
    return group


def fewest_moves(partitions: int, sizes: list[int]) -> int:
    """How many partitions living members of these sizes must give up for any balance."""
    base, larger = divmod(partitions, len(sizes))
    shares = [base + 1] * larger + [base] * (len(sizes) - larger)
    return sum(max(0, size - share) for size, share in zip(sorted(sizes, reverse=True), shares, strict=True))


def assert_balanced(group: Assignment, partitions: int) -> None:
    sizes = [len(info.owned) for info in group.members().values()]
    assert sum(sizes) == partitions
    assert max(sizes) - min(sizes) <= 1


# One owner.


def test_G1_the_first_member_owns_everything_at_once() -> None:
    group = settled(3, 1)
    assert group.owned("m0") == {0, 1, 2}
    assert [group.owner(partition) for partition in range(3)] == [("m0", 1)] * 3


def test_G1_a_partition_reaches_its_next_owner_only_when_the_last_one_has_finished() -> None:
    group = settled(4, 1)
    group.join("m1", 1.0, 30.0)
    assert (group.owned("m0"), group.revoking("m0"), group.owned("m1")) == ({0, 1}, {2, 3}, set())
    assert group.owner(3) == ("m0", 1)
    group.revoked("m0", 3)
    assert (group.revoking("m0"), group.owned("m1"), group.owner(3)) == ({2}, {3}, ("m1", 2))


def test_G1_only_a_revocation_that_is_under_way_can_be_answered() -> None:
    group = settled(4, 1)
    group.join("m1", 1.0, 30.0)
    before = group.members()
    group.revoked("m0", 0)  # not revoked
    group.revoked("m1", 3)  # not its own
    group.revoked("nobody", 3)
    assert group.members() == before


def test_G1_what_a_member_leaves_behind_is_free_at_once_also_what_was_being_revoked() -> None:
    group = settled(4, 1)
    group.join("m1", 1.0, 30.0)
    assert group.leave("m0") == {0, 1, 2, 3}
    assert group.owned("m1") == {0, 1, 2, 3}
    assert [group.owner(partition) for partition in range(4)] == [("m1", 3)] * 4


def test_G1_a_member_that_comes_back_gets_a_greater_fencing_number_than_it_had() -> None:
    group = settled(2, 1)
    group.leave("m0")
    assert (group.owner(0), group.owner(1), group.epoch) == (None, None, 2)
    group.join("m0", 5.0, 30.0)
    assert group.owner(0) == ("m0", 3)


def test_G1_epochs_go_on_from_where_they_are_told_to() -> None:
    group = Assignment(1, epoch=41)
    group.join("ann", 0.0, 30.0)
    assert (group.epoch, group.owner(0)) == (42, ("ann", 42))


# No more moves than it takes.


@given(partitions=st.integers(1, 40), members=st.integers(1, 12))
def test_G2_a_member_that_joins_takes_no_more_than_the_smaller_share(partitions: int, members: int) -> None:
    group = settled(partitions, members)
    before = [group.owner(partition) for partition in range(partitions)]
    group.join("new", 1.0, 30.0)
    assert len(being_revoked(group)) == partitions // (members + 1)
    settle(group)
    after = [group.owner(partition) for partition in range(partitions)]
    assert sum(old != new for old, new in zip(before, after, strict=True)) == partitions // (members + 1)
    assert_balanced(group, partitions)


@given(partitions=st.integers(1, 40), members=st.integers(2, 12), data=st.data())
def test_G2_when_a_member_leaves_only_its_own_partitions_move(
    partitions: int, members: int, data: st.DataObject
) -> None:
    group = settled(partitions, members)
    before = [group.owner(partition) for partition in range(partitions)]
    gone = group.leave(f"m{data.draw(st.integers(0, members - 1))}")
    assert being_revoked(group) == []
    moved = {partition for partition in range(partitions) if group.owner(partition) != before[partition]}
    assert moved == gone
    assert_balanced(group, partitions)


def test_G2_members_beyond_the_partitions_own_nothing_and_disturb_nobody() -> None:
    group = settled(2, 2)
    before = [group.owner(0), group.owner(1)]
    group.join("spare", 1.0, 30.0)
    assert (held(group, "spare"), being_revoked(group)) == (set(), [])
    assert [group.owner(0), group.owner(1)] == before
    assert group.leave("m0") == group.owned("spare")


def test_G2_a_revocation_that_is_no_longer_needed_is_cancelled_and_the_fencing_number_stays() -> None:
    group = settled(4, 1)
    group.join("m1", 1.0, 30.0)
    group.revoked("m0", 2)
    group.leave("m1")
    assert (group.owned("m0"), group.revoking("m0")) == ({0, 1, 2, 3}, set())
    assert [group.owner(partition) for partition in range(4)] == [("m0", 1), ("m0", 1), ("m0", 3), ("m0", 1)]
    group.revoked("m0", 3)  # the answer came too late to matter
    assert group.owner(3) == ("m0", 1)


def test_G2_the_larger_share_goes_to_a_later_member_if_that_saves_a_move() -> None:
    group = settled(4, 2)
    group.join("m2", 1.0, 30.0)
    group.join("m3", 1.0, 30.0)
    for partition in group.revoking("m0"):
        group.revoked("m0", partition)  # m0 is down to one, m1 still has two
    group.leave("m3")
    assert (len(group.owned("m0")), len(group.owned("m1")), being_revoked(group)) == (1, 2, [])
    assert_balanced(group, 4)


def test_G2_another_join_pauses_nothing_that_need_not_move_and_keeps_what_was_being_revoked() -> None:
    group = settled(12, 2)
    group.join("m2", 1.0, 30.0)
    first = {partition for _, partition in being_revoked(group)}
    group.join("m3", 1.0, 30.0)
    second = {partition for _, partition in being_revoked(group)}
    assert (len(first), len(second)) == (4, 6)
    assert first < second


def test_G2_joining_again_is_a_heartbeat_and_changes_nothing() -> None:
    group = settled(4, 2)
    before = [group.owner(partition) for partition in range(4)]
    group.join("m0", 7.0, 9.0)
    assert ([group.owner(partition) for partition in range(4)], group.epoch) == (before, 2)
    assert group.members()["m0"] == MemberInfo(frozenset(group.owned("m0")), frozenset(), 7.0, 9.0)


# A balance in the end.


def test_G4_while_revocations_are_answered_whoever_has_least_is_served_first() -> None:
    group = settled(9, 1)
    group.join("m1", 1.0, 30.0)
    group.join("m2", 1.0, 30.0)
    for served, (name, partition) in enumerate(being_revoked(group), start=1):
        group.revoked(name, partition)
        assert abs(len(group.owned("m1")) - len(group.owned("m2"))) == served % 2
    assert_balanced(group, 9)


def test_G4_sessions_end_after_their_timeout_and_their_partitions_go_on_at_once() -> None:
    group = settled(4, 2)
    group.join("m1", 0.0, 10.0)
    assert group.next_expiry_s() == 10.0
    assert group.expire(10.0) == []
    gone = group.owned("m1")
    assert group.expire(10.5) == [("m1", gone)]
    assert (group.owned("m0"), group.next_expiry_s()) == ({0, 1, 2, 3}, 30.0)
    assert not group.heartbeat("m1", 10.6)


def test_G4_a_heartbeat_renews_the_session_and_never_turns_time_back() -> None:
    group = settled(1, 1)
    assert group.heartbeat("m0", 20.0)
    assert group.heartbeat("m0", 15.0)
    assert group.next_expiry_s() == 50.0


def test_G4_sessions_that_end_together_are_one_change_of_membership() -> None:
    group = settled(6, 3)
    group.heartbeat("m1", 20.0)
    assert [name for name, _ in group.expire(31.0)] == ["m0", "m2"]
    assert (group.epoch, group.owned("m1")) == (4, set(range(6)))


def test_what_moved_and_who_was_not_heard_of_is_counted() -> None:
    group = Assignment(4)
    group.join("a", 0.0, 1.0)
    assert (group.epoch, group.moves, group.expired) == (1, 4, 0)
    group.join("b", 0.0, 10.0)
    assert group.moves == 4, "nothing has moved before it is given up"
    for partition in group.revoking("a"):
        group.revoked("a", partition)
    assert (group.epoch, group.moves, group.expired) == (2, 6, 0)
    group.expire(5.0)
    assert (group.epoch, group.moves, group.expired) == (3, 8, 1)


def test_a_group_without_members_owns_nothing() -> None:
    group = Assignment(2)
    assert (group.owner(0), group.next_expiry_s(), group.expire(1e9), group.members()) == (None, None, [], {})
    assert (group.owned("x"), group.revoking("x"), group.leave("x"), group.epoch) == (set(), set(), set(), 0)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="1 or more"):
        Assignment(0)
    for timeout in (0.0, -1.0, math.nan):
        with pytest.raises(InvalidArgument, match="more than 0"):
            Assignment(1).join("ann", 0.0, timeout)
    for partition in (-1, 2):
        with pytest.raises(InvalidArgument, match="the last is 1"):
            Assignment(2).owner(partition)


def test_G4_hundreds_of_members_share_thousands_of_partitions() -> None:
    group = settled(5000, 300)
    assert_balanced(group, 5000)
    for number in range(0, 300, 3):
        group.leave(f"m{number}")
    assert being_revoked(group) == []
    assert_balanced(group, 5000)


class AssignmentMachine(RuleBasedStateMachine):
    """Members come, go, fall silent and finish in any order."""

    @initialize(partitions=st.integers(1, 12))
    def start(self, partitions: int) -> None:
        self.partitions = partitions
        self.now = 0.0
        self.group = Assignment(partitions)
        self.twin = Assignment(partitions)
        self.sessions: dict[str, tuple[float, float]] = {}
        self.epoch = 0
        self.owners: list[str | None] = [None] * partitions
        self.fences = [0] * partitions

    def sizes(self, without: set[str]) -> list[int]:
        return [len(held(self.group, name)) for name in self.sessions if name not in without]

    def assert_fewest_moves(self, sizes: list[int]) -> None:
        """The sizes are those of the members that live on, before the change."""
        if sizes:
            assert len(being_revoked(self.group)) == fewest_moves(self.partitions, sizes)

    @rule(name=names, timeout=timeouts)
    def join(self, name: str, timeout: float) -> None:
        known = name in self.sessions
        was_settled = not being_revoked(self.group)
        sizes = [*self.sizes(set()), 0]
        self.group.join(name, self.now, timeout)
        self.twin.join(name, self.now, timeout)
        self.sessions[name] = (self.now, timeout)
        if known:
            return
        self.epoch += 1
        self.assert_fewest_moves(sizes)
        if was_settled and len(sizes) > 1:
            assert len(being_revoked(self.group)) == self.partitions // len(sizes)

    @rule(name=names)
    def leave(self, name: str) -> None:
        was_settled = not being_revoked(self.group)
        sizes = self.sizes({name})
        had = held(self.group, name)
        assert self.group.leave(name) == had
        self.twin.leave(name)
        if self.sessions.pop(name, None) is not None:
            self.epoch += 1
            self.assert_fewest_moves(sizes)
            assert not (was_settled and being_revoked(self.group))

    @rule(name=names)
    def heartbeat(self, name: str) -> None:
        assert self.group.heartbeat(name, self.now) == (name in self.sessions)
        self.twin.heartbeat(name, self.now)
        if name in self.sessions:
            self.sessions[name] = (self.now, self.sessions[name][1])

    @rule(seconds=st.sampled_from([0.5, 5.0, 6.0, 11.0]))
    def expire(self, seconds: float) -> None:
        self.now += seconds
        ended = [name for name in self.group.members() if self.now > sum(self.sessions[name])]
        expected = [(name, held(self.group, name)) for name in ended]
        sizes = self.sizes(set(ended))
        assert self.group.expire(self.now) == expected
        self.twin.expire(self.now)
        for name in ended:
            del self.sessions[name]
        if ended:
            self.epoch += 1
            self.assert_fewest_moves(sizes)

    @precondition(lambda self: bool(being_revoked(self.group)))
    @rule(data=st.data())
    def finish_a_revocation(self, data: st.DataObject) -> None:
        name, partition = data.draw(st.sampled_from(being_revoked(self.group)))
        self.group.revoked(name, partition)
        self.twin.revoked(name, partition)
        assert self.group.owner(partition) != (name, self.fences[partition])

    @rule(name=names, partition=st.integers(0, 11))
    def answer_whatever(self, name: str, partition: int) -> None:
        self.group.revoked(name, partition)
        self.twin.revoked(name, partition)

    @invariant()
    def G1_each_partition_has_one_owner_and_fencing_numbers_grow_with_changes_of_owner_only(self) -> None:
        holders: dict[int, list[str]] = {partition: [] for partition in range(self.partitions)}
        for name, info in self.group.members().items():
            assert not info.owned & info.revoking
            for partition in info.owned | info.revoking:
                holders[partition].append(name)
        for partition, found in holders.items():
            owner = self.group.owner(partition)
            assert found == ([] if owner is None else [owner[0]])
            assert (owner is None) == (not self.sessions)
            if owner is None:
                self.owners[partition] = None
                continue
            if owner[0] == self.owners[partition]:
                assert owner[1] == self.fences[partition]
            else:
                assert self.fences[partition] < owner[1] <= self.group.epoch
            self.owners[partition], self.fences[partition] = owner

    @invariant()
    def members_sessions_and_epoch_are_as_they_should_be(self) -> None:
        assert self.group.epoch == self.epoch
        times = {name: (m.last_heartbeat_s, m.session_timeout_s) for name, m in self.group.members().items()}
        assert times == self.sessions
        assert self.group.next_expiry_s() == min((sum(session) for session in self.sessions.values()), default=None)

    @invariant()
    def the_same_calls_give_the_same_result(self) -> None:
        assert list(self.group.members().items()) == list(self.twin.members().items())

    def teardown(self) -> None:
        if getattr(self, "sessions", None):
            settle(self.group)  # G4: the last change is over, and every revocation is answered
            assert_balanced(self.group, self.partitions)


TestAssignmentMachine = AssignmentMachine.TestCase
TestAssignmentMachine.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
