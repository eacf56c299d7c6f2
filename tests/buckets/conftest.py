"""A real object store for the tests here, started when the first of them needs it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.testing.seaweed import Seaweed


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seaweed]:
    """SeaweedFS, which nobody stops."""
    with Seaweed(tmp_path_factory.mktemp("seaweed")) as started:
        yield started


@pytest.fixture
def bucket(store: Seaweed, monkeypatch: pytest.MonkeyPatch) -> Seaweed:
    """The same, and this process may use it."""
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    return store
