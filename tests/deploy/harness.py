"""What the files in deploy/ say, and whether a server would take it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from penstock.server.config import load_config
from penstock.server.settings.options import ServerConfig

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def tool(name: str, *arguments: object, code: int = 0) -> str:
    """What a tool says that the tests are installed with, or that the machine may have."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not here")
    done = subprocess.run([found, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def config_of(environment: Mapping[str, str]) -> ServerConfig:
    """The configuration of a server that is started with these variables; raises where one of them means nothing."""
    loaded = load_config(None, environment, {})
    assert loaded.notices == []
    return loaded.config
