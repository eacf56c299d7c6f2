"""`penstock copy`: what it says, and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app
from penstock.storage import FileStorage
from tests.patience import until


def run(*arguments: object) -> tuple[int, str]:
    """The exit code of the command and everything it wrote."""
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with penstock.open(tmp_path / "data", shards=2, min_free_bytes=0) as broker:
        for number in range(4):
            broker.publish_many(f"topic-{number}", ["one", "two", "three"])
        broker.settle()
        for number in range(4):
            broker.publish(f"topic-{number}", "four")
        broker.create_group("topic-0", "group")
    return tmp_path / "data"


def test_it_tells_what_is_in_the_copy(data: Path, tmp_path: Path) -> None:
    bucket = (tmp_path / "bucket").as_uri()
    for source, target in ((data, tmp_path / "copy"), (data, bucket), (bucket, tmp_path / "back")):
        code, output = run("copy", source, target)
        assert code == 0, output
        said, complete = output.splitlines()
        assert said.startswith("copied and read back: 4 topics, 4 partitions, 16 messages, 1 group, ")
        assert complete == f"{target} has 2 shards, and is complete"
    with penstock.open(tmp_path / "back", min_free_bytes=0) as broker:
        assert [message.value for message in broker.read("topic-3")] == [b"one", b"two", b"three", b"four"]
    assert run("check", tmp_path / "back")[0] == run("check", tmp_path / "copy")[0] == 0


def test_a_directory_in_use_is_copied(data: Path, tmp_path: Path) -> None:
    with penstock.open(data, min_free_bytes=0) as broker:
        broker.publish("topic-0", "five")
        code, output = run("copy", data, tmp_path / "copy")
    assert code == 0
    assert "17 messages" in output


def test_what_cannot_be_copied_is_told(data: Path, tmp_path: Path) -> None:
    for arguments, problem in (
        ((tmp_path / "none", tmp_path / "copy"), "does not exist"),
        ((tmp_path, tmp_path / "copy"), "is not a Penstock directory"),
        (((tmp_path / "bucket").as_uri(), tmp_path / "copy"), "no broker was ever started on it"),
        ((data, data), "is not apart from"),
        ((data, data / "backup"), "is not apart from"),
        ((data, "s3:///nowhere"), "is no address of a bucket"),
    ):
        code, output = run("copy", *arguments)
        assert code == 2, output
        assert problem in output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy/mine").touch()
    code, output = run("copy", data, tmp_path / "copy")
    assert code == 2
    assert "is not empty: give a place that is new" in output


def test_a_target_in_use_is_exit_3(data: Path, tmp_path: Path) -> None:
    target = FileStorage(tmp_path / "copy")
    target.lock()
    code, output = run("copy", data, tmp_path / "copy")
    target.close()
    assert code == 3
    assert "another copy may be running" in output


def test_damage_is_told_and_the_copy_goes_on_when_it_is_mended(data: Path, tmp_path: Path) -> None:
    segment = next(data.glob("shards/*/topics/topic-3/messages/0/*.parquet"))
    whole = segment.read_bytes()
    segment.write_bytes(whole[:10] + bytes([whole[10] ^ 1]) + whole[11:])
    code, output = run("copy", data, tmp_path / "copy")
    assert code == 1
    assert segment.name in output and f"penstock check {data}" in output
    code, output = run("check", tmp_path / "copy")
    assert code == 2
    assert f"a copy of '{data}' that is not complete" in output and "run it again to finish it" in output
    segment.write_bytes(whole)
    code, output = run("copy", data, tmp_path / "copy")
    assert code == 0
    assert "of it were there from an earlier run" in output
    assert run("check", tmp_path / "copy")[0] == 0


def test_ctrl_c_leaves_what_is_copied(data: Path, tmp_path: Path) -> None:
    """The real command, which waits for a journal that is a pipe that nobody writes to."""
    journal = sorted(data.glob("shards/1/journal/*.journal"))[-1]
    kept = journal.read_bytes()
    journal.unlink()
    os.mkfifo(journal)
    command = [str(Path(sys.executable).with_name("penstock")), "copy", str(data), str(tmp_path / "copy")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    until((tmp_path / "copy/shards/0/checkpoint-a").exists, "the first shard of the copy")
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert said == f"interrupted: {tmp_path / 'copy'} is not complete; run this again, and it goes on\n"
    journal.unlink()
    journal.write_bytes(kept)
    assert run("copy", data, tmp_path / "copy")[0] == 0
