"""What concerns all topics is the same through whichever process it is asked for: of all processes, as one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.client import AsyncClient
from penstock.model.errors import DiskFull
from penstock.server.access.tokens import TokenFile
from tests.cluster.doors import Door, opened
from tests.cluster.several import Several

TOPICS = [f"topic-{n:02}" for n in range(12)]


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


async def fill(servers: Several) -> None:
    """Topics in both processes, each with one message more than the one before, and a group that acked one of each."""
    async with AsyncClient(servers.address) as client:
        for count, topic in enumerate(TOPICS, 1):
            await client.create_topic(topic, partitions=1)
            await client.publish_many(topic, ["x"] * count)
            async with await client.consumer(topic, "g") as consumer:
                (message,) = await consumer.receive(1, wait=10)
                await message.ack()
    assert {servers.owner_of(topic) for topic in TOPICS} == {0, 1}


async def from_both(doors: list[Door], path: str, **headers: str) -> Any:
    """What both answer, which is the same."""
    found = [await door.ask("GET", path, **headers) for door in doors]
    assert found[0] == found[1], found
    assert found[0][0] == 200, found
    return found[0][1]


def names(found: Any) -> list[str]:
    return [topic["name"] for topic in found["topics"]]


def test_topics_are_listed_in_pages_of_all_processes(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path / "data") as (servers, doors):
            await fill(servers)
            found = await from_both(doors, "/v1/topics")
            assert (names(found), found["total"]) == (TOPICS, 12)
            seen: list[str] = []
            for skip in range(0, 15, 5):
                page = await from_both(doors, f"/v1/topics?limit=5&skip={skip}")
                assert page["total"] == 12
                seen += names(page)
            assert seen == TOPICS
            assert names(await from_both(doors, "/v1/topics?sort=messages&limit=3")) == TOPICS[:-4:-1]
            assert names(await from_both(doors, "/v1/topics?sort=messages&order=asc&limit=3")) == TOPICS[:3]
            assert names(await from_both(doors, "/v1/topics?order=desc&limit=2")) == TOPICS[:-3:-1]
            searched = await from_both(doors, "/v1/topics?search=topic-0*&limit=2&skip=8")
            assert (names(searched), searched["total"]) == (TOPICS[8:10], 10)

    run(work())


def test_pages_are_bounded_and_nonsense_is_refused_as_by_one_process(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path / "data") as (_, doors):
            for query in ("limit=0", "limit=1001", "limit=x", "skip=-1", "skip=x", "sort=colour", "limit=%C2%B2"):
                for door in doors:
                    status, problem = await door.ask("GET", f"/v1/topics?{query}")
                    assert (status, problem["status"]) == (400, 400), query

    run(work())


def test_the_topic_of_schedules_is_listed_once(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path / "data") as (servers, doors):
            async with AsyncClient(servers.address) as client:
                for shard in range(4):
                    await client.schedule(f"s{shard}", "0 0 1 1 *", servers.topic_in(shard), "x")
            found = await from_both(doors, "/v1/topics")
            assert names(found).count("penstock.schedules") == 1
            assert found["total"] == len(found["topics"]) == len(set(names(found)))
            assert [one["name"] for one in (await from_both(doors, "/v1/schedules"))["schedules"]] == [
                "s0",
                "s1",
                "s2",
                "s3",
            ]

    run(work())


def test_groups_are_listed_shown_and_deleted_wherever_their_topics_are(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path / "data") as (servers, doors):
            await fill(servers)
            found = (await doors[0].ask("GET", "/v1/groups?limit=7&skip=2"))[1]
            assert [group["topic"] for group in found["groups"]] == TOPICS[2:9]
            assert found["total"] == 12
            shown = (await doors[1].ask("GET", "/v1/groups/g?limit=5&skip=9"))[1]
            assert [group["topic"] for group in shown["topics"]] == TOPICS[9:]
            assert (shown["group"], shown["total"]) == ("g", 12)
            offsets = await from_both(doors, "/v1/groups/g/offsets")
            assert [(one["topic"], one["offsets"]) for one in offsets["topics"]] == [(t, {"0": 1}) for t in TOPICS]
            assert len((await from_both(doors, "/v1/groups/g/assignment"))["topics"]) == 12
            for door in doors:
                status, problem = await door.ask("GET", "/v1/groups/nobody")
                assert (status, problem["error"]) == (404, "no topic has a group 'nobody'")
            await doors[0].ask("POST", "/v1/groups", {"topic": servers.topic_of(1), "group": "only"})
            for door in doors:  # a group that one process has and the other does not
                assert (await door.ask("GET", "/v1/groups/only"))[0] == 200
            assert (await doors[0].ask("DELETE", "/v1/groups/only"))[0] == 204
            assert (await doors[1].ask("DELETE", "/v1/groups/g"))[0] == 204
            assert (await from_both(doors, "/v1/groups"))["groups"] == []
            assert (await doors[1].ask("DELETE", "/v1/groups/g"))[0] == 404

    run(work())


def test_statistics_are_those_of_all_processes(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path / "data") as (servers, doors):
            await fill(servers)
            messages = sum(range(1, 13))
            stats = [await door.ask("GET", "/v1/reliability/stats") for door in doors]
            for status, found in stats:
                assert status == 200
                assert (found["published"], found["acked"], found["groups"]) == (messages, 12, 12)
                assert found["lag"] == messages - 12
            lanes = await from_both(doors, "/v1/priority/stats")
            assert sum(lane["ready"] for lane in lanes["lanes"]) == messages - 12
            assert [one["topic"] for one in lanes["topics"]] == TOPICS[::-1]
            async with AsyncClient(servers.address) as client:
                for topic in TOPICS[:4]:
                    await client.publish(topic, "later", delay=3600)
            delays = await from_both(doors, "/v1/delay/stats")
            assert (delays["delayed"], len(delays["topics"])) == (4, 4)
            assert (await from_both(doors, "/v1/rebalance/stats"))["groups"] == []
            for door in doors:
                _, status = await door.ask("GET", "/status")
                assert status["queues"] == {f"{topic}-0": count + (count < 4) for count, topic in enumerate(TOPICS)}
                assert (await door.ask("GET", "/v1/stats"))[1]["topics"] == 12

    run(work())


def test_the_overview_shows_the_busiest_and_the_furthest_behind_of_all(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path / "data") as (servers, doors):
            await fill(servers)
            for door in doors:
                _, found = await door.ask("GET", "/v1/overview")
                assert [group["topic"] for group in found["lagging"]] == TOPICS[:1:-1]
                assert [group["lag"] for group in found["lagging"]] == list(range(11, 1, -1))
                assert len(found["busiest"]) == 10
                assert found["broker"]["topics"] == 12
                assert found["latest"]["time"] > 0

    run(work())


def test_traces_are_searched_page_by_page_in_all_processes(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path / "data") as (servers, doors):
            await fill(servers)
            for status, count in (("acked", 12), ("published", sum(range(12)))):
                seen: list[str] = []
                cursor: str | None = ""
                turn = 0
                while cursor is not None:
                    at = f"&cursor={quote(cursor)}" if cursor else ""
                    _, page = await doors[turn % 2].ask("GET", f"/v1/traces/search?status={status}&limit=7{at}")
                    assert len(page["traces"]) <= 7
                    seen += [one["id"] for one in page["traces"]]
                    cursor, turn = page["cursor"], turn + 1
                assert len(seen) == len(set(seen)) == count
            topic = servers.topic_of(1)
            async with AsyncClient(servers.address) as client:
                await client.publish(topic, "x")
            newest = await from_both(doors, "/v1/traces?limit=1")
            assert [one["id"] for one in newest["traces"]] == [f"{topic}/0/0"]
            only = await from_both(doors, f"/v1/traces?topic={topic}")
            assert [one["topic"] for one in only["traces"]] == [topic]

    run(work())


def test_metrics_are_those_of_all_processes_each_series_once(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path / "data") as (servers, doors):
            await fill(servers)
            for door in doors:
                status, page = await door.ask("GET", "/metrics")
                assert status == 200
                values: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
                for family in text_string_to_metric_families(page.decode()):
                    for sample in family.samples:
                        place = (sample.name, tuple(sorted(sample.labels.items())))
                        assert place not in values
                        values[place] = sample.value
                assert values["penstock_topics", ()] == 12
                for count, topic in enumerate(TOPICS, 1):
                    assert values["penstock_topic_published_total", (("topic", topic),)] == count
                assert values["penstock_publish_seconds_count", ()] == 12
                assert [value for (name, _), value in values.items() if name == "penstock_build_info"] == [1.0]
                assert values["penstock_disk_free_bytes", ()] > 0

    run(work())


def test_health_is_that_of_the_worst_process(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path / "data") as (servers, doors):
            for path in ("/readyz", "/health", "/healthz"):
                assert await from_both(doors, path) == {"status": "ok"}
            told = await from_both(doors, "/readyz?verbose")
            assert [check["name"] for check in told["checks"]] == ["open", "journal", "disk", "settling"]
            shard = next(iter(servers.servers[1].broker.shards))
            shard.meters.space.note(DiskFull("it is full"))
            for door in doors:
                status, found = await door.ask("GET", "/readyz")
                assert (status, found["status"]) == (503, "not ready")
                assert [check["name"] for check in found["checks"] if not check["ok"]] == ["disk"]

    run(work())


async def events_of(door: Door, count: int) -> list[tuple[str, Any]]:
    """The first events of the live stream."""
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
    writer.write(b"GET /v1/live HTTP/1.1\r\nhost: localhost\r\n\r\n")
    found: list[tuple[str, Any]] = []
    name = ""
    try:
        while len(found) < count:
            line = (await reader.readline()).decode().strip()
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                found.append((name, json.loads(line.removeprefix("data: "))))
    finally:
        writer.close()
    return found


def test_the_live_stream_is_of_all_processes(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path / "data") as (servers, doors):
            async with AsyncClient(servers.address) as client:
                stopped = asyncio.Event()

                async def publish() -> None:
                    while not stopped.is_set():
                        for owner in (0, 1):
                            await client.publish_many(servers.topic_of(owner), ["x"] * 10)
                        await asyncio.sleep(0.01)

                publishing = asyncio.create_task(publish())
                (first, history), *points = await events_of(doors[0], 4)
                stopped.set()
                await publishing
            assert first == "history"
            assert [name for name, _ in points] == ["point"] * 3
            times = [point["time"] for _, point in points]
            assert times == sorted(set(times))
            own = [server.services.live.latest().published for server in servers.servers]
            assert max(point["published"] for _, point in points) > 1.2 * max(min(own), 1), (points, own)
            assert history["points"] == sorted(history["points"], key=lambda point: point["time"])

    run(work())


def test_a_process_without_shards_answers_for_all_too(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path / "data") as (servers, doors):
            await fill(servers)
            for shard in range(4):
                await servers.move(shard, 1)
            assert not list(servers.servers[0].broker.shards)
            paths = ["/v1/topics", "/v1/groups", "/v1/overview", "/v1/priority/stats", "/v1/delay/stats", "/v1/traces"]
            paths += ["/v1/reliability/stats", "/v1/rebalance/stats", "/status", "/metrics", "/readyz", "/v1/stats"]
            for path in paths:
                assert (await doors[0].ask("GET", path))[0] == 200, path
            assert names((await doors[0].ask("GET", "/v1/topics"))[1]) == TOPICS

    run(work())


def test_a_list_waits_for_a_shard_that_is_on_its_way(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(tmp_path / "data") as (servers, doors):
            await fill(servers)
            shard = servers.map.shard_of(TOPICS[0])
            owner = servers.owner_of(TOPICS[0])
            await servers.servers[owner].release_shard(shard, 0.0)
            places = list(servers.map.shards)
            servers.map = type(servers.map)(
                [type(place)(place.epoch, -1) if n == shard else place for n, place in enumerate(places)],
                servers.map.addresses,
            )
            servers.tell()
            asking = asyncio.create_task(doors[0].ask("GET", "/v1/topics"))
            done, _ = await asyncio.wait([asking], timeout=0.3)
            assert not done
            await servers.take(shard, 1 - owner)
            servers.tell()
            assert names((await asking)[1]) == TOPICS

    run(work())


@pytest.mark.parametrize("path", ["/v1/topics", "/v1/overview", "/metrics", "/v1/traces", "/v1/live", "/status"])
def test_permission_is_asked_for_as_by_one_process(tmp_path: Path, path: str) -> None:
    async def work() -> None:
        data = tmp_path / "data"
        async with opened(data, auth="tokens") as (servers, doors):
            tokens = TokenFile(str(data))
            reader = tokens.create("reader", ["read"]).secret
            writer = tokens.create("writer", ["publish"]).secret
            one = tokens.create("one", ["read"], topics=[servers.topic_of(1)]).secret
            for door in doors:
                assert (await door.ask("GET", path))[0] == 401
                assert (await door.ask("GET", path, Authorization=f"Bearer {writer}"))[0] == 403
                if path != "/v1/live":
                    assert (await door.ask("GET", path, Authorization=f"Bearer {reader}"))[0] == 200
                if path == "/metrics":
                    assert (await door.ask("GET", path, Authorization=f"Bearer {one}"))[0] == 403

    run(work())


def test_who_sees_some_topics_is_shown_those_of_all_processes(tmp_path: Path) -> None:
    async def work() -> None:
        data = tmp_path / "data"
        async with opened(data, auth="tokens") as (servers, doors):
            secret = TokenFile(str(data)).create("all", ["publish"]).secret
            seen = [servers.topic_of(0, "seen"), servers.topic_of(1, "seen")]
            limited = TokenFile(str(data)).create("some", ["read"], topics=["seen*"]).secret
            for topic in (*seen, servers.topic_of(0, "other"), servers.topic_of(1, "other")):
                told = await doors[0].ask(
                    "POST", f"/v1/topics/{topic}/publish", {"value": "x"}, Authorization=f"Bearer {secret}"
                )
                assert told[0] == 200
            assert names(await from_both(doors, "/v1/topics", Authorization=f"Bearer {limited}")) == sorted(seen)
            found = await from_both(doors, "/v1/traces", Authorization=f"Bearer {limited}")
            assert {one["topic"] for one in found["traces"]} == set(seen)

    run(work())
