"""A token that may publish: it makes no topics without end, and writes no schedules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import penstock
from penstock.model.schedules import SCHEDULES, Schedule
from penstock.model.singles import Single
from tests.abuse.harness import Target

TOPICS = 50
FLOOD = 2000


@pytest.fixture
def crowded(tmp_path: Path) -> Iterator[Target]:
    """A server with tokens and room for few topics."""
    with Target(tmp_path / "data", tokens=True, broker_max_topics=TOPICS) as started:
        yield started


@pytest.mark.one_shard("limits are those of each shard")
def test_R1_a_flood_of_new_topics_is_refused_at_the_limit(crowded: Target) -> None:
    token = crowded.token("flood", "publish")
    refused = 0
    with crowded.unharmed(), penstock.connect(crowded.address, token=token) as client:
        for number in range(FLOOD):
            try:
                client.publish(f"flood-{number}", b"")
            except penstock.LimitExceeded:
                refused += 1
    assert refused >= FLOOD - TOPICS
    with penstock.connect(crowded.address, token=crowded.admin) as client:
        assert len(client.topics()) <= TOPICS


def test_H7_a_forged_schedule_of_a_publish_token_is_refused_and_the_real_ones_stay(crowded: Target) -> None:
    token = crowded.token("forger", "publish", topics=("p*",))
    forged = Schedule("forged", "* * * * *", "UTC", "../../outside", Single(b"x", priority=1000), next_us=2**62)
    with penstock.connect(crowded.address, token=crowded.admin) as client:
        client.schedule("real", "0 0 1 1 *", "t", "x")
    with crowded.unharmed(), penstock.connect(crowded.address, token=token) as client:
        for _ in range(100):
            with pytest.raises(penstock.InvalidArgument, match="the broker's own"):
                client.publish(SCHEDULES, msgspec.msgpack.encode(forged))
    with penstock.connect(crowded.address, token=crowded.admin) as client:
        assert [schedule.name for schedule in client.schedules()] == ["real"]
    assert not list(crowded.path.parent.glob("outside*"))
