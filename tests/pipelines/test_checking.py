"""Files of pipelines: what they declare, and everything that is wrong with them, at once and with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.spark.pipelines import Misdeclared, Pipeline, Sink, Source, Step, Watermark, load
from penstock.spark.pipelines.checking import circles
from penstock.spark.pipelines.running import check_names, place_of
from tests.pipelines.harness import declare

WHOLE = """
server: 127.0.0.1:9100, localhost:9101
checkpoints: ./state
settings: {spark.sql.shuffle.partitions: 2}
pipelines:
  orders:
    sources:
      orders:
        topic: orders
        starting: latest
        max_per_trigger: 50000
        value: json
        schema: id STRING, amount DOUBLE, placed_at TIMESTAMP
        bad_rows: drop
        watermark: {column: placed_at, delay: 30s}
      events: {events: orders}
      customers: {files: customers.csv, format: csv, header: false, schema: "customer STRING"}
      old: {table: ./tables/old, stream: true}
    steps:
      - {name: enriched, sql: SELECT * FROM orders}
      - {name: scored, python: "scoring:score", input: enriched}
      - {name: joined, python: "scoring:join", input: [scored, customers]}
    sinks:
      urgent:
        {from: enriched, where: amount > 1, topic: urgent, key: id, priority: 0, delay: 5m, headers: {a: id}}
      table: {from: joined, table: ./tables/x, partition_by: date(placed_at)}
      screen: {from: scored, console: true}
    trigger: 5s
"""
WRONG = """
checkpoint: here
server: 127.0.0.1:9100,nowhere
pipelines:
  orders:
    sources:
      orders: {topic: orders, starting: erliest, max_per_trigger: many, value: json, watermark: {column: at, delay: 3x}}
      both: {topic: a, table: b}
      none: {starting: latest}
      odd-name: {topic: a, schema: id STRING, format: csv}
      files: {files: x, format: cvs, bad_rows: dead-letter}
      list: [topic]
    steps:
      - {name: first, sql: SELECT 1, python: "m:f"}
      - {name: first, sql: SELECT 1, input: orders}
      - {name: nameless function, python: "m"}
      - {name: later, python: "m:f", input: last}
      - {name: last, python: "m:f", input: later}
      - {name: lost, python: "m:f", input: ordrs}
    sinks:
      urgent: {from: frist, topic: a b, prioriti: 3}
      table: {from: first, table: x, mode: update, key: x}
      "a.b": {from: first, console: false}
      nowhere: {topic: x}
    trigger: 5 s
  empty: {sources: {}, sinks: {}}
  scalar: 3
  twins:
    sources: {s: {topic: s}}
    sinks: {one: {from: s, table: ./same}, two: {from: s, table: same}}
"""


def problems_of(path: Path) -> list[str]:
    with pytest.raises(Misdeclared) as caught:
        load(path)
    return [str(problem).replace(f"{path}:", "").replace(str(path), "file") for problem in caught.value.problems]


def test_a_file_declares_what_is_in_it(tmp_path: Path) -> None:
    declared = declare(tmp_path, WHOLE)
    assert (declared.server, declared.checkpoints) == ("127.0.0.1:9100, localhost:9101", tmp_path / "state")
    assert declared.settings == {"spark.sql.shuffle.partitions": "2"}
    orders = declared.pipelines["orders"]
    assert orders.sources["orders"] == Source(
        topic="orders",
        starting="latest",
        max_per_trigger=50000,
        value="json",
        schema="id STRING, amount DOUBLE, placed_at TIMESTAMP",
        bad_rows="drop",
        watermark=Watermark("placed_at", "30s"),
    )
    assert orders.sources["customers"].header is False
    assert orders.steps[2] == Step(name="joined", python="scoring:join", input=("scored", "customers"))
    assert orders.sinks["urgent"] == Sink(
        from_="enriched",
        where="amount > 1",
        topic="urgent",
        key="id",
        priority="0",
        delay="5m",
        headers={"a": "id"},
    )
    assert orders.trigger == "5s"
    assert declared.near("tables/x") == str(tmp_path / "tables/x")
    assert declared.near("s3a://bucket/x") == "s3a://bucket/x"


def test_python_declares_the_same(tmp_path: Path) -> None:
    """Sources, steps and sinks are objects; a step may be a function."""
    (tmp_path / "helping.py").write_text("def topic(): return 'orders'")
    declared = declare(
        tmp_path,
        """
        from helping import topic
        from penstock.spark.pipelines import Pipeline, Sink, Source, Step, Watermark

        def double(frame):
            return frame

        checkpoints = "state"
        pipelines = {
            "orders": Pipeline(
                sources={"orders": Source(topic=topic(), watermark=Watermark("message.timestamp", 30))},
                steps=[Step(name="doubled", python=double, input="orders")],
                sinks={"out": Sink(from_="doubled", topic="out", priority="0")},
                trigger="available-now",
            )
        }
        """,
        "file.py",
    )
    assert declared.checkpoints == tmp_path / "state"
    (pipeline,) = declared.pipelines.values()
    assert isinstance(pipeline, Pipeline) and pipeline.trigger == "available-now"
    assert pipeline.sources == {"orders": Source(topic="orders", watermark=Watermark("message.timestamp", 30))}
    assert callable(pipeline.steps[0].python)
    assert pipeline.sinks == {"out": Sink(from_="doubled", topic="out", priority="0")}


def test_every_problem_is_told_with_its_line_and_place(tmp_path: Path) -> None:
    (tmp_path / "file.yaml").write_text(WRONG)
    told = "\n".join(problems_of(tmp_path / "file.yaml"))
    orders = "pipelines.orders"
    for expected in (
        "2: checkpoint: unknown key, did you mean checkpoints?",
        "3: server: 'nowhere' is not an address such as '127.0.0.1:9000'",
        f"7: {orders}.sources.orders.starting: 'erliest' is none of earliest, latest, did you mean earliest?",
        f"7: {orders}.sources.orders.max_per_trigger: 'many' is not a whole number from 1",
        f"7: {orders}.sources.orders.watermark.delay: '3x' is not a duration",
        f"7: {orders}.sources.orders: schema is missing",
        f"8: {orders}.sources.both: give one of topic, events, table, files, not topic and table",
        f"9: {orders}.sources.none: give one of topic, events, table, files",
        f"10: {orders}.sources.odd-name: 'odd-name' cannot be the name of a source",
        f"10: {orders}.sources.odd-name.schema: it is for a topic whose values are JSON",
        f"10: {orders}.sources.odd-name.format: it is not for topic",
        f"11: {orders}.sources.files.format: 'cvs' is none of csv, json, parquet, text, did you mean csv?",
        f"11: {orders}.sources.files.bad_rows: files have no dead letters",
        f"12: {orders}.sources.list: here are keys",
        f"14: {orders}.steps.first: give sql or python, one of the two",
        f"15: {orders}.steps.first.input: it is for python",
        f"15: {orders}.steps.first.name: there is a source or step first already",
        f"16: {orders}.steps.nameless function.name: 'nameless function' cannot be the name of a step",
        f"16: {orders}.steps.nameless function: input is missing",
        f"16: {orders}.steps.nameless function.python: 'm' does not name a function",
        f"17: {orders}.steps.later.input: last does not come before later",
        f"19: {orders}.steps.lost.input: there is no source and no step ordrs, did you mean orders?",
        f"21: {orders}.sinks.urgent.from: there is no source and no step frist, did you mean first?",
        f"21: {orders}.sinks.urgent.topic: 'a b' is not a topic name",
        f"21: {orders}.sinks.urgent.prioriti: unknown key, did you mean priority?",
        f"22: {orders}.sinks.table.mode: a table takes append",
        f"22: {orders}.sinks.table.key: it is not for table",
        f"23: {orders}.sinks.a.b: 'a.b' cannot be the name of a sink",
        f"23: {orders}.sinks.a.b.console: a sink is a topic, a table or `console: true`",
        f"24: {orders}.sinks.nowhere: from is missing",
        f"25: {orders}.trigger: '5 s' is neither continuous, available-now nor a duration such as 5s",
        "26: pipelines.empty.sources: there are none: a pipeline reads something",
        "26: pipelines.empty.sinks: there are none: a pipeline writes something",
        "27: pipelines.scalar: here are keys",
    ):
        assert expected in told, f"{expected}\n{told}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "pipelines is missing"),
        ("pipelines: {}", "pipelines: there are none"),
        ("pipelines: [a]", "pipelines: here are keys"),
        ("- a", "here are keys"),
        ("a: [", "this is not YAML"),
        ("pipelines: &x {orders: *x}", "refers to itself"),
        ("pipelines: {a: {sources: {s: {topic: t}}, sinks: {o: {from: s, topic: o}}, trigger: 0}}", "between 1ms"),
        ("settings: {foo: 1}\npipelines: {}", "foo is not a setting of Spark"),
        (WRONG[WRONG.index("  twins") :].replace("  twins", "pipelines:\n  twins"), "a table has one sink"),
        ("pipelines:\n  a: {sources: {s: {topic: t}}, sources: {}, sinks: {}}", "sources is given twice"),
    ],
)
def test_what_is_no_file_of_pipelines_is_told(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "file.yaml").write_text(text)
    assert any(expected in problem for problem in problems_of(tmp_path / "file.yaml"))


def test_a_file_that_is_not_there_or_fails_is_told(tmp_path: Path) -> None:
    assert problems_of(tmp_path / "no.yaml") == [" there is no such file"]
    assert problems_of(tmp_path / "no.py") == [" there is no such file"]
    (tmp_path / "file.py").write_text("pipelines = {}\npipelines['x'].y\n")
    assert problems_of(tmp_path / "file.py") == ["2: KeyError: 'x'"]
    (tmp_path / "file.py").write_text("pipelines = {\n")
    (problem,) = problems_of(tmp_path / "file.py")
    assert problem.startswith("1: SyntaxError")


def test_topics_that_come_back_to_themselves_are_noted(tmp_path: Path) -> None:
    text = """
    pipelines:
      a: {sources: {s: {topic: one}}, sinks: {o: {from: s, topic: two}}}
      b: {sources: {s: {topic: two}}, sinks: {o: {from: s, topic: three}, p: {from: s, topic: one}}}
      c: {sources: {s: {topic: three}}, sinks: {o: {from: s, topic: four}}}
    """
    declared = declare(tmp_path, text)
    assert [note.split(" may")[0] for note in circles(declared)] == [
        "what is read from the topic one",
        "what is read from the topic two",
    ]
    with pytest.raises(ValueError, match="has no pipeline aa, did you mean a"):
        check_names(declared, ["aa"])


def test_the_server_is_the_given_one_or_that_of_the_file_or_of_the_environment(tmp_path: Path) -> None:
    named = declare(tmp_path, WHOLE)
    other = declare(tmp_path, "pipelines: {a: {sources: {s: {topic: a}}, sinks: {o: {from: s, topic: b}}}}")
    environment = {"PENSTOCK_SERVER": "e:1", "PENSTOCK_TOKEN": "t", "PENSTOCK_TLS": "1"}
    assert place_of(named, environment, server="g:1").servers == "g:1"
    assert place_of(named, environment).servers == "127.0.0.1:9100, localhost:9101"
    assert place_of(other, {}).servers == "127.0.0.1:9000"
    place = place_of(other, environment)
    assert (place.servers, place.token, place.tls) == ("e:1", "t", True)
