"""`penstock reshard`: what it says, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app
from penstock.cluster.directory import Step, write_division
from penstock.storage import FileStorage
from tests.patience import until


def run(*arguments: object) -> tuple[int, str]:
    """The exit code of the command and everything it wrote."""
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with penstock.open(tmp_path / "data", shards=1, min_free_bytes=0) as broker:
        for number in range(6):
            broker.publish_many(f"topic-{number}", ["one", "two", "three"])
        broker.settle()
        broker.publish("topic-0", "four")
        broker.create_group("topic-0", "group")
        broker.schedule("daily", "0 5 * * *", "topic-1", "v")
    return tmp_path / "data"


def test_it_tells_what_it_compared_and_where_the_original_is(data: Path) -> None:
    code, output = run("reshard", data, "--shards", 4)
    assert code == 0
    assert output.splitlines() == [
        "compared with the original, and the same: 6 topics, 6 partitions, 19 messages, 1 group, 1 schedule",
        f"{data} has 4 shards",
        f"the original is in {data / 'before-reshard'}: remove it when you no longer need it",
    ]
    assert json.loads((data / "penstock.json").read_text())["shards"] == 4
    assert run("check", data)[0] == run("check", data / "before-reshard")[0] == 0


def test_the_number_that_it_has_is_nothing_to_do(data: Path) -> None:
    assert run("reshard", data, "--shards", 1) == (0, f"{data} has one shard already: nothing was done\n")


def test_the_next_one_waits_until_the_original_of_before_is_gone(data: Path) -> None:
    assert run("reshard", data, "--shards", 2)[0] == 0
    code, output = run("reshard", data, "--shards", 3)
    assert code == 2
    assert "before-reshard is there" in output and "was not changed" in output


def test_an_interrupted_swap_is_finished_also_when_another_number_is_asked_for(data: Path) -> None:
    assert run("reshard", data, "--shards", 2)[0] == 0
    (data / "resharding").mkdir()
    (data / "shards").rename(data / "resharding/shards")  # as it was when half of it was moved
    write_division(FileStorage(data), 2, Step.MOVING_IN)
    code, output = run("check", data)
    assert code == 2
    assert "`penstock reshard --shards 2` was interrupted" in output
    code, output = run("reshard", data, "--shards", 5)
    assert code == 1
    assert f"{data} has 2 shards" in output
    assert run("reshard", data, "--shards", 2)[0] == 0
    with penstock.open(data, min_free_bytes=0) as broker:
        assert [message.value for message in broker.read("topic-0")] == [b"one", b"two", b"three", b"four"]


def test_a_copy_elsewhere(data: Path, tmp_path: Path) -> None:
    code, output = run("reshard", data, "--shards", 3, "--to", tmp_path / "new")
    assert code == 0
    assert f"{tmp_path / 'new'} has 3 shards" in output and "the original is in" not in output
    code, output = run("reshard", data, "--shards", 3, "--to", tmp_path / "new")
    assert code == 2
    assert "is not empty: give a directory that is new" in output


def test_a_directory_in_use_is_refused(data: Path) -> None:
    with penstock.open(data, min_free_bytes=0):
        code, output = run("reshard", data, "--shards", 2)
    assert code == 3
    assert "is in use by another broker" in output and "close that broker first" in output


def test_what_is_no_data_directory_is_refused(tmp_path: Path) -> None:
    for path, problem in ((tmp_path, "is not a Penstock directory"), (tmp_path / "none", "does not exist")):
        code, output = run("reshard", path, "--shards", 2)
        assert code == 2
        assert problem in output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("shards", ["0", "1025", "many"])
def test_a_number_that_is_none_is_wrong_usage(shards: str, data: Path) -> None:
    assert run("reshard", data, "--shards", shards)[0] == 2


def test_damage_is_told_with_its_place(data: Path) -> None:
    segment = next(data.glob("topics/topic-3/messages/0/*.parquet"))
    segment.write_bytes(bytes(len(segment.read_bytes())))
    code, output = run("reshard", data, "--shards", 2)
    assert code == 1
    assert segment.name in output and f"{data} is as it was" in output and f"penstock check {data}" in output
    assert not (data / "resharding").exists()


def test_ctrl_c_leaves_the_directory_as_it_was(data: Path) -> None:
    """The real command, which waits for a journal that is a pipe that nobody writes to."""
    journal = next(data.glob("journal/*.journal"))
    whole = journal.read_bytes()
    journal.unlink()
    os.mkfifo(journal)
    before = sorted(path.name for path in data.iterdir())
    command = [str(Path(sys.executable).with_name("penstock")), "reshard", str(data), "--shards", "3"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    until((data / "resharding/penstock.json").exists, "the beginning of a copy")
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    assert (process.returncode, said) == (130, f"interrupted: {data} is as it was\n")
    assert sorted(path.name for path in data.iterdir()) == before
    journal.unlink()
    journal.write_bytes(whole)
    assert run("reshard", data, "--shards", 3)[0] == 0


def test_help_teaches_with_examples_and_the_exit_codes() -> None:
    output = run("reshard", "--help")[1]
    assert "penstock reshard ./data --shards 8" in output and "Exit codes" in output
