"""`penstock check`: what it finds in real directories, what it says, and what a repair leaves behind."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app
from penstock.journal import Scan, scan_journal
from penstock.journal.layout import sequence_of
from penstock.shard.checking import check_directory
from penstock.shard.checkpoint_files import read_checkpoint
from penstock.storage import FileStorage


def run(*arguments: object) -> tuple[int, str]:
    """The exit code of the command and everything it wrote."""
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def open_broker(path: Path) -> penstock.Broker:
    return penstock.open(path, journal_file_bytes="4KiB", journal_files_max=100, min_free_bytes=0)


def contents(path: Path) -> dict[tuple[str, int, int], bytes]:
    """Every message of a directory."""
    with open_broker(path) as broker:
        messages = (message for topic in broker.topics() for message in broker.read(topic.name))
        return {(message.topic, message.partition, message.offset): message.value for message in messages}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory with a segment, and with several journal files behind it."""
    path = tmp_path / "data"
    with open_broker(path) as broker:
        for number in range(20):
            broker.publish("orders", f"settled {number:03}" * 5)
        broker.settle()
        for number in range(20, 120):
            broker.publish("orders", f"value {number:03}" * 5)
    return path


def journals(path: Path) -> list[Path]:
    return sorted(path.glob("journal/*.journal"))


def scan(path: Path, journal: Path) -> Scan:
    checkpoint, sequence = read_checkpoint(FileStorage(path)), sequence_of(journal.name)
    assert checkpoint is not None and sequence is not None
    return scan_journal(journal.read_bytes(), checkpoint.broker, sequence)


def flip(file: Path, position: int) -> None:
    content = bytearray(file.read_bytes())
    content[position] ^= 4
    file.write_bytes(content)


def flip_message(path: Path, value: bytes) -> tuple[Path, int]:
    """Damage the body of a message in the journal; the file and the position of its group."""
    journal = next(journal for journal in journals(path) if value in journal.read_bytes())
    place = journal.read_bytes().index(value)
    group = next(group for group in scan(path, journal).groups if group.position <= place < group.end)
    flip(journal, place)
    return journal, group.position


def files_of(path: Path) -> dict[str, bytes]:
    """Every file but the lock, which says who looked last."""
    files = (file for file in path.rglob("*") if file.is_file() and file.name != "LOCK")
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


def check_finds(path: Path) -> str:
    """What a check says of a damaged directory."""
    code, output = run("check", path)
    assert code == 1, output
    return output


def repair(path: Path, *, losing: bool | None = True) -> str:
    """Repair a directory, and make sure that nothing is wrong with it afterwards."""
    code, output = run("check", path, "--repair", "--yes")
    assert losing is None or code == int(losing), output
    after, told = run("check", path)
    assert after == 0, told
    return output


def test_a_whole_directory_is_reported_as_whole(data: Path) -> None:
    code, output = run("check", data)
    assert code == 0 and output.splitlines()[-1].startswith("whole:"), output
    assert ["messages", "120"] in [line.split() for line in output.splitlines()]


def test_L9_a_flipped_bit_in_the_journal_is_reported_with_file_and_position(data: Path) -> None:
    journal, position = flip_message(data, b"value 050")
    before = files_of(data)
    output = check_finds(data)
    assert files_of(data) == before
    assert f"journal/{journal.name} at byte {position}: " in output
    assert "affected: orders/0 offsets 50..50" in output
    assert output.splitlines()[-1].startswith("damaged: 1 problem;")


@pytest.mark.parametrize("pattern", ["checkpoint-?", "journal/*.journal", "topics/**/*.parquet"])
def test_L9_a_flipped_bit_in_any_file_is_found(data: Path, pattern: str) -> None:
    storage, choice = FileStorage(data), random.Random(pattern)
    for file in data.glob(pattern):
        end = scan(data, file).end if file.suffix == ".journal" else file.stat().st_size
        for position in (0, end - 1, *(choice.randrange(end) for _ in range(40))):
            flip(file, position)
            assert [problem.file for problem in check_directory(storage).problems] == [str(file.relative_to(data))]
            flip(file, position)
    assert check_directory(storage).problems == []


def test_repair_sets_the_damaged_file_aside_and_keeps_every_other_message(data: Path) -> None:
    expected = contents(data)
    journal, _ = flip_message(data, b"value 050")
    damaged = journal.read_bytes()
    assert "lost: orders/0 offsets 50..50" in repair(data)
    (aside,) = data.glob(f"quarantine/*/journal/{journal.name}")
    assert aside.read_bytes() == damaged
    assert (aside.parent.parent / "report.json").exists()
    del expected["orders", 0, 50]
    assert contents(data) == expected


def test_a_repaired_directory_takes_new_messages_and_settles(data: Path) -> None:
    expected = contents(data)
    flip_message(data, b"value 050")
    repair(data)
    with open_broker(data) as broker:
        assert broker.publish("orders", b"new").offset == 120
        broker.settle()
    del expected["orders", 0, 50]
    assert contents(data) == expected | {("orders", 0, 120): b"new"}
    assert run("check", data)[0] == 0


def test_repair_keeps_the_other_blocks_of_a_damaged_group(tmp_path: Path) -> None:
    with open_broker(tmp_path) as broker:
        broker.create_topic("orders", partitions=3)
        broker.publish_many("orders", [penstock.Message(f"part {p}" * 9, partition=p) for p in (0, 1, 2)])
        broker.publish("orders", b"later", partition=1)
    expected = contents(tmp_path)
    flip_message(tmp_path, b"part 1")
    assert "lost: orders/1 offsets 0..0" in repair(tmp_path)
    del expected["orders", 1, 0]
    assert contents(tmp_path) == expected


def test_lost_offsets_are_told_by_their_neighbours_when_a_directory_is_damaged(data: Path) -> None:
    expected = contents(data)
    journal = journals(data)[1]
    first, second = scan(data, journal).groups[5:7]
    flip(journal, first.position)
    flip(journal, second.position + 9)
    lost = range(first.entries[0].base, second.entries[0].base + 1)
    assert f"lost: orders/0 offsets {lost[0]}..{lost[-1]}" in repair(data)
    assert contents(data) == {place: value for place, value in expected.items() if place[2] not in lost}


def test_a_damaged_file_header_is_written_again_and_nothing_is_lost(data: Path) -> None:
    expected = contents(data)
    journal = journals(data)[1]
    flip(journal, 20)
    assert f"{journal.name} at byte 0: the file header" in check_finds(data)
    repair(data, losing=False)
    assert contents(data) == expected


def test_a_cut_journal_file_is_damage_where_more_is_known_to_have_been_there(data: Path) -> None:
    expected = contents(data)
    journal = journals(data)[1]
    group = scan(data, journal).groups[5]
    os.truncate(journal, group.position + 10)
    output = repair(data)
    first, last = group.entries[0].base, scan(data, journals(data)[2]).groups[0].entries[0].base - 1
    assert f"lost: orders/0 offsets {first}..{last}" in output
    assert contents(data) == {place: value for place, value in expected.items() if not first <= place[2] <= last}


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """A directory whose broker was killed: all messages are behind the checkpoint."""
    data, crashed = tmp_path / "data", tmp_path / "crashed"
    with open_broker(data) as broker:
        for number in range(120):
            broker.publish("orders", f"value {number:03}" * 5)
        shutil.copytree(data, crashed)
    return crashed


def test_a_torn_tail_is_a_note_not_a_problem(crashed: Path) -> None:
    journal = journals(crashed)[-1]
    os.truncate(journal, scan(crashed, journal).end - 3)
    code, output = run("check", crashed)
    assert code == 0 and f"note: journal/{journal.name} has " in output and "torn tail" in output
    assert len(contents(crashed)) == 119


def test_check_refuses_a_directory_that_a_broker_has_open(data: Path) -> None:
    with open_broker(data):
        code, output = run("check", data)
    assert (code, output.count("\n")) == (2, 1)
    assert output.startswith(f"error: {data} is in use by another broker (process {os.getpid()})")


@pytest.mark.parametrize("damage", [lambda file: flip(file, 40), Path.unlink])
def test_one_lost_checkpoint_copy_is_written_again_from_the_other(data: Path, damage: Callable[[Path], None]) -> None:
    expected = contents(data)
    for name in ("checkpoint-a", "checkpoint-b"):
        damage(data / name)
        assert f"{name} at byte 0: it " in check_finds(data)
        assert "repaired: nothing is lost" in repair(data, losing=False)
    assert (data / "checkpoint-a").read_bytes() == (data / "checkpoint-b").read_bytes()
    assert contents(data) == expected


@pytest.mark.parametrize("damage", [lambda file: flip(file, 40), Path.unlink])
def test_without_any_checkpoint_the_directory_cannot_be_repaired(data: Path, damage: Callable[[Path], None]) -> None:
    for name in ("checkpoint-a", "checkpoint-b"):
        damage(data / name)
    before = files_of(data)
    assert "without a checkpoint the directory cannot be repaired" in check_finds(data)
    assert "no repair is possible" in run("check", data, "--repair", "--yes")[1]
    assert files_of(data) == before


@pytest.mark.parametrize("damage", [lambda file: flip(file, 100), lambda file: os.truncate(file, 200), Path.unlink])
def test_a_damaged_or_missing_segment_is_taken_out(data: Path, damage: Callable[[Path], None]) -> None:
    expected = contents(data)
    (segment,) = data.glob("topics/orders/messages/0/*.parquet")
    damage(segment)
    assert f"{segment.relative_to(data)} at byte " in check_finds(data)
    was_there = segment.exists()
    assert "lost: orders/0 offsets 0..19" in repair(data)
    assert not segment.exists()
    assert len(list(data.glob(f"quarantine/*/{segment.relative_to(data)}"))) == was_there
    assert contents(data) == {place: value for place, value in expected.items() if place[2] >= 20}


def test_a_missing_journal_file_is_taken_out(data: Path) -> None:
    expected = contents(data)
    journal = journals(data)[1]
    first, *_, last = [group.entries[0].base for group in scan(data, journal).groups]
    journal.unlink()
    assert f"journal/{journal.name} at byte 0: the journal file is missing" in check_finds(data)
    assert f"lost: orders/0 offsets {first}..{last}" in repair(data)
    assert contents(data) == {place: value for place, value in expected.items() if not first <= place[2] <= last}


def test_a_stray_file_far_behind_the_others_is_set_aside(data: Path) -> None:
    expected = contents(data)
    stray = data / "journal" / "9999999999999999.journal"
    stray.write_bytes(b"not a journal")
    assert f"journal/{stray.name} at byte 0: it holds nothing of this broker" in check_finds(data)
    repair(data, losing=False)
    assert not stray.exists()
    assert contents(data) == expected


def test_a_gap_among_journal_files_newer_than_the_checkpoint_is_closed(crashed: Path) -> None:
    journals(crashed)[1].unlink()
    assert "lost: orders/0 offsets " in repair(crashed)
    assert ("orders", 0, 119) in contents(crashed)


def test_a_file_that_cannot_be_read_is_left_for_people_to_look_at(data: Path) -> None:
    journal = journals(data)[1]
    journal.unlink()
    journal.mkdir()
    output = check_finds(data)
    assert f"1. journal/{journal.name} at byte 0: it cannot" in output and "affected: orders/0 offsets " in output
    assert run("check", data, "--repair", "--yes")[0] == 1
    assert journal.is_dir()


@pytest.fixture
def archived(tmp_path: Path) -> tuple[Path, Path]:
    """A directory and its archive, which holds the only segments."""
    data, archive = tmp_path / "data", tmp_path / "archive"
    with open_broker(data) as broker:
        broker.create_topic("orders", archive=str(archive), retention_bytes=0)
        for number in range(20):
            broker.publish("orders", f"value {number}")
        broker.settle()
        broker.retain()
    return data, archive


def test_an_archived_segment_is_checked_and_repaired_too(archived: tuple[Path, Path]) -> None:
    data, archive = archived
    assert run("check", data)[0] == 0
    (segment,) = archive.rglob("*.parquet")
    flip(segment, 100)
    assert f"{segment} at byte " in check_finds(data)
    assert "lost: orders/0 offsets 0..19" in repair(data)
    assert len(list(data.glob("quarantine/*/archive/orders/messages/0/*.parquet"))) == 1
    assert not segment.exists()


def test_a_relative_archive_lies_beside_the_data_wherever_the_check_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_broker(tmp_path / "data") as broker:
        broker.create_topic("orders", archive="../cold", retention_bytes=0)
        broker.publish("orders", "value")
        broker.settle()
        broker.retain()
    (segment,) = (tmp_path / "cold").rglob("*.parquet")
    (tmp_path / "a" / "b").mkdir(parents=True)
    for place in ("data", "a/b", "."):
        monkeypatch.chdir(tmp_path / place)
        assert run("check", os.path.relpath(tmp_path / "data"))[0] == 0
    segment.unlink()
    assert "it is missing" in check_finds(tmp_path / "data")
    (tmp_path / "cold").rename(tmp_path / "elsewhere")
    assert "the archive cannot be reached" in check_finds(tmp_path / "data")


def test_an_archive_that_is_not_mounted_is_never_repaired_away(archived: tuple[Path, Path]) -> None:
    data, archive = archived
    archive.rename(archive.with_name("elsewhere"))
    assert "the archive cannot be reached" in check_finds(data)
    assert run("check", data, "--repair", "--yes")[0] == 1
    assert not archive.exists()
    archive.with_name("elsewhere").rename(archive)
    assert run("check", data)[0] == 0


def test_garbage_in_any_file_becomes_problems_and_is_repaired(data: Path, tmp_path: Path) -> None:
    expected = contents(data)
    names = sorted(name for name in files_of(data) if not name.endswith(".spare"))
    for seed in range(30):
        choice = random.Random(seed)
        broken = tmp_path / f"broken-{seed}"
        shutil.copytree(data, broken)
        for name in choice.sample(names, 3):
            place, rubbish = choice.randrange(4000), choice.randbytes(choice.randrange(1, 3000))
            content = (broken / name).read_bytes()
            (broken / name).write_bytes(content[:place] + rubbish + content[place + len(rubbish) :])
        if "cannot be repaired" not in check_finds(broken):
            repair(broken, losing=None)
            kept = {place: value for place, value in contents(broken).items() if place[0] == "orders"}
            assert kept.items() <= expected.items()


def test_the_report_for_machines_has_everything(data: Path) -> None:
    journal, position = flip_message(data, b"value 050")
    answer = json.loads(run("check", data, "-o", "json")[1])
    assert answer["verdict"] == "damaged"
    assert answer["found"]["messages"] == 119
    (problem,) = answer["found"]["problems"]
    assert (problem["file"], problem["position"]) == (f"journal/{journal.name}", position)
    assert problem["affected"] == ["orders/0 offsets 50..50"]
    answer = json.loads(run("check", data, "-o", "json", "--repair", "--yes")[1])
    assert answer["verdict"] == "repaired with losses"
    assert answer["repair"]["losses"] == ["orders/0 offsets 50..50"]
    assert answer["left"]["problems"] == []
    assert json.loads(run("check", data, "-o", "json")[1])["verdict"] == "whole"


def test_wrong_usage_is_one_line_with_a_hint(data: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    for arguments, message in (
        ((tmp_path / "nowhere",), "nowhere does not exist"),
        ((tmp_path / "file",), "file is not a directory"),
        ((tmp_path / "empty",), "empty is not a Penstock directory"),
        ((data, "--repair"), "--repair changes files and asks first"),
    ):
        code, output = run("check", *arguments)
        assert (code, output.count("\n")) == (2, 1)
        assert message in output and "(hint: " in output
    assert list((tmp_path / "empty").iterdir()) == []
    assert run("check", data, "--colour")[0] == 2


def test_the_real_command_asks_before_a_repair_and_no_means_no(data: Path) -> None:
    flip_message(data, b"value 050")
    before = files_of(data)
    ours, theirs = os.openpty()
    os.write(ours, b"n\n")
    command = [str(Path(sys.executable).with_name("penstock")), "check", str(data), "--repair"]
    with os.fdopen(ours), os.fdopen(theirs) as terminal:
        result = subprocess.run(command, stdin=terminal, capture_output=True, text=True, timeout=60)
    assert result.returncode == 1
    assert "Repair it now?" in result.stdout + result.stderr
    assert files_of(data) == before


def test_importing_the_command_line_loads_no_pyarrow_and_no_numpy() -> None:
    code = "import sys, penstock.cli.main; print([name for name in ('pyarrow', 'numpy') if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout) == (0, "[]\n"), result.stderr


def test_help_teaches_with_an_example_and_the_exit_codes() -> None:
    assert "penstock check ./data" in run("--help")[1]
    output = run("check", "--help")[1]
    assert "penstock check ./data --repair" in output and "Exit codes" in output
    assert run("--version") == (0, f"penstock {penstock.__version__}\n")
