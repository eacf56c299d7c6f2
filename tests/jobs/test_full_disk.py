"""Jobs on a disk that is really full: a small file system of its own, in a process that alone sees it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from tests.spark.conftest import QUICK

COUNT = 4000
SCRIPT = """
import json, os, sys
from pathlib import Path
import penstock.spark
from penstock.model.errors import DiskFull
from penstock.spark.jobs import Place, archive, audit, compact, export, replay, trace_report

data, small, quick = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
spark = penstock.spark.session(master="local[2]", settings=quick)
spark.sparkContext.setLogLevel("OFF")
place, lake = Place(path=data), str(small / "lake")

def files():
    return sorted(str(path.relative_to(small)) for path in small.rglob("*") if path.is_file() and path.name != "lock")

def on_a_full_disk(job, *given, **options):
    before = files()
    free = os.statvfs(small)
    (small / "ballast").write_bytes(bytes(free.f_bavail * free.f_frsize - 8192))
    try:
        told = f"did not fail: {job(spark, *given, **options)}"
    except DiskFull as error:
        told = str(error)
    (small / "ballast").unlink()
    left = [name for name in files() if name not in before]
    outcome = job(spark, *given, **options)
    print(json.dumps([job.__name__, told, left, outcome.summary]))

on_a_full_disk(archive, place, ["orders"], lake)
on_a_full_disk(export, place, "orders", str(small / "orders"))
on_a_full_disk(replay, place, "orders", to_files=str(small / "past"))
on_a_full_disk(trace_report, place, ["orders"], str(small / "report"))
on_a_full_disk(compact, lake, ["orders"], keep="latest")
print(json.dumps(["audit", audit(spark, place, ["orders"], lake=lake).whole, files()]))
"""


@pytest.fixture
def in_a_small_place(tmp_path: Path) -> tuple[list[str], Path]:
    """What a command begins with, and the directory that has 3 MB when it runs."""
    small = tmp_path / "small"
    small.mkdir()
    alone = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--map-root-user"]
    mounted = f'mount -t tmpfs -o size=3m tmpfs "{small}" && exec "$@"'
    return [*alone, "sh", "-c", mounted, "sh"], small


def test_every_job_says_that_a_disk_is_full_leaves_nothing_half_done_and_does_all_when_there_is_space(
    in_a_small_place: tuple[list[str], Path], tmp_path: Path
) -> None:
    with penstock.open(tmp_path / "data", min_free_bytes=0) as broker:
        random = os.urandom(COUNT * 30).hex()  # which no compression makes small
        values = [random[place : place + 60] for place in range(0, len(random), 60)]
        broker.publish_many("orders", [penstock.Message(value, key=value[:2]) for value in values])
        with broker.consumer("orders", "kitchen") as consumer:
            while messages := consumer.receive(100):
                consumer.ack(messages)
        broker.settle()
    alone, small = in_a_small_place
    done = subprocess.run(
        [*alone, sys.executable, "-c", SCRIPT, str(tmp_path / "data"), str(small), json.dumps(QUICK)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    *jobs, (_, whole, there) = map(json.loads, done.stdout.splitlines())
    assert [name for name, *_ in jobs] == ["archive", "export", "replay", "trace_report", "compact"]
    assert [name for name, told, *_ in jobs if "no space left" not in told] == []
    left = [(name, Path(file).name) for name, _, files, _ in jobs for file in files]
    assert left == [("export", "_export.json"), ("replay", "_replay.json")]  # which say what was begun
    assert [summary.get("messages") for *_, summary in jobs] == [COUNT] * 4 + [None]
    assert jobs[-1][-1]["rows_left_out"] == COUNT - len({value[:2] for value in values})
    assert whole and {"orders/orders-0-00000000000000000000.jsonl", "report/report.html"} <= set(there), there
