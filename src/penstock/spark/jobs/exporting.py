"""`export`: a topic to files of CSV, JSON lines or Parquet, in order, all or nothing for each file.

The window is resolved once, and kept beside the files with what is known of each of them (`_export.json`): whoever runs
the same words again gets the same files, and only those are written that are not there, or not as they were.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.model.errors import InvalidArgument
from penstock.model.names import check_topic_name
from penstock.model.units import Time
from penstock.spark.files.encoding import DEFAULT, Form
from penstock.spark.files.exported import Chunk, Written, is_right, write_chunk
from penstock.spark.files.whole import remove_unfinished, write_whole
from penstock.spark.filters import Wanted
from penstock.spark.frames import no_messages
from penstock.spark.jobs.failing import told_clearly
from penstock.spark.jobs.outcome import SILENCE, Outcome, Progress
from penstock.spark.jobs.parts import Part, check_repeatable
from penstock.spark.jobs.past import Past, window_of
from penstock.spark.jobs.place import Place
from penstock.spark.options import read_options
from penstock.spark.paths import AnyPath, path_of
from penstock.spark.planning import Plan
from penstock.spark.spreading import spread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MANIFEST = "_export.json"
FILE_BYTES = 128 << 20
FILE_ROWS_MAX = 1_000_000
_TASKS_PER_CORE = 2


class _Manifest(msgspec.Struct):
    """What was asked for, and how much of it is written."""

    words: dict[str, object]
    """What was asked for."""
    window: dict[str, tuple[int, int]]
    """What that was, when it was asked for first: offsets by partition."""
    rows: int
    """The most messages in one file."""
    files: dict[str, Written] = {}
    """The files that were written."""


def export(
    spark: SparkSession,
    place: Place,
    topic: str,
    out: str | os.PathLike[str],
    *,
    format: str = "jsonl",  # noqa: A002 - it is called so everywhere
    from_time: Time | None = None,
    to_time: Time | None = None,
    from_offset: int | None = None,
    to_offset: int | None = None,
    where: str | None = None,
    columns: Sequence[str] = DEFAULT,
    value: str = "text",
    dry_run: bool = False,
    progress: Progress = SILENCE,
) -> Outcome:
    """Write the messages of a topic to files in a directory; archived ones too. The same words give the same files.

    `where` is an SQL condition over the columns of messages. Values stand in CSV and JSON lines as `text`, as `base64`
    or, in JSON lines, as `json`.
    """
    check_topic_name(topic)
    form = Form(format, tuple(columns), value)
    window = window_of(from_time, to_time, from_offset, to_offset)
    words: dict[str, object] = {
        "from": str(place),
        "topic": topic,
        "format": format,
        "columns": list(columns),
        "value": value,
        "where": where,
        "window": [window.from_time_us, window.to_time_us, window.from_offset, window.to_offset],
    }
    with told_clearly():
        if where is not None:
            check_repeatable(no_messages(spark).where(where), "the condition")
        directory = path_of(out)
        manifest = _known(directory, words)
        past = Past(place, topic)
        if manifest is None:
            parts = past.windows(window)
            rows = max(1, min(past.rows_in(FILE_BYTES), FILE_ROWS_MAX))
            manifest = _Manifest(words, {str(part.partition): (part.start, part.end) for part in parts}, rows)
        job = _Export(spark, place, topic, form, where, directory, manifest, progress)
        if dry_run:
            return job.outcome(job.look(past), dry_run=True)
        job.run(past)
        return job.outcome(manifest.files)


class _Export:
    """The files of an export."""

    def __init__(
        self,
        spark: SparkSession,
        place: Place,
        topic: str,
        form: Form,
        where: str | None,
        directory: AnyPath,
        manifest: _Manifest,
        progress: Progress,
    ) -> None:
        self._spark, self._place, self._topic, self._form, self._where = spark, place, topic, form, where
        self._directory, self._manifest, self._progress = directory, manifest, progress
        self._files = dict(self._cut())

    def _cut(self) -> Iterator[tuple[str, Part]]:
        """Every file that there may be, with what belongs in it."""
        rows = self._manifest.rows
        for number, (start, end) in self._manifest.window.items():
            for first in range(start, end, rows):
                name = f"{self._topic}-{number}-{first:020}.{self._form.format}"
                yield name, Part(int(number), first, min(first + rows, end))

    def look(self, past: Past) -> dict[str, Written]:
        """How many messages each file would have."""
        chosen = self._chosen(past, self._files)
        return {
            name: Written(part.count if chosen is None else len(chosen[name])) for name, part in self._files.items()
        }

    def run(self, past: Past) -> None:
        """Write the files that are not there, or not right."""
        self._progress.step("looking at what is there")
        written = self._manifest.files
        known = [(str(self._directory / name), written[name]) for name in self._files if name in written]
        right = dict(zip([path for path, _ in known], spread(self._spark, known, is_right), strict=True))
        missing = [name for name in self._files if not right.get(str(self._directory / name), False)]
        self._progress.step(f"exporting {self._topic}", sum(self._files[name].count for name in missing))
        self._directory.mkdir(parents=True, exist_ok=True)
        remove_unfinished(self._directory)
        self._keep()
        at_once = self._spark.sparkContext.defaultParallelism * _TASKS_PER_CORE
        for start in range(0, len(missing), at_once):
            names = missing[start : start + at_once]
            self._write(past, {name: self._files[name] for name in names})
            self._progress.advance(sum(self._files[name].count for name in names))

    def _write(self, past: Past, files: Mapping[str, Part]) -> None:
        options = {**self._place.options, "subscribe": self._topic, "includeDeleted": "true"}
        checked = read_options(options, streaming=False)
        plan = Plan(self._place.origin(), checked)
        chosen = self._chosen(past, files)
        chunks = []
        for name, part in files.items():
            start, end = ({self._topic: {part.partition: place}} for place in (part.start, part.end))
            (span,) = plan.spans(start, end, Wanted())
            chunks.append(Chunk(str(self._directory / name), span, None if chosen is None else chosen[name]))
        done = spread(self._spark, chunks, partial(write_chunk, checked, self._form))
        self._manifest.files.update(zip(files, done, strict=True))
        self._keep()

    def _chosen(self, past: Past, files: Mapping[str, Part]) -> dict[str, pa.Array] | None:
        """The offsets for each file that the condition chooses, in order."""
        if self._where is None:
            return None
        parts = []
        for number in sorted({part.partition for part in files.values()}):
            mine = [part for part in files.values() if part.partition == number]
            parts.append(Part(number, min(part.start for part in mine), max(part.end for part in mine)))
        table = past.scan(self._spark, parts).where(self._where).select("partition", "offset").toArrow()
        table = table.sort_by([("partition", "ascending"), ("offset", "ascending")])
        found: dict[str, pa.Array] = {}
        for name, part in files.items():
            offsets = table.filter(pc.equal(table["partition"], part.partition))["offset"]
            inside = pc.and_(pc.greater_equal(offsets, part.start), pc.less(offsets, part.end))
            found[name] = offsets.filter(inside).combine_chunks()
        return found

    def _keep(self) -> None:
        self._manifest.files = {
            name: self._manifest.files[name] for name in self._files if name in self._manifest.files
        }
        write_whole(self._directory / MANIFEST, msgspec.json.format(msgspec.json.encode(self._manifest), indent=1))

    def outcome(self, files: Mapping[str, Written], *, dry_run: bool = False) -> Outcome:
        """What was written, or would be."""
        there = [(name, files[name]) for name in self._files if files[name].messages]
        summary: dict[str, object] = {
            "topic": self._topic,
            "out": str(self._directory),
            "files": len(there),
            "messages": sum(written.messages for _, written in there),
        }
        columns = ["file", ">partition", ">first offset", ">messages", ">bytes"]
        rows = [(name, self._files[name].partition, self._files[name].start, w.messages, w.bytes) for name, w in there]
        if dry_run:
            return Outcome("export", summary, columns[:-1], [row[:-1] for row in rows], dry_run=True)
        summary["bytes"] = sum(written.bytes for _, written in there)
        return Outcome("export", summary, columns, rows)


def _known(directory: AnyPath, words: dict[str, object]) -> _Manifest | None:
    """The manifest of an export in its directory, which may hold nothing else; None if there is none yet."""
    path = directory / MANIFEST
    if directory.exists() and not directory.is_dir():
        raise InvalidArgument(f"{directory} is no directory")
    if not path.exists():
        if directory.exists() and any(not name.name.startswith(".") for name in directory.iterdir()):
            raise InvalidArgument(f"{directory} is not empty, and holds no export: give a directory of its own")
        return None
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=_Manifest)
    except msgspec.MsgspecError as error:
        raise InvalidArgument(f"{path} is damaged ({error}): remove the directory, and export again") from error
    if manifest.words != words:
        other = [name for name, word in words.items() if manifest.words.get(name) != word]
        told = ", ".join(f"{name} was {manifest.words.get(name)!r}" for name in other)
        raise InvalidArgument(f"{directory} holds another export ({told}): give a directory of its own")
    return manifest
