"""Rows that do not parse and rows that the broker would refuse: each goes to the dead letters once, or is counted."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path

from pyspark.sql import SparkSession

import penstock
from penstock.model.pipelines import PipelineState
from tests.cli.harness import PENSTOCK
from tests.pipelines.harness import ORDER, Background, declare, is_delayed, objects, order, run_now, values
from tests.spark.harness import Served

BAD = {
    b"nonsense": "the value is not an object of JSON",
    b"": "the value is not an object of JSON",
    b"  ": "the value is not an object of JSON",
    b"null": "the value is not an object of JSON",
    b"[1]": "the value is not an object of JSON",
    b'[{"id": "x"}]': "the value is not an object of JSON",
    b'"text"': "the value is not an object of JSON",
    b'{"id": "x"': "the value is not an object of JSON",
    b'{"id": "x"} more': "the value is not an object of JSON",
    b"{'id': 'x'}": "the value is not an object of JSON",
    b'{"id": "\xff"}': "the value is not UTF-8 text",
    b'{"amount": 1}': "id is missing",
    b'{"id": null}': "id is missing",
    b'{"id": "x", "amount": "many"}': "amount is not DOUBLE: many",
    b'{"id": "x", "amount": true, "placed_at": "soon"}': "amount is not DOUBLE: true; placed_at is not TIMESTAMP: soon",
}
FILE = f"""
    pipelines:
      shop:
        sources:
          orders: {{topic: orders, value: json, schema: "{ORDER}", max_per_trigger: 10}}
        sinks:
          copy: {{from: orders, topic: copy, value: id}}
        trigger: available-now
"""


def test_what_does_not_parse_goes_to_the_dead_letters_once_with_the_cause(
    spark: SparkSession, server: Served, tmp_path: Path
) -> None:
    declared = declare(tmp_path, FILE)
    headers = {"trace": "1", "penstock-origin": "elsewhere/0/1"}  # as one that was redriven has
    messages = [penstock.Message(value, key=b"k\xff", headers=headers, priority=7) for value in BAD]
    large = penstock.Message("nonsense too", headers={"large": "x" * 63_000})
    server.client.publish_many("orders", [order(1), *messages, large, order(2) + " \n"])
    run_now(spark, server, declared)
    assert values(server, "copy") == {b"o-1": 1, b"o-2": 1}

    letters = server.client.dead_letters("orders")
    assert {letter.value: letter.cause for letter in letters[:-1]} == BAD
    assert [letter.origin.offset for letter in letters] == [*range(1, len(BAD) + 2)]
    for letter in letters[:-1]:
        assert (letter.group, letter.key, letter.priority, letter.headers) == (
            "shop:orders",
            b"k\xff",
            7,
            {"trace": "1"},
        )
        (original,) = server.client.read("orders", offset=letter.origin.offset, limit=1)
        assert letter.published_at == original.timestamp
    assert letters[-1].value == b"nonsense too" and letters[-1].headers is None  # there was no room for them

    report = server.client.redrive("orders", filter=lambda letter: letter.value == b"nonsense")
    assert (report.copied, report.skipped) == (1, 0)  # it is published again, and the pipeline reads it again
    run_now(spark, server, declared)
    causes = Counter(letter.value for letter in server.client.dead_letters("orders"))
    assert causes == Counter([*BAD, b"nonsense too"])
    assert server.client.group("orders", "shop.orders.bad").lag == 0


def test_what_the_broker_would_refuse_goes_to_the_dead_letters_or_is_left_out_and_counted(
    spark: SparkSession, server: Served, tmp_path: Path
) -> None:
    declared = declare(
        tmp_path,
        """
        pipelines:
          p:
            sources: {raw: {topic: raw, value: text}}
            steps:
              - name: data
                sql: SELECT from_json(value, 'v STRING, k STRING, p INT, d STRING, h STRING, n DOUBLE') AS d, message
                     FROM raw
              - {name: bare, sql: SELECT d.v AS v FROM data}
            sinks:
              with:
                from: data
                topic: out
                value: d.v
                key: "rpad('k', CAST(d.k AS INT), 'k')"
                priority: d.p
                delay: d.d
                headers: "map('h', rpad('h', CAST(d.h AS INT), 'h'))"
              numbers: {from: data, topic: numbers, value: d.v, delay: d.n, headers: {"v": d.v, "k": d.k}}
              without: {from: bare, topic: bare, value: v}
            trigger: available-now
        """,
    )
    fine = [{"v": "1"}, {"v": "2", "k": "9", "p": 255, "d": "1m30s", "h": "9", "n": 0.5}, {"v": "", "p": 0}]
    wrong = {
        "the value is NULL": {},
        "the key has 70000 bytes; the limit is 65536": {"v": "3", "k": "70000"},
        "the priority is 256, not 0 to 255": {"v": "4", "p": 256},
        "the priority is -1, not 0 to 255": {"v": "5", "p": -1},
        "the delay is not a duration of at most 604800 s": {"v": "6", "d": "soon"},
        "the headers have over 65536 bytes": {"v": "7", "h": "70000"},
    }
    late = {"v": "8", "d": "8d", "n": -1}
    server.client.publish_many("raw", [json.dumps(row) for row in (*fine, *wrong.values(), late)])
    heard = run_now(spark, server, declared)

    out = {message.value: message for message in server.client.read("out")}
    assert set(out) == {b"1", b"2", b""}
    second = out[b"2"]
    assert (second.key, second.priority, second.headers) == (b"k" * 9, 255, {"h": "h" * 9})
    assert is_delayed(second, 90)
    assert (out[b"1"].key, out[b"1"].priority, out[b""].priority) == (None, 128, 0)
    letters = [letter for letter in server.client.dead_letters("raw") if letter.group == "p:with"]
    assert Counter(letter.cause for letter in letters) == Counter(
        [*wrong, "the delay is not a duration of at most 604800 s"]
    )
    assert heard.refused("p.with") == 7
    others = [letter.cause for letter in server.client.dead_letters("raw") if letter.group == "p:numbers"]
    assert sorted(others) == ["the delay is not a duration of at most 604800 s", "the value is NULL"]
    half = next(message for message in server.client.read("numbers") if message.value == b"2")
    assert half.deliver_at_us and half.headers == {"v": "2", "k": "9"}
    assert values(server, "bare") == Counter([b"1", b"2", b"", b"3", b"4", b"5", b"6", b"7", b"8"])
    assert heard.refused("p.without") == 1


def test_bad_rows_are_dropped_or_fail_the_pipeline_where_the_file_says_so(
    spark: SparkSession, server: Served, tmp_path: Path
) -> None:
    source = '{topic: t, value: json, schema: "id STRING NOT NULL", bad_rows: %s}'
    text = "pipelines: {p: {sources: {s: %s}, sinks: {o: {from: s, topic: kept}}, trigger: available-now}}"
    server.client.publish_many("t", ['{"id": "1"}', "x", '{"id": "2"}'])
    run_now(spark, server, declare(tmp_path / "drop", text % source % "drop"))
    assert objects(server, "kept") == [{"id": "1"}, {"id": "2"}]
    with Background(spark, server.address, declare(tmp_path / "fail", text % source % "fail")) as running:
        running.wait_for("p", PipelineState.WAITING)
        report = running.supervisor.pipelines[0].report
        assert "the message t/0/1: the value is not an object of JSON" in str(report.error)
    assert len(objects(server, "kept")) == 2
    assert server.client.dead_letters("t") == []


def test_a_run_that_writes_nothing_of_what_it_read_says_so_and_fails(server: Served, tmp_path: Path) -> None:
    text = """
    pipelines:
      json:
        sources: {bad: {topic: bad, value: json, schema: "id STRING NOT NULL"}}
        sinks: {out: {from: bad, topic: out}}
        trigger: available-now
      text:
        sources: {raw: {topic: raw, value: text}}
        sinks:
          none: {from: raw, topic: out, priority: length(value) + 900}
          half: {from: raw, topic: out, priority: length(value) * 100}
        trigger: available-now
    """
    declare(tmp_path, text)
    server.client.publish_many("bad", ["no JSON", "neither"])
    server.client.publish_many("raw", ["12", "12345"])
    command = [PENSTOCK, "pipeline", "run", str(tmp_path / "file.yaml"), "--server", server.address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    lines = [line.partition(" (")[0] for line in done.stderr.splitlines() if line.startswith(("error: ", "note: "))]
    assert sorted(lines) == [
        "error: json.bad.bad: all 2 rows were refused, none was written",
        "error: text.none: all 2 rows were refused, none was written",
        "note: text.half: 1 of 2 rows were refused",
    ], done
    assert "`penstock dlq list raw` tells why" in done.stderr and done.returncode == 1
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)  # there is nothing new
    assert done.returncode == 0 and "refused" not in done.stderr, done
