"""Where topics live, and who has the shards: pure functions, the same for everybody."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.assigning import assign
from penstock.model.placement import shard_of

MEMBERS = st.lists(st.sampled_from("abcdefgh"), unique=True, min_size=1)
OWNERS = st.dictionaries(st.integers(0, 20), st.sampled_from("abcdefghxyz"))


def test_a_topic_lives_where_it_always_did() -> None:
    """These are part of the format: a directory would not find its topics again if they changed."""
    names = ("orders", "invoices", "a", "penstock.schedules", "emails.eu")
    assert [shard_of(name, 8) for name in names] == [1, 7, 2, 7, 0]
    assert [shard_of(name, 3) for name in names] == [1, 2, 2, 2, 0]


def test_a_topic_and_its_dead_letters_live_together() -> None:
    for number in range(200):
        name = f"topic-{number}"
        assert shard_of(name, 8) == shard_of(f"{name}.dlq", 8) == shard_of(f"{name}.dlq.dlq", 8)


def test_topics_are_spread_evenly_over_shards() -> None:
    for shards in (2, 3, 8, 16):
        counts = Counter(shard_of(f"topic-{number}", shards) for number in range(20_000))
        assert len(counts) == shards
        assert max(counts.values()) < 1.1 * 20_000 / shards
        assert min(counts.values()) > 0.9 * 20_000 / shards


def test_with_one_more_shard_only_what_goes_there_moves() -> None:
    names = [f"topic-{number}" for number in range(5000)]
    moved = [name for name in names if shard_of(name, 8) != shard_of(name, 9)]
    assert all(shard_of(name, 9) == 8 for name in moved)
    assert 0.7 < len(moved) / (len(names) / 9) < 1.3


@given(st.integers(1, 20), MEMBERS, OWNERS)
def test_shards_are_balanced_within_one_and_as_few_move_as_can_be(
    shards: int, members: list[str], owners: dict[int, str]
) -> None:
    found = assign(shards, members, owners)
    assert list(found) == list(range(shards))
    counts = Counter(dict.fromkeys(members, 0))
    counts.update(found.values())
    assert set(counts) == set(members)
    assert max(counts.values()) - min(counts.values()) <= 1
    moved = sum(owners.get(shard) in members and owners[shard] != member for shard, member in found.items())
    assert moved == fewest_moves(shards, members, owners)


def fewest_moves(shards: int, members: list[str], owners: dict[int, str]) -> int:
    """How many have to leave a living owner in any balanced assignment: tried with each choice of who has one more."""
    held = Counter(owners[shard] for shard in range(shards) if owners.get(shard) in members)
    least, larger = divmod(shards, len(members))
    choices = (choice for choice in product((0, 1), repeat=len(members)) if sum(choice) == larger)
    return min(
        sum(max(0, held[member] - least - more) for member, more in zip(members, choice, strict=True))
        for choice in choices
    )


@given(st.integers(1, 20), MEMBERS, OWNERS, st.randoms(use_true_random=False))
def test_whoever_sees_the_same_decides_the_same(
    shards: int, members: list[str], owners: dict[int, str], chance: object
) -> None:
    shuffled = list(members)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    found = assign(shards, members, owners)
    assert assign(shards, shuffled, dict(reversed(owners.items()))) == found
    assert assign(shards, members, found) == found  # and what is decided stays


def test_when_one_of_four_goes_only_its_shards_move() -> None:
    before = assign(16, "abcd", {})
    after = assign(16, "abc", before)
    assert {shard for shard in before if before[shard] != after[shard]} == {s for s in before if before[s] == "d"}


@pytest.mark.parametrize("shards", [1, 8])
def test_nobody_has_anything_where_nobody_is(shards: int) -> None:
    assert assign(shards, [], {0: "gone"}) == {}
