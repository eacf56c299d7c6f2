"""A server on a divided directory: every port answers for all shards as for one broker."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
import penstock.aio
from penstock.client.sync_consumer import ClientDelivery
from penstock.model.placement import shard_of
from tests.server.harness import run
from tests.server.http.harness import HttpRunning
from tests.server.line.harness import Talk

SHARDS = 4
TOPICS = [f"topic-{number:02}" for number in range(16)]
APART = [next(name for name in TOPICS if shard_of(name, SHARDS) == number) for number in range(SHARDS)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[HttpRunning]:
    with HttpRunning(tmp_path / "data", shards=SHARDS, line_port=0) as running:
        yield running


def test_one_client_publishes_to_all_shards_and_consumes_from_them(server: HttpRunning) -> None:
    with penstock.connect(server.address) as client:
        for name in TOPICS:
            client.publish(name, "single")
            client.publish_many(name, ["a", "b", "c"])
        for number in range(400):
            client.publish_soon(TOPICS[number % len(TOPICS)], f"{number}")
        client.flush()
        assert all(len(list(client.read(name))) == 29 for name in TOPICS)
        assert all(shard.catalog.by_name for shard in server.broker.shards)
        seen: Counter[tuple[str, int]] = Counter()
        with client.consumer(TOPICS, "g", max_in_flight=100) as consumer:
            while len(seen) < 29 * len(TOPICS):
                messages = consumer.receive(50, wait=30)
                seen.update((message.topic, message.offset) for message in messages)
                consumer.ack(messages)
        assert set(seen.values()) == {1}
        assert {(group.topic, group.acked, group.lag) for group in client.groups()} == {(n, 29, 0) for n in TOPICS}


def test_messages_are_pushed_from_all_shards_within_one_window(server: HttpRunning) -> None:
    with penstock.connect(server.address) as client:
        for name in APART:
            client.publish_many(name, [f"{n}" for n in range(30)])
        seen: Counter[str] = Counter()
        with client.consumer(APART, "g", max_in_flight=10) as consumer:
            for message in consumer:
                seen[message.topic] += 1
                message.ack()
                if seen.total() == 30 * SHARDS:
                    break
        assert seen == dict.fromkeys(APART, 30)


def test_whoever_waits_at_a_server_is_woken_by_any_shard(server: HttpRunning) -> None:
    async def main() -> None:
        async with penstock.aio.connect(server.address) as client, await client.consumer(APART, "g") as consumer:
            for name in APART:
                receiving = asyncio.ensure_future(consumer.receive(1, wait=30))
                await asyncio.sleep(0)
                await client.publish(name, name)
                (message,) = await receiving
                assert (message.topic, message.value) == (name, name.encode())
                await message.ack()

    run(main())


def test_lists_are_put_together_from_all_shards_and_cut_into_pages(server: HttpRunning) -> None:
    for number, name in enumerate(TOPICS):
        server.post(f"/v1/topics/{name}/messages", {"messages": [{"value": "v"}] * (number + 1)})
        server.broker.create_group(name, "g")
    pages = [server.get("/v1/topics", skip=skip, limit=5) for skip in (0, 5, 10, 15)]
    assert [topic["name"] for page in pages for topic in page["topics"]] == TOPICS
    assert {page["total"] for page in pages} == {len(TOPICS)}
    largest = server.get("/v1/topics", sort="messages", order="desc", limit=3)
    assert [topic["name"] for topic in largest["topics"]] == TOPICS[:-4:-1]
    groups = server.get("/v1/groups", skip=3, limit=4)
    assert [group["topic"] for group in groups["groups"]] == TOPICS[3:7]
    assert groups["total"] == len(TOPICS)
    overview = server.get("/v1/overview")
    assert overview["broker"]["topics"] == len(TOPICS)
    assert overview["lagging"][0]["topic"] == TOPICS[-1]
    traces = server.get("/v1/traces", limit=1000)["traces"]
    assert len(traces) == sum(range(1, 17))
    assert [trace["published_at"] for trace in traces] == sorted((t["published_at"] for t in traces), reverse=True)


def test_metrics_are_those_of_all_shards(server: HttpRunning) -> None:
    for name in TOPICS:
        server.post(f"/v1/topics/{name}/publish", {"value": "v"})
    page = server.ask("GET", "/metrics").body.decode()
    published = re.findall(r'penstock_topic_published_total\{topic="([^"]+)"\} (\S+)', page)
    assert sorted(published) == [(name, "1.0") for name in TOPICS]
    assert f"penstock_topics {len(TOPICS)}.0" in page
    commits = sum(shard.meters.commits for shard in server.broker.shards)
    assert f"penstock_journal_commits_total {commits}.0" in page
    assert re.search(rf"penstock_publish_seconds_count {len(TOPICS)}.0", page)


def test_requests_of_http_and_text_find_their_shard(server: HttpRunning) -> None:
    for name in APART:
        published = server.post(f"/v1/topics/{name}/publish", {"value": "v", "delay": "1h"})
        assert server.get(f"/v1/topics/{name}/delayed")["delayed"][0]["id"] == published["id"]
        assert server.get(f"/v1/topics/{name}")["name"] == name
        assert server.get(f"/v1/topics/{name}/receive", group="h")["messages"] == []
        with Talk(server.server.addresses["line"][1]) as talk:
            assert talk.say(f"PRODUCE {name} 0 hello") == "OK"
        received = server.get(f"/v1/topics/{name}/receive", group="h", wait=10)["messages"]
        assert [message["value"] for message in received] == ["hello"]
    assert server.get("/healthz")["status"] == "ok"


def test_a_disk_that_fails_in_one_shard_leaves_the_others_working(server: HttpRunning) -> None:
    with penstock.connect(server.address) as client:
        for name in APART:
            client.publish(name, "v")
        broken = server.broker.shards.of(APART[0])
        broken.journal._freeze(OSError(5, "input/output error"))
        with pytest.raises(penstock.StorageFailed):
            client.publish(APART[0], "lost")
        for name in APART[1:]:
            client.publish(name, "kept")
            assert len(list(client.read(name))) == 2
    assert server.ask("GET", "/readyz").status == 503
    assert json.loads(server.ask("GET", "/readyz").body)["checks"]


def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    with HttpRunning(tmp_path / "data", shards=SHARDS) as server, penstock.connect(server.address) as client:
        for name in TOPICS:
            client.publish_many(name, ["a", "b"])
        with client.consumer(TOPICS, "g") as consumer:
            messages: list[ClientDelivery] = []
            while len(messages) < 2 * len(TOPICS):
                messages += consumer.receive(100, wait=30)
            consumer.ack([message for message in messages if message.offset == 0])
    with HttpRunning(tmp_path / "data") as server, penstock.connect(server.address) as client:  # nobody says it again
        assert len(server.broker.shards) == SHARDS
        assert {(group.topic, group.acked) for group in client.groups()} == {(name, 1) for name in TOPICS}


def test_a_stage_of_all_shards_is_published_once_and_a_lost_part_of_it_is_told(server: HttpRunning) -> None:
    with penstock.connect(server.address) as client:
        for number in range(3):
            for name in APART:
                assert client.stage_many("whole", name, [f"{number}"]) == 1
        assert client.seal_stage("whole") == 3 * SHARDS
        assert client.publish_staged(["whole"], producer="job", sequence=1) == 3 * SHARDS
        assert client.publish_staged(["whole"], producer="job", sequence=1) == 3 * SHARDS
        assert [len(list(client.read(name))) for name in APART] == [3] * SHARDS
        for name in APART:
            client.stage_many("torn", name, ["x"])
        server.broker.shards.of(APART[1]).stages.drop_staged(["torn"])
        client.stage_many("torn", APART[1], ["y"])  # this shard cannot know what it had
        with pytest.raises(penstock.StageNotFound, match="without the rest"):
            client.seal_stage("torn")
