"""The object store that tests and demonstrations run on: run as a program, stopped, and run again."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.storage.buckets import open_objects
from penstock.testing.seaweed import BUCKET
from tests.server.harness import free_port


def run(directory: Path, port: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "penstock.testing.seaweed", str(directory), "--port", str(port)]
    others = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=others)


def test_what_a_store_answered_is_there_when_it_is_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    for number in range(2):
        with run(tmp_path / "store", port) as process:
            try:
                assert process.stdout is not None
                said = [process.stdout.readline() for _ in range(4)]
                for name, value in re.findall(r"export (\w+)=(\S+)", "".join(said)):
                    monkeypatch.setenv(name, value)
                store = open_objects(f"s3://{BUCKET}/here")
                assert store.list("") == [f"{earlier}" for earlier in range(number)]
                store.put(f"{number}", b"kept")
            finally:
                process.send_signal(signal.SIGTERM)
        assert process.returncode == 0
