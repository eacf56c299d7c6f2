"""`dlq-report`: dead letters grouped by what they have in common, exactly those that are there."""

from __future__ import annotations

import json
import shutil
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

import penstock.spark.jobs.letters as listing
from penstock.model.errors import InvalidArgument, TopicNotFound
from penstock.model.letters import DeadLetter
from penstock.spark.jobs.dlq_reporting import dlq_report
from penstock.spark.jobs.letters import letters
from penstock.spark.jobs.place import Place
from penstock.spark.jobs.similar import similar_groups, template_of
from tests.jobs.letters_harness import die
from tests.spark.harness import Served, rows_of


@pytest.fixture
def place(server: Served) -> Place:
    return Place(servers=server.address)


def test_the_table_has_the_letters_that_the_broker_lists_and_no_others(
    spark: SparkSession, server: Served, place: Place
) -> None:
    client = server.client
    die(server, "t", 60)
    server.broker.settle()
    die(server, "t", 20, "others")  # and those of before once more
    client.redrive("t", filter=lambda letter: letter.origin.offset % 3 == 0)
    client.purge_dead_letters("t", filter=lambda letter: letter.cause == "division by zero")
    client.publish("t.dlq", "by hand", headers={"penstock-group": "x", "own": "1"})
    client.publish("t.dlq", "of another topic", headers={"penstock-origin": "u/0/1"})
    listed = spark.read.format("penstock").options(servers=server.address, subscribe="t", table="dead_letters").load()
    columns = listed.columns
    found = letters(spark, place, "t")
    assert rows_of(found.select(*columns).withColumn("history", found.history.cast("string"))) == rows_of(
        listed.withColumn("history", listed.history.cast("string"))
    )
    assert found.count() > 30


def test_groups_are_those_of_a_plain_count(spark: SparkSession, server: Served, place: Place, tmp_path: Path) -> None:
    client = server.client
    die(server, "t", 60)
    die(server, "u", 8, "others")
    outcome = dlq_report(spark, place, fields=["$.customer.country"], examples=2, out=str(tmp_path / "report"))
    found = {(row["topic"], row["by"], row["what"]): row for row in outcome.as_dict()["rows"]}
    expected: dict[tuple[str, str, Any], list[DeadLetter]] = defaultdict(list)
    for topic in ("t", "u"):
        for letter in client.dead_letters(topic):
            country = None if b"not JSON" in letter.value else json.loads(letter.value)["customer"]["country"]
            key = None if letter.key is None else letter.key.decode()
            for by, what in (
                ("group", letter.group),
                ("key", key),
                ("cause", letter.cause),
                ("$.customer.country", country),
            ):
                expected[topic, by, what].append(letter)
    for (topic, by, what), some in expected.items():
        if by == "cause" and (topic, by, what) not in found:
            continue  # only the largest are shown
        row = found[topic, by, what]
        first = min(some, key=lambda letter: (letter.died_at, str(letter.id)))
        assert row["letters"] == len(some)
        assert (row["first"], row["last"]) == (first.died_at, max(letter.died_at for letter in some))
        assert (row["failures"], row["deliveries"]) == (0, len(some))
        assert len(row["examples"]) == min(2, len(some))
        assert row["examples"][0]["message_id"] == str(first.id)
        assert row["examples"][0]["value"] == first.value.decode()
    texts = {what: row["letters"] for (topic, by, what), row in found.items() if (topic, by) == ("t", "text")}
    causes = Counter(letter.cause.split(" ")[0] for letter in client.dead_letters("t"))
    assert len(texts) == 3, texts  # both kinds of timeouts are one
    assert sorted(texts.values()) == sorted(causes.values())
    assert outcome.summary == {"letters": 68, "tables": str(tmp_path / "report")}
    tables = duckdb.execute(f"SELECT topic, count(*) FROM '{tmp_path}/report/letters.parquet' GROUP BY 1 ORDER BY 1")
    assert tables.fetchall() == [("t", 60), ("u", 8)]
    shown = duckdb.execute(f"SELECT count(*) FROM '{tmp_path}/report/groups.parquet' WHERE \"by\" = 'cause'").fetchall()
    assert shown == [(len([place for place in expected if place[1] == "cause"]),)]
    before = {file.name: file.read_bytes() for file in (tmp_path / "report").iterdir()}
    again = dlq_report(spark, place, fields=["$.customer.country"], examples=2, out=str(tmp_path / "report"))
    assert again == outcome
    assert {file.name: file.read_bytes() for file in (tmp_path / "report").iterdir()} == before
    assert str(again.rows[0][-1]).count(".dlq/") == 2  # a table names them


def test_a_directory_is_read_without_a_server_and_so_are_letters_whose_events_are_gone(
    spark: SparkSession, server: Served, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    die(server, "t", 12)
    server.client.redrive("t", filter=lambda letter: letter.origin.offset % 2 == 0)
    left = len(server.client.dead_letters("t"))
    assert 0 < left < 12
    monkeypatch.setattr(listing, "_events_are_whole", lambda _: False)
    assert dlq_report(spark, place, ["t"], dry_run=True).rows == [("t", left)]
    monkeypatch.undo()
    server.broker.settle()
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    assert dlq_report(spark, Place(path=str(tmp_path / "copy")), dry_run=True).rows == [("t", left)]


@pytest.mark.parametrize(
    ("text", "template"),
    [
        ("timeout after 30.5 ms", "timeout after <n> ms"),
        ("no such customer 'c-17' (\"x\")", "no such customer <text> (<text>)"),
        ("cannot open /var/lib/x/data.csv: errno -2", "cannot open <path>: errno <n>"),
        ("job 3f2504e0-4f89-11d3-9a0c-0305e82c3301 at 2026-01-31T12:00:00.5Z", "job <id> at <time>"),
        ("GET https://a.example/b?c=1 from 10.0.0.1 by a.b@c.example", "GET <url> from <ip> by <mail>"),
        ("block 0xDEADBEEF, commit 9fceb02d0ae5", "block <hex>, commit <hex>"),
        ("division by zero", "division by zero"),
        ("it's  Sam's", "it<text>s"),
        ("", ""),
    ],
)
def test_texts_lose_what_differs_from_case_to_case(spark: SparkSession, text: str, template: str) -> None:
    frame = spark.createDataFrame([(text,)], "text STRING")
    assert frame.select(template_of(frame.text)).collect()[0][0] == template


def test_templates_are_one_that_share_most_words() -> None:
    groups = similar_groups(
        {
            "timeout after <n> ms calling <url>": 10,
            "timeout after <n> ms while calling <url>": 12,
            "no such customer <text>": 5,
            "no such customer <text> in <text>": 1,
            "division by zero": 7,
            "": 1,
        }
    )
    assert groups["timeout after <n> ms calling <url>"] == "timeout after <n> ms while calling <url>"
    assert groups["no such customer <text> in <text>"] == "no such customer <text>"
    assert groups["division by zero"] == "division by zero"
    assert groups[""] == ""
    assert similar_groups({}) == {}


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"topics": ["nobody"]}, TopicNotFound, "nobody"),
        ({"topics": []}, InvalidArgument, "name some"),
        ({"fields": ["country", "$.a["], "examples": -1}, InvalidArgument, r"(?s)'country' .*'\$\.a\['.*examples: -1"),
        ({"out": "."}, InvalidArgument, "is there already, and is no report"),
    ],
)
def test_what_is_wrong_is_told(
    spark: SparkSession, server: Served, place: Place, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    server.client.publish("t", "v")
    with pytest.raises(error, match=text):
        dlq_report(spark, place, **options)


def test_no_dead_letters_are_no_error(spark: SparkSession, server: Served, place: Place) -> None:
    assert dlq_report(spark, place).as_dict()["rows"] == []
    server.client.publish("t", "v")
    assert dlq_report(spark, place, ["t"]).summary == {"letters": 0}
