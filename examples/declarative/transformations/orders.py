"""A topic as a streaming table, and what is large of it into another topic."""

from __future__ import annotations

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json

spark = SparkSession.active()
SERVER = spark.conf.get("spark.penstock.server") or "127.0.0.1:9000"


@dp.table
def orders() -> DataFrame:
    """Every order of the topic, once, whatever dies in between; a table of Parquet."""
    messages = (
        spark.readStream.format("penstock")
        .option("servers", SERVER)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("group", "declarative-orders")
        .load()
    )
    order = from_json(col("value").cast("string"), "item STRING, cents BIGINT")
    return messages.select("message_id", col("key").cast("string").alias("customer"), order.alias("o")).select(
        "message_id", "customer", "o.item", "o.cents"
    )


dp.create_sink("large_orders", "penstock", {"servers": SERVER, "topic": "large-orders"})


@dp.append_flow(target="large_orders")
def large() -> DataFrame:
    """Those of ten and more, as messages again."""
    found = spark.readStream.table("orders").where("cents >= 1000")
    return found.selectExpr("customer AS key", "to_json(struct(message_id, item, cents)) AS value", "64 AS priority")
