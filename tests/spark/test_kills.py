"""Drivers, workers and the broker are killed while Spark writes: every message is there once."""

from __future__ import annotations

import random
import signal
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from penstock.client import Client
from tests.server.harness import Child, until
from tests.spark.streams import copy, drive, finish, serving

DRIVER = Path(__file__).with_name("driver.py")


@pytest.mark.crash
def test_S3_S5_drivers_and_workers_that_are_killed_write_everything_once(spark: SparkSession, tmp_path: Path) -> None:
    with serving(tmp_path / "data") as server:
        server.client.create_topic("source", partitions=2)
        server.fill("source", 100, 50)
        with ThreadPoolExecutor() as threads:
            drivers = {
                when: threads.submit(drive, DRIVER, server.address, str(tmp_path / when), when)
                for when in ("before", "after")
            }
        for when, written in (("before", 40), ("after", 80)):
            ended = drivers[when].result()
            assert ended.returncode == -signal.SIGKILL, ended.stderr[-4000:]
            assert "the stream begins" in ended.stdout
            assert len(server.values(f"target-{when}")) == written
        assert Counter(server.values("numbers")) == Counter(b"%d" % number for number in range(1000))

        server.fill("source", 5)
        for when in drivers:
            checkpoint = tmp_path / when
            finish(copy(spark, server.address, "source", f"target-{when}", checkpoint, maxMessagesPerTrigger=40))
            assert Counter(server.values(f"target-{when}")) == Counter(server.values("source"))
        assert server.lag("source", "spark-source") == 0


@pytest.mark.crash
def test_S3_S5_a_broker_that_is_killed_while_a_stream_runs_loses_and_doubles_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    chance = random.Random(5)
    with Child(tmp_path / "data") as child, Client(child.address) as client:
        client.create_topic("source", partitions=2)
        client.create_topic("target", partitions=3)
        for start in range(0, 1500, 500):
            client.publish_many("source", [f"{n}" for n in range(start, start + 500)])
        ending = threading.Event()

        def kill() -> None:
            for _ in range(3):
                if ending.wait(chance.uniform(0.3, 2.5)):
                    return
                child.kill()
                child.start()

        killer = threading.Thread(target=kill)
        failures = 0
        killer.start()
        try:
            while True:
                query = copy(
                    spark, child.address, "source", "target", tmp_path / "checkpoint", maxMessagesPerTrigger=100
                )
                try:
                    finish(query)
                    break
                except StreamingQueryException as error:
                    told = str(error)
                    assert any(
                        kind in told for kind in ("ConnectionLost", "RequestTimeout", "StageNotFound", "BrokerClosed")
                    ), told
                    failures += 1
                    assert failures < 20
        finally:
            ending.set()
            killer.join()
        found = Counter(message.value for message in client.read("target"))
        assert found == Counter(b"%d" % n for n in range(1500))
        until(lambda: client.group("source", "spark-source").lag == 0, "the end of the lag")
