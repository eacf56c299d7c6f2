"""Servers that are attacked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.abuse.harness import Target


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    """A server that anybody on this machine may use."""
    with Target(tmp_path / "data") as started:
        yield started


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Target]:
    """A server that asks for tokens."""
    with Target(tmp_path / "data", tokens=True) as started:
        yield started
