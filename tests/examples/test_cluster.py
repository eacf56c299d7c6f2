"""`make cluster`, for real: a store, three brokers, one that is killed, and a verdict."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.conftest import ROOT


@pytest.mark.crash
def test_a_cluster_loses_nothing_while_its_brokers_are_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "examples.cluster.run", "--seconds", "12", "--every", "6", "--rate", "100"]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True, text=True
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "nothing that was acknowledged is lost" in said
    assert re.search(r"takeovers: \d", said), said
    (acknowledged, received) = re.findall(r"acknowledged ([\d,]+), received ([\d,]+),", said)[-1]
    assert acknowledged == received
    assert int(acknowledged.replace(",", "")) > 300
    assert list(tmp_path.iterdir()) == [], "a run that is well leaves nothing behind"
