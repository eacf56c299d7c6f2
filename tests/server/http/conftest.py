"""Servers of the HTTP tests."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.server.http.harness import HttpRunning

_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpRunning]:
    """A server for all tests of a file."""
    with HttpRunning(tmp_path_factory.mktemp("data")) as running:
        yield running


@pytest.fixture
def topic() -> str:
    """The name of a topic that no other test uses."""
    return f"t{next(_NUMBERS)}"
