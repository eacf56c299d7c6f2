"""What Spark finds wrong with pipelines before anything runs: all of it, with its place."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.spark.jobs.place import Place
from penstock.spark.pipelines import Misdeclared, check, load
from penstock.spark.pipelines.loading import load_partly
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
      constant:
        {{from: enriched, topic: c, priority: 999, delay: 30d, key: "repeat('k', 70000)", headers: {{a: id}}}}
      by_chance: {{from: enriched, topic: c, priority: "CAST(rand() * 1000 AS INT)", delay: "60 * 60 * 24 * 7"}}
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
        assert place.split(".")[1] in line or place.split(".")[1] in ("several", "constant"), problem
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
        "sinks.constant.priority": "every row would be refused: the priority is 999, not 0 to 255",
        "sinks.constant.delay": "every row would be refused: the delay is not a duration of at most 604800 s",
        "sinks.constant.key": "every row would be refused: the key has 70000 bytes; the limit is 65536",
        "sinks.unnamed": "`hour(message.timestamp) AS name`",
        "sinks.endless": "Invalid streaming output mode: append",
        "sinks.still": "static reads no stream",
    }
    assert set(told) == set(expected), found.problems
    for place, text in expected.items():
        assert text in told[place], told[place]
        assert "\n" not in told[place] and "+-" not in told[place]
    assert [query.name for query in found.queries["orders"]] == ["orders.fine", "orders.by_chance", "orders.orders.bad"]
    assert found.notes == ["orders: the topic orders, raw is not there: `run` makes it"]
    assert server.client.topics() == []  # nothing was made


def test_problems_of_the_file_do_not_hide_those_of_its_sql(spark: SparkSession, server: Served, tmp_path: Path) -> None:
    (tmp_path / "file.yaml").write_text(
        """
pipelines:
  orders:
    sources:
      orders: {topic: orders, value: text}
      broken: {topic: broken, valeu: text}
    steps:
      - {name: wrong, sql: SELECT nope FROM orders}
      - {name: of_broken, sql: SELECT * FROM broken}
      - {name: both, sql: SELECT 1, python: "m:f"}
      - {name: fine, sql: SELECT value FROM orders}
    sinks:
      typo: {from: fine, topic: a, prioriti: 3}
      high: {from: fine, topic: a, priority: 999}
      of_both: {from: both, topic: a}
  other:
    sources: {s: {topic: s}}
    sinks: {o: {from: s, topic: o, key: nope}}
    trigger: soon
"""
    )
    declared, known = load_partly(tmp_path / "file.yaml")
    found = check(spark, declared, Place(servers=server.address), known)
    told = [problem.message.partition(": ")[0].removeprefix("pipelines.") for problem in found.problems]
    assert told == [
        "orders.sources.broken.valeu",
        "orders.steps.wrong.sql",
        "orders.steps.both",
        "orders.sinks.typo.prioriti",
        "orders.sinks.high.priority",
        "other.sinks.o.key",
        "other.trigger",
    ], found.problems
    with pytest.raises(Misdeclared):
        load(tmp_path / "file.yaml")


def test_limits_of_a_server_that_is_away_are_not_guessed(spark: SparkSession, tmp_path: Path) -> None:
    text = "pipelines: {{p: {{sources: {{s: {{topic: s}}}}, sinks: {{o: {{from: s, topic: o, {0}}}}}}}}}"
    away = Place(servers="127.0.0.1:1")
    assert not check(spark, declare(tmp_path, text.format("delay: 30d")), away).problems
    assert check(spark, declare(tmp_path, text.format("priority: 256")), away).problems
