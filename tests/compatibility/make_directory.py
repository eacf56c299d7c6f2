"""Makes the directory that later versions must be able to open, and notes what this version tells of it.

    python -m tests.compatibility.make_directory tests/compatibility/v0_1_0

writes `v0_1_0.tar.xz` and `v0_1_0.json.xz`. It uses the public API, and so runs with an earlier version too: put the
`src` of that version first in PYTHONPATH. The archive holds four directories, each with `data` and `archive` beside it:

    closed     the broker was closed
    killed     as a kill leaves it: a staged publish, retention and a deletion in the middle, and a torn write
    repaired   `closed` with damage in its journal, after `penstock check --repair`
    served     `closed` after a server on it was killed

`closed` is made in four sessions: a server, which gathers single messages of clients into blocks; a first round of
everything, which is settled; small journal files, out of which blocks are carried on; a second round, which stays in
the journal.
"""

from __future__ import annotations

import contextlib
import json
import lzma
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import penstock
from penstock import Broker, Message
from penstock.testing import VirtualClock
from tests.compatibility import lives
from tests.compatibility.description import clock_at, describe, describe_snapshot, go_on, open_at, plain, repeat
from tests.compatibility.stopping import StoppableStorage, journal_files, until

DIRECTORIES = ("closed", "killed", "repaired", "served")
_HOUR_US = 3_600_000_000
_OPTIONS: dict[str, Any] = {"min_free_bytes": 0, "max_unwritten_bytes": "64KiB"}  # staged in steps of half of that
_SMALL_FILES: dict[str, Any] = {"journal_file_bytes": 4096, "segment_min_bytes": 2048, "journal_files_max": 1}
_EXPIRING = ("archived", "removed", "holes")
_STAGING, _RETAINING, _DELETING = "staging", "retaining", "deleting"
_ROUND = (
    lives.configure_topics,
    lives.publish_all_kinds,
    lives.consume,
    lives.form_groups,
    lives.delay,
    lives.schedule,
    lives.stage,
)


def make(home: Path) -> int:
    """Make the directories in `home`; the time, in µs, at which the clock stood in the end."""
    data = home / "closed" / "data"
    _serve(data, signal.SIGTERM)
    clock = clock_at((time.time_ns() // 1000 // _HOUR_US + 1) * _HOUR_US)
    with penstock.open(data, clock=clock, **_OPTIONS) as broker:
        for step in _ROUND:
            step(broker, clock, 1)
        _retain(broker, clock)
        broker.settle()
        clock.advance(1)
    with penstock.open(data, clock=clock, **_OPTIONS, **_SMALL_FILES) as broker:
        _carry(broker, clock, data)
    storage = StoppableStorage(data)
    with penstock.open(storage=storage, clock=clock, **_OPTIONS) as broker:
        _second_round(broker, storage, clock, home)
    _repair(home)
    _copy(home / "closed", home / "served")
    _serve(home / "served" / "data", signal.SIGKILL)
    return clock.wall_us()


def _serve(data: Path, end: signal.Signals) -> None:
    """Single messages that a client published one by one: blocks of many, with the sequence of each."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "penstock.cli.main", "serve", str(data), "--native-port", str(port)]
    ports = ("--http-port", "off", "--line-port", "off", "--log-format", "json")
    with subprocess.Popen([*command, *ports], stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            for line in server.stderr:
                if "listening" in line:
                    break
            with penstock.connect(f"127.0.0.1:{port}") as client:
                for number in range(6):
                    client.publish("clicks", f"one by one {number}")
                for number in range(20):
                    client.publish_soon("clicks", f"soon {number}", key=f"k{number % 3}")
                client.flush()
        finally:
            server.send_signal(end)
            server.stderr.read()


def _retain(broker: Broker, clock: VirtualClock) -> None:
    """Segments that go to the archive, for ever, or by hand; and some that wait for the second round to go."""
    for topic in _EXPIRING:
        broker.create_topic(topic, retention_age=60, archive="../archive" if topic == "archived" else None)
    broker.create_topic("trimmed", partitions=2)
    broker.publish("deleted-soon", "its segment goes in the second round")
    broker.create_topic("deleted-late")
    broker.publish("holes", "it is kept for as long as it is delayed", delay="20h")
    broker.settle()
    for lot in range(3):
        for topic in (*_EXPIRING, "trimmed", "deleted-late"):
            broker.publish_many(topic, [Message(f"{topic} {lot}.{row}", key=f"{row}") for row in range(5)])
        for topic in ("archived", "removed"):
            with broker.consumer(topic, "slow", name="slow") as consumer:
                consumer.ack(consumer.receive(2))
        broker.settle()
        if lot == 0:
            assert broker.trim("trimmed", {0: 3, 1: 3}) > 0
        if lot < 2:
            clock.advance(120)
            assert broker.retain() > 0
    for topic in _EXPIRING:
        broker.configure_topic(topic, retention_age="1d")  # nobody but the second round lets the rest go
    broker.create_group("holes", "begins-with-a-hole")
    assert broker.replay("archived", "from-the-archive", to_offset=8) == 8
    with broker.consumer("archived", "from-the-archive", name="late") as consumer:
        consumer.ack(consumer.receive(3))


def _carry(broker: Broker, clock: VirtualClock, data: Path) -> None:
    """A little that stays in the journal when the file that it was written to is cleaned."""
    broker.create_topic("tiny", dedupe_window="7d")
    broker.publish_many("tiny", ["carried"], producer="tiny", sequence=1)
    broker.publish("tiny", "carried as well", dedupe_id="tiny once")
    with broker.consumer("tiny", "g", name="c") as consumer:
        consumer.receive(2)[1].ack()
    clock.advance(1)  # by their times one sees what was carried
    first = journal_files(data)[-1]
    for number in range(20):
        broker.publish("bulk", f"{number} " + "x" * 900)
    until(lambda: not first.exists(), "the journal file is cleaned")


def _second_round(broker: Broker, storage: StoppableStorage, clock: VirtualClock, home: Path) -> None:
    """The same again, while a staged publish is in the middle; then what a kill leaves behind."""
    lives.configure_topics(broker, clock, 2)
    broker.delete_topic("deleted-soon")  # with a checkpoint that names its file; all that follows is behind that one
    for stage, rows in (("large", 40), ("waiting", 2), ("unsealed", 2)):
        for number in range(rows):
            broker.stage_many(stage, "staged-2", [f"{stage} {number} {row} " + "s" * 300 for row in range(5)])
        if stage != "unsealed":
            broker.seal_stage(stage)
    second_step = storage.stop(_STAGING, "staging/", lambda: _has_topic(broker, "staged-2"))
    staging = _start(_STAGING, lambda: broker.publish_staged(["large"], producer="large", sequence=9))
    second_step.wait()
    for step in _ROUND[1:]:
        step(broker, clock, 2)
    broker.publish("orders", "damaged body", partition=0)
    broker.publish("orders", "damaged header", partition=0)
    consumer = broker.consumer("orders", "holding", name="holder", visibility_timeout="5h")
    consumer.ack(consumer.receive(10)[3:5])
    for topic in _EXPIRING:
        broker.configure_topic(topic, retention_age=60)
    checkpoint = storage.stop(_RETAINING, "checkpoint-")
    retaining = _start(_RETAINING, broker.retain)
    checkpoint.wait()
    deleting = _start(_DELETING, lambda: broker.delete_topic("deleted-late"))
    until(lambda: not _has_topic(broker, "deleted-late"), "the topic is deleted")
    _copy(home / "closed", home / "killed")
    checkpoint.release()
    retaining.join()
    deleting.join()
    second_step.release()
    staging.join()
    _tear(home)


def _has_topic(broker: Broker, name: str) -> bool:
    return any(info.name == name for info in broker.topics())


def _start(name: str, work: Any) -> threading.Thread:
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("LOCK"))


def _tear(home: Path) -> None:
    """Give the killed directory the first half of what was written next."""
    newer = journal_files(home / "closed" / "data")[-1].read_bytes()
    file = journal_files(home / "killed" / "data")[-1]
    older = file.read_bytes()
    pairs = zip(older, newer, strict=False)
    end = next((place for place, (old, new) in enumerate(pairs) if old != new), len(older))
    later = len(newer.rstrip(b"\0"))
    assert end + 100 < later
    half = newer[end : (end + later) // 2]
    file.write_bytes(older[:end] + half + older[end + len(half) :])


def _repair(home: Path) -> None:
    """Damage the body of one group and the header of another, and have them set aside."""
    _copy(home / "closed", home / "repaired")
    for text, before in ((b"damaged body", 0), (b"damaged header", 50)):
        (file,) = [file for file in journal_files(home / "repaired" / "data") if text in file.read_bytes()]
        damaged = bytearray(file.read_bytes())
        damaged[damaged.index(text) - before] ^= 0xFF
        file.write_bytes(damaged)
    command = [sys.executable, "-m", "penstock.cli.main", "check", str(home / "repaired" / "data"), "--repair", "--yes"]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(home / "repaired" / "data" / "quarantine")


def tell(home: Path, now_us: int) -> dict[str, Any]:
    """What this version tells of the directories; they stay as they are."""
    told: dict[str, Any] = {"version": penstock.__version__, "now_us": now_us}
    with tempfile.TemporaryDirectory() as place:
        for name in DIRECTORIES:
            _copy(home / name, Path(place, name))
            data = Path(place, name, "data")
            told[name] = {"snapshot": describe_snapshot(data)}
            with open_at(data, now_us) as broker:
                told[name]["torn"] = broker.recovery.torn_bytes
                told[name]["staged"] = finish(broker)
                told[name]["broker"] = describe(broker)
                told[name]["repeated"] = repeat(broker)
            with open_at(data, now_us) as broker:
                told[name]["gone on"] = go_on(broker)
    return plain(told)  # type: ignore[no-any-return]


def finish(broker: Broker) -> int:
    """Wait for the staged publish that was in the middle; how many messages it published."""
    return broker.publish_staged([], producer="large", sequence=9)


def main(target: str) -> None:
    """Make the archive, and the file of what is told."""
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        now_us = make(home)
        told = tell(home, now_us)
        with tarfile.open(f"{target}.tar.xz", "w:xz", preset=9) as archive:
            for file in sorted(home.rglob("*"), key=lambda file: (file.suffix, file.name, file)):
                if file.is_file() and file.name != "LOCK":
                    archive.add(file, file.relative_to(home), filter=_anonymous)
    text = json.dumps(told, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    Path(f"{target}.json.xz").write_bytes(lzma.compress(text.encode(), preset=9))


def _anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = info.mtime = 0
    info.uname = info.gname = ""
    info.mode = 0o644
    return info


if __name__ == "__main__":
    main(sys.argv[1])
