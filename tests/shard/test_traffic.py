"""How much is published to which topics now, without anybody having looked before."""

from __future__ import annotations

from penstock.embedded.broker import Broker
from penstock.model.config import BrokerConfig
from penstock.shard.metering.meters import TOPICS_MAX, Traffic
from penstock.testing import MemoryStorage, VirtualClock
from penstock.views.listing import busiest_topics
from penstock.views.ranking import Ranking
from tests.sharding import alone


def busiest(broker: Broker) -> list[tuple[str, float]]:
    shard = broker.shard
    found = busiest_topics(alone(shard), Ranking(alone(shard)), lambda _: True, 10)
    return [(listed.info.name, rate) for listed, rate in found]


def test_the_first_look_at_the_busiest_topics_has_their_rates() -> None:
    clock = VirtualClock()
    with Broker(MemoryStorage(), BrokerConfig(), clock) as broker:
        broker.publish_many("large", ["x"] * 1000)
        clock.advance(3600.0)
        broker.publish_many("t", ["x"] * 10)
        clock.advance(2.0)
        broker.publish("t", "x")
        broker.publish_many("new", ["x"] * 24)
        assert busiest(broker) == [("new", 24 / 7.0), ("t", 11 / 7.0), ("large", 0.0)]
        clock.advance(4.0)
        assert busiest(broker) == [("new", 24 / 6.0), ("t", 11 / 6.0), ("large", 0.0)]
        clock.advance(5.0)
        assert [rate for _, rate in busiest(broker)] == [0.0, 0.0, 0.0]


def test_rates_of_the_first_seconds_are_told_too() -> None:
    clock = VirtualClock()
    traffic = Traffic(clock.monotonic_s)
    traffic.add("t", 10)
    assert traffic.rates() == {"t": 10.0}
    clock.advance(4.0)
    assert traffic.rates() == {"t": 2.5}


def test_the_busiest_of_very_many_topics_are_counted_in_bounded_memory() -> None:
    traffic = Traffic(VirtualClock().monotonic_s)
    for number in range(20 * TOPICS_MAX):
        traffic.add(f"t{number}", 1)
        if not number % 100:
            traffic.add("busy", 50)
    rates = traffic.rates()
    assert len(rates) <= TOPICS_MAX
    assert max(rates, key=rates.__getitem__) == "busy"
    assert rates["busy"] == 50.0 * 20 * TOPICS_MAX / 100
