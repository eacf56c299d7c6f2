"""Members of a cluster on virtual time: who lives, who has which shard, and who may hand out its messages."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cluster.members import SILENCE_S, TENURE_S, Heartbeat, Members, member_name
from penstock.cluster.registry import Registry, Tenure
from penstock.testing.objects import FaultyObjects, MemoryObjects
from tests.cluster.virtual_members import VirtualCluster


def test_the_first_member_has_all_shards_at_once() -> None:
    cluster = VirtualCluster(4)
    cluster.start()
    assert cluster.run_until(cluster.is_served, 2.0) < 1.0


def test_members_that_join_get_their_share_after_a_while() -> None:
    cluster = VirtualCluster(8, balance_after_s=5.0)
    cluster.start(3)
    cluster.run_until(cluster.is_served, 3.0)
    cluster.run_until(cluster.is_even, 20.0)
    assert cluster.moves <= 6
    cluster.run(5.0)
    moves = cluster.moves
    cluster.run(30.0)
    assert cluster.moves == moves, "nothing moves when nobody comes or goes"
    assert cluster.agree(), "C19"


@pytest.mark.parametrize("seed", range(20))
def test_C15_shards_of_a_killed_member_are_served_within_five_seconds(seed: int) -> None:
    cluster = VirtualCluster(8, seed)
    cluster.start(3)
    cluster.run_until(cluster.is_even, 30.0)
    cluster.random.choice(cluster.members).is_dead = True
    took_s = cluster.run_until(cluster.is_served, 5.0)
    assert took_s > SILENCE_S, "nobody knows sooner"
    cluster.run(2.0)
    assert cluster.agree()


def test_C16_an_outage_of_the_bucket_moves_nothing() -> None:
    cluster = VirtualCluster(8)
    cluster.start(3)
    cluster.run_until(cluster.is_even, 30.0)
    moves, owners = cluster.moves, dict(cluster.owners)
    cluster.is_down = True
    cluster.run(TENURE_S + 0.5)
    assert not any(member.delivers(shard) for member in cluster.members for shard in range(8)), "C9"
    cluster.run(60.0)
    cluster.is_down = False
    cluster.run(10.0)
    assert (cluster.moves, cluster.owners) == (moves, owners)
    assert cluster.is_even()


def test_a_member_that_was_stopped_finds_its_shards_elsewhere() -> None:
    cluster = VirtualCluster(6)
    cluster.start(3)
    cluster.run_until(cluster.is_even, 30.0)
    stopped = cluster.members[0]
    stopped.is_running = False
    cluster.run(10.0)
    stopped.is_running = True
    assert not any(map(stopped.delivers, range(6)))
    cluster.run_until(lambda: cluster.is_even() and cluster.agree(), 30.0)


def test_a_member_that_is_cut_off_stops_delivering_before_another_begins() -> None:
    cluster = VirtualCluster(6)
    cluster.start(3)
    cluster.run_until(cluster.is_even, 30.0)
    cluster.members[1].is_cut = True
    cluster.run(20.0)
    assert not any(map(cluster.members[1].delivers, range(6)))
    assert cluster.is_served()
    cluster.members[1].is_cut = False
    cluster.run_until(lambda: cluster.is_even() and cluster.agree(), 30.0)


def test_whoever_takes_long_to_open_a_shard_keeps_it() -> None:
    cluster = VirtualCluster(4)
    cluster.open_s = 20.0
    cluster.start(3)
    cluster.run_until(lambda: len(cluster.owners) == 4, 3.0)
    cluster.run(25.0)
    assert len(cluster.owners) - cluster.moves == 4


def test_a_member_that_drains_gives_all_away_and_nothing_waits_for_silence() -> None:
    cluster = VirtualCluster(8)
    cluster.start(3)
    cluster.run_until(cluster.is_even, 30.0)
    leaving = cluster.members[2]
    leaving.is_draining = True
    assert cluster.run_until(lambda: not leaving.chains and cluster.is_served(), 5.0) < SILENCE_S


def test_a_shard_goes_where_it_is_told_to_and_stays_there() -> None:
    cluster = VirtualCluster(3, balance_after_s=2.0)
    cluster.start(3)
    cluster.run_until(cluster.is_even, 30.0)
    cluster.run(5.0)
    origin, target = cluster.members[0], cluster.members[1]
    [shard] = origin.chains
    origin.claiming.move(shard, target.number)
    assert cluster.run_until(lambda: shard in target.chains, 2.0) < 1.0
    cluster.run(20.0)
    assert shard in target.chains
    for member in cluster.members:
        member.claiming.balance()
    cluster.run_until(cluster.is_even, 5.0)


def test_an_even_share_that_was_asked_for_counts_for_members_that_were_not_noticed_yet() -> None:
    cluster = VirtualCluster(4, balance_after_s=1000.0)
    cluster.start()
    cluster.run(5)
    assert cluster.is_served()
    cluster.start(2)
    for member in cluster.alive:
        member.claiming.balance()
    cluster.run_until(cluster.is_even, 10)
    cluster.run(10)
    cluster.start()
    cluster.run(100)
    assert not cluster.is_even(), "it does not count for those that come later"


def test_a_shard_that_was_given_to_one_that_dies_is_taken_by_another() -> None:
    cluster = VirtualCluster(3, balance_after_s=2.0)
    cluster.start(3)
    cluster.run_until(cluster.is_even, 30.0)
    origin, target = cluster.members[0], cluster.members[1]
    [shard] = origin.chains
    target.is_dead = True
    origin.claiming.move(shard, target.number)
    cluster.run_until(cluster.is_served, 6.0)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1 << 32), st.sampled_from([0.0, 0.02, 0.1]))
def test_C1_C9_C19_whatever_happens_each_epoch_has_one_owner_and_shards_are_served_again(
    seed: int, often: float
) -> None:
    cluster = VirtualCluster(6, seed, often, balance_after_s=3.0)
    cluster.start(3)
    for _ in range(12):
        match cluster.random.randrange(7):
            case 0 if len(cluster.alive) > 1:
                cluster.random.choice(cluster.alive).is_dead = True
            case 1 if not cluster.is_down:
                cluster.start()
            case 2:
                cluster.random.choice(cluster.alive).is_running = False
            case 3:
                cluster.random.choice(cluster.alive).is_cut = True
            case 4:
                cluster.is_down = not cluster.is_down
            case 5:
                cluster.random.choice(cluster.alive).is_draining ^= True
            case _:
                for member in cluster.alive:
                    member.is_running, member.is_cut = True, False
        cluster.run(cluster.random.random() * 8)
    cluster.is_down, cluster.often = False, 0.0
    for member in cluster.alive:
        member.is_running, member.is_cut, member.is_draining = True, False, False
    cluster.run(3.0)
    for member in cluster.alive:
        member.claiming.balance()
    cluster.run_until(lambda: cluster.is_even() and cluster.agree(), 60.0)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 1 << 32))
def test_no_number_is_given_twice_whatever_the_bucket_says(seed: int) -> None:
    objects = FaultyObjects(seed, often=0.1)
    numbers = [Registry(objects, lambda: 0.0).join(f"{n:032x}", lambda _: None).number for n in range(8)]
    assert len(set(numbers)) == 8


def test_a_tenure_is_counted_from_when_the_heartbeat_was_sent() -> None:
    now_s = 10.0
    tenure = Tenure(lambda: now_s)
    assert not tenure.holds(3)
    tenure.trust(3, 9.0)
    tenure.renew(9.5, [3])
    assert (tenure.holds(3), tenure.holds(4), tenure.left_s, tenure.lapsed) == (True, False, 1.5, {})
    now_s = 9.5 + TENURE_S
    assert (tenure.holds(3), tenure.left_s) == (False, 0.0)


def test_a_tenure_that_was_broken_goes_on_only_with_a_proof() -> None:
    now_s = 10.0
    tenure = Tenure(lambda: now_s)
    tenure.trust(3, 10.0)
    now_s = 13.0
    tenure.renew(12.9, [3])
    assert (tenure.holds(3), tenure.lapsed) == (False, {3: 12.9})
    tenure.trust(3, 12.9)
    assert (tenure.holds(3), tenure.lapsed) == (True, {})


def test_silence_counts_only_while_the_bucket_answers() -> None:
    members = Members(0)
    other = Heartbeat(number=1, incarnation="1", beat=1)
    members.looked({1: other}, 0.0)
    members.looked({1: other}, 100.0)
    members.looked({1: other}, 200.0)
    members.looked({1: other}, 300.0)
    assert 1 in members.living, "nobody looked in between"
    for look in range(1, 10):
        members.looked({1: other}, 300.0 + 0.3 * look)
    assert 1 not in members.living
    members.looked({1: Heartbeat(number=1, incarnation="1", beat=2)}, 310.0)
    assert 1 in members.living, "it says that it lives"


def test_members_that_are_long_dead_are_forgotten_but_for_the_greatest_number() -> None:
    members = Members(1)
    members.own(Heartbeat(number=1, incarnation="1", beat=1))
    left = [Heartbeat(number=number, incarnation=str(number), beat=9, left=True) for number in (0, 2)]
    members.looked(dict(zip((0, 2), left, strict=True)), 0.0)
    assert members.forgettable(599.0) == []
    assert members.forgettable(600.0) == [0]
    assert members.wanted == [0, 2, 3]


def test_whoever_takes_a_number_at_the_same_moment_is_known() -> None:
    class Late(MemoryObjects):
        """Another one takes the number that a list has just shown to be free."""

        is_first = True

        def list(self, prefix: str, after: str = "") -> list[str]:
            found = super().list(prefix, after)
            if self.is_first:
                self.is_first = False
                Registry(self, lambda: 0.0).join("00", lambda _: None)
            return found

    members = Registry(Late(), lambda: 0.0).join("01", lambda _: None)
    assert members.number == 1
    assert members.wanted == [0, 2]


def test_a_newcomer_is_seen_by_its_number_and_after_a_long_sleep_by_a_list() -> None:
    objects = MemoryObjects()
    now_s = 0.0
    registry = Registry(objects, lambda: now_s)
    members = registry.join("00", lambda _: None)
    for name in ("01", "02", "03"):
        Registry(objects, lambda: now_s).join(name, lambda _: None)
    found = registry.look(members.wanted)
    assert found is not None
    assert {number for number, each in found.items() if each is not None} == {0, 1, 2, 3}
    objects.delete([member_name(1)])
    assert set(registry.look([1]) or ()) == {1}
    now_s = 60.0
    assert set(registry.look([1]) or ()) == {0, 1, 2, 3}
