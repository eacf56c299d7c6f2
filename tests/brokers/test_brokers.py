"""Brokers on one bucket: they share its shards, take over from one another, and lose nothing."""

from __future__ import annotations

import json
import time
import urllib.request

from tests.brokers.harness import BrokerProcess, Brokers, connected, until


def publish_until_taken(broker: BrokerProcess, topic: str, value: str) -> float:
    """Publish by a broker as soon as that is possible; how long it took."""
    since_s = time.monotonic()

    def publish() -> bool:
        with connected(broker.address) as client:
            return bool(client.publish(topic, value))

    until(publish, f"{topic} is served by nobody")
    return time.monotonic() - since_s


def values(broker: BrokerProcess, topic: str) -> list[str]:
    with connected(broker.address) as client:
        return [message.value.decode() for message in client.read(topic)]


def test_one_broker_has_all_shards_and_finds_them_again(brokers_on_store: Brokers) -> None:
    broker = brokers_on_store.start()
    with connected(broker.address) as client:
        client.publish("orders", "one")
    broker.stop()
    again = brokers_on_store.start()
    publish_until_taken(again, "orders", "two")
    assert values(again, "orders") == ["one", "two"]


def test_several_brokers_share_the_shards_and_any_of_them_answers_for_all(brokers: Brokers) -> None:
    first, second, third = brokers.start_all(3)
    topics = [brokers.topic_of(broker) for broker in (first, second, third)]
    for broker in (first, second, third):
        for topic in topics:
            publish_until_taken(broker, topic, str(broker.number))
    expected = [str(broker.number) for broker in (first, second, third)]
    assert [values(broker, topic) for broker in brokers.all for topic in topics] == [expected] * 9
    page = json.load(urllib.request.urlopen(f"http://{third.http}/topics"))
    assert {topic["name"] for topic in page["topics"]} == set(topics)


def test_C2_C15_what_a_killed_broker_acknowledged_is_there_and_its_shards_are_served_within_seconds(
    brokers_on_store: Brokers,
) -> None:
    first, second, third = brokers_on_store.start_all(3)
    topic = brokers_on_store.topic_of(second)
    with connected(second.address) as client:
        acked = [str(n) for n in range(20) if client.publish(topic, str(n))]
    second.kill()
    took_s = publish_until_taken(third, topic, "after")
    assert values(first, topic) == [*acked, "after"]
    assert took_s < 20, "C15 is 5 s on a machine that has nothing else to do"


def test_a_stopped_broker_hands_its_shards_over_and_nobody_waits_for_silence(brokers: Brokers) -> None:
    first, second = brokers.start_all(2)
    topic = brokers.topic_of(second)
    publish_until_taken(second, topic, "before")
    second.stop()
    assert second.told("shard"), "it says what it does"
    assert any("goes to broker" in line["message"] for line in second.told("shard"))
    publish_until_taken(first, topic, "after")
    assert values(first, topic) == ["before", "after"]


def test_C9_a_broker_that_was_stopped_for_long_hands_out_nothing_of_what_others_have(brokers: Brokers) -> None:
    first, second = brokers.start_all(2)
    topic = brokers.topic_of(second)
    for value in ("one", "two"):
        publish_until_taken(second, topic, value)
    with connected(second.address) as client, client.consumer(topic, "workers") as consumer:
        assert [message.value for message in consumer.receive(1)] == [b"one"]
        second.pause()
        publish_until_taken(first, topic, "three")
        with connected(first.address) as other, other.consumer(topic, "workers") as elsewhere:
            got = until(lambda: elsewhere.receive(3), "nothing is handed out")
            assert [message.value for message in got] == [b"one", b"two", b"three"]
            elsewhere.ack(got)
        second.resume()
        until(lambda: second.told("shard"), "it does not notice")
    assert values(second, topic) == ["one", "two", "three"]


def test_shards_are_moved_drained_and_balanced_by_any_broker(brokers: Brokers) -> None:
    first, second = brokers.start_all(2)
    topic = brokers.topic_of(second)
    shard = brokers.map().shard_of(topic)
    with connected(first.address) as client:
        client.publish(topic, "one")
        client.move_shard(shard, first.number)
        assert brokers.map().shards[shard].process == first.number
        client.publish(topic, "two")
        client.drain_process(first.number)
        assert {place.process for place in brokers.map().shards} == {second.number}
        client.balance_shards()
        info = client.cluster()
        assert sorted(len(process.shards) for process in info.processes) == [2, 2]
        assert all(move.seconds < 5 for move in info.moves)
    assert values(second, topic) == ["one", "two"]
