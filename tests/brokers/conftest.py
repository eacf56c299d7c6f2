"""A real object store for the tests here, started when the first of them needs it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.testing.seaweed import BUCKET, Seaweed
from tests.brokers.harness import Brokers


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seaweed]:
    """SeaweedFS, which nobody stops."""
    with Seaweed(tmp_path_factory.mktemp("seaweed")) as started:
        yield started


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    """None yet, of a bucket that is a directory."""
    with Brokers(f"file://{tmp_path}/bucket", tmp_path) as found:
        yield found


@pytest.fixture
def brokers_on_store(store: Seaweed, tmp_path: Path) -> Iterator[Brokers]:
    """None yet, of a place in a real bucket."""
    with Brokers(f"s3://{BUCKET}/{tmp_path.name}", tmp_path, store.environment) as found:
        yield found
