"""A shard that another process has taken over: who was replaced hears by whom, and ends at once."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import NamedTuple

import pytest

from penstock.embedded.broker import Broker, lose_shard, release_shard
from penstock.journal.bucket_storage import BucketStorage
from penstock.journal.chain import Chain
from penstock.model.config import BrokerConfig
from penstock.model.errors import DirectoryLocked, NotOwner, PenstockError, ShardLost
from penstock.storage.objects import ObjectStore, StoreUnavailable
from penstock.testing import FaultyObjects, MemoryObjects, VirtualClock
from tests.buckets.hanging import HangingObjects
from tests.patience import until

SHARD = 3


class Identity(NamedTuple):
    incarnation: bytes
    address: str


ONE, TWO, THREE = (Identity(f"{number}".encode() * 16, f"{number}:9000") for number in (1, 2, 3))


def storage(objects: ObjectStore, identity: Identity, pause: Callable[[int], None] = lambda _: None) -> BucketStorage:
    return BucketStorage(objects, Chain(SHARD, *identity), pause, VirtualClock().monotonic_s)


def broker_on(place: BucketStorage) -> Broker:
    return Broker(place, BrokerConfig.parse({"min_free_bytes": 0}), VirtualClock())


def test_C8_C11_who_was_replaced_hears_who_owns_the_shard_now() -> None:
    objects = MemoryObjects()
    first = broker_on(storage(objects, ONE))
    first.publish("t", "a")
    with broker_on(storage(objects, TWO)) as second:
        assert second.shard.epoch == second.shard.storage.epoch == 2
        for _ in range(2):
            with pytest.raises(NotOwner) as refused:
                first.publish("t", "b")
            assert (refused.value.shard, refused.value.epoch, refused.value.address) == (SHARD, 2, TWO.address)
        assert [message.value for message in second.read("t")] == [b"a"]
    first.close()


def test_the_epoch_of_a_shard_is_that_of_its_chain() -> None:
    objects = MemoryObjects()
    for epoch in (1, 2):
        with broker_on(storage(objects, ONE)) as broker:
            assert broker.shard.epoch == broker.shard.storage.epoch == epoch
    lost = storage(objects, TWO)
    lost.lock()  # and ends before it has noted anything
    with broker_on(storage(objects, ONE)) as broker:
        assert broker.shard.epoch == broker.shard.storage.epoch == 4


def test_C8_a_fenced_shard_is_closed_without_another_request() -> None:
    objects = FaultyObjects(often=0)
    first = broker_on(storage(objects, ONE))
    first.publish("t", "a")
    storage(objects, TWO).lock()
    with pytest.raises(NotOwner):
        first.publish("t", "b")
    before = objects.requests
    first.close()
    assert objects.requests == before
    assert first.shard.closed


def test_C11_who_waits_for_a_dead_bucket_is_told_when_the_shard_is_lost() -> None:
    objects = FaultyObjects(often=0)

    def pause(_: int) -> None:
        threading.Event().wait(0.001)

    broker = broker_on(storage(objects, ONE, pause))
    broker.publish("t", "a")
    objects.cut_off = True
    heard: dict[str, PenstockError] = {}

    def publish(value: str) -> None:
        try:
            broker.publish("t", value)
        except PenstockError as error:
            heard[value] = error

    writing, waiting = (threading.Thread(target=publish, args=(value,)) for value in ("writing", "waiting"))
    journal = broker.shard.journal
    writing.start()
    until(lambda: journal._writing is not None)
    waiting.start()
    until(lambda: journal.gathering.blocks)
    lost = NotOwner("it was taken", SHARD, 2, TWO.address)
    lose_shard(broker, 0, lost)
    for thread in (writing, waiting):
        thread.join(30)
    assert isinstance(heard["writing"], ShardLost), "nobody knows what became of it"
    assert "may or may not be there" in str(heard["writing"])
    assert isinstance(heard["waiting"], NotOwner), "nothing of it was written"
    assert heard["waiting"].address == TWO.address
    assert 0 not in broker.shards
    broker.close()


def test_C5_a_shard_is_lost_while_a_request_hangs_and_its_answer_is_told_when_it_comes() -> None:
    objects = HangingObjects()
    broker = broker_on(storage(objects, ONE))
    broker.publish("t", "a")
    objects.hang()
    acked: list[object] = []
    thread = threading.Thread(target=lambda: acked.append(broker.publish("t", "b")))
    thread.start()
    objects.wait_until_hanging()
    lose_shard(broker, 0, NotOwner("it was taken", SHARD, 2))  # nobody is waited for
    assert not acked
    objects.go_on()
    thread.join(30)
    assert len(acked) == 1, "the piece is in the chain, before any seal"
    with broker_on(storage(objects, TWO)) as second:
        assert [message.value for message in second.read("t")] == [b"a", b"b"]
    broker.close()


def test_C1_C10_who_takes_up_again_what_it_abandoned_begins_another_epoch() -> None:
    objects = HangingObjects()
    place = storage(objects, ONE)
    first = broker_on(place)
    objects.hang(times=1)

    def publish_late() -> None:
        with pytest.raises(PenstockError):
            first.publish("t", "late")

    thread = threading.Thread(target=publish_late)
    thread.start()
    objects.wait_until_hanging()
    lose_shard(first, 0, NotOwner("the bucket does not answer", SHARD))
    with pytest.raises(DirectoryLocked, match="abandoned"):
        place.lock()
    [again] = first.shards._places
    second = broker_on(again)  # type: ignore[arg-type]
    assert second.shard.epoch == 2
    objects.go_on()
    thread.join(30)
    second.publish("t", "new")
    assert [message.value for message in second.read("t")] == [b"new"]
    second.close()
    first.close()


def test_releasing_a_shard_that_was_taken_waits_for_nobody() -> None:
    objects = FaultyObjects(often=0)
    broker = broker_on(storage(objects, ONE))
    broker.publish("t", "a")
    storage(objects, TWO).lock()
    with pytest.raises(NotOwner):
        broker.publish("t", "b")
    objects.cut_off = True
    release_shard(broker, 0)
    assert 0 not in broker.shards
    broker.close()


def test_C18_what_is_handed_over_is_opened_without_another_seal() -> None:
    objects = MemoryObjects()
    place = storage(objects, ONE)
    with broker_on(place) as broker:
        broker.publish("t", "a")
    place.hand_over(TWO)
    other = storage(objects, TWO)
    other.dead_epoch = 1
    with broker_on(other) as broker:
        assert broker.shard.epoch == 2
        assert [message.value for message in broker.read("t")] == [b"a"]
    with pytest.raises(NotOwner) as refused:
        place.hand_over(THREE)
    assert refused.value.address == TWO.address


def test_C1_nobody_claims_for_a_dead_owner_what_has_a_later_one() -> None:
    objects = MemoryObjects()
    for identity in (ONE, TWO):
        storage(objects, identity).lock()
    late = storage(objects, THREE)
    late.dead_epoch = 1
    with pytest.raises(NotOwner) as refused:
        late.lock()
    assert (refused.value.epoch, refused.value.address) == (2, TWO.address)
    late.dead_epoch = 2
    late.lock()
    assert late.epoch == 3


def test_C1_nobody_claims_for_a_dead_owner_what_a_checkpoint_shows_to_have_a_later_one() -> None:
    objects = MemoryObjects()
    for owner in (ONE, TWO):
        broker = broker_on(storage(objects, owner))
        broker.publish("t", owner.address)
        broker.shard.checkpoint()  # reading begins behind the seal
    late = storage(objects, THREE)
    late.dead_epoch = 1
    with pytest.raises(NotOwner) as refused:
        late.lock()
    assert (refused.value.epoch, refused.value.address) == (2, TWO.address)
    broker.publish("t", "still here")


def test_handing_over_ends_when_the_bucket_does_not_answer() -> None:
    objects = FaultyObjects(often=0)
    place = storage(objects, ONE)
    broker_on(place).close()
    objects.cut_off = True
    with pytest.raises(StoreUnavailable, match="does not answer"):
        place.hand_over(TWO)


@pytest.mark.parametrize("seed", range(20))
def test_L1_C10_who_gives_a_shard_up_and_opens_it_again_loses_nothing(seed: int) -> None:
    objects, chance = FaultyObjects(seed, often=0.1), random.Random(seed)
    place, epochs, published = storage(objects, ONE), [0], []
    for turn in range(6):
        broker = broker_on(place)
        assert broker.shard.epoch > epochs[-1], "no epoch is taken up again"
        epochs.append(broker.shard.epoch)
        for number in range(chance.randrange(8)):
            broker.publish("t", f"{turn}.{number}")
            published.append(f"{turn}.{number}")
            if chance.random() < 0.2:
                chance.choice([broker.settle, broker.shard.checkpoint])()
        lose_shard(broker, 0, NotOwner("nobody answers", SHARD))
        [place] = broker.shards._places  # type: ignore[assignment]
        broker.close()
    objects.is_calm = True
    with broker_on(place) as broker:
        assert [message.value.decode() for message in broker.read("t")] == published
