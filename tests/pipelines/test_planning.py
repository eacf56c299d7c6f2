"""What Spark finds wrong with pipelines before anything runs: all of it, with its place."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from penstock.spark.jobs.place import Place
from penstock.spark.pipelines import check
from tests.pipelines.harness import ORDER, declare
from tests.spark.harness import Served

WRONG = f"""
pipelines:
  orders:
    sources:
      orders: {{topic: orders, value: json, schema: "{ORDER}", watermark: {{column: placed_at, delay: 30s}}}}
      raw: {{topic: raw}}
      typo: {{topic: raw, value: json, schema: "id STRIN"}}
      taken: {{topic: raw, value: json, schema: "id STRING, message STRING"}}
      events: {{events: orders, watermark: {{column: nope, delay: 1s}}}}
      gone: {{files: gone.csv, format: csv, schema: "id STRING"}}
      static: {{files: here.csv, format: csv, schema: "customer STRING, city STRING"}}
    steps:
      - {{name: enriched, sql: "SELECT o.*, c.city FROM orders o LEFT JOIN static c USING (customer)"}}
      - {{name: wrong, sql: "SELECT o.nope FROM orders o"}}
      - {{name: on_wrong, sql: "SELECT * FROM wrong"}}
      - {{name: early, sql: "SELECT * FROM counted"}}
      - {{name: no_query, sql: "DROP TABLE x"}}
      - {{name: no_sql, sql: "SELEC x"}}
      - {{name: no_view, sql: "SELECT * FROM ordrs"}}
      - {{name: no_module, python: "nowhere:f", input: orders}}
      - {{name: no_function, python: "functions:g", input: orders}}
      - {{name: no_frame, python: "functions:number", input: orders}}
      - {{name: fails, python: "functions:fails", input: orders}}
      - {{name: counted, sql: "SELECT value, count(*) AS n FROM raw GROUP BY value"}}
    sinks:
      fine: {{from: enriched, where: message.priority < 64, topic: a, key: customer, priority: high, delay: "'5m'"}}
      several:
        from: enriched
        where: message.priorit < 64
        topic: a
        key: amount
        priority: "1.5"
        delay: current_date()
        value: struct(id, amount)
        headers: {{a: nope}}
      unnamed: {{from: raw, table: ./t, partition_by: hour(message.timestamp)}}
      endless: {{from: counted, topic: b}}
      still: {{from: static, console: true}}
"""


def test_everything_that_spark_finds_wrong_is_told_at_once(spark: SparkSession, server: Served, tmp_path: Path) -> None:
    (tmp_path / "here.csv").write_text("customer,city\n")
    (tmp_path / "functions.py").write_text("def number(frame): return 3\ndef fails(frame): return frame.nope\n")
    declared = declare(tmp_path, WRONG)
    found = check(spark, declared, Place(servers=server.address))
    told = {}
    for problem in found.problems:
        place, _, text = problem.message.removeprefix("pipelines.orders.").partition(": ")
        told[place] = text
        line = (tmp_path / "file.yaml").read_text().splitlines()[int(problem.place.rpartition(":")[2]) - 1]
        assert place.split(".")[1] in line or "several" in place, problem
    expected = {
        "sources.typo": 'Unsupported data type "STRIN"',
        "sources.taken": "a field cannot be called message",
        "sources.events": "watermark.column: there is no column nope; there are topic, partition",
        "sources.gone": f"there is no {tmp_path}/gone.csv",
        "steps.wrong.sql": "`o`.`nope` cannot be resolved. Did you mean one of",
        "steps.early.sql": "counted does not come before early",
        "steps.no_query.sql": "Syntax error at or near 'DROP'",
        "steps.no_sql.sql": "Syntax error at or near 'SELEC'",
        "steps.no_view.sql": "there is no source and no step ordrs, did you mean orders?",
        "steps.no_module.python": "there is no module 'nowhere'",
        "steps.no_function.python": "the module functions has no function 'g'",
        "steps.no_frame.python": "the function returned int, not a DataFrame",
        "steps.fails.python": "nope",
        "sinks.several.where": "No such struct field `priorit`",
        "sinks.several.value": "the value is STRING or BINARY, not STRUCT<",
        "sinks.several.key": "the key is STRING or BINARY, not DOUBLE",
        "sinks.several.priority": "a priority is a whole number from 0 to 255",
        "sinks.several.delay": "a delay is seconds, or text such as '5m'; not DATE",
        "sinks.several.headers": "`nope` cannot be resolved",
        "sinks.unnamed": "`hour(message.timestamp) AS name`",
        "sinks.endless": "Invalid streaming output mode: append",
        "sinks.still": "static reads no stream",
    }
    assert set(told) == set(expected), found.problems
    for place, text in expected.items():
        assert text in told[place], told[place]
        assert "\n" not in told[place] and "+-" not in told[place]
    assert [query.name for query in found.queries["orders"]] == ["orders.fine", "orders.orders.bad"]
    assert found.notes == ["orders: the topic orders, raw is not there: `run` makes it"]
    assert server.client.topics() == []  # nothing was made
