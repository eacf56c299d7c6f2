"""The chain of a shard on a bucket: one owner an epoch, nothing lost, nothing removed that somebody needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest

from penstock.journal.chain import Chain, Fenced, Found, Get, read
from penstock.journal.chain_layout import Kind, Mark, Piece, decode_checkpoint, decode_piece, encode_piece, piece_name
from penstock.journal.conversing import answer, carry_out
from penstock.model.errors import CorruptData
from penstock.storage.objects import Outcome
from penstock.testing import FaultyObjects, MemoryObjects
from tests.journal.chain_model import Habits, Schedule
from tests.journal.chain_mutants import BAD_HABITS, BROKEN

SCHEDULES, ENOUGH = 150, 400


def carry(conversation: Generator[Any, Any, Any], store: MemoryObjects) -> Any:
    return carry_out(conversation, store, lambda _: None)


def owner(store: MemoryObjects, number: int = 1) -> Chain:
    """A chain that a process has claimed."""
    chain = Chain(0, number.to_bytes(16), f"10.0.0.{number}:9000")
    carry(chain.claim(), store)
    return chain


def bodies(store: MemoryObjects) -> list[bytes]:
    """What anybody reads who owns nothing."""
    found: Found = carry(read(0), store)
    return [piece.body for piece in found.pieces]


# Schedules.


@pytest.mark.parametrize("often", [0.0, 0.03, 0.1])
def test_C1_C2_C3_nothing_is_lost_doubled_or_removed_too_early(often: float) -> None:
    seen: Counter[str] = Counter()
    for seed in range(SCHEDULES):
        schedule = Schedule(seed, often=often).run()
        assert schedule.wrong == [], f"seed {seed}"
        seen += schedule.seen + Counter(acked=len(schedule.acked))
    assert min(seen["acked"], seen["claims"], seen["removed"]) > 5 * SCHEDULES, "much has happened"
    assert min(seen["segments"], seen["strange"], seen["handed over"], seen["given up"]) > SCHEDULES // 3


@pytest.mark.parametrize("chain", BROKEN)
def test_no_rule_can_be_left_out(chain: type[Chain]) -> None:
    assert any(Schedule(seed, chain).run().wrong for seed in range(ENOUGH))


@pytest.mark.parametrize("habits", BAD_HABITS, ids=lambda habits: Habits._fields[list(habits).index(False)])
def test_no_rule_of_an_owner_can_be_left_out(habits: Habits) -> None:
    assert any(Schedule(seed, habits=habits, often=0.1).run().wrong for seed in range(ENOUGH))


def test_the_same_seed_is_the_same_schedule() -> None:
    once, again = Schedule(7).run(), Schedule(7).run()
    assert once.acked == again.acked
    assert once.store.objects == again.store.objects


# One thing at a time.


def test_a_new_chain_begins_with_a_seal() -> None:
    store = MemoryObjects()
    chain = owner(store)
    assert chain.end == Mark(1, 0)
    seal = decode_piece(store.objects[piece_name(Mark(0, 0))], 0, Mark(0, 0))
    assert (seal.kind, seal.next_epoch, seal.address) == (Kind.SEAL, 1, "10.0.0.1:9000")


def test_C2_the_next_owner_finds_every_piece() -> None:
    store = MemoryObjects()
    chain = owner(store)
    for number in range(100):
        carry(chain.append(1, number, b"%d" % number), store)
    second = Chain(0, (2).to_bytes(16), "b")
    found: Found = carry(second.claim(), store)
    assert [piece.body for piece in found.pieces] == [b"%d" % number for number in range(100)]
    assert [(piece.sequence, piece.position) for piece in found.pieces] == [(1, number) for number in range(100)]
    assert second.end == Mark(2, 0)


def test_C8_who_was_replaced_writes_nothing_any_more() -> None:
    store = MemoryObjects()
    first = owner(store, 1)
    carry(first.append(1, 0, b"before"), store)
    second = owner(store, 2)
    with pytest.raises(Fenced, match=r"10\.0\.0\.2:9000 owns epoch 2"):
        carry(first.append(1, 6, b"too late"), store)
    carry(second.append(1, 6, b"after"), store)
    assert bodies(store) == [b"before", b"after"]


def test_C5_a_piece_counts_when_it_was_seen() -> None:
    store = MemoryObjects()
    chain = owner(store)
    sending: Generator[Any, Any, Any] = chain.append(1, 0, b"v")
    create = next(sending)
    assert sending.send(Outcome.UNKNOWN) == Get([create.name])  # it looks
    sending.send([None])  # nothing is there
    assert next(sending) == create, "the same bytes under the same name"
    sending.send(Outcome.EXISTS)
    with pytest.raises(StopIteration):
        sending.send([create.data])  # it was there after all
    assert chain.end == Mark(1, 1)


def test_of_eight_that_claim_at_once_one_succeeds() -> None:
    store = MemoryObjects()
    dead = owner(store, 100)
    carry(dead.append(1, 0, b"v"), store)
    chains = [Chain(0, number.to_bytes(16), f"{number}") for number in range(8)]
    talks: dict[int, tuple[Generator[Any, Any, Any], Any]] = {}
    for number, chain in enumerate(chains):
        talk = chain.claim(dead.epoch)
        talks[number] = talk, next(talk)
    owners, refused = [], []
    while talks:
        for number, (talk, request) in list(talks.items()):
            try:
                asked = talk.send(answer(store, request, lambda _: None))
            except StopIteration:
                owners.append(number)
                del talks[number]
            except Fenced as fenced:
                refused.append(fenced.seal.address)
                del talks[number]
            else:
                talks[number] = talk, asked
    assert len(owners) == 1
    assert refused == [f"{owners[0]}"] * 7


def test_an_owner_hands_over_and_the_other_needs_no_seal_of_its_own() -> None:
    store = MemoryObjects()
    first, second = owner(store, 1), Chain(0, (2).to_bytes(16), "b")
    carry(first.append(1, 0, b"before"), store)
    carry(first.hand_over(second.incarnation, second.address), store)
    with pytest.raises(Fenced):
        carry(first.append(1, 6, b"too late"), store)
    found: Found = carry(second.claim(dead_epoch=1), store)
    assert second.end == found.end == Mark(2, 0)
    assert len(found.seals) == 2
    carry(second.append(1, 6, b"after"), store)
    assert bodies(store) == [b"before", b"after"]


def test_an_owner_hands_over_behind_a_piece_of_which_it_never_heard() -> None:
    store = MemoryObjects()
    first, second = owner(store, 1), Chain(0, (2).to_bytes(16), "b")
    sending: Generator[Any, Any, Any] = first.append(1, 0, b"unheard")
    create = next(sending)
    store.create(create.name, create.data)
    sending.close()
    carry(first.hand_over(second.incarnation, second.address), store)
    found: Found = carry(second.claim(dead_epoch=1), store)
    assert [piece.body for piece in found.pieces] == [b"unheard"]
    assert second.end == Mark(2, 0)


def test_what_was_handed_to_somebody_who_does_not_come_can_be_taken() -> None:
    store = MemoryObjects()
    first, second = owner(store, 1), Chain(0, (2).to_bytes(16), "b")
    carry(first.hand_over(second.incarnation, second.address), store)
    third = Chain(0, (3).to_bytes(16), "c")
    carry(third.claim(dead_epoch=2), store)
    assert third.end == Mark(3, 0)
    with pytest.raises(Fenced, match="c owns epoch 3"):
        carry(second.claim(dead_epoch=1), store)


def test_nothing_goes_before_one_more_piece_has_come() -> None:
    store = MemoryObjects()
    chain = owner(store)
    for number in range(3):
        carry(chain.append(1, number, b"v"), store)
    chain.doom(["bundles/1"])
    carry(chain.checkpoint(b"three", chain.end), store)
    carry(chain.sweep(), store)
    assert chain.take_needless() == []
    carry(chain.append(1, 3, b""), store)
    assert chain.take_needless() == ["bundles/1", *[piece_name(Mark(1, n)) for n in range(3)]]
    assert chain.take_needless() == []


def test_a_piece_that_was_begun_before_a_checkpoint_is_no_proof() -> None:
    store = MemoryObjects()
    chain = owner(store)
    sending: Generator[Any, Any, Any] = chain.append(1, 0, b"v")
    create = next(sending)
    store.create(create.name, create.data)
    carry(chain.checkpoint(b"state", chain.end), store)
    chain.doom(["bundles/1"])
    carry(chain.sweep(), store)
    with pytest.raises(StopIteration):
        sending.send(Outcome.DONE)
    assert chain.take_needless() == []
    carry(chain.append(1, 1, b"w"), store)
    assert chain.take_needless() == ["bundles/1"]


def test_C4_the_next_owner_removes_what_is_left_but_no_seal() -> None:
    store = MemoryObjects()
    for number in range(1, 4):
        chain = owner(store, number)
        for n in range(5):
            carry(chain.append(number, n, b"v"), store)
        carry(chain.checkpoint(b"state", chain.end), store)
    last = owner(store, 4)
    carry(last.checkpoint(b"new", last.end), store)
    carry(last.sweep(), store)
    carry(last.append(4, 0, b"proof"), store)
    store.delete(last.take_needless())
    assert store.list("journal/") == [
        piece_name(mark) for mark in (Mark(0, 0), *[Mark(e, 5) for e in (1, 2, 3)], Mark(4, 0))
    ]
    assert len(store.list("checkpoints/")) == 1
    found: Found = carry(read(0), store)
    assert (found.checkpoint, [piece.body for piece in found.pieces]) == (b"new", [b"proof"])


def test_pieces_that_reading_begins_with_stay() -> None:
    store = MemoryObjects()
    chain = owner(store)
    for n in range(5):
        carry(chain.append(1, n, b"%d" % n), store)
    for start in (2, 3):
        carry(chain.checkpoint(b"state", Mark(1, start)), store)
    carry(chain.sweep(), store)
    carry(chain.append(1, 5, b"5"), store)
    store.delete(chain.take_needless())
    assert bodies(store) == [b"3", b"4", b"5"]
    assert len(store.list("checkpoints/")) == 1


def test_a_checkpoint_at_the_same_place_counts_before_the_one_before() -> None:
    store = MemoryObjects()
    chain = owner(store)
    for number in range(12):
        carry(chain.checkpoint(b"%d" % number, chain.end), store)
    assert carry(read(0), store).checkpoint == b"11"


def test_reading_writes_nothing() -> None:
    store = FaultyObjects(3, often=0.2)
    chain = owner(store)
    for n in range(50):
        carry(chain.append(1, n, b"v"), store)
    before = dict(store.objects)
    assert len(bodies(store)) == 50
    assert store.objects == before


def test_an_interrupted_conversation_is_closed() -> None:
    store = FaultyObjects(3)
    store.cut_off = True
    chain = Chain(0, bytes(16), "a")

    def give_up(attempt: int) -> None:
        if attempt == 3:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        carry_out(chain.claim(), store, give_up)
    store.cut_off = False
    carry(chain.claim(), store)
    assert chain.epoch == 1


# What is no piece.


def test_bytes_that_are_no_piece_at_this_place_are_refused() -> None:
    piece = Piece(Kind.PIECE, Mark(3, 4), b"i" * 16, 5, 600, b"the body")
    data = encode_piece(2, piece)
    assert decode_piece(data, 2, Mark(3, 4)) == piece
    for shard, mark in ((1, Mark(3, 4)), (2, Mark(4, 4)), (2, Mark(3, 5))):
        with pytest.raises(CorruptData):
            decode_piece(data, shard, mark)
    for length in range(len(data)):
        with pytest.raises(CorruptData):
            decode_piece(data[:length], 2, Mark(3, 4))
    for place in range(len(data)):
        broken = bytearray(data)
        broken[place] ^= 0x40
        with pytest.raises(CorruptData):
            decode_piece(bytes(broken), 2, Mark(3, 4))


def test_a_checkpoint_that_is_damaged_is_not_believed() -> None:
    store = MemoryObjects()
    chain = owner(store)
    carry(chain.checkpoint(b"state", chain.end), store)
    [name] = store.list("checkpoints/")
    data = store.objects[name]
    assert decode_checkpoint(data, 0, name) == (Mark(1, 0), b"state")
    for place in range(len(data)):
        broken = bytearray(data)
        broken[place] ^= 0x40
        store.objects[name] = bytes(broken)
        with pytest.raises(CorruptData, match=name):
            carry(read(0), store)
    with pytest.raises(CorruptData):
        decode_checkpoint(data, 1, name)
