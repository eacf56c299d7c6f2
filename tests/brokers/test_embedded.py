"""A program that has a bucket to itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from penstock.model.errors import DirectoryLocked
from penstock.testing.seaweed import BUCKET, Seaweed
from tests.brokers.harness import Brokers, until

_HOLD = """
import sys, penstock
broker = penstock.open(sys.argv[1])
print(broker.publish("orders", "from the other one"), flush=True)
sys.stdin.read()
"""


def test_a_program_opens_a_bucket_as_it_opens_a_directory(
    store: Seaweed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    place = f"s3://{BUCKET}/{tmp_path.name}"
    with penstock.open(place, commit_interval=0.0) as broker:
        broker.publish_many("orders", ["one", "two"])
        with broker.consumer("orders", "kitchen") as consumer:
            first = consumer.receive(1)
            consumer.ack(first)
        assert broker.status().directory == place
    with penstock.open(place) as broker, broker.consumer("orders", "kitchen") as consumer:
        assert [message.value for message in consumer.receive(10)] == [b"two"]


def test_only_one_program_has_a_bucket_until_it_closes_it_or_ends(tmp_path: Path) -> None:
    place = f"file://{tmp_path}/bucket"
    other = subprocess.Popen(
        [sys.executable, "-c", _HOLD, place], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(os.environ)
    )
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == b"orders/0/0\n"
        with pytest.raises(DirectoryLocked, match=f"process {other.pid}"):
            penstock.open(place)
    finally:
        other.kill()
        other.communicate()
    with penstock.open(place) as broker:  # which waits until the other one was silent for long enough
        assert [message.value for message in broker.read("orders")] == [b"from the other one"]


def test_a_server_and_a_program_do_not_share_a_bucket(brokers: Brokers) -> None:
    server = brokers.start()
    server.wait_until_ready()
    with pytest.raises(DirectoryLocked, match="is in use: the broker at "):
        penstock.open(brokers.place)
    server.stop()
    with penstock.open(brokers.place):
        refused = brokers.start()
        assert until(refused.process.poll, "it does not end") == 3
    brokers.start().wait_until_ready()
