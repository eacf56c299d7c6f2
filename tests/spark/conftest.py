"""One Spark session for all tests that need one (local, small, quick to start), and servers that it can read from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import penstock.spark
from penstock.client import Client
from tests.spark.harness import Served

QUICK = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.catalogImplementation": "in-memory",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two local cores."""
    settings = {**QUICK, "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
    session = penstock.spark.session("penstock-tests", master="local[2]", settings=settings)
    session.sparkContext.setLogLevel("OFF")  # what fails is told by exceptions
    yield session
    session.stop()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    """A server on `tmp_path / "data"`, with a connected client."""
    with Served(tmp_path / "data") as running, Client(running.address) as client:
        running.client = client
        yield running
