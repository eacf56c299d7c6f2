"""`penstock publish` and `penstock produce`."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import penstock
from penstock.cli.interrupts import Interrupts
from penstock.cli.sending import AT_ONCE, AT_ONCE_BYTES, read_lines
from tests.cli.harness import Command
from tests.server.harness import until


def stored(command: Command, topic: str) -> list[penstock.StoredMessage]:
    with command.open() as broker:
        return list(broker.read(topic))


def values(command: Command, topic: str) -> list[bytes]:
    return [message.value for message in stored(command, topic)]


def test_a_value_is_published_with_everything_and_its_id_is_printed(command: Command) -> None:
    output = command.ok(
        "publish",
        "orders",
        "two coffees",
        "--key",
        "alex",
        "--header",
        "till=7",
        "-H",
        "note=a=b",
        "--priority",
        "high",
    )
    assert output == "orders/0/0\n"
    (message,) = stored(command, "orders")
    assert (message.value, message.key, message.priority) == (b"two coffees", b"alex", 64)
    assert message.headers == {"till": "7", "note": "a=b"}


def test_delay_time_and_expiry_are_kept(command: Command) -> None:
    command.ok("publish", "orders", "later", "--delay", "1h", "--expires-in", "2h")
    command.ok("publish", "orders", "then", "--at", time.time() + 7200, "--priority", "7")
    first, second = stored(command, "orders")
    assert first.deliver_at is not None and first.expires_at is not None
    assert 3599 < (first.deliver_at - first.timestamp).total_seconds() < 3601
    assert second.deliver_at is not None and second.priority == 7
    assert 7190 < (second.deliver_at - second.timestamp).total_seconds() < 7201


def test_a_dedupe_id_is_taken_once(command: Command) -> None:
    for _ in range(2):
        assert command.ok("publish", "orders", "once", "--dedupe-id", "till-7/81") == "orders/0/0\n"
    assert values(command, "orders") == [b"once"]


def test_a_file_is_one_message_byte_for_byte(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "cat.jpg"
    file.write_bytes(bytes(range(256)) + b"\n\n")
    command.ok("publish", "photos", "--file", file)
    command.ok("publish", "photos", "--file", "-", stdin=b"two\nlines\n")
    assert values(command, "photos") == [file.read_bytes(), b"two\nlines\n"]


def test_the_same_message_many_times(command: Command) -> None:
    answer = json.loads(command.ok("publish", "orders", "x", "--count", 12_345, "-k", "k", "-o", "json"))
    assert answer == {
        "topic": "orders",
        "count": 12_345,
        "runs": [{"partition": 0, "first_offset": 0, "count": 12_345}],
    }
    assert command.ok("publish", "orders", "x", "--count", "3") == (
        "orders/0/12345..12347\n3 messages were published\n"
    )
    assert len(values(command, "orders")) == 12_348


def test_each_line_of_standard_input_is_a_message(command: Command) -> None:
    output = command.ok("publish", "orders", "--key", "k", stdin=b"one\n\n\xff\x00\ntwo words")
    assert output == "orders/0/0..3\n4 messages were published\n"
    assert [(message.key, message.value) for message in stored(command, "orders")] == [
        (b"k", b"one"),
        (b"k", b""),
        (b"k", b"\xff\x00"),
        (b"k", b"two words"),
    ]
    assert command.ok("publish", "orders", stdin="") == "0 messages were published\n"


def test_lines_over_several_partitions_are_told_by_partition(command: Command) -> None:
    command.ok("topic", "create", "orders", "--partitions", "3")
    answer = json.loads(command.ok("publish", "orders", "-o", "json", stdin="\n".join(map(str, range(9000)))))
    assert sum(run["count"] for run in answer["runs"]) == answer["count"] == 9000
    assert sorted(values(command, "orders"), key=int) == [str(number).encode() for number in range(9000)]


def test_produce_and_consume_as_the_second_project_has_them(command: Command) -> None:
    assert command.ok("produce", "user-signups", 0, "new user: alex") == "user-signups/0/0\n"
    command.ok("produce", "user-signups", 0, "new user: kim")
    assert command.ok("consume", "user-signups", 0) == (
        "user-signups/0/0 new user: alex\nuser-signups/0/1 new user: kim\n"
    )


def test_produce_takes_the_value_from_standard_input(command: Command) -> None:
    command.ok("produce", "orders", "--key", "order-123", stdin='{"order_id": 123}\n')
    (message,) = stored(command, "orders")
    assert (message.key, message.value) == (b"order-123", b'{"order_id": 123}')


def test_bytes_of_the_command_line_that_are_no_text_are_kept(command: Command) -> None:
    done = command.shell(r"penstock publish orders $'\xff\xfe' --key $'\xe9'")
    assert done.code == 0, done
    (message,) = stored(command, "orders")
    assert (message.value, message.key) == (b"\xff\xfe", b"\xe9")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["orders", "x", "--delay", "3x"], "'3x' is not a duration"),
        (["orders", "x", "--expires-in", "soon"], "'soon' is not a duration"),
        (["orders", "x", "--at", "tomorrow"], "'tomorrow' is not a point in time"),
        (["orders", "x", "--at", "2026-01-01T00:00:00"], "is not a point in time: write ISO 8601 with a zone"),
        (["orders", "x", "--at", "2100-01-01T00:00:00Z", "--delay", "1s"], "--delay and --at exclude each other"),
        (["orders", "x", "--priority", "urgent"], "'urgent' is not a priority"),
        (["orders", "x", "--priority", "256"], "256 is not a priority"),
        (["orders", "x", "--header", "nothing"], "'nothing' is not a header: write NAME=VALUE"),
        (["orders", "x", "--file", "/dev/null"], "there is a value and a --file"),
        (["orders", "--file", "/does/not/exist"], "/does/not/exist"),
        (["orders", "x", "--count", "0"], "--count"),
        (["orders", "x", "--count", "2", "--dedupe-id", "a"], "--count with --dedupe-id"),
        (["orders", "--count", "2"], "--count repeats one message"),
        (["orders", "--dedupe-id", "a"], "--dedupe-id names one message"),
        (["a/b", "x"], "'a/b' is not a topic name"),
        (["orders", "x", "y"], "unexpected extra argument"),
        (["orders", "x", "--prioritee", "1"], "did you mean --priority?"),
        ([], "Missing argument 'TOPIC'"),
    ],
)
def test_what_cannot_be_published_is_refused_before_anything_happens(
    local: Command, arguments: list[str], said: str
) -> None:
    assert said.lower() in local.refused("publish", *arguments, code=2, stdin="a line").lower()
    with local.open() as broker:
        assert broker.topics() == []


def test_a_partition_that_is_not_there_is_refused(command: Command) -> None:
    command.ok("publish", "orders", "x")
    assert "partition" in command.refused("publish", "orders", "y", "--partition", 3, code=2)
    assert "there is a partition and no message" in command.refused("produce", "orders", 3, code=2)


def test_too_large_a_line_is_refused_and_those_before_it_are_published(command: Command) -> None:
    large = "x" * (17 << 20)
    line = command.refused("publish", "orders", stdin=f"one\ntwo\n{large}\nfour\n")
    assert "the limit is 16 MiB" in line and "2 messages were published before" in line
    assert values(command, "orders") == [b"one", b"two"]


def test_lines_are_published_as_they_come_and_ctrl_c_tells_how_many(command: Command) -> None:
    command.ok("topic", "create", "orders")
    with command.start("publish", "orders", stdin=subprocess.PIPE) as child:
        assert child.stdin is not None and child.stderr is not None
        child.stdin.write(b"one\ntwo\nthr")
        child.stdin.flush()
        until(lambda: command.seen(lambda broker: broker.topics()[0].partitions[0].end_offset == 2), "two messages")
        child.send_signal(signal.SIGINT)
        error = child.stderr.read().decode()
        assert child.wait(60) == 130
    assert error == "note: interrupted: 2 messages were published, durably\n"
    assert values(command, "orders") == [b"one", b"two"]


def test_ctrl_c_in_the_middle_of_much_tells_the_truth(command: Command) -> None:
    with command.start("publish", "orders", stdin=subprocess.PIPE) as child, child.stdin as stream:  # type: ignore[union-attr]
        assert child.stderr is not None
        for _ in range(40):
            stream.write(b"a line of a few bytes\n" * 5000)
        child.send_signal(signal.SIGINT)
        error = child.stderr.read().decode()
        assert child.wait(60) == 130
    told = re.fullmatch(r"note: interrupted: ([\d,]+) messages were published, durably\n", error)
    assert told is not None, error
    count = int(told[1].replace(",", ""))
    assert count > 0 and len(values(command, "orders")) == count


def test_much_input_is_never_held_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(io.RawIOBase):
        """Gives a hundred megabytes, a little at a time."""

        left = 100 << 20

        def read(self, size: int = -1) -> bytes:
            data = (b"0123456789" * 6 + b"\n") * 10_000
            self.left -= len(data)
            return data[: size if self.left > 0 else 0]

    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=Endless()))
    batches = total = 0
    for lines in read_lines(Interrupts()):
        assert len(lines) <= AT_ONCE and sum(map(len, lines)) <= 2 * AT_ONCE_BYTES
        batches, total = batches + 1, total + len(lines)
    assert total > 1_000_000 and total / batches > 1000


def test_a_line_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.cli.errors import CommandError

    endless = SimpleNamespace(read=lambda size: b"x" * size)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=endless))
    with pytest.raises(CommandError, match="a line is longer than any message may be"):
        list(read_lines(Interrupts()))


def test_closed_standard_input_is_an_error_of_one_line(command: Command) -> None:
    done = command.shell("penstock publish orders <&-")
    assert (done.code, done.out) == (2, "") and done.err.startswith("error: there is no standard input"), done


def test_long_input_shows_its_progress_on_a_terminal(local: Command) -> None:
    terminal, theirs = pty.openpty()
    with local.start("publish", "orders", stdin=subprocess.PIPE, stderr=theirs) as process:
        os.close(theirs)
        assert process.stdin is not None
        shown, sent = "", 0
        while not re.search(r"publishing [\d,]+ .*[\d,]+/s", shown):
            process.stdin.write(b"line\n" * 1000)
            process.stdin.flush()
            sent += 1000
            if select.select([terminal], [], [], 0.1)[0]:
                shown += os.read(terminal, 65536).decode()
            assert sent < 1_000_000, shown
        out, _ = process.communicate()
        with contextlib.suppress(OSError):
            shown += os.read(terminal, 65536).decode()
        os.close(terminal)
    assert process.returncode == 0 and "Traceback" not in shown, shown
    assert f"{sent:,} messages were published" in out.decode() + shown
