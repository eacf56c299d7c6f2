"""`export`: a topic to files, in order and whole; and back again with `load`."""

from __future__ import annotations

import base64
import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from penstock.client import Client
from penstock.model.errors import ConnectionLost, DiskFull, InvalidArgument, TopicNotFound
from penstock.model.message import Message
from penstock.spark.files.encoding import COLUMNS
from penstock.spark.files.whole import written_whole
from penstock.spark.jobs.exporting import export
from penstock.spark.jobs.failing import told_clearly
from penstock.spark.jobs.loading import load
from penstock.spark.jobs.place import Place
from tests.server.harness import until
from tests.spark.harness import Served, of_all_kinds

JOB = sys.modules["penstock.spark.jobs.exporting"]  # the package has a function of this name
FORMATS = ("csv", "jsonl", "parquet")
ODD = [
    b"",
    b"a",
    b"'\"",
    b'"quoted"',
    b"a,b",
    b"two\nlines",
    b"\r",
    b"\r\n",
    b" ",
    b"\t",
    b"\\",
    b"\\N",
    b"null",
    b"NaN",
]
ODD += [
    "é 🥐".encode(),
    b"\x00",
    b"\x1f",
    b"\xff\xfe",
    b"=1+1",
    b'{"a": [1,\n 2]}',
    b"[]",
    b"-",
    b"\xe2\x80\xa8",
    b"\xef\xbb\xbf",
]


@pytest.fixture
def place(server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.chdir(tmp_path)
    return Place(servers=server.address)


def kept(server: Served, topic: str) -> list[tuple[Any, ...]]:
    """What is to come back, message by message."""
    return [(m.partition, m.key, m.value, m.headers, m.priority, m.deliver_at_us) for m in server.client.read(topic)]


def contents(directory: str | Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(Path(directory).iterdir())}


def of_one_partition(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [row[1:] for row in rows]


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_exported_and_loaded_again_is_the_same(
    spark: SparkSession, server: Served, place: Place, form: str
) -> None:
    headers: list[dict[str, str] | None] = [None, {"a": "", 'q"': 'x"\n,'}, {"é": "🥐\x00"}]
    later = int(time.time()) + 86_400
    messages: list[Message | bytes | str] = [
        Message(value, key, headers[n % 3], (n * 37) % 256, deliver_at=later + n if n % 4 == 0 else None)
        for n, (value, key) in enumerate((v, k) for v in ODD for k in [None, *ODD])
    ]
    server.client.publish_many("from", messages)
    export(spark, place, "from", "out", format=form)
    outcome = load(spark, place, ["out"], "to", exported=True)
    assert (outcome.summary["messages"], outcome.summary["bad_rows"]) == (len(messages), 0)
    assert kept(server, "to") == kept(server, "from")


TEXTS = st.text(alphabet=st.characters(codec="utf-8"), max_size=6)
DATA = st.one_of(st.binary(max_size=6), TEXTS.map(str.encode), st.sampled_from(ODD))
HEADERS = st.one_of(st.none(), st.dictionaries(TEXTS, TEXTS, min_size=1, max_size=2))


@given(
    st.lists(st.tuples(DATA, st.one_of(st.none(), DATA), HEADERS, st.integers(0, 255)), min_size=1, max_size=30),
    st.sampled_from(FORMATS),
    st.sampled_from(["text", "base64"]),
)
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_messages_come_back(
    spark: SparkSession, server: Served, place: Place, messages: list[Any], form: str, value: str
) -> None:
    run = len(server.client.topics())
    server.client.publish_many(f"from-{run}", [Message(*message) for message in messages])
    export(spark, place, f"from-{run}", f"out-{run}", format=form, value="text" if form == "parquet" else value)
    load(spark, place, [f"out-{run}"], f"to-{run}", exported=True)
    assert kept(server, f"to-{run}") == kept(server, f"from-{run}")


def test_the_files_are_the_log_in_order_live_and_settled(
    spark: SparkSession, server: Served, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JOB, "FILE_ROWS_MAX", 40)
    server.client.create_topic("t", partitions=2)
    server.client.publish_many("t", of_all_kinds(150))
    server.broker.settle()
    server.client.publish_many("t", of_all_kinds(50, 150))
    outcome = export(spark, place, "t", "out", format="parquet", columns=COLUMNS)
    stored = list(server.client.read("t"))
    ends = [sum(message.partition == number for message in stored) for number in (0, 1)]
    names = [f"t-{number}-{first:020}.parquet" for number in (0, 1) for first in range(0, ends[number], 40)]
    assert sorted(contents("out")) == sorted(["_export.json", *names])
    assert [row[0] for row in outcome.rows] == names
    assert outcome.summary["messages"] == sum(row[3] for row in outcome.rows) == 200
    for number in (0, 1):
        mine = [message for message in stored if message.partition == number]
        files = sorted(Path("out").glob(f"t-{number}-*.parquet"))
        frame = pd.concat([pd.read_parquet(file) for file in files])
        assert frame["offset"].tolist() == [message.offset for message in mine]
        assert frame["value"].tolist() == [message.value for message in mine]
        assert frame["message_id"].tolist() == [str(message.id) for message in mine]
        assert frame["dedupe_id"].fillna("").tolist() == [message.dedupe_id or "" for message in mine]
        assert [moment.value // 1000 for moment in frame["timestamp"]] == [message.timestamp_us for message in mine]


def test_the_same_words_give_the_same_files_and_only_what_is_wrong_is_written_again(
    spark: SparkSession, server: Served, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JOB, "FILE_ROWS_MAX", 10)
    server.client.publish_many("t", of_all_kinds(35))
    first = export(spark, place, "t", "out", format="csv")
    before = contents("out")
    monkeypatch.setattr(JOB, "FILE_ROWS_MAX", 7)  # the manifest says how the files are cut
    server.client.publish_many("t", of_all_kinds(10))  # not of this export any more
    files = sorted(Path("out").glob("*.csv"))
    files[1].unlink()
    files[2].write_bytes(files[2].read_bytes()[:-1] + b"x")
    Path(f"out/.{files[3].name}.1.unfinished").write_text("half a file, from a killed one")
    left = files[0].stat().st_mtime_ns
    again = export(spark, place, "t", "out", format="csv")
    assert again.as_dict() == first.as_dict()
    assert contents("out") == before
    assert files[0].stat().st_mtime_ns == left
    for words in ({"format": "jsonl"}, {"format": "csv", "where": "priority = 1"}, {"format": "csv", "to_offset": 3}):
        with pytest.raises(InvalidArgument, match="holds another export"):
            export(spark, place, "t", "out", **words)
    export(spark, place, "t", "other", format="csv", to_offset=35)
    assert {name: data for name, data in contents("other").items() if name != "_export.json"} != {}


def test_a_condition_and_a_window_choose_what_duckdb_chooses(
    spark: SparkSession, server: Served, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JOB, "FILE_ROWS_MAX", 50)
    server.client.publish_many("t", [Message(json.dumps({"n": n}), f"k{n % 5}", priority=n % 256) for n in range(300)])
    server.broker.settle()
    middle = next(iter(server.client.read("t", 0, offset=150))).timestamp
    server.client.publish_many("t", [Message(b"late", "k1")])
    export(spark, place, "t", "all", format="jsonl")
    words: dict[str, Any] = {"where": "key = 'k1' AND priority < 100", "from_offset": 3, "to_offset": 280}
    looked = export(spark, place, "t", "out", format="csv", columns=["offset", "key", "value"], **words, dry_run=True)
    assert not Path("out").exists()
    outcome = export(spark, place, "t", "out", format="csv", columns=["offset", "key", "value"], **words)
    query = (
        "FROM 'all/*.jsonl' WHERE key = 'k1' AND priority < 100 AND \"offset\" BETWEEN 3 AND 279 ORDER BY \"offset\""
    )
    expected = duckdb.execute(f'SELECT "offset", key, value {query}').fetchall()
    found = duckdb.execute(
        'SELECT "offset", key, value FROM read_csv(\'out/*.csv\', all_varchar = true) ORDER BY CAST("offset" AS INT)'
    ).fetchall()
    assert [(int(offset), key, json.loads(value)) for offset, key, value in found] == [
        (offset, key, json.loads(value)) for offset, key, value in expected
    ]
    assert looked.summary["messages"] == outcome.summary["messages"] == len(expected) > 20
    assert "t-0-00000000000000000103.csv" not in contents("out")  # a file without messages is none
    timed = export(spark, place, "t", "timed", from_time=middle, columns=["offset"])
    assert timed.summary["messages"] == sum(m.timestamp >= middle for m in server.client.read("t"))


def test_a_directory_without_a_broker_is_exported_as_its_server_did(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Served(tmp_path / "data") as server:
        with Client(server.address) as client:
            client.publish_many("t", of_all_kinds(50))
            server.broker.settle()
            client.publish_many("t", of_all_kinds(50, 50))
        export(spark, Place(servers=server.address), "t", "served")
    outcome = export(spark, Place(path=str(tmp_path / "data")), "t", "read")
    assert outcome.summary["messages"] == 100
    served, read = contents("served"), contents("read")
    assert served.pop("_export.json") != read.pop("_export.json")
    assert served == read


def test_values_can_be_json_or_base64(spark: SparkSession, server: Served, place: Place) -> None:
    values = [b'{"a": [1, 2]}', b'{\n "b": 1\n}', b"plain", b"\xff", b'"text"', b"12"]
    server.client.publish_many("t", values)
    export(spark, place, "t", "json", value="json", columns=["value"])
    rows = [json.loads(line) for line in next(Path("json").glob("*.jsonl")).read_text().splitlines()]
    packed = {"value": base64.b64encode(b"plain").decode(), "base64": "value"}
    assert rows == [
        {"value": {"a": [1, 2]}},
        {"value": {"b": 1}},
        packed,
        {"value": "/w==", "base64": "value"},
        {"value": "text"},
        {"value": 12},
    ]
    export(spark, place, "t", "base64", value="base64", columns=["value"], format="csv")
    lines = next(Path("base64").glob("*.csv")).read_text().splitlines()
    assert lines[:2] == ["value,base64", f'"{base64.b64encode(values[0]).decode()}","value"']


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            {"format": "xml", "columns": ["key", "nothing"], "value": "hex"},
            "no column 'nothing'; format: 'xml'.*; value: 'hex'",
        ),
        ({"format": "csv", "value": "json"}, "json is for JSON lines"),
        ({"format": "parquet", "value": "base64"}, "Parquet has values as they are"),
        ({"columns": ["key", "key"]}, "key is there twice"),
        ({"where": "nobody = 1"}, "the SQL is wrong.*nobody"),
        ({"where": "rand() < 0.5"}, "the condition depends on chance"),
        ({"from_time": "yesterday", "to_offset": -1}, "from_time: 'yesterday' is not.*; to_offset: -1"),
    ],
)
def test_what_cannot_be_exported_is_told_and_leaves_nothing(
    spark: SparkSession, server: Served, place: Place, words: dict[str, Any], told: str
) -> None:
    with pytest.raises(InvalidArgument, match=f"(?s){told}"):
        export(spark, place, "t", "out", **words)
    assert not Path("out").exists()


def test_a_topic_or_a_broker_that_is_not_there_leaves_nothing(
    spark: SparkSession, server: Served, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TopicNotFound):
        export(spark, place, "nothing", "out")
    with pytest.raises(ConnectionLost):
        export(spark, Place(servers="127.0.0.1:1"), "t", "out")
    assert not Path("out").exists()
    server.client.publish_many("t", [b"1"])
    Path("mine").mkdir()
    Path("mine/letter.txt").write_text("dear")
    with pytest.raises(InvalidArgument, match="is not empty, and holds no export"):
        export(spark, place, "t", "mine")
    with pytest.raises(InvalidArgument, match="is no directory"):
        export(spark, place, "t", "mine/letter.txt")
    assert contents("mine") == {"letter.txt": b"dear"}


def test_a_file_that_cannot_be_finished_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DiskFull, match="no space left"), told_clearly(), written_whole(tmp_path / "file") as file:
        file.write(b"half of it")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert contents(tmp_path) == {}


KILLED = """
import sys
from penstock.spark import session
from penstock.spark.jobs.exporting import export
from penstock.spark.jobs.place import Place
sys.modules["penstock.spark.jobs.exporting"].FILE_ROWS_MAX = 200
spark = session("killed", master="local[2]", settings={"spark.ui.enabled": "false"})
export(spark, Place(servers=sys.argv[1]), "t", "killed", format="csv")
"""


@pytest.mark.crash
def test_an_export_that_is_killed_in_the_middle_goes_on_to_the_same_files(
    spark: SparkSession, server: Served, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.client.publish_many("t", of_all_kinds(2400))
    words = [sys.executable, "-c", KILLED, server.address]
    with subprocess.Popen(words, cwd=tmp_path, start_new_session=True, stderr=subprocess.DEVNULL) as running:
        until(lambda: running.poll() is not None or any(tmp_path.glob("killed/*.csv")), "the first file", 120)
        os.killpg(running.pid, signal.SIGKILL)
    assert running.returncode == -signal.SIGKILL
    assert 0 < len(list(tmp_path.glob("killed/*.csv"))) < 12
    server.client.publish_many("t", of_all_kinds(10))  # these came later
    monkeypatch.setattr(JOB, "FILE_ROWS_MAX", 200)
    again = export(spark, place, "t", "killed", format="csv")
    whole = export(spark, place, "t", "whole", format="csv", to_offset=2400)
    assert again.rows == whole.rows
    files = [
        {name: data for name, data in contents(out).items() if name.endswith(".csv")} for out in ("killed", "whole")
    ]
    assert files[0] == files[1]
    assert len(files[0]) == 12
    assert not [path for path in Path("killed").iterdir() if path.name.endswith(".unfinished")]
