"""A standalone cluster of Spark on this machine: a master, and workers with one core each."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from pathlib import Path
from time import monotonic, sleep
from typing import Self

_PATIENCE_S = 120


class Cluster:
    """Starts it; use it in a `with` block."""

    def __init__(self, directory: Path, workers: int) -> None:
        import pyspark

        self._directory = directory
        self._workers = workers
        self._home = Path(pyspark.__file__).parent
        self._processes: list[subprocess.Popen[bytes]] = []
        self.address = ""

    def __enter__(self) -> Self:
        from penstock.spark.sessions import prepare_environment

        prepare_environment()
        here = ["--host", "127.0.0.1", "--webui-port", "0"]
        try:
            log = self._start("master.Master", "master", *here, "--port", "0")
            self.address = _told(log, r"spark://127\.0\.0\.1:\d+")
            for number in range(self._workers):
                place = str(self._directory / f"worker-{number}")
                one = ["-c", "1", "-m", "2g", "--work-dir", place, self.address]
                _told(self._start("worker.Worker", f"worker-{number}", *here, *one), "Successfully registered")
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self, kind: str, name: str, *arguments: str) -> Path:
        log = self._directory / f"{name}.log"
        command = [str(self._home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *arguments]
        environment = {**os.environ, "SPARK_HOME": str(self._home), "SPARK_LOCAL_IP": "127.0.0.1"}
        with log.open("wb") as file:
            self._processes.append(
                subprocess.Popen(command, env=environment, stdout=file, stderr=file, cwd=self._directory)
            )
        return log

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            process.kill()
            process.wait()


def _told(log: Path, pattern: str) -> str:
    """What a process says of itself, once it does."""
    until_s = monotonic() + _PATIENCE_S
    while (found := re.search(pattern, log.read_text())) is None:
        if monotonic() > until_s:
            raise RuntimeError(f"{log.name} does not say {pattern!r}: {log.read_text()[-2000:]}")
        sleep(0.05)
    return found[0]
