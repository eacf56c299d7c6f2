"""A job of `benchmarks.jobs` in a process of its own, to be measured from outside or killed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

_ROOT = Path(__file__).resolve().parents[1]


class Child:
    """Starts a job; use it in a `with` block, at the end of which it is killed if it still runs."""

    def __init__(self, job: str, **arguments: object) -> None:
        self._job = job
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.jobs", job, json.dumps(arguments, default=str)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=_ROOT,
            text=True,
        )

    def answer(self) -> dict[str, Any]:
        """The next line that the job sends."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the job {self._job!r} ended with {self._process.wait()} before it answered")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> dict[str, Any]:
        """Let the job close its broker and end; what it says of that."""
        assert self._process.stdin is not None
        self._process.stdin.write("close\n")
        self._process.stdin.flush()
        answer = self.answer()
        if self._process.wait() != 0:
            raise RuntimeError(f"the job {self._job!r} ended with {self._process.returncode}")
        return answer

    def kill(self) -> None:
        """End it at once, as `kill -9` does."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
