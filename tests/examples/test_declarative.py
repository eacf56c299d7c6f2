"""The example for Spark Declarative Pipelines runs as it is, with `spark-pipelines`, and its results are right."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

import penstock
from penstock.spark.sessions import prepare_environment
from tests.server.harness import Running
from tests.spark.class_data import java_options

EXAMPLE = Path(__file__).parents[2] / "examples" / "declarative"
MISSING = [name for name in ("pyspark.pipelines", "grpc", "grpc_status") if importlib.util.find_spec(name) is None]


@pytest.mark.skipif(bool(MISSING), reason=f"Spark Declarative Pipelines need {', '.join(MISSING)}")
def test_a_declared_pipeline_reads_a_topic_into_tables_and_writes_a_topic_once(tmp_path: Path) -> None:
    with Running(tmp_path / "data") as server:
        orders = [(f"item {n % 5}", 90 * n) for n in range(50)]
        values = [json.dumps({"item": item, "cents": cents}) for item, cents in orders]
        messages = [penstock.Message(value, key=f"customer {n % 3}") for n, value in enumerate(values)]
        server.broker.publish_many("orders", messages)
        _run(tmp_path, server.address)
        large = [json.loads(message.value) for message in server.broker.read("large-orders")]
        assert server.broker.group("orders", "declarative-orders").lag == 0
    expected = sorted((f"orders/0/{n}", item, cents) for n, (item, cents) in enumerate(orders))
    assert sorted(tuple(found.values()) for found in large) == [row for row in expected if row[2] >= 1000]
    tables = tmp_path / "made" / "tables"
    rows = duckdb.execute(f"SELECT message_id, item, cents FROM '{tables}/orders/*.parquet'").fetchall()
    assert sorted(rows) == expected
    spent = duckdb.execute(f"SELECT customer, orders, cents FROM '{tables}/spent/*.parquet' ORDER BY 1").fetchall()
    own = [[cents for _, cents in orders[n::3]] for n in range(3)]
    assert spent == [(f"customer {n}", len(cents), sum(cents)) for n, cents in enumerate(own)]


def _run(directory: Path, address: str) -> None:
    """Run a copy of the example that uses this server and leaves what it makes in this directory."""
    copy = shutil.copytree(EXAMPLE, directory / "declarative")
    spec, defaults = copy / "spark-pipeline.yml", copy / "conf" / "spark-defaults.conf"
    for file in (spec, defaults):
        here = file.read_text().replace("127.0.0.1:9000", address)
        file.write_text(here.replace("/tmp/penstock-declarative", str(directory / "made")))
    prepare_environment()
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_CONF_DIR": str(defaults.parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_TESTING": "1",  # has Spark Connect take a free port
        "JAVA_TOOL_OPTIONS": java_options(),
    }
    command = [str(Path(sys.executable).with_name("spark-pipelines")), "run"]
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
