"""A consumer of many topics, on every face: one call takes from all that have something."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import penstock
from penstock.server.native import delivering
from tests.client.faces import FACES, face_of

TOPICS = [f"t{number:02}" for number in range(40)]


@pytest.mark.parametrize("face", FACES)
def test_one_receive_is_filled_from_all_topics_that_have_something(face: str, tmp_path: Path) -> None:
    with face_of(face, tmp_path) as broker:
        for topic in TOPICS[::2]:
            broker.publish_many(topic, ["1", "2", "3"])
        with broker.consumer(TOPICS, "g") as consumer:
            received = consumer.receive(1000)
            assert Counter(message.topic for message in received) == dict.fromkeys(TOPICS[::2], 3)
            consumer.ack(received)
            assert consumer.receive(1000) == []
        assert sum(info.acked for info in broker.groups()) == 60


@pytest.mark.parametrize("face", FACES)
def test_topics_with_a_backlog_are_served_in_turn(face: str, tmp_path: Path) -> None:
    with face_of(face, tmp_path) as broker:
        for topic in TOPICS[:4]:
            broker.publish_many(topic, ["x"] * 10)
        with broker.consumer(TOPICS[:4], "g") as consumer:
            received = [Counter(message.topic for message in consumer.receive(15)) for _ in range(3)]
        assert [sum(some.values()) for some in received] == [15, 15, 10]
        assert sum(received, Counter()) == dict.fromkeys(TOPICS[:4], 10)
        assert max(received[1], key=lambda topic: received[1][topic]) not in received[0]


@pytest.mark.parametrize("face", ["embedded", "client"])
def test_Q2_what_was_taken_before_a_deleted_topic_is_handed_out_and_not_lost(face: str, tmp_path: Path) -> None:
    with face_of(face, tmp_path) as broker:
        broker.publish("t00", "x")
        with broker.consumer(["t00", "t01"], "g") as consumer:
            broker.delete_topic("t01")
            assert [message.value for message in consumer.receive(10)] == [b"x"]
            with pytest.raises(penstock.TopicNotFound, match="t01"):
                consumer.receive(10)


def test_what_does_not_fit_into_a_reply_comes_with_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivering, "_REPLY_BYTES", 10_000)
    with face_of("client", tmp_path) as broker:
        for topic in TOPICS[:10]:
            broker.publish_many(topic, [b"x" * 3000])
        with broker.consumer(TOPICS[:10], "g", autoack=True) as consumer:
            seen: list[str] = []
            while some := consumer.receive(1000):
                assert len(some) <= 3
                seen += [message.topic for message in some]
        assert sorted(seen) == TOPICS[:10]
        assert sum(info.acked for info in broker.groups()) == 10


@pytest.mark.parametrize("face", FACES)
def test_a_consumer_makes_its_topics_and_gets_what_is_published_later(face: str, tmp_path: Path) -> None:
    with face_of(face, tmp_path) as broker, broker.consumer(["a", "b"], "g") as consumer:
        assert [topic.name for topic in broker.topics()] == ["a", "b"]
        broker.publish("b", "x")
        assert [message.value for message in consumer.receive(10, wait=10)] == [b"x"]
