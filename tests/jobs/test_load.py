"""`load`: files to a topic: every row once, in order; bad ones set aside with their line."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import signal
import subprocess
import sys
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from penstock.model.errors import ConnectionLost, InvalidArgument
from penstock.spark.files import cutting, quoting, rows
from penstock.spark.files.quoting import cut, records
from penstock.spark.jobs.loading import load
from penstock.spark.jobs.outcome import Outcome
from penstock.spark.jobs.place import Place
from penstock.spark.writing import publish
from tests.server.harness import until
from tests.spark.harness import Served

SMALL = {"RANGE_BYTES": 4000, "PART_BYTES": 6000}
"""So that little files are cut into many ranges and parts."""


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in SMALL.items():
        monkeypatch.setattr(cutting, name, size)


@pytest.fixture
def place(server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.chdir(tmp_path)
    return Place(servers=server.address)


def read(server: Served, topic: str = "t") -> list[Any]:
    return list(server.client.read(topic))


def set_aside(outcome: Outcome) -> list[dict[str, Any]]:
    files = sorted(Path(outcome.summary["bad_rows_in"]).glob("part-*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


# Where records end.

FIELDS = st.text(alphabet='ab",\n\r;é', max_size=5)


@given(st.lists(st.lists(FIELDS, min_size=1, max_size=3), max_size=12), st.integers(1, 60), st.booleans())
@settings(deadline=None, max_examples=150)
def test_a_csv_is_never_cut_inside_a_record(table: list[list[str]], size: int, everything: bool) -> None:
    written = io.StringIO(newline="")
    csv.writer(written, quoting=csv.QUOTE_ALL if everything else csv.QUOTE_MINIMAL).writerows(table)
    data = written.getvalue().replace("\r\n", "\n").encode()  # also inside quotes: it is what is written that counts
    whole = [text for _, text in records(data, ",")]
    pieces = list(cut(data, ",", size, final=True))
    assert b"".join(data[piece.start : piece.end] for piece in pieces) == data
    assert [text for piece in pieces for _, text in records(data[piece.start : piece.end], ",")] == whole
    assert not any(piece.stray for piece in pieces)
    half = list(cut(data, ",", size, final=False))
    ends = [piece.end for piece in half]
    assert [text for end in ends[-1:] for _, text in records(data[:end], ",")] == whole[
        : len(records(data[: (ends or [0])[-1]], ","))
    ]


@given(st.lists(st.text(alphabet='ab",\n', max_size=8), max_size=20), st.integers(1, 30))
@settings(deadline=None, max_examples=150)
def test_records_end_where_pyarrow_ends_them_whatever_the_quotes(lines: list[str], size: int) -> None:
    """I.e. quotes in the midst of fields, quotes that are closed late or followed by more."""
    data = "\n".join([*lines, ""]).encode()
    pieces = list(cut(data, ",", size, final=True))
    expected: list[str] = []
    for piece in pieces:
        text = data[piece.start : piece.end]
        if not piece.stray and text.strip(b"\n"):
            seen: list[str] = []
            options = pyarrow.csv.ParseOptions(newlines_in_values=True, invalid_row_handler=partial(_skip, seen))
            read_options = pyarrow.csv.ReadOptions(use_threads=False, column_names=[str(n) for n in range(99)])
            pyarrow.csv.read_csv(pa.BufferReader(text), read_options, options)
            assert seen == [found.decode() for _, found in records(text, ",")]
            expected += seen
    whole = [
        text.decode()
        for piece in cut(data, ",", len(data), final=True)
        if not piece.stray
        for _, text in records(data[piece.start : piece.end], ",")
    ]
    assert expected == whole


def test_a_quote_that_is_never_closed_costs_its_own_line_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quoting, "QUOTED_BYTES_MAX", 20)
    data = b'a,b\n"c,d\n' + b"e,f\n" * 10 + b'"g\nh",i\nj,"k'
    for size in (1, 10, 1000):
        pieces = list(cut(data, ",", size, final=True))
        assert [data[piece.start : piece.end] for piece in pieces if piece.stray] == [b'"c,d\n', b'j,"k']
        assert b"".join(data[piece.start : piece.end] for piece in pieces) == data


def _skip(seen: list[str], row: pyarrow.csv.InvalidRow) -> str:
    seen.append(row.text)
    return "skip"


# The job.


def test_rows_are_messages_in_order_as_pandas_reads_them(
    spark: SparkSession, server: Served, place: Place, tmp_path: Path, small: None
) -> None:
    lines = ["id,who,lane,at,note"]
    for n in range(400):
        note = ["plain", '"with, comma"', '"a ""quoted"" word"', '"two\nlines"', "", '""', "émoji 🥐", "tab\there"][
            n % 8
        ]
        lines.append(f"{n:03},user-{n % 7},{n % 256},2026-01-01T00:00:{n % 60:02}Z,{note}")
    (tmp_path / "orders.csv").write_text("\n".join(lines) + "\n")
    server.client.create_topic("t", partitions=3)
    outcome = load(spark, place, [tmp_path / "orders.csv"], "t", key="who", priority="lane", time="at", headers=["id"])
    frame = pd.read_csv(tmp_path / "orders.csv", dtype=str, keep_default_na=False)
    messages = read(server)
    assert outcome.summary == {"topic": "t", "files": 1, "messages": 400, "bad_rows": 0, "bad_rows_in": None}
    assert outcome.whole
    by_id = {message.headers["id"]: message for message in messages}
    assert len(by_id) == len(messages) == 400
    for row in frame.itertuples():
        message = by_id[row.id]
        value = json.loads(message.value)
        kept = None if row.note == "" and int(row.id) % 8 == 4 else row.note  # "" is empty, nothing is null
        assert value == {"id": row.id, "who": row.who, "lane": row.lane, "at": row.at, "note": kept}
        assert (message.key, message.priority) == (row.who.encode(), int(row.lane))
        assert message.headers == {"id": row.id, "time": row.at}
    for who in range(7):  # in the order of the file
        mine = [message.headers["id"] for message in messages if message.key == f"user-{who}".encode()]
        assert mine == sorted(mine)
    again = load(spark, place, [tmp_path / "orders.csv"], "t", key="who", priority="lane", time="at", headers=["id"])
    assert again.as_dict() | {"notes": []} == outcome.as_dict()
    assert again.notes == ("all of it was loaded before: nothing was published now",)
    assert len(read(server)) == 400


def test_bad_rows_are_set_aside_with_file_line_text_and_what_is_wrong(
    spark: SparkSession, server: Served, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "_BLOCK_BYTES", 64)
    path = tmp_path / "orders.csv"
    good = [b"k,5,2026-01-01T00:00:00Z,x\n"] * 5
    content = [
        b"key,lane,due,note\n",
        *good,
        b"too,few\n",  # line 7
        b"\n",
        b'k,5,,"over\nlines"\n',  # 9 and 10
        b"k,256,,x\n",  # 11
        b"k,soon,,x\n",
        b"k,high,tomorrow,x\n",
        b"k,1,2026-01-01T00:00:00,no zone\n",
        b"k,1,1767225600,seconds\n",
        b"k,5,,\xff\xfe\n",  # 16
        b"one,too,many,columns,here\r\n",
        *good,
        b'k,5,,"never closed\n',  # 23
    ]
    path.write_bytes(b"".join(content))
    words: dict[str, Any] = {"key": "key", "priority": "lane", "deliver_at": "due"}
    looked = load(spark, place, [path], "t", **words, dry_run=True)
    assert (looked.summary["messages"], looked.summary["bad_rows"]) == (12, 8)
    assert not Path("bad-rows").exists()
    assert server.client.topics() == []
    outcome = load(spark, place, [path], "t", **words)
    assert outcome.summary == looked.summary
    assert not outcome.whole
    assert len(read(server)) == 12
    found = set_aside(outcome)
    assert {row["file"] for row in found} == {str(path)}
    assert [(row["line"], row["text"]) for row in found] == [
        (7, "too,few"),
        (11, "k,256,,x"),
        (12, "k,soon,,x"),
        (13, "k,high,tomorrow,x"),
        (14, "k,1,2026-01-01T00:00:00,no zone"),
        (16, r"k,5,,\xff\xfe"),
        (17, "one,too,many,columns,here"),
        (23, 'k,5,,"never closed'),
    ]
    told = [row["wrong"] for row in found]
    assert told[0] == "it has 2 columns, and not 4"
    assert told[1].startswith("lane: 256 is not a priority")
    assert told[2].startswith("lane: 'soon' is not a priority")
    assert told[3].startswith("due: 'tomorrow' is not a point in time")
    assert told[5] == "it is not UTF-8"
    assert "nothing closes it" in told[7]
    assert outcome.rows == [(str(path), path.stat().st_size, 8)]


def test_a_message_that_is_too_large_is_a_bad_row(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    limits = {"max_value_bytes": 1000, "max_key_bytes": 10, "max_headers_bytes": 100}
    with Served(tmp_path / "data", broker=limits) as server:
        rows: list[dict[str, Any]] = [
            {"k": "a", "v": "x" * 1000, "h": "h"},
            {"k": "a", "v": "x" * 1001},
            {"k": "k" * 11, "v": ""},
        ]
        rows += [{"k": "a", "v": "x", "h": "h" * 100}, {"k": "a", "v": None}]
        Path("big.jsonl").write_text("\n".join(map(json.dumps, rows)))
        outcome = load(spark, Place(servers=server.address), ["big.jsonl"], "t", key="k", value="v", headers=["h"])
        assert [row["wrong"].split(" of the message")[0] for row in set_aside(outcome)] == [
            "the value",
            "the key",
            "the headers",
            "v: it is NULL, and a message has a value",
        ]
        assert outcome.summary["messages"] == 1


def test_json_lines_are_published_as_they_stand(
    spark: SparkSession, server: Served, place: Place, tmp_path: Path, small: None
) -> None:
    good = [
        {"user": n, "n": {"deep": [n, None]}, "text": 'a "b"\n\\ é🥐', "lane": "low" if n % 2 else 7} for n in range(60)
    ]
    text = [json.dumps(row, ensure_ascii=n % 3 == 0, indent=None) for n, row in enumerate(good)]
    text.insert(20, "{not json}")
    text.insert(30, "")
    text.insert(40, '["a", "list"]')
    text.insert(50, '  {"user": null}\r')
    files = tmp_path / "files"
    files.mkdir()
    (files / "a.ndjson").write_text("\n".join(text))
    with gzip.open(files / "b.json.gz", "wt") as packed:
        packed.write("\n".join(text[:10]) + "\n")
    outcome = load(spark, place, [files], "t", key="user", priority="lane")
    messages = read(server)
    assert (outcome.summary["messages"], outcome.summary["bad_rows"]) == (71, 2)
    assert [row["line"] for row in set_aside(outcome)] == [21, 41]
    expected = [line.strip() for line in [*text, *text[:10]] if line.strip() not in ("", "{not json}", '["a", "list"]')]
    assert [message.value.decode() for message in messages] == expected
    assert messages[3].key == b"3" and messages[3].priority == 192 and messages[2].priority == 7
    assert messages[47].key is None and messages[47].priority == 128


def test_parquet_rows_are_json_with_every_type(
    spark: SparkSession, server: Served, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cutting, "_PARQUET_RANGE_ROWS", 2)
    moment = pd.Timestamp("2026-01-01T10:20:30.123456Z")
    table = pa.table(
        {
            "text": pa.array(["a", 'q"\\\n', None, "é", ""]),
            "whole": pa.array([1, None, -3, 2**62, 0], pa.int64()),
            "part": pa.array([0.5, float("nan"), None, 1e300, float("inf")]),
            "yes": pa.array([True, False, None, True, True]),
            "when": pa.array([moment, None, moment, moment, moment], pa.timestamp("us", "Europe/Berlin")),
            "day": pa.array([moment.date(), None, None, None, None], pa.date32()),
            "money": pa.array([Decimal("1.10"), None, None, None, None], pa.decimal128(10, 2)),
            "raw": pa.array([b"\xff", None, b"", b"a", b"b"]),
            "list": pa.array([[1, None], None, [], [2], [3]], pa.list_(pa.int32())),
            "map": pa.array([[("k", 1)], None, [], [], []], pa.map_(pa.string(), pa.int32())),
            "code": pa.array(["x", "y", None, "x", "x"]).dictionary_encode(),
            "lane": pa.array([0, 255, None, 300, 7], pa.int16()),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=1)
    outcome = load(
        spark, place, ["*.parquet"], "t", key="raw", priority="lane", deliver_at="when", time="when", headers=["code"]
    )
    messages = read(server)
    found = [json.loads(message.value) for message in messages]
    time = "2026-01-01T10:20:30.123456Z"
    assert found[0] == {
        "text": "a",
        "whole": 1,
        "part": 0.5,
        "yes": True,
        "when": time,
        "day": "2026-01-01",
        "money": "1.10",
        "raw": "/w==",
        "list": [1, None],
        "map": {"k": 1},
        "code": "x",
        "lane": 0,
    }
    assert found[1] == dict.fromkeys(found[0]) | {"text": 'q"\\\n', "yes": False, "code": "y", "lane": 255}
    assert found[3]["part"] is None and found[3]["text"] == ""
    assert [message.key for message in messages] == [b"\xff", None, b"", b"b"]
    assert [message.priority for message in messages] == [0, 255, 128, 7]
    assert messages[0].headers == {"time": time, "code": "x"} and messages[1].headers == {"code": "y"}
    (bad,) = set_aside(outcome)
    assert bad["line"] == 4 and json.loads(bad["text"])["lane"] == 300


def test_a_csv_without_a_header_and_with_another_delimiter(
    spark: SparkSession, server: Served, place: Place, tmp_path: Path
) -> None:
    with gzip.open(tmp_path / "x.csv.gz", "wb") as packed:
        packed.write(b'\xef\xbb\xbfa;"1;\n2"\nb;3\n')
    (tmp_path / "empty.csv").touch()
    (tmp_path / "only.csv").write_text("\n\n")
    outcome = load(spark, place, ["x.csv.gz", "empty.csv", "only.csv"], "t", value="_c1", delimiter=";", header=False)
    assert [message.value for message in read(server)] == [b"1;\n2", b"3"]
    assert outcome.notes == (f"{tmp_path / 'empty.csv'} is empty",)


@pytest.mark.parametrize(
    ("files", "words", "told"),
    [
        (["a.csv"], {"key": "nobody", "headers": ["b", "c"]}, r"a.csv has no column 'nobody' and 'c': there are a, b$"),
        (["a.jsonl"], {"value": "x"}, r"a.jsonl has no column 'x' in its first rows: there are y$"),
        (["missing.csv", "also-*.csv"], {}, r"missing.csv: No such file or directory; also-\*.csv: no file matches"),
        (["void"], {}, "the directory has no files that end in"),
        (["a.txt"], {}, "its ending is none of"),
        (["twice.csv"], {}, "two columns are called 'a'"),
        (["mac.csv"], {}, r"its lines end in \\r alone"),
        (["not.parquet"], {}, "no Parquet file"),
        (["broken.csv.gz"], {}, "it cannot be read"),
        (["a.csv"], {"delimiter": "ab"}, "one character of ASCII"),
        (["a.csv"], {"exported": True, "key": "a"}, "name none beside it"),
        (["a.csv"], {"exported": True}, "has no column 'value'"),
        (["a.csv"], {"format": "xml"}, "none of csv, jsonl, parquet"),
        ([], {}, "there are no files to load"),
    ],
)
def test_what_cannot_be_loaded_is_told_before_anything_is_published(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: list[str],
    words: dict[str, Any],
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.csv", "a.txt"):
        Path(name).write_text("a,b\n1,2\n")
    Path("a.jsonl").write_text('{"y": 1}\n')
    Path("twice.csv").write_text("a,a\n1,2\n")
    Path("mac.csv").write_text("a,b\r1,2\r", newline="")
    Path("not.parquet").write_text("PAR1")
    Path("broken.csv.gz").write_bytes(b"\x1f\x8bnothing")
    Path("void").mkdir()
    with pytest.raises(InvalidArgument, match=told):
        load(spark, Place(servers="127.0.0.1:1"), files, "t", **words)


def test_without_a_broker_nothing_is_begun(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ConnectionLost, match="no Penstock server answers"):
        load(spark, Place(servers="127.0.0.1:1"), [tmp_path / "a.csv"], "t")
    with pytest.raises(InvalidArgument, match="loading needs a server"):
        load(spark, Place(path=str(tmp_path)), [tmp_path / "a.csv"], "t")


def test_files_that_changed_are_told_and_a_deleted_topic_is_filled_anew(
    spark: SparkSession, server: Served, place: Place, tmp_path: Path
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a\n1\n2\n")
    first = load(spark, place, [path], "t")
    os.utime(path, (1, 1))  # the time of a file says nothing
    assert load(spark, place, [path], "t").summary == first.summary
    path.write_text("a\n1\n2\n3\n")
    changed = load(spark, place, [path], "t")
    assert changed.summary["messages"] == 3
    assert "has changed since they were loaded" in changed.notes[0] and "2 messages" in changed.notes[0]
    assert len(read(server)) == 5
    once_more = load(spark, place, [path], "t", again=True)
    assert (once_more.summary["messages"], len(read(server))) == (3, 8)
    server.client.delete_topic("t")
    anew = load(spark, place, [path], "t")
    assert "was deleted since" in anew.notes[0]
    assert len(read(server)) == 3


def test_more_files_under_the_same_words_are_refused_and_bad_rows_are_no_data(
    spark: SparkSession, server: Served, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = tmp_path / "files"
    files.mkdir()
    monkeypatch.chdir(files)
    (files / "a.jsonl").write_text('{"n": 1}\nno JSON\n')
    for _ in range(2):  # the bad rows of the first run lie below the directory that is loaded
        outcome = load(spark, place, [files], "t")
        assert (outcome.summary["files"], outcome.summary["messages"], outcome.summary["bad_rows"]) == (1, 1, 1)
    (files / "b.jsonl").write_text('{"n": 2}\n')
    with pytest.raises(InvalidArgument, match="there are other files than when 1 messages were loaded"):
        load(spark, place, [files], "t")
    assert load(spark, place, [files / "b.jsonl"], "t").summary["messages"] == 1
    assert load(spark, place, [files], "t", again=True).summary["messages"] == 2


def test_nothing_is_published_behind_a_part_that_could_not_be(
    spark: SparkSession, server: Served, place: Place, tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.csv").write_text("n\n" + "".join(f"{n:06}\n" for n in range(4000)))
    calls: list[int] = []

    def fail_once(*given: Any) -> None:
        calls.append(given[2])
        if len(calls) == 2:
            raise ConnectionLost("the broker is away")
        publish(*given)

    monkeypatch.setattr("penstock.spark.jobs.loading.publish", fail_once)
    with pytest.raises(ConnectionLost):
        load(spark, place, [tmp_path / "a.csv"], "t")
    assert len(calls) == 2
    outcome = load(spark, place, [tmp_path / "a.csv"], "t")
    assert outcome.summary["messages"] == 4000 and len(calls) > 3
    values = sorted(json.loads(message.value)["n"] for message in read(server))
    assert values == [f"{n:06}" for n in range(4000)]


def test_a_damaged_file_in_the_midst_publishes_no_part_of_its_part(
    spark: SparkSession, server: Served, place: Place, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n")
    packed = gzip.compress(b"a\n" + b"".join(b"%d\n" % n for n in range(200_000)))
    (tmp_path / "b.csv.gz").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(InvalidArgument, match=r"b.csv.gz: it is damaged"):
        load(spark, place, [tmp_path], "t")
    assert server.client.topics() == []
    (tmp_path / "b.csv.gz").write_bytes(packed)
    assert load(spark, place, [tmp_path], "t").summary["messages"] == 200_001
    assert len(server.broker.shard.stages) == 0


KILLED = """
import sys
from penstock.spark import session
from penstock.spark.files import cutting
from penstock.spark.jobs import Place, load
cutting.RANGE_BYTES, cutting.PART_BYTES = {RANGE_BYTES}, {PART_BYTES}
server, path = sys.argv[1:]
spark = session("killed", master="local[2]", settings={{"spark.ui.enabled": "false"}})
load(spark, Place(servers=server), [path], "t", key="k", priority="p")
"""


@pytest.mark.crash
def test_a_load_that_is_killed_in_the_middle_goes_on_and_every_row_is_there_once(
    spark: SparkSession, server: Served, place: Place, tmp_path: Path, small: None
) -> None:
    lines = [f"{n},key-{n % 5},{999 if n % 50 == 0 else n % 200}" for n in range(6000)]
    path = tmp_path / "many.csv"
    path.write_text("\n".join(["n,k,p", *lines]))
    code = KILLED.format(**SMALL)
    with subprocess.Popen(
        [sys.executable, "-c", code, server.address, str(path)],
        cwd=tmp_path,
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    ) as running:
        until(lambda: running.poll() is not None or (server.client.topics() and read(server)), "the first part", 120)
        os.killpg(running.pid, signal.SIGKILL)
    assert running.returncode == -signal.SIGKILL
    published = len(read(server))
    assert 0 < published < 5880
    outcome = load(spark, place, [path], "t", key="k", priority="p")
    messages = [json.loads(message.value)["n"] for message in read(server)]
    assert outcome.summary["messages"] == 5880
    assert outcome.summary["bad_rows"] == 120
    assert messages == [str(n) for n in range(6000) if n % 50]
    assert [row["line"] for row in set_aside(outcome)] == [n + 2 for n in range(0, 6000, 50)]
