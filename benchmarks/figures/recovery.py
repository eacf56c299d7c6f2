"""Opening after `kill -9` with five million messages in the journal, in a fresh process."""

from __future__ import annotations

from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.children import Child
from benchmarks.disk import bare_read, forget_cached
from benchmarks.load import BATCH
from benchmarks.rows import Row, Target, compare
from benchmarks.verify import check_count

TASKS = 64
_READ = "reading the files"
_Pair = tuple[float, float]


def run(bench: Bench) -> list[Row]:
    batches, singles = bench.size(5000, 50), bench.size(500_000, 2000)
    rounds = bench.size(3, 1)
    with bench.scratch() as path:
        _fill_and_kill("fill_batches", path=path, batches=batches)
        warm = [_reopen(path, batches * BATCH) for _ in range(rounds)]
        cold = [_reopen(path, batches * BATCH, cold=True) for _ in range(rounds)]
    with bench.scratch() as path:
        _fill_and_kill("fill_singles", path=path, messages=singles, tasks=TASKS)
        single = [_reopen(path, singles) for _ in range(rounds)]
    return [
        compare(f"open after kill -9: {batches * BATCH:,} in batches", "s", warm, _READ, Target("measured", "<", 3.0)),
        compare("the same, not in the page cache", "s", cold, _READ),
        compare(f"open after kill -9: {singles:,} one by one, {TASKS} tasks", "s", single, _READ),
    ]


def _fill_and_kill(job: str, **arguments: object) -> None:
    with Child(job, **arguments) as child:
        child.answer()
        child.kill()


def _reopen(path: Path, messages: int, *, cold: bool = False) -> _Pair:
    """Open in a new process, which is then killed too, beside a plain read of the same files."""
    if cold:
        forget_cached(path / "journal")
    with Child("reopen", path=path) as child:
        answer = child.answer()
        child.kill()
    check_count("messages after recovery", answer["messages"], messages)
    if cold:
        forget_cached(path / "journal")
    return answer["seconds"], bare_read(path / "journal")
