"""The other tables (events, dead letters, groups), schemas that choose columns, and SQL over all of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import penstock
from penstock.client import Client
from penstock.spark import DataLoss, explode_events, read_events
from penstock.spark.tables import schema_of
from penstock.testing import VirtualClock
from tests.spark.harness import ALL, Planned, Served, columns_of, of_all_kinds, rows_of, stored

EVENTS = columns_of(
    "topic partition event time kind offset count last group consumer attempt detail due_at offsets", "events"
)


def _live(server: Served) -> None:
    """Messages of two topics with a life: leased, acked in pieces, failed, dead."""
    client = server.client
    client.create_topic("t", partitions=2, max_deliveries=1)
    client.create_topic("quiet")
    client.publish_many("t", [penstock.Message(f"{n}", key=f"k{n}", partition=n % 2, priority=9) for n in range(40)])
    with client.consumer("t", "workers", name="w1") as consumer:
        received = [*consumer.receive(40, wait=20)]
        consumer.ack([message for message in received if message.offset % 3 == 0])
        consumer.fail([message for message in received if message.offset in (4, 5)], "no paper")
        consumer.release([message for message in received if message.offset == 7])
    client.settle()
    with client.consumer("t", "auditors", name="a1") as consumer:
        consumer.ack(consumer.receive(10, wait=20))


def _events(client: Client) -> list[tuple[Any, ...]]:
    """Rows of EVENTS, as the broker tells its events."""
    return [
        (
            *("t", partition, place, e.time_us, str(e.kind), e.offset, e.count, e.last, e.group, e.consumer),
            *(e.attempt, e.detail, e.due_us or None, e.offsets),
        )
        for partition, log in enumerate(client.layout("t").events)
        for place, e in enumerate(client.events("t", partition), log.first)
    ]


def test_TR2_events_are_those_of_the_broker_by_run_and_by_message(spark: SparkSession, server: Served) -> None:
    _live(server)
    client = server.client
    expected = _events(client)
    assert len(expected) > 10
    table = server.table(spark, subscribe="t,quiet", table="events")
    assert table.columns == schema_of("events").fieldNames()
    assert rows_of(table.select(*EVENTS.fieldNames())) == expected
    lines = Counter(
        (str(m.id), line.kind, line.time_us, line.group, line.consumer)  # a trace counts the attempts itself
        for m in client.read("t")
        for line in client.trace(m.id).lines
    )
    exploded = read_events(spark, "t", servers=server.address, per_message=True)
    found = Counter(rows_of(exploded.select("message_id", "kind", "time", "group", "consumer")))
    unknown = found - lines
    assert not unknown, [*unknown][:3]
    assert {line[1] for line in lines - found} <= {"published"}
    assert rows_of(explode_events(table)) == rows_of(exploded)
    some = server.table(spark, subscribe="t", table="events", startingOffsets='{"t": {"0": 23}}', minPartitions=5)
    assert sorted(some.where("partition = 0").select("event").toArrow().column(0).to_pylist()) == [
        row[2] for row in expected if row[1] == 0 and row[2] >= 23
    ]


def test_events_are_read_from_a_directory_as_through_the_server(tmp_path: Path) -> None:
    with Served(tmp_path) as server, penstock.connect(server.address) as client:
        server.client = client
        _live(server)
        through = Planned(EVENTS, (), servers=server.address, subscribe="t", table="events")
        expected = _events(client)
        assert through.rows() == expected
    written = Planned(EVENTS, (), path=tmp_path, subscribe="t", table="events").rows()
    assert [row for row in written if row in expected] == expected  # and what closing the consumers added


def test_S4_L2_events_keep_their_numbers_when_those_before_them_are_gone(tmp_path: Path) -> None:
    clock = VirtualClock()
    with penstock.open(tmp_path, clock=clock, min_free_bytes=0) as broker:
        broker.create_topic("t", retention_age=None)
        broker.publish_many("t", ["x"] * 20)
        for _ in range(4):
            with broker.consumer("t", "g", name="c") as consumer:
                consumer.ack(consumer.receive(5))
            clock.advance(100)
            broker.settle()
        log = broker.layout("t").events[0]
    with Served(tmp_path) as server, penstock.connect(server.address) as client:
        options: dict[str, Any] = {"servers": server.address, "subscribe": "t", "table": "events"}
        planned = Planned(EVENTS, (), **options)
        resigned = Planned(EVENTS, (), failOnDataLoss="false", **options)
        before = resigned.rows()
        assert [row[2] for row in before] == [*range(log.first, log.end)]
        client.configure_topic("t", retention_bytes=8000)
        assert client.retain() > 0
        first = client.layout("t").events[0].first
        assert log.first < first < log.end
        with pytest.raises(DataLoss, match="events of t/0"):
            planned.tables()
        assert resigned.rows() == [row for row in before if row[2] >= first]


def test_dead_letters_and_groups_are_lists(spark: SparkSession, tmp_path: Path) -> None:
    with Served(tmp_path) as server, penstock.connect(server.address) as client:
        server.client = client
        _live(server)
        letters = client.dead_letters("t")
        groups = {(group.topic, group.name): group for group in client.groups()}
        assert len(letters) == 4

        def check(**where: str) -> None:
            def table(**options: str) -> DataFrame:
                return spark.read.format("penstock").options(**where, **options).load()

            dead = table(table="dead_letters", subscribe="t,quiet")
            found = dead.select(
                "topic", "message_id", "origin", "group", "cause", "deliveries", "key", "value", "priority"
            )
            assert rows_of(found) == sorted(
                ("t", str(one.id), str(one.origin), one.group, one.cause, one.deliveries, one.key, one.value, 9)
                for one in letters
            )
            assert [row[0] for row in rows_of(dead.select("died_at"))] == sorted(
                round(one.died_at.timestamp() * 1_000_000) for one in letters
            )
            assert table(table="dead_letters", subscribePattern=".*").count() == 4
            listed = table(table="groups")
            numbers = "published", "acked", "retrying", "dead", "lag"
            assert rows_of(listed.select("topic", "group", *numbers)) == sorted(
                (*name, *(getattr(group, number) for number in numbers)) for name, group in groups.items()
            )
            assert table(table="groups", subscribe="quiet").count() == 0
            only = spark.read.schema("lag BIGINT, topic STRING").format("penstock").options(**where, table="groups")
            assert only.load().columns == ["lag", "topic"]
            assert only.load().count() == len(groups)

        check(servers=server.address)
    check(path=str(tmp_path))


def test_a_schema_chooses_columns_in_any_order(spark: SparkSession, server: Served) -> None:
    server.client.create_topic("t", partitions=2)
    server.client.publish_many("t", of_all_kinds(100))
    server.client.settle()
    server.client.publish_many("t", of_all_kinds(50, 100))
    expected = stored(server.client.read("t"))
    names = ALL.fieldNames()
    for chosen in (
        "offset",
        "topic",
        "message_id",
        "partition topic",
        "expires_at value key",
        "dedupe_id headers offset topic deliver_at",
        " ".join(reversed(names)),
    ):
        schema = columns_of(chosen)
        found = rows_of(server.reader(spark, subscribe="t").schema(schema).load().select(*sorted(chosen.split())))
        places = [names.index(name) for name in sorted(chosen.split())]
        assert Counter(map(str, found)) == Counter(str(tuple(row[place] for place in places)) for row in expected)
    ddl = server.reader(spark, subscribe="t").schema("offset BIGINT NOT NULL, headers MAP<STRING, STRING>").load()
    assert ddl.count() == 150
    assert ddl.agg({"offset": "sum"}).collect()[0][0] == sum(row[2] for row in expected)


def test_views_are_queried_in_sql(spark: SparkSession, server: Served) -> None:
    _live(server)
    for name, table in (("v_messages", "messages"), ("v_events", "events"), ("v_dead", "dead_letters")):
        spark.sql(
            f"CREATE OR REPLACE TEMPORARY VIEW {name} USING penstock "
            f"OPTIONS (servers '{server.address}', subscribe 't', `table` '{table}')"
        )
    found = spark.sql("SELECT partition, count(*), max(offset) FROM v_messages GROUP BY 1 ORDER BY 1").collect()
    assert [tuple(row) for row in found] == [(0, 20, 19), (1, 20, 19)]
    joined = spark.sql(
        "SELECT m.message_id, d.cause FROM v_messages m JOIN v_dead d ON m.message_id = d.origin ORDER BY 1"
    ).collect()
    assert [row.cause for row in joined] == ["no paper"] * 4
    acked = spark.sql("SELECT sum(count) FROM v_events WHERE kind = 'acked' AND `group` = 'workers'").collect()
    assert acked[0][0] == 14


def test_S2_a_table_keeps_the_instant_of_its_first_query(spark: SparkSession, server: Served) -> None:
    server.client.publish("t", "1")
    table = server.table(spark, subscribe="t")
    assert table.count() == 1
    server.client.publish("t", "2")
    assert table.count() == 1
    assert server.table(spark, subscribe="t").count() == 2
