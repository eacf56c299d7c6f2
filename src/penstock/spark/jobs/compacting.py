"""Merge small files of a lake, or keep the latest message of each key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

from penstock.model.errors import InvalidArgument, TopicNotFound
from penstock.spark.errors import JobFailed
from penstock.spark.frames import PATTERN, read_segments
from penstock.spark.jobs.failing import told_clearly
from penstock.spark.jobs.outcome import SILENCE, Outcome, Progress
from penstock.spark.lake.compacting import KEPT_FILE, Group, compact_group, groups_of
from penstock.spark.lake.layout import NEW, LakeFile, limits
from penstock.spark.lake.log import LakeState, LakeWriter, lake_topics
from penstock.spark.lake.origin import known_lake, whole_state
from penstock.spark.lake.writing import LogPlace, read_back
from penstock.spark.paths import AnyPath, local_path
from penstock.spark.spreading import spread

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEEP = ("all", "latest")
COLUMNS = ("topic", "table", ">partition", ">files", ">to files", ">rows", ">to rows", ">bytes", ">to bytes")


def compact(
    spark: SparkSession,
    lake: str,
    topics: Sequence[str] | None = None,
    *,
    keep: str = "all",
    dry_run: bool = False,
    progress: Progress = SILENCE,
) -> Outcome:
    """Write small adjacent files of a lake again as larger ones; with `keep="latest"`, without the older of a key.

    Offsets stay. Messages without a key stay. The old files go when the new ones were read back from the disk and the
    commit that names them is durable.
    """
    if keep not in KEEP:
        raise InvalidArgument(f"keep: {keep!r} is none of {', '.join(KEEP)}")
    with told_clearly():
        if keep == "latest":
            local_path(lake, "keeping the latest message of each key")
        return _Compacting(spark, known_lake(lake), keep, progress).run(topics, dry_run)


class _Compacting:
    def __init__(self, spark: SparkSession, root: AnyPath, keep: str, progress: Progress) -> None:
        self._spark, self._root, self._keep, self._progress = spark, root, keep, progress
        self._limits = limits()
        self._rows: list[tuple[Any, ...]] = []

    def run(self, topics: Sequence[str] | None, dry_run: bool) -> Outcome:
        known = lake_topics(self._root)
        chosen = known if topics is None else list(dict.fromkeys(topics))
        missing = [name for name in chosen if name not in known]
        if missing:
            raise TopicNotFound(f"there is no topic {', '.join(map(repr, missing))} in the lake {self._root}")
        for topic in chosen:
            if dry_run:
                self._foresee(topic)
            else:
                self._compact(topic)
        totals = {name: sum(row[place] or 0 for row in self._rows) for place, name in enumerate(COLUMNS) if place > 2}
        summary: dict[str, Any] = {
            "lake": str(self._root),
            "keep": self._keep,
            "topics": len(chosen),
            "files": totals[">files"],
            "to_files": totals[">to files"],
            "rows_left_out": totals[">rows"] - totals[">to rows"],
            "bytes": totals[">bytes"],
        }
        if not dry_run:
            summary["to_bytes"] = totals[">to bytes"]
        return Outcome("compact", summary, COLUMNS, self._rows, dry_run=dry_run)

    def _foresee(self, topic: str) -> None:
        state = whole_state(self._root, topic)
        latest = self._latest(state)
        counts = None if latest is None else self._counts(state, latest)
        for (table, partition), groups in self._groups(state, counts, None).items():
            before = [file for group in groups for file in group.files]
            self._tell(topic, table, partition, before, len(groups), sum(group.rows for group in groups))

    def _compact(self, topic: str) -> None:
        with LakeWriter(self._root, topic) as writer:
            writer.tidy()
            before, old = writer.state, writer.state.logs()
            kept_in = str(before.topic_root / NEW / "kept")
            counts = self._write_kept(before, kept_in)
            groups = [group for some in self._groups(before, counts, kept_in).values() for group in some]
            changing = [group for group in groups if group.changes]
            if changing:
                self._replace(writer, changing)
            for (table, partition), files in writer.state.logs().items():
                now = (len(files), sum(file.rows for file in files), sum(file.size_bytes for file in files))
                self._tell(topic, table, partition, old[table, partition], *now)

    def _replace(self, writer: LakeWriter, groups: list[Group]) -> None:
        """Write what becomes of the groups, read it back, and commit it."""
        topic = writer.state.topic
        self._progress.step(f"writing {topic}")
        written = spread(self._spark, groups, partial(compact_group, self._limits))
        for group, files in zip(groups, written, strict=True):
            places = (files[0].base, files[-1].end) if files else None
            expected = (group.files[0].base, group.files[-1].end)
            if places != expected or sum(file.rows for file in files) != group.rows:
                raise JobFailed(f"{topic}/{group.log.partition}: {expected} became {places}; nothing was changed")
        self._progress.step(f"reading back {topic}", sum(group.rows for group in groups))
        pairs = [(group.log, file) for group, files in zip(groups, written, strict=True) for file in files]
        for rows in spread(self._spark, pairs, read_back):
            self._progress.advance(rows)
        writer.commit(
            "merge" if self._keep == "all" else "latest",
            [file for _, file in pairs],
            [file for group in groups for file in group.files],
            partitions=writer.state.partitions,
        )

    def _groups(
        self, state: LakeState, counts: Mapping[str, int] | None, kept_in: str | None
    ) -> dict[tuple[str, int], list[Group]]:
        found = {}
        for (table, partition), files in state.logs().items():
            log = LogPlace(str(self._root), state.topic, table, partition)
            of_messages = table == "messages"
            found[table, partition] = groups_of(
                log, files, counts if of_messages else None, self._limits, kept_in if of_messages else None
            )
        return found

    # The latest of each key.

    def _messages(self, state: LakeState) -> DataFrame | None:
        """Offset and key of every message, with the file that it is in."""
        places = [state.topic_root / file.name for file in state.files.values() if file.table == "messages"]
        if not places:
            return None
        if unfit := set(str(self._root)) & PATTERN:
            raise InvalidArgument(f"{self._root}: Spark takes {' '.join(sorted(unfit))} for more than parts of a name")
        rows = read_segments(self._spark, "offset BIGINT, key BINARY, partition INT", places)
        return rows.select("partition", "offset", "key", f.col("_metadata.file_name").alias(KEPT_FILE))

    def _latest(self, state: LakeState) -> DataFrame | None:
        """The last offset of each key of each partition, with the file that it is in; None if all stay."""
        messages = self._messages(state) if self._keep == "latest" else None
        if messages is None:
            return None
        last = f.max(f.struct("offset", KEPT_FILE)).alias("last")
        return messages.where("key IS NOT NULL").groupBy("partition", "key").agg(last).select("last.*")

    def _write_kept(self, state: LakeState, kept_in: str) -> dict[str, int] | None:
        """Put the offsets that stay where tasks find them, and count them by file."""
        latest = self._latest(state)
        if latest is None:
            return None
        self._progress.step(f"finding the latest of {state.topic}")
        where = f"file://{kept_in}"
        latest.repartition(KEPT_FILE).write.partitionBy(KEPT_FILE).mode("overwrite").parquet(where)
        if not any(Path(kept_in).glob(f"{KEPT_FILE}=*")):
            return self._counts(state, latest)
        kept = self._spark.read.schema(f"offset BIGINT, {KEPT_FILE} STRING").parquet(where)
        return self._counts(state, kept)

    def _counts(self, state: LakeState, latest: DataFrame) -> dict[str, int]:
        """How many messages of each file stay."""
        messages = self._messages(state)
        assert messages is not None
        unkeyed = messages.where("key IS NULL").select("offset", KEPT_FILE)
        found = latest.select("offset", KEPT_FILE).unionAll(unkeyed).groupBy(KEPT_FILE).count().collect()
        by_name = {Path(name).name: name for name, file in state.files.items() if file.table == "messages"}
        return {by_name[row[0]]: row[1] for row in found}

    def _tell(
        self,
        topic: str,
        table: str,
        partition: int,
        before: Sequence[LakeFile],
        files: int,
        rows: int,
        size_bytes: int | None = None,
    ) -> None:
        old_rows, old_bytes = sum(file.rows for file in before), sum(file.size_bytes for file in before)
        self._rows.append((topic, table, partition, len(before), files, old_rows, rows, old_bytes, size_bytes))
