"""Replies that wait for the disk: each is told once, whoever commits, and nothing is committed twice."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import pytest

import penstock
from penstock.log.records import SingleMessages
from penstock.model.errors import PenstockError
from penstock.model.message import Message
from penstock.server.commits import Commits
from penstock.testing import FaultyStorage, MemoryStorage
from penstock.testing.memory import MemoryFile
from tests.server.harness import run, soon


@pytest.fixture
def broker() -> Iterator[penstock.Broker]:
    with penstock.open(storage=MemoryStorage(), min_free_bytes=0) as opened:
        opened.create_topic("t")
        yield opened


class Publisher:
    """Publishes, and keeps what was told of each message."""

    def __init__(self, broker: penstock.Broker, sending: Sequence[bool] = ()) -> None:
        self.shard = broker.shard
        self.sent = 0
        self._sending = iter(sending)
        self.commits = Commits(asyncio.get_running_loop(), broker.shards)
        self.commits.send_ready = self._send_ready
        self.told: Counter[int] = Counter()
        self.errors: list[PenstockError] = []
        self.before = broker.shard.journal.commits

    def _send_ready(self) -> bool:
        self.sent += 1
        return next(self._sending, False)

    def publish(self) -> int:
        """Publish one; its offset."""
        identity, commit = self.shard.publish("t", Message(b"x"))

        def tell(error: PenstockError | None) -> None:
            self.told[identity.offset] += 1
            if error is not None:
                self.errors.append(error)

        self.commits.when_done(commit, tell)
        return identity.offset

    @property
    def committed(self) -> int:
        """How many groups were written."""
        return self.shard.journal.commits - self.before


def test_what_is_committed_soon_is_committed_at_once_and_only_once(broker: penstock.Broker) -> None:
    async def main() -> None:
        publisher = Publisher(broker)
        publisher.commits.commit_soon()
        assert (publisher.committed, publisher.sent) == (0, 0), "there is nothing to commit"
        offsets = [publisher.publish() for _ in range(3)]
        assert publisher.told == {}
        publisher.commits.commit_soon()
        assert publisher.told == dict.fromkeys(offsets, 1), "without another turn of the loop"
        assert publisher.committed == 1
        publisher.commits.commit_soon()
        await asyncio.sleep(0)  # the turn in which it would have been committed
        await asyncio.sleep(0)
        assert (publisher.committed, publisher.sent) == (1, 2), "before the commit, and what waited for it"
        offsets.append(publisher.publish())
        for _ in range(2):  # and nobody has to say it
            await asyncio.sleep(0)
        assert publisher.told == dict.fromkeys(offsets, 1)
        assert publisher.committed == 2
        assert len(publisher.commits) == 0

    run(main())


def test_what_goes_out_first_puts_a_commit_off_by_a_turn_and_nobody_waits_for_ever(broker: penstock.Broker) -> None:
    async def main() -> None:
        publisher = Publisher(broker, [True, True])
        offsets = [publisher.publish()]
        publisher.commits.commit_soon()
        assert publisher.told == {}, "something goes out before the loop waits for the disk"
        offsets.append(publisher.publish())
        publisher.commits.commit_soon()
        await soon(lambda: len(publisher.told) == 2)
        assert publisher.told == dict.fromkeys(offsets, 1)
        assert publisher.committed == 1
        for _ in range(5):  # whatever was put off is over
            await asyncio.sleep(0)
        assert publisher.committed == 1
        offsets.append(publisher.publish())
        publisher.commits.commit_soon()
        assert publisher.told == dict.fromkeys(offsets, 1)
        assert len(publisher.commits) == 0

    run(main())


def test_a_commit_waits_a_few_turns_for_company_and_no_longer(broker: penstock.Broker) -> None:
    async def main() -> None:
        publisher = Publisher(broker)
        for _ in range(4):
            publisher.publish()
            await asyncio.sleep(0)
        assert publisher.committed == 0  # somebody came in every turn
        await soon(lambda: len(publisher.told) == 4, "the replies")
        assert publisher.committed == 1
        for _ in range(40):
            publisher.publish()
            await asyncio.sleep(0)
        assert publisher.committed >= 5  # those who keep coming do not keep the first one waiting

    run(main())


@pytest.mark.parametrize("seed", range(20))
def test_every_commit_is_told_once_however_turns_threads_and_commits_soon_meet(
    seed: int, broker: penstock.Broker
) -> None:
    chance = random.Random(seed)

    async def main() -> None:
        publisher = Publisher(broker, [chance.random() < 0.3 for _ in range(1000)])
        for _ in range(300):
            match chance.randrange(6):
                case 0 | 1 | 2:
                    publisher.publish()
                case 3:
                    publisher.commits.commit_soon()
                case 4:
                    await asyncio.sleep(0)
                case 5 if chance.random() < 0.2:
                    publisher.commits._left_to_thread = 3  # as if the disk had been slow
        offsets = [message.offset for message in broker.read("t")]
        published = publisher.publish() + 1
        await soon(lambda: len(publisher.told) == published, "the last reply")
        assert publisher.told == dict.fromkeys(range(published), 1)
        assert offsets == list(range(len(offsets)))
        assert len(publisher.commits) == 0
        assert not publisher.errors

    run(main())


def _syncing_for(seconds: float) -> Callable[[MemoryFile], None]:
    return lambda _: time.sleep(seconds)


def test_a_slow_disk_leaves_the_next_commits_to_the_thread(
    broker: penstock.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemoryFile, "sync", _syncing_for(0.05))

    async def main() -> None:
        publisher = Publisher(broker)
        publisher.publish()
        publisher.commits.commit_soon()
        assert len(publisher.told) == 1, "the first one is committed here"
        publisher.publish()
        publisher.commits.commit_soon()
        assert len(publisher.told) == 1, "the loop does not wait for the disk"
        await soon(lambda: len(publisher.told) == 2)

    run(main())


def test_a_commit_that_computes_for_long_is_no_slow_disk(
    broker: penstock.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = SingleMessages.encode

    def encode_slowly(record: SingleMessages) -> list[bytes]:
        time.sleep(0.05)
        return encode(record)

    monkeypatch.setattr(SingleMessages, "encode", encode_slowly)

    async def main() -> None:
        publisher = Publisher(broker)
        for number in range(1, 4):
            publisher.publish()
            publisher.commits.commit_soon()
            assert len(publisher.told) == number, "no thread would do it any quicker"

    run(main())


def test_R5_a_commit_that_fails_is_told_too_when_it_was_committed_soon() -> None:
    storage = FaultyStorage()

    async def main(broker: penstock.Broker) -> None:
        publisher = Publisher(broker)
        storage.fail("sync", 5, always=True, name_contains="journal/")
        offset = publisher.publish()
        publisher.commits.commit_soon()
        await soon(lambda: publisher.told)
        assert publisher.told == {offset: 1}
        assert [type(error) for error in publisher.errors] == [penstock.StorageFailed]
        assert len(publisher.commits) == 0

    with penstock.open(storage=storage, min_free_bytes=0) as broker:
        broker.create_topic("t")
        run(main(broker))
        storage.heal()
