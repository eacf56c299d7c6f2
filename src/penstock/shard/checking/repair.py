"""The repair: damaged files are copied to quarantine, and the rest becomes usable."""

from __future__ import annotations

import contextlib
import itertools
import posixpath
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec

from penstock.journal.layout import file_name
from penstock.log.checkpoint import Checkpoint, forget_segment
from penstock.shard.checking.journal import Files, examine, journal_files
from penstock.shard.checking.report import CheckReport, RepairReport
from penstock.shard.checking.segments import listed_segments
from penstock.shard.checkpoint_files import COPIES, read_checkpoint, write_checkpoint
from penstock.storage import Storage, put_file, read_file


def repair_directory(storage: Storage, report: CheckReport, now: datetime) -> RepairReport:
    """Repair the problems of a report; what cannot be repaired is left as it is."""
    if report.checkpoint is None or not any(problem.repairable for problem in report.problems):
        return RepairReport()
    return _Repair(storage, report, now).run()


class _Repair:
    """One repair: copies first, then the journal, then the checkpoint, and only then removes."""

    def __init__(self, storage: Storage, report: CheckReport, now: datetime) -> None:
        self._storage, self._found = storage, report
        self._todo = {problem.file for problem in report.problems if problem.repairable}
        moment, taken = now.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ"), storage.list("quarantine")
        names = itertools.chain([moment], (f"{moment}-{number}" for number in itertools.count(2)))
        self._folder = "quarantine/" + next(name for name in names if name not in taken)
        self._report = RepairReport(self._folder)

    def run(self) -> RepairReport:
        """Repair everything that can be."""
        storage, report = self._storage, self._report
        checkpoint = read_checkpoint(storage)
        assert checkpoint is not None
        put_file(storage, f"{self._folder}/report.json", [msgspec.json.encode(self._found)])
        files = journal_files(storage, checkpoint)
        for name, sequence in ((file_name(sequence), sequence) for sequence in files.needed):
            if name in self._todo:
                with self._attempt(name):
                    self._set_aside(storage, name, name)
                    put_file(storage, name, [examine(storage, checkpoint, files, sequence).data])
        for name in COPIES:
            if name in self._todo:
                with self._attempt(name):
                    self._set_aside(storage, name, name)
        gone = [*self._strays(files), *self._segments(checkpoint)]
        if files.missing:
            checkpoint.journal_files = files.needed
            checkpoint.next_sequence = max([checkpoint.next_sequence, *(sequence + 1 for sequence in files.needed)])
            report.done += [file_name(first) for first, _ in files.missing]
        checkpoint.number += 1
        write_checkpoint(storage, checkpoint)
        for place, name in gone:
            place.remove(name)
            place.sync_directory(posixpath.dirname(name))
        losses = [run for problem in self._found.problems if problem.file in report.done for run in problem.affected]
        report.losses = list(dict.fromkeys(losses))
        return report

    def _strays(self, files: Files) -> Iterator[tuple[Storage, str]]:
        for name in map(file_name, files.stray):
            with self._attempt(name):
                self._set_aside(self._storage, name, name)
                yield self._storage, name

    def _segments(self, checkpoint: Checkpoint) -> Iterator[tuple[Storage, str]]:
        """Remove damaged segments from the checkpoint; the files to remove after it is written."""
        for listed in [listed for listed in listed_segments(checkpoint) if listed.shown in self._todo]:
            with self._attempt(listed.shown):
                place = self._storage.elsewhere(listed.archive) if listed.archive else self._storage
                found = self._set_aside(place, listed.name, f"archive/{listed.name}" if listed.archive else listed.name)
                forget_segment(listed.log, listed.info)
                if found:
                    yield place, listed.name

    @contextlib.contextmanager
    def _attempt(self, file: str) -> Iterator[None]:
        """Note an error of the disk, and go on with the next file."""
        try:
            yield
        except OSError as error:
            self._report.failed.append(f"{file}: {error}")
        else:
            self._report.done.append(file)

    def _set_aside(self, source: Storage, name: str, kept_as: str) -> bool:
        """Copy a file to quarantine; whether it existed."""
        try:
            data = read_file(source, name)
        except FileNotFoundError:
            return False
        put_file(self._storage, f"{self._folder}/{kept_as}", [data])
        return True
