"""The files by which a pipeline that runs is seen and stopped from other processes.

<checkpoints>/<pipeline>/
urgent/, urgent.json           the checkpoint of a sink, and what it was made by
orders.bad/, orders.bad.json   the same of the dead letters of a source
run.lock                       held by the process that runs the pipeline
run.json                       its last report
run.stop                       somebody wants it to stop
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import msgspec
from msgspec.structs import replace

from penstock.model.errors import PenstockError
from penstock.model.pipelines import PipelineReport, PipelineState

AT_WORK = (PipelineState.STARTING, PipelineState.RUNNING, PipelineState.WAITING)
"""The states of a pipeline whose process is there."""


class AlreadyRunning(PenstockError):
    """Another process runs this pipeline."""


class RunFiles:
    """The files of one pipeline."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock: int | None = None

    def take(self) -> None:
        """Hold the pipeline, which one process can at a time."""
        self._directory.mkdir(parents=True, exist_ok=True)
        handle = os.open(self._directory / "run.lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            last = self._read()
            who = f" (process {last.pid} on {last.host}, {last.file})" if last is not None else ""
            raise AlreadyRunning(
                f"{self._directory.name} runs already{who}, with the checkpoints in {self._directory}"
            ) from None
        self._lock = handle
        (self._directory / "run.stop").unlink(missing_ok=True)

    def let_go(self) -> None:
        """Others may run it."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def is_held(self) -> bool:
        """Whether a process runs it."""
        try:
            handle = os.open(self._directory / "run.lock", os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(handle)
        return False

    def tell(self, report: PipelineReport) -> None:
        """Leave the last report for others."""
        draft = self._directory / "run.json.tmp"
        draft.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
        draft.replace(self._directory / "run.json")

    def report(self) -> PipelineReport | None:
        """What is known of the pipeline; None if it never ran."""
        held, last = self.is_held, self._read()
        if last is not None and last.state in AT_WORK and not held:
            gone = f"its process ({last.pid} on {last.host}) is gone without a word"
            return replace(last, state=PipelineState.FAILED, error=gone)
        return last

    def _read(self) -> PipelineReport | None:
        try:
            return msgspec.json.decode((self._directory / "run.json").read_bytes(), type=PipelineReport)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def ask_to_stop(self) -> None:
        """Have the process that runs it stop it."""
        (self._directory / "run.stop").touch()

    @property
    def is_asked_to_stop(self) -> bool:
        """Whether somebody wants it to stop."""
        return (self._directory / "run.stop").exists()
