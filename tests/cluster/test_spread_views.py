"""A topic that is spread over shards looks like any other: what lists and sums shows one topic and one group."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import penstock
from penstock import Message
from penstock.model.errors import GroupNotFound, TopicNotFound
from penstock.segments.window import Window
from penstock.testing import MemoryStorage, VirtualClock
from penstock.views.figures import leased_and_delayed, take_figures
from penstock.views.listing import (
    busiest_topics,
    lagging_groups,
    list_groups,
    list_topics,
    show_everywhere,
    show_listed,
    show_topic,
)
from penstock.views.ranking import Ranking
from penstock.views.searching import Place, find_message, read_partition, search_messages
from penstock.views.stats import delay_stats, priority_stats, queue_lengths, rebalance_stats, reliability_stats
from penstock.views.trace_search import TraceQuery, search_traces

MESSAGES = 40


def everything(_: str) -> bool:
    return True


@pytest.fixture
def broker() -> Iterator[penstock.Broker]:
    """Orders over four shards, and a topic in one: 40 messages each, with a group that acked ten."""
    with penstock.open(storage=MemoryStorage(), clock=VirtualClock(), shards=4) as broker:
        broker.create_topic("orders", partitions=8, spread=4)
        for topic in ("orders", "plain"):
            broker.publish_many(topic, [Message(f"{n}", key=f"k{n}") for n in range(MESSAGES)])
            with broker.consumer(topic, "g", name="waiter") as consumer:
                taken = consumer.receive(MESSAGES)
                assert len(taken) == MESSAGES
                consumer.ack(taken[:10])
                consumer.release(taken[10:])
        yield broker


def test_a_page_of_topics_has_a_spread_topic_once(broker: penstock.Broker) -> None:
    shards, ranking = broker.shards, Ranking(broker.shards)
    for sort in ("name", "messages", "backlog", "bytes"):
        found, total = list_topics(shards, ranking, everything, sort=sort)
        assert (sorted(listed.info.name for listed in found), total) == (["orders", "plain"], 2)
    orders = next(listed for listed in found if listed.info.name == "orders")
    assert [partition.number for partition in orders.info.partitions] == list(range(8))
    assert sum(partition.end_offset for partition in orders.info.partitions) == MESSAGES
    assert orders.groups == 1
    found, total = list_topics(shards, ranking, everything, skip=1, limit=1)
    assert ([listed.info.name for listed in found], total) == (["plain"], 2)
    ranked = ranking.topics()["orders"]
    assert (ranked.messages, ranked.lags) == (MESSAGES, {"g": MESSAGES - 10})


def test_groups_of_a_spread_topic_are_listed_once_with_the_sums_of_its_slices(broker: penstock.Broker) -> None:
    for topic in (None, "orders"):
        found, total = list_groups(broker.shards, everything, topic=topic)
        assert total == len(found) == (1 if topic else 2)
        info = found[0].info
        assert (info.topic, info.name, info.published, info.acked, info.lag) == ("orders", "g", 40, 10, 30)
    shown = show_listed(broker.shards, "orders", "g").info
    assert shown == broker.group("orders", "g")
    everywhere, total = show_everywhere(broker.shards, everything, "g")
    assert ([listed.info.topic for listed in everywhere], total) == (["orders", "plain"], 2)
    with pytest.raises(GroupNotFound):
        show_listed(broker.shards, "orders", "nobody")
    with pytest.raises(TopicNotFound):
        show_listed(broker.shards, "nothing", "g")


def test_a_spread_topic_is_shown_with_all_partitions_lanes_and_members(broker: penstock.Broker) -> None:
    broker.publish_many("orders", [Message("x", key=f"k{n}", priority="high") for n in range(9)])
    with broker.consumer("orders", "g", name="a"), broker.consumer("orders", "g", name="b"):
        listed, lanes, groups = show_topic(broker.shards, "orders")
    assert len(listed.info.partitions) == 8
    assert [(lane.priority, lane.messages) for lane in lanes] == [(64, 9), (128, 30)]
    assert [member.name for member in groups[0].info.members] == ["a", "b"]
    with pytest.raises(TopicNotFound):
        show_topic(broker.shards, "nothing")


def test_the_busiest_and_the_furthest_behind_are_told_once(broker: penstock.Broker) -> None:
    ranking = Ranking(broker.shards)
    busiest = busiest_topics(broker.shards, ranking, everything, 10)
    rates = {listed.info.name: rate for listed, rate in busiest}
    assert len(busiest) == 2
    assert rates["orders"] == pytest.approx(rates["plain"])
    lagging = lagging_groups(broker.shards, ranking, everything, 10)
    assert [(listed.info.topic, listed.info.lag) for listed in lagging] == [("orders", 30), ("plain", 30)]


def test_figures_have_one_series_for_a_spread_topic_and_its_groups(broker: penstock.Broker) -> None:
    broker.pause_group("orders", "g")
    with broker.consumer("orders", "g", name="a"), broker.consumer("orders", "g", name="b"):
        figures = take_figures(broker.shards)
    assert (figures.topic_count, figures.partition_count, figures.group_count) == (2, 9, 2)
    orders, plain = figures.topics["orders"], figures.topics["plain"]
    assert (orders.published, orders.messages) == (40, 40)
    group = orders.groups["g"]
    assert group.counts == plain.groups["g"].counts
    assert (group.members, group.standing.lag, group.settings.shown()) == (2, 30, {"paused": True})
    status = broker.status()
    assert (status.topics, status.partitions, status.groups) == (2, 9, 2)


def test_statistics_count_a_spread_topic_once(broker: penstock.Broker) -> None:
    broker.publish_many("orders", [Message("later", key=f"k{n}", delay=60) for n in range(12)])
    with broker.consumer("orders", "g"), broker.consumer("plain", "g"):
        lanes = priority_stats(broker.shards, everything)
        delays = delay_stats(broker.shards, everything)
        assert (lanes.groups, lanes.idle_groups) == (2, 0)
        assert {topic.topic: sum(lane.ready for lane in topic.lanes) for topic in lanes.topics} == {
            "orders": 30,
            "plain": 30,
        }
        assert [(topic.topic, topic.delayed) for topic in delays.topics] == [("orders", 12)]
        assert (delays.delayed, delays.idle_topics) == (12, 0)
        assert leased_and_delayed(broker.shards) == (0, 12)
    told = reliability_stats(broker.shards)
    assert (told.published, told.groups, told.lag) == (92, 2, 72)
    queues = queue_lengths(broker.shards, everything)
    assert sorted(queues) == [*(f"orders-{number}" for number in range(8)), "plain-0"]
    assert sum(queues.values()) == 72


def test_rebalances_of_a_group_over_slices_are_those_of_one_group(broker: penstock.Broker) -> None:
    first = broker.consumer("orders", "a", name="1", mode="assigned")
    with first, broker.consumer("orders", "a", name="2", mode="assigned"):
        stats = rebalance_stats(broker.shards, everything)
    (group,) = stats.groups
    assert (group.topic, group.group, group.members, group.rebalances) == ("orders", "a", 2, 2)
    assert (stats.members, stats.rebalances) == (2, 2)
    assert group.moves >= 8


def test_messages_of_a_spread_topic_are_found_partition_by_partition(broker: penstock.Broker) -> None:
    shards = broker.shards
    seen: list[tuple[int, int]] = []
    place: Place | None = None
    while True:
        messages, place = search_messages(shards, "orders", None, Window(), limit=7, start=place)
        seen += [(message.partition, message.offset) for message in messages]
        if place is None:
            break
    assert seen == [(message.partition, message.offset) for message in broker.read("orders")]
    assert len(seen) == MESSAGES
    (one,) = search_messages(shards, "orders", None, Window(), key=b"k7").messages
    assert one.value == b"7"
    assert find_message(shards.of_message(one.id), one.id) == one
    assert search_messages(shards, "orders", one.partition, Window(), key=b"k7").messages == [one]
    page = read_partition(shards.of_message(one.id), one.id, None, 100)
    assert [message.offset for message in page.messages] == list(range(page.end_offset))


def test_traces_are_searched_in_all_slices(broker: penstock.Broker) -> None:
    for query in (TraceQuery(topic="orders"), TraceQuery(topic="orders", status="acked")):
        found, _ = search_traces(broker.shards, query, everything, 100)
        assert len({one.id for one in found}) == len(found) == (MESSAGES if query.status is None else 10)
    assert len(search_traces(broker.shards, TraceQuery(partition=3), everything, 100)[0]) > 0


def test_what_is_left_of_an_interrupted_creation_is_in_no_list(broker: penstock.Broker) -> None:
    first, *others = broker.shards.slices("orders")[1]
    for shard in (first, *others):
        shard.delete_topic("orders").wait()
    for shard in others:
        shard.create_topic("orders", {"partitions": 8, "spread": 4}).wait()
    names, total = list_topics(broker.shards, Ranking(broker.shards), everything)
    assert ([listed.info.name for listed in names], total) == (["plain"], 1)
    assert [topic.name for topic in broker.topics()] == ["plain"]
    assert "orders" not in Ranking(broker.shards).topics()
    assert broker.status().topics == 1
