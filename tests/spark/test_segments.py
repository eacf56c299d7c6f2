"""Spark reads the settled files of a topic as they are: no connector, no conversion."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import penstock
from tests.sharding import home_of


def test_L2_spark_reads_a_settled_topic_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    with penstock.open(tmp_path) as broker:
        broker.create_topic("orders", partitions=3)
        broker.publish_many(
            "orders",
            [
                penstock.Message(
                    f"order {n}",
                    key=f"customer {n % 7}" if n % 2 else None,
                    headers={"n": str(n)} if n % 3 else None,
                    priority=n % 256,
                    delay=n * 60 if n % 5 == 0 else None,
                    dedupe_id=f"id {n}",
                    expires_in="30d" if n % 11 == 0 else None,
                )
                for n in range(1000)
            ],
        )
        broker.settle()
        expected = {
            (m.partition, m.offset, m.timestamp_us, m.key, m.value, m.priority, m.deliver_at_us, m.dedupe_id): (
                m.expires_at_us,
                m.headers,
            )
            for m in broker.read("orders")
        }
    table = spark.read.parquet(f"{home_of(tmp_path, 'orders')}/topics/orders/messages/*/*.parquet")
    rows = table.select(
        "partition",
        "offset",
        f.unix_micros("timestamp").alias("timestamp_us"),
        "key",
        "value",
        "priority",
        f.unix_micros("deliver_at").alias("deliver_at_us"),
        "dedupe_id",
        f.unix_micros("expires_at").alias("expires_at_us"),
        "headers",
    ).collect()
    found = {
        (r[0], r[1], r[2], r.key and bytes(r.key), bytes(r.value), r.priority, r.deliver_at_us, r.dedupe_id): (
            r.expires_at_us,
            r.headers,
        )
        for r in rows
    }
    assert found == expected
    assert table.where("offset >= 10 and priority < 128").count() == sum(
        1 for place in expected if place[1] >= 10 and place[5] < 128
    )
