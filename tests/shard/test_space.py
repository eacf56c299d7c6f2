"""Refusals for lack of space: told once in a while, whoever refuses."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from penstock.model.errors import DiskFull
from penstock.model.message import Message
from penstock.shard.metering.meters import SpaceRefusals
from penstock.shard.shard import Shard
from penstock.testing import FaultyStorage, MemoryStorage, VirtualClock

ShardOn = Callable[..., Shard]


def told(caplog: pytest.LogCaptureFixture) -> list[int]:
    """How many refusals each line of the log tells."""
    return [vars(record)["refusals"] for record in caplog.records if "lack of space" in record.getMessage()]


def test_refusals_are_told_once_in_ten_seconds_with_their_number(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    refusals = SpaceRefusals(clock)
    assert not refusals.recent()
    for _ in range(100):
        refusals.note(DiskFull("full"))
        clock.advance(0.25)
    assert told(caplog) == [1, 40, 40]
    assert refusals.recent()
    clock.advance(10)
    assert not refusals.recent()


def test_R3_a_publish_that_would_leave_too_little_is_told(shard_on: ShardOn, caplog: pytest.LogCaptureFixture) -> None:
    shard = shard_on(MemoryStorage(1 << 20), min_free_bytes=900_000)
    with pytest.raises(DiskFull, match="min_free_bytes"):
        shard.publish("t", Message(bytes(200_000)))
    assert shard.meters.space.recent()
    assert told(caplog) == [1]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_R3_a_write_that_finds_no_space_is_told(
    shard_on: ShardOn, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    storage = FaultyStorage(1)
    shard = shard_on(storage, min_free_bytes=0)
    shard.publish("t", Message(b"x"))
    storage.fail("write", number, name_contains="journal/")
    shard.journal.flush()
    assert shard.meters.space.recent()
    assert told(caplog) == [1]


def test_a_stage_that_finds_no_space_is_told(shard_on: ShardOn, caplog: pytest.LogCaptureFixture) -> None:
    storage = FaultyStorage(1)
    shard = shard_on(storage, min_free_bytes=0)
    shard.stages.stage_many("a", "t", ["1"])
    storage.fail("write", errno.ENOSPC, name_contains="staging")
    with pytest.raises(DiskFull, match="nothing was added"):
        shard.stages.stage_many("a", "t", ["x" * 5000])
    assert shard.meters.space.recent()
    assert told(caplog) == [1]
