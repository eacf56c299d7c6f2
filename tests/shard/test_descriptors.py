"""A process that has no file descriptor left: whatever needs one is refused, and goes on when there is one again."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import pytest

from penstock.model.config import BrokerConfig
from penstock.model.errors import Overloaded
from penstock.model.message import Message
from penstock.segments.window import Window
from penstock.shard.reading.log_reader import LogReader
from penstock.shard.shard import Shard
from penstock.shard.upkeep.retention import retain
from penstock.shard.upkeep.settling import Settler
from penstock.testing import FaultyStorage, VirtualClock

Result = TypeVar("Result")
_TAKE_A_DESCRIPTOR = ("create", "open", "sync_directory")


class FewDescriptors(FaultyStorage):
    """Has no descriptor for one call, the `nth` of those that take one from now on."""

    nth: int | None = None
    error = errno.EMFILE

    def check(self, operation: str, name: str) -> None:
        if self.nth is not None and operation in _TAKE_A_DESCRIPTOR:
            self.nth -= 1
            if self.nth == 0:
                self.nth = None
                raise OSError(self.error, os.strerror(self.error), name)
        super().check(operation, name)

    @property
    def is_yet_to_come(self) -> bool:
        return self.nth is not None


class Life:
    """All kinds of work on one broker; what is refused is done again."""

    def __init__(self, storage: FaultyStorage) -> None:
        self.refusals = 0
        self.published: list[bytes] = []
        self.shard = Shard(storage, _CONFIG, VirtualClock())
        self.settler = Settler(self.shard)

    def again(self, work: Callable[[], Result]) -> Result:
        try:
            return work()
        except Overloaded:
            self.refusals += 1
            return work()

    def live(self) -> None:
        options = {"retention_bytes": 1, "archive": "archive"}
        self.again(lambda: self.shard.journal.wait(self.shard.create_topic("t", options)))
        for number in range(6):
            self.publish(b"first %d" % number)
        self.again(lambda: self.settler.settle(everything=True))
        self.stage("one")
        for number in range(6):
            self.publish(b"second %d" % number)
        assert self.again(self.values) == self.published
        self.again(lambda: self.settler.settle(everything=True))
        self.again(lambda: retain(self.shard))
        assert self.again(self.values) == self.published
        for number in range(6):
            self.publish(b"third %d" % number)
        assert self.shard.journal.frozen is None

    def publish(self, word: bytes) -> None:
        def work() -> None:
            _, commit = self.shard.publish("t", Message(word + bytes(1500)))
            assert commit is not None
            self.shard.journal.wait(commit)

        self.again(work)
        self.published.append(word)

    def stage(self, name: str) -> None:
        stages = self.shard.stages
        for number in range(3):
            self.again(partial(stages.stage_many, name, "t", [b"staged %d" % number]))
            stages._close_handle(stages._stages[name])  # as if many others had been used since
        assert self.again(lambda: stages.seal_stage(name)) == 3
        self.again(lambda: self.shard.staging.publish_staged([name], "producer", 0))
        self.published += [b"staged %d" % number for number in range(3)]

    def values(self) -> list[bytes]:
        log = self.shard.topic("t").partitions[0].messages
        return [
            message.value.rstrip(b"\0")
            for message in LogReader(self.shard, log, include_deleted=True).messages(Window())
        ]


_CONFIG = BrokerConfig.parse({"min_free_bytes": 0, "journal_file_bytes": 4096, "segment_min_bytes": 0})


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE], ids=["of the process", "of the machine"])
def test_L1_H6_a_lack_of_descriptors_is_a_refusal_wherever_it_comes(error: int) -> None:
    refusals = 0
    for nth in itertools.count(1):
        storage = FewDescriptors(seed=nth)
        life = Life(storage)
        storage.nth, storage.error = nth, error
        life.live()
        refusals += life.refusals
        if storage.is_yet_to_come:  # fewer calls took one
            break
        assert Life(storage.crash()).values() == life.published, f"descriptor {nth}"
    assert refusals > 30


@pytest.mark.parametrize("nth", range(1, 5))
def test_a_broker_that_has_no_descriptor_for_its_last_checkpoint_is_closed_all_the_same(nth: int) -> None:
    storage = FewDescriptors()
    life = Life(storage)
    life.live()
    storage.nth = nth
    life.shard.close()
    assert not storage.is_yet_to_come
    again = Life(storage)
    assert again.values() == life.published
