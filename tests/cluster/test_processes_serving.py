"""A server of several processes as it is configured and used: from a file or the environment, by HTTP and lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.client import Client
from penstock.model.placement import shard_of
from tests.server.harness import Child, free_port
from tests.server.http.harness import HttpChild
from tests.server.line.harness import Talk

SHARDS, PROCESSES, OFTEN = 4, 2, 8
TOPICS = [next(f"t-{n}" for n in range(1000) if shard_of(f"t-{n}", SHARDS) == shard) for shard in range(SHARDS)]


def check_division(child: Child, shards: int, processes: int) -> None:
    """It has so many, and every process has some."""
    with child, Client(child.address) as client:
        found = client.cluster()
    assert (len(found.shards), len(found.processes)) == (shards, processes)
    assert all(process.shards for process in found.processes)


@pytest.mark.one_shard("the environment of its servers says how many")
def test_a_file_says_how_many_shards_and_processes_there_are(tmp_path: Path) -> None:
    config = tmp_path / "server.yaml"
    config.write_text("server:\n  shards: 3\n  processes: 2\n")
    check_division(Child(tmp_path / "data", "--config", str(config)), 3, 2)


def test_the_environment_says_how_many_shards_and_processes_there_are(tmp_path: Path) -> None:
    check_division(Child(tmp_path / "data", shards=5, processes=3), 5, 3)


def test_http_lines_and_metrics_are_answered_whichever_process_is_reached(tmp_path: Path) -> None:
    line_port = free_port()
    with HttpChild(tmp_path / "data", shards=SHARDS, processes=PROCESSES, line_port=line_port) as child:
        for number in range(OFTEN):  # each connection goes to any of them
            for topic in TOPICS:
                published = child.post(f"/v1/topics/{topic}/publish", {"value": f"{number}"})
                assert published["offset"] == 2 * number
                with Talk(line_port) as talk:
                    assert talk.say(f"PRODUCE {topic} 0 line") == "OK"
        assert child.get("/readyz") == {"status": "ok"}
        assert sorted(topic["name"] for topic in child.get("/v1/topics")["topics"]) == sorted(TOPICS)
        page = child.ask("GET", "/metrics").body.decode()
        (published,) = (
            family for family in text_string_to_metric_families(page) if family.name == "penstock_topic_published"
        )
        counts = {sample.labels["topic"]: sample.value for sample in published.samples}
        assert counts == dict.fromkeys(TOPICS, 2 * OFTEN)
        with Talk(line_port) as talk:
            assert talk.say(f"CONSUME {TOPICS[0]} 0") == "0 0"
