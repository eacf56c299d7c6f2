"""`load`: files to a topic, durable, exactly once, and resumable.

The files are cut into ranges, and ranges are grouped into parts, by nothing but what is in them. Tasks stage the
ranges of a part, and the broker publishes them together, once for a producer and the number of the part. The producer
is named after what is loaded into what, so the same words find the same work, and the broker knows how far it is:
there is no state anywhere else.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.model.errors import InvalidArgument, PenstockError
from penstock.model.names import check_topic_name
from penstock.spark.errors import JobFailed
from penstock.spark.files.bad_rows import BadRows
from penstock.spark.files.cutting import Range, cut_files, parts_of
from penstock.spark.files.roles import Roles, check_columns
from penstock.spark.files.sources import Source, find_sources, read_head
from penstock.spark.files.staging import ATTEMPTS, Done, Target, stage_name, stage_range
from penstock.spark.jobs.failing import told_clearly
from penstock.spark.jobs.loaded import Known, Memory, words_of
from penstock.spark.jobs.outcome import SILENCE, Outcome, Progress
from penstock.spark.jobs.place import Place
from penstock.spark.options import WriteOptions
from penstock.spark.paths import local_path
from penstock.spark.spreading import filled, spread
from penstock.spark.writing import Staged, publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.client.sync import Client

BAD_ROWS = "bad-rows"
"""Where bad rows are set aside, unless it is said otherwise."""
_TASKS_PER_CORE = 4


def load(
    spark: SparkSession,
    place: Place,
    files: Iterable[str | os.PathLike[str]],
    topic: str,
    *,
    format: str | None = None,  # noqa: A002 - it is called so everywhere
    key: str | None = None,
    value: str | None = None,
    priority: str | None = None,
    deliver_at: str | None = None,
    time: str | None = None,
    headers: Sequence[str] = (),
    exported: bool = False,
    delimiter: str = ",",
    header: bool = True,
    bad_rows: str | os.PathLike[str] = BAD_ROWS,
    again: bool = False,
    dry_run: bool = False,
    progress: Progress = SILENCE,
) -> Outcome:
    """Publish the rows of CSV, JSON lines and Parquet files to a topic, each once, however often it is run.

    Files are paths, patterns or directories. `key`, `value`, `priority`, `deliver_at` and `time` name columns,
    `headers` any number of them; without `value`, a message is the whole row as a JSON object. `exported` takes the
    columns as `export` writes them. Rows that cannot be messages are set aside below the directory `bad_rows`. What
    was loaded before is loaded once more only with `again`.
    """
    check_topic_name(topic)
    if len(delimiter.encode()) != 1 or delimiter in '"\r\n':
        raise InvalidArgument(f"the delimiter is one character of ASCII, and no quote or newline: not {delimiter!r}")
    roles = Roles(key, value, priority, deliver_at, time, tuple(headers), exported)
    given = [files] if isinstance(files, str | os.PathLike) else list(files)
    for name in (*given, bad_rows):
        local_path(name, "a load")
    sources = find_sources(given, format, without=bad_rows)
    heads = [read_head(source, delimiter, header=header) for source in sources]
    check_columns(sources, heads, roles)
    client = place.client("loading")
    with told_clearly():
        progress.step("looking at the files")
        cut = cut_files(spark, sources, heads, delimiter)
        words = words_of(topic, given, format, roles, delimiter, header)
        memory = Memory(client, topic, words, cut.fingerprint, named=all(map(os.path.isfile, given)))
        known = memory.recall(again=again)
        aside = BadRows(Path(bad_rows) / f"{topic}-{words[:8]}")
        target = Target(place.servers or "", place.secrets, topic, roles, delimiter, dry_run)
        job = _Load(spark, client, target, parts_of(cut.ranges), aside, progress)
        progress.step(f"loading into {topic}", cut.rows or None)
        if known.parts and known.parts >= len(job.parts):
            known = replace(known, notes=("all of it was loaded before: nothing was published now",))
        if dry_run:
            messages, bad = job.look()
        else:
            aside.check()
            messages, bad = job.run(memory.begin(known))
    return _outcome(topic, sources, messages, bad, aside, known, dry_run=dry_run)


class _Load:
    """The parts of a load, staged by tasks and published one after the other."""

    def __init__(
        self,
        spark: SparkSession,
        client: Client,
        target: Target,
        parts: list[list[Range]],
        aside: BadRows,
        progress: Progress,
    ) -> None:
        self._spark, self._client, self._target = spark, client, target
        self.parts, self._aside, self._progress = parts, aside, progress
        self._options = WriteOptions(target.servers, target.secrets, target.topic)
        self._run = uuid.uuid4().hex
        self._failed = False  # then nothing more is published: the broker would take the missing part for an old one
        self._open: set[str] = set()  # stages that are not published, by the beginning of their names

    def look(self) -> tuple[int, Counter[str]]:
        """Read and check everything; how many messages it would be, and how many bad rows each file has."""
        messages, bad = 0, Counter[str]()
        for numbers in self._waves(0):
            for _, dones in self._stage(numbers):
                messages += sum(done.messages for done in dones)
                bad.update(row.file for done in dones for row in done.bad)
        return messages, bad

    def run(self, known: Known) -> tuple[int, Counter[str]]:
        """Load what is left; how many messages there are in all, and how many bad rows each file has."""
        if not known.parts:
            self._aside.clear()
        messages = known.messages
        under_way: list[Future[int]] = []
        with ThreadPoolExecutor(1, "penstock-load") as publishing:
            try:
                for numbers in self._waves(known.parts):
                    staged = self._stage(numbers)
                    self._wait(under_way)  # at most two waves are on the disk of the broker
                    for number, dones in staged:
                        messages += sum(done.messages for done in dones)
                        self._aside.write(number, [row for done in dones for row in done.bad])
                        under_way.append(publishing.submit(self._publish, known, number, messages, dones))
                self._wait(under_way)
            except BaseException:
                for future in under_way:
                    future.cancel()
                publishing.shutdown()
                self._drop()
                raise
        return messages, self._aside.counts(len(self.parts))

    def _waves(self, first: int) -> list[list[int]]:
        """Parts in groups that have all cores at work; what is in a part does not depend on it."""
        tasks = self._spark.sparkContext.defaultParallelism * _TASKS_PER_CORE
        return filled(range(first, len(self.parts)), lambda number: len(self.parts[number]), tasks)

    def _stage(self, numbers: list[int]) -> list[tuple[int, list[Done]]]:
        """Have tasks stage some parts; what became of their ranges."""
        work = [
            (part, f"load-{self._run}-{number}-{place}")
            for number in numbers
            for place, part in enumerate(self.parts[number])
        ]
        self._open.update(base for _, base in work)
        dones = iter(spread(self._spark, work, partial(stage_range, self._target)))
        return [(number, [next(dones) for _ in self.parts[number]]) for number in numbers]

    def _publish(self, known: Known, number: int, messages: int, dones: list[Done]) -> int:
        stages = [Staged(done.stage, done.messages, None) for done in dones]
        if self._failed:
            raise JobFailed("a part before it could not be published")
        try:
            publish(self._options, known.producer, known.sequence(number, messages), stages)
        except BaseException:
            self._failed = True
            raise
        self._open.difference_update(done.stage.rpartition("-")[0] for done in dones)
        return sum(done.messages + len(done.bad) for done in dones)

    def _wait(self, under_way: list[Future[int]]) -> None:
        while under_way:
            self._progress.advance(under_way.pop(0).result())

    def _drop(self) -> None:
        """Have the broker forget what will not be published; what is being published, it keeps."""
        names = [stage_name(base, attempt) for base in sorted(self._open) for attempt in range(ATTEMPTS)]
        with contextlib.suppress(PenstockError):
            self._client.drop_staged(names)


def _outcome(
    topic: str,
    sources: list[Source],
    messages: int,
    bad: Counter[str],
    aside: BadRows,
    known: Known,
    *,
    dry_run: bool,
) -> Outcome:
    count = bad.total()
    summary: dict[str, object] = {
        "topic": topic,
        "files": len(sources),
        "messages": messages,
        "bad_rows": count,
        "bad_rows_in": str(aside.directory) if count else None,
    }
    empty = [f"{source.path} is empty" for source in sources if not source.size_bytes]
    return Outcome(
        "load",
        summary,
        ("file", ">bytes", ">bad rows"),
        [(source.path, source.size_bytes, bad[source.path]) for source in sources],
        notes=(*known.notes, *empty),
        dry_run=dry_run,
        whole=not count,
    )
