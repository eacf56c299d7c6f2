"""Redrives go step by step, the same in a program and through a client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.client import Client
from tests.client.faces import FACES, face_of
from tests.server.harness import Running

RATE = 200  # so that a step has twenty


@pytest.fixture(params=FACES)
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    with face_of(request.param, tmp_path) as face:
        yield face


def die(broker: Any, count: int) -> None:
    broker.publish_many("t", [f"{number}" for number in range(count)])
    with broker.consumer("t", "g") as consumer:
        consumer.kill(consumer.receive(count, wait=5), "no milk")


def test_progress_is_told_after_each_step(broker: Any) -> None:
    die(broker, 50)
    steps: list[int] = []
    report = broker.redrive("t", rate=RATE, progress=steps.append)
    assert steps == [20, 20, 10]
    assert (report.selected, report.redriven, report.copied, report.skipped) == (50, 50, 0, 0)
    assert broker.dead_letters("t") == []


def test_a_dry_run_moves_nothing_at_no_rate(broker: Any) -> None:
    die(broker, 10)
    report = broker.redrive("t", rate=0.001, dry_run=True)
    assert (report.selected, report.redriven, report.dry_run) == (10, 0, True)
    assert len(broker.dead_letters("t")) == 10


def test_Q8_a_redrive_that_is_broken_off_goes_on_with_the_rest(broker: Any) -> None:
    die(broker, 50)

    def break_off(_: int) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        broker.redrive("t", rate=RATE, progress=break_off)
    assert len(broker.dead_letters("t")) == 30
    assert broker.redrive("t").redriven == 30
    with broker.consumer("t", "g") as consumer:
        again = consumer.receive(100, wait=5)
    assert sorted(message.offset for message in again) == list(range(50))


def test_what_others_purge_meanwhile_is_counted_as_skipped(tmp_path: Path) -> None:
    with Running(tmp_path) as server, Client(server.address) as client:
        die(client, 50)
        left = [str(letter.id) for letter in client.dead_letters("t")][20:]
        report = client.redrive("t", rate=RATE, progress=lambda _: client.purge_chosen("t", left))
        assert (report.selected, report.redriven, report.skipped) == (50, 20, 30)
