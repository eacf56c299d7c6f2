"""A replay as a directory of files, which is there when it is complete."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, BinaryType, MapType, StructType

from penstock.model.errors import InvalidArgument
from penstock.spark.files.whole import remove_unfinished, sync, write_whole
from penstock.spark.jobs.outcome import Outcome, Progress
from penstock.spark.jobs.parts import Part, rounds
from penstock.spark.paths import local_path

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructField

    from penstock.spark.jobs.past import Past

FORMATS: dict[str, tuple[str, dict[str, str]]] = {
    "parquet": ("parquet", {}),
    "jsonl": ("json", {"timeZone": "UTC", "ignoreNullFields": "false"}),
    "csv": ("csv", {"timeZone": "UTC", "header": "true", "escape": '"'}),
}
"""The formats of files: what Spark calls each, and its options."""
_ABOUT = "_replay.json"
_FILE_ROWS = 1 << 20
_AT_ONCE = 4
"""Files that are written at the same time, where there are cores for them."""


class Files:
    """The directory of a replay, which is filled under another name.

    It says itself what it is: run again, a replay that is complete writes nothing, and one that was interrupted goes on
    with the files that are missing, for the window that it began with.
    """

    def __init__(self, directory: str, file_format: str, identity: str) -> None:
        self._final = local_path(directory, "a replay to files").absolute()
        self._format = file_format
        self._identity = identity
        short = identity.rpartition("-")[2][:12]
        self._unfinished = self._final.with_name(f".{self._final.name}.{short}.unfinished")

    def finished(self) -> Outcome | None:
        """The outcome in the directory, if the same replay wrote it; any other content is an error."""
        if not self._final.exists():
            return None
        about = self._about(self._final)
        if about is None or about["identity"] != self._identity:
            raise InvalidArgument(f"{self._final} is there already, and is not of this replay: give another directory")
        return _outcome(about["outcome"])

    def write(
        self,
        spark: SparkSession,
        past: Past,
        windows: Sequence[Part],
        rows: Callable[[DataFrame], DataFrame],
        outcome: Outcome,
        progress: Progress,
    ) -> Outcome:
        """Write what is missing, and give the directory its name; the outcome, which may be that of the first run."""
        self._unfinished.mkdir(parents=True, exist_ok=True)
        remove_unfinished(self._unfinished)
        about = self._about(self._unfinished)
        if about is None:
            about = {"identity": self._identity, "windows": [[w.partition, w.start, w.end] for w in windows]}
            about["outcome"] = outcome.as_dict()
            write_whole(self._unfinished / _ABOUT, json.dumps(about, indent=1).encode())
        begun = [Part(*window) for window in about["windows"]]
        count = -(-max((window.count for window in begun), default=0) // _FILE_ROWS)
        parts = [part for some in rounds(begun, count) for part in some]
        progress.step(f"writing {self._final.name}", sum(part.count for part in parts))

        def one(part: Part) -> None:
            target = self._unfinished / f"{part.partition}-{part.start:020}.{self._format}"
            if not target.exists():
                self._write(rows(past.read(spark, [part])), target)
            progress.advance(part.count)

        with ThreadPoolExecutor(min(_AT_ONCE, spark.sparkContext.defaultParallelism)) as pool:
            for done in [pool.submit(one, part) for part in parts]:
                try:
                    done.result()
                except BaseException:
                    pool.shutdown(wait=False, cancel_futures=True)
                    raise
        self._unfinished.rename(self._final)
        sync(self._final.parent)
        return _outcome(about["outcome"])

    def _write(self, rows: DataFrame, target: Path) -> None:
        """One file, in the order of the rows; it has its name when it is on disk."""
        scratch = target.with_name(f".{target.name}.writing")
        shutil.rmtree(scratch, ignore_errors=True)
        shaped = rows if self._format == "parquet" else rows.select(*map(self._as_text, rows.schema))
        kind, options = FORMATS[self._format]
        shaped.coalesce(1).write.format(kind).options(**options).save(scratch.as_uri())
        for file in scratch.glob("part-*"):
            sync(file)
            file.rename(target)
        shutil.rmtree(scratch)
        sync(target.parent)

    def _as_text(self, field: StructField) -> Column:
        """A column as a text file has it: bytes that are UTF-8 as they are, and in CSV what is nested as JSON."""
        column = f.col(f"`{field.name}`")
        if isinstance(field.dataType, BinaryType):
            return f.validate_utf8(column.cast("string")).alias(field.name)
        if self._format == "csv" and isinstance(field.dataType, MapType | ArrayType | StructType):
            return f.to_json(column).alias(field.name)
        return column

    def _about(self, directory: Path) -> dict[str, Any] | None:
        try:
            about: dict[str, Any] = json.loads((directory / _ABOUT).read_text())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except ValueError as error:
            raise InvalidArgument(f"{directory / _ABOUT} is damaged ({error}): remove {directory}") from error
        return about


def _outcome(told: dict[str, Any]) -> Outcome:
    """The outcome that `Outcome.as_dict` wrote down."""
    columns = ("partition", ">from", ">to", ">messages", ">chosen")
    names = [name.removeprefix(">") for name in columns]
    summary = {name: value for name, value in told.items() if name not in ("job", "dry_run", "whole", "rows", "notes")}
    return Outcome(told["job"], summary, columns, [tuple(row[name] for name in names) for row in told["rows"]])
