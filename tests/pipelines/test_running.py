"""Pipelines at work on a real Spark and a real server: what they compute, and what becomes of bad rows."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.model.pipelines import PipelineState
from tests.pipelines.harness import ORDER, declare, is_delayed, objects, order, run_now
from tests.spark.harness import Served

SHOP = f"""
    pipelines:
      shop:
        sources:
          orders:
            topic: orders
            value: json
            schema: {ORDER}
            max_per_trigger: 40
            watermark: {{column: placed_at, delay: 30s}}
          customers: {{files: customers.csv, format: csv, schema: "customer STRING, name STRING, city STRING"}}
        steps:
          - {{name: enriched, sql: "SELECT o.*, c.city FROM orders o LEFT JOIN customers c USING (customer)"}}
          - {{name: scored, python: "scoring:score", input: enriched}}
          - name: per_minute
            sql: SELECT window.start AS minute, city, count(*) AS orders, sum(amount) AS amount
                 FROM enriched GROUP BY window(placed_at, '1 minute'), city
        sinks:
          urgent:
            from: scored
            where: message.priority < 64
            topic: orders-urgent
            key: customer
            priority: "score"
            delay: 1h
            headers: {{city: city, origin: message.message_id}}
            value: to_json(struct(id, amount, score))
          copy: {{from: orders, topic: copy}}
          minutes: {{from: per_minute, topic: minutes, key: city}}
          table: {{from: per_minute, table: ./tables/minutes, partition_by: date(minute)}}
        trigger: available-now
"""
SCORING = """
from pyspark.sql import functions as f

def helped(amount):
    return int(amount)

@f.udf("int")
def scored(amount):
    return helped(amount)

def score(frame):
    return frame.withColumn("score", scored("amount"))
"""


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")  # by udf
def test_orders_are_enriched_routed_and_summed_up_as_duckdb_computes_it(
    spark: SparkSession, server: Served, tmp_path: Path
) -> None:
    (tmp_path / "customers.csv").write_text("customer,name,city\nc-0,Ada,London\nc-1,Bo,Oslo\n")
    (tmp_path / "scoring.py").write_text(SCORING)
    declared = declare(tmp_path, SHOP)
    orders = [penstock.Message(order(n), key=f"k{n}", priority=n % 128) for n in range(100)]
    server.client.publish_many("orders", orders)
    server.client.publish("orders", order(1000, placed_at="2026-01-01T02:00:00Z"))  # ends all windows before it
    heard = run_now(spark, server, declared)

    given = [json.loads(message.value) for message in server.client.read("orders")]
    priorities = [message.priority for message in server.client.read("orders")]
    assert objects(server, "copy") == [row | {"placed_at": row["placed_at"].replace("Z", ".000Z")} for row in given]
    assert heard.total("shop.copy") == 101
    assert [batch.rows for batch in heard.batches if batch.query == "shop.copy"] == [40, 40, 21]

    urgent = {message.headers["origin"]: message for message in server.client.read("orders-urgent") if message.headers}
    expected = [row for row, priority in zip(given, priorities, strict=True) if priority < 64]
    assert len(urgent) == len(expected) == len([*server.client.read("orders-urgent")])
    for row in expected:
        number = int(row["id"][2:])
        message = urgent[f"orders/0/{number}"]
        score = int(row["amount"])
        assert json.loads(message.value) == {"id": row["id"], "amount": row["amount"], "score": score}
        assert (message.key, message.priority) == (row["customer"].encode(), score)
        assert is_delayed(message, 3600)
        city = {"c-0": "London", "c-1": "Oslo"}.get(row["customer"])
        assert message.headers == {"origin": f"orders/0/{number}"} | ({"city": city} if city else {})

    con = duckdb.connect()
    con.execute("CREATE TABLE o (customer VARCHAR, amount DOUBLE, placed_at TIMESTAMP)")
    con.executemany(
        "INSERT INTO o VALUES (?, ?, ?)", [(o["customer"], o["amount"], o["placed_at"][:-1]) for o in given]
    )
    sums = con.execute(
        f"""SELECT strftime(date_trunc('minute', placed_at), '%Y-%m-%dT%H:%M:%S.000Z'), city, count(*), sum(amount)
        FROM o LEFT JOIN read_csv('{tmp_path}/customers.csv') c ON o.customer = c.customer
        WHERE placed_at < '2026-01-01T02:00:00' GROUP BY ALL ORDER BY ALL"""
    ).fetchall()
    minutes = [(row["minute"], row.get("city"), row["orders"], row["amount"]) for row in objects(server, "minutes")]
    key = str
    assert sorted(minutes, key=key) == sorted(sums, key=key)
    table = con.execute(
        f"""SELECT strftime(minute, '%Y-%m-%dT%H:%M:%S.000Z'), city, orders, amount
        FROM read_parquet('{tmp_path}/tables/minutes/date=2026-01-01/*.parquet')"""
    ).fetchall()
    assert sorted(table, key=key) == sorted(sums, key=key)
    assert server.client.group("orders", "shop.copy").lag == 0
    (report,) = server.client.pipelines()
    assert (report.name, report.state, report.file) == ("shop", PipelineState.FINISHED, "file.yaml")
