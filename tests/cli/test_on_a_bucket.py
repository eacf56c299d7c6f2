"""Commands with `--dir` and the address of a bucket: they show what is there, and change nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app
from penstock.cluster.copying.copying import copy
from tests.cluster.resharding_harness import contents, quietly

LOOKS = (
    "topic list",
    "topic show orders",
    "group list",
    "group show orders kitchen",
    "delayed list orders",
    "schedule list",
    "dlq list orders",
    "dlq show orders.dlq/0/0",
    "trace orders/0/0",
    "consume orders",
    "consume orders --from-time 2020-01-01T00:00:00Z -o json",
    "consume orders --include-deleted",
    "replay orders --output-file -",
)
CHANGES = (
    "publish orders five",
    "topic create another",
    "topic set orders retention_age=5d",
    "group seek orders kitchen --to earliest",
    "group pause orders kitchen",
    "delayed cancel orders/0/3",
    "dlq redrive orders",
    "schedule remove tea",
    "replay orders --to-group again",
    "consume orders --group breakfast --max 1",
    "group delete orders kitchen",
)
REFUSED = ("consume orders --follow", "token list", "token create me", "cluster show")


def run(*arguments: object) -> tuple[int, str]:
    """The exit code of the command and everything it wrote."""
    result = CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "200"})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


@pytest.fixture(scope="module", params=[1, 2])
def data(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that holds something of everything; the same is in the bucket beside it."""
    path = tmp_path_factory.mktemp("data") / "data"
    with penstock.open(path, shards=request.param, min_free_bytes=0) as broker:
        broker.create_topic("orders", max_deliveries=1)
        broker.publish_many("orders", ["one", "two"])
        broker.settle()
        broker.publish("orders", "three")
        broker.publish("orders", "four", delay="5h")
        broker.publish("others", "a")
        broker.schedule("tea", "0 16 * * *", "orders", "one tea")
        with broker.consumer("orders", "kitchen") as consumer:
            first, second = consumer.receive(2)
            first.ack()
            second.fail("it is cold")
    copy(str(path), (path.parent / "bucket").as_uri(), quietly)
    return path


def said(output: str) -> str:
    """Without what depends on the moment."""
    ages = re.compile(r"\d+[hms] ?(\d+[ms])?|\b[\d.]+ (s|ms)\b")
    return " ".join(ages.sub("", output).split())


@pytest.mark.parametrize("command", LOOKS)
def test_a_command_that_looks_shows_what_the_directory_has(command: str, data: Path) -> None:
    bucket = data.parent / "bucket"
    before = contents(bucket)
    code, output = run(*command.split(), "--dir", bucket.as_uri())
    assert code == 0, output
    assert said(output) == said(run(*command.split(), "--dir", data)[1])
    assert contents(bucket) == before, "nothing is written, and nothing is claimed"


def test_the_status_is_that_of_all_shards(data: Path) -> None:
    code, output = run("status", "--dir", (data.parent / "bucket").as_uri(), "-o", "json")
    assert code == 0
    assert {topic["name"]: topic["messages"] for topic in json.loads(output)["topics"]}["orders"] == 4


@pytest.mark.parametrize("command", REFUSED)
def test_what_a_bucket_has_not_is_refused(command: str, data: Path) -> None:
    bucket = data.parent / "bucket"
    before = contents(bucket)
    code, output = run(*command.split(), "--dir", bucket.as_uri())
    assert code == 2, output
    assert "bucket" in output or "has none" in output, output
    assert contents(bucket) == before


@pytest.mark.parametrize("data", [2], indirect=True)
def test_a_command_that_changes_something_has_the_bucket_for_itself(data: Path) -> None:
    """The same as on a copy of the directory, and nothing of it while a program has the bucket."""
    copy(str(data), (data.parent / "changed").as_uri(), quietly)
    copy(str(data), str(data.parent / "directory"), quietly)
    address = (data.parent / "changed").as_uri()
    with penstock.open(address, min_free_bytes=0):
        for command in CHANGES[:4]:
            code, output = run(*command.split(), "--dir", address)
            assert code == 3, output
            assert "is in use" in output
        assert run("consume", "orders", "--dir", address)[0] == 0
    for command in CHANGES:
        code, output = run(*command.split(), "--dir", address)
        assert code == 0, output
        assert run(*command.split(), "--dir", data.parent / "directory")[0] == 0
    for command in ("topic show orders", "group list", "schedule list", "consume orders", "dlq list orders"):
        expected = run(*command.split(), "--dir", data.parent / "directory")[1]
        assert said(run(*command.split(), "--dir", address)[1]) == said(expected)


def test_a_place_where_nothing_is_is_told(tmp_path: Path) -> None:
    code, output = run("topic", "list", "--dir", (tmp_path / "nothing").as_uri())
    assert code == 2
    assert "no broker was ever started on it" in output


def test_a_benchmark_makes_no_directory_called_s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, output = run("bench", "publish", "--dir", "s3://bucket/place")
    assert code == 2
    assert "a bucket is measured through a broker" in output
    assert not list(tmp_path.iterdir())


def test_a_bucket_keeps_its_number_of_shards(data: Path) -> None:
    for arguments in (((data.parent / "bucket").as_uri(),), (data, "--to", "s3://bucket/place")):
        code, output = run("reshard", *arguments, "--shards", 4)
        assert code == 2
        assert "keeps the number of shards" in output and "penstock copy" in output
