"""Topics that are spread over shards of several processes, by HTTP: whichever process is asked, it is one topic."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import penstock
import penstock.aio
from penstock.client.client import AsyncClient
from penstock.model.placement import shards_of
from penstock.server.access.tokens import TokenFile
from tests.cluster.doors import Door, opened
from tests.cluster.several import Several

SHARDS = 4


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


@asynccontextmanager
async def spread_topic(path: Path) -> AsyncIterator[tuple[Several, list[Door], AsyncClient]]:
    """Two servers, a door to each and a client, and a topic with a slice in every shard."""
    async with (
        opened(path / "data") as (servers, doors),
        penstock.aio.connect(servers.address) as client,
    ):
        await client.create_topic("orders", partitions=8, spread=SHARDS)
        assert {servers.map.shards[shard].process for shard in shards_of("orders", SHARDS, SHARDS)} == {0, 1}
        yield servers, doors, client


def test_L1_messages_that_are_published_by_http_reach_all_slices(tmp_path: Path) -> None:
    async def work() -> None:
        async with spread_topic(tmp_path) as (_, doors, client):
            expected: dict[str, bytes] = {}
            for n in range(40):
                told = await doors[n % 2].ask("POST", "/v1/topics/orders/publish", {"value": f"{n}", "key": f"key {n}"})
                assert told[0] == 200, told
                expected[told[1]["id"]] = str(n).encode()
            for n in range(40, 48):
                raw = {"content-type": "application/octet-stream"}
                path = f"/topics/orders/publish?partition={n % 8}"
                status, told = await doors[n % 2].ask("POST", path, str(n).encode(), **raw)
                assert (status, told["partition"], told["topic"]) == (200, n % 8, "orders")
                expected[told["id"]] = str(n).encode()
            for n in range(48, 56):
                status, told = await doors[n % 2].ask("POST", "/goqueue/v1/topics/orders/publish", {"value": "Z28="})
                assert status == 200, told
                expected[told["id"]] = b"go"
            read = {str(message.id): message.value async for message in client.read("orders")}
            assert read == expected
            assert {message.rpartition("/")[0] for message in read} >= {f"orders/{n}" for n in range(8)}
            for body in ({"value": 7}, {"value": "x", "partition": 8}):
                assert (await doors[0].ask("POST", "/v1/topics/orders/publish", body))[0] == 400

    run(work())


def test_L7_a_batch_is_taken_apart_and_repeating_it_finds_it(tmp_path: Path) -> None:
    async def work() -> None:
        async with spread_topic(tmp_path) as (_, doors, client):
            messages = [{"value": f"{n}", "key": f"key {n}" if n % 2 else None} for n in range(30)]
            batch = {"messages": messages, "producer": "till", "sequence": 1}
            status, told = await doors[0].ask("POST", "/v1/topics/orders/messages", batch)
            assert (status, told["published"]) == (200, 30)
            assert await doors[1].ask("POST", "/v1/topics/orders/messages", batch) == (status, told)
            places = [(result["partition"], result["offset"]) for result in told["results"]]
            read = {(message.partition, message.offset): message.value async for message in client.read("orders")}
            assert read == {place: str(n).encode() for n, place in enumerate(places)}
            assert len({partition for partition, _ in places}) > SHARDS
            together = {"messages": [{"value": "a"}, {"value": "b"}]}
            assert (await doors[1].ask("POST", "/v1/topics/orders/messages", together))[1]["published"] == 2
            wrong = {"messages": [*messages, {"value": "x", "delay": "never"}]}
            assert (await doors[1].ask("POST", "/v1/topics/orders/messages", wrong))[0] == 400
            assert len([message async for message in client.read("orders")]) == 32

    run(work())


def test_Q1_what_all_processes_have_is_received_and_acked_through_any(tmp_path: Path) -> None:
    async def work() -> None:
        async with spread_topic(tmp_path) as (_, doors, client):
            messages = [{"value": f"{n}", "key": f"key {n}"} for n in range(40)]
            await doors[0].ask("POST", "/v1/topics/orders/messages", {"messages": messages})
            found: list[dict[str, Any]] = []
            for n in range(8):
                status, told = await doors[n % 2].ask("GET", "/v1/topics/orders/receive?group=g&limit=7")
                assert status == 200, told
                found += told["messages"]
            assert sorted(int(message["value"]) for message in found) == list(range(40))
            receipts = [message["receipt_handle"] for message in found]
            assert await doors[1].ask("POST", "/v1/messages/ack", {"receipt_handles": receipts}) == (
                200,
                {"settled": 40},
            )
            group = await client.group("orders", "g")
            assert (group.published, group.acked, group.lag) == (40, 40, 0)
            assert await doors[0].ask("GET", "/v1/topics/orders/receive?group=g&wait=0.1") == (200, {"messages": []})
            assert (await doors[0].ask("GET", "/v1/topics/orders/next?group=g"))[0] == 204
            for bad in ("limit=x", "limit=0", "wait=100", "wait=x"):
                assert (await doors[0].ask("GET", f"/v1/topics/orders/receive?group=g&{bad}"))[0] == 400
            assert (await doors[0].ask("GET", "/v1/topics/orders/receive"))[0] == 400

    run(work())


def test_Q1_whoever_waits_gets_the_message_that_comes_first_wherever_it_is(tmp_path: Path) -> None:
    async def work() -> None:
        async with spread_topic(tmp_path) as (_, doors, client):
            await client.create_group("orders", "g")
            for n in range(8):
                waiting = asyncio.create_task(doors[n % 2].ask("GET", "/v1/topics/orders/receive?group=g&wait=20"))
                await asyncio.sleep(0.05)
                await client.publish("orders", f"{n}", partition=n)
                _, told = await waiting
                (message,) = told["messages"]
                assert (message["value"], message["partition"]) == (f"{n}", n)
                await doors[0].ask("POST", "/v1/messages/ack", {"receipt_handle": message["receipt_handle"]})
            waiting = asyncio.create_task(doors[0].ask("GET", "/v1/topics/orders/next?group=g&wait=20&autoack=true"))
            await asyncio.sleep(0.05)
            await client.publish("orders", "last")
            assert (await waiting)[1]["value"] == "last"
            group = await client.group("orders", "g")
            assert (group.acked, group.leased, group.lag) == (9, 0, 0)

    run(work())


def test_every_route_about_a_topic_tells_of_all_its_slices(tmp_path: Path) -> None:
    async def work() -> None:
        async with spread_topic(tmp_path) as (_, doors, client):
            messages = [{"value": f"{n}", "key": f"key {n}"} for n in range(40)]
            _, told = await doors[0].ask("POST", "/v1/topics/orders/messages", {"messages": messages})
            ends = [0] * 8
            for result in told["results"]:
                ends[result["partition"]] += 1
            await client.create_group("orders", "g")
            for door in doors:
                shown = (await door.ask("GET", "/v1/topics/orders"))[1]
                assert (shown["messages"], shown["partitions"], shown["end_offsets"]) == (40, 8, ends)
                assert [partition["partition"] for partition in shown["partition_list"]] == list(range(8))
                (group,) = shown["group_list"]
                assert (group["group"], group["published"], group["lag"]) == ("g", 40, 40)
                listed = (await door.ask("GET", "/v1/topics/orders/partitions"))[1]["partitions"]
                assert [partition["end_offset"] for partition in listed] == ends
                changed = await door.ask("PATCH", "/v1/topics/orders", {"visibility_timeout": 9})
                assert (changed[0], changed[1]["end_offsets"]) == (200, ends), changed
            assert (await client.topics())[0].config.visibility_timeout == 9
            for number in range(8):
                for door in doors:
                    path = f"/v1/topics/orders/partitions/{number}/messages"
                    assert len((await door.ask("GET", path))[1]["messages"]) == ends[number]
            place = f"{told['results'][7]['partition']}/{told['results'][7]['offset']}"
            for door in doors:
                assert (await door.ask("GET", f"/v1/topics/orders/messages/{place}"))[1]["value"] == "7"
                assert (await door.ask("GET", f"/v1/traces/orders/{place}"))[1]["message"]["value"] == "7"
                assert len((await door.ask("GET", "/v1/traces?topic=orders&limit=50"))[1]["traces"]) == 40
            assert (await doors[0].ask("DELETE", "/v1/topics/orders"))[0] == 204
            assert [(await door.ask("GET", "/v1/topics/orders"))[0] for door in doors] == [404, 404]

    run(work())


def test_a_search_goes_through_all_partitions_page_by_page(tmp_path: Path) -> None:
    async def work() -> None:
        async with spread_topic(tmp_path) as (_, doors, _client):
            messages = [{"value": f"{n}", "key": f"key {n % 5}"} for n in range(40)]
            await doors[0].ask("POST", "/v1/topics/orders/messages", {"messages": messages})
            for query, expected in (("limit=7", 40), ("limit=100", 40), ("limit=3&key=key+2", 8)):
                found, cursor, pages = [], "", 0
                while cursor is not None and pages < 60:
                    more = f"&cursor={cursor}" if cursor else ""
                    status, told = await doors[pages % 2].ask("GET", f"/v1/topics/orders/messages?{query}{more}")
                    assert status == 200, told
                    found += told["messages"]
                    cursor, pages = told["cursor"], pages + 1
                places = [(message["partition"], message["offset"]) for message in found]
                assert places == sorted(set(places))
                assert len(places) == expected
            assert (await doors[0].ask("GET", "/v1/topics/orders/messages?partition=8"))[0] == 400
            assert (await doors[0].ask("GET", "/v1/topics/orders/messages?limit=0"))[0] == 400
            assert (await doors[0].ask("GET", "/v1/topics/orders/messages?cursor=x"))[0] == 400

    run(work())


def test_a_group_is_moved_in_all_slices_and_told_of_as_one(tmp_path: Path) -> None:
    async def work() -> None:
        async with spread_topic(tmp_path) as (_, doors, _client):
            messages = [{"value": f"{n}", "key": f"key {n}"} for n in range(40)]
            await doors[0].ask("POST", "/v1/topics/orders/messages", {"messages": messages})
            ends = (await doors[0].ask("GET", "/v1/topics/orders"))[1]["end_offsets"]
            made = await doors[1].ask("POST", "/v1/groups", {"topic": "orders", "group": "g", "max_in_flight": 10})
            assert (made[0], made[1]["settings"]["max_in_flight"]) == (201, 10)
            of_topic = "?topic=orders"
            for door in doors:
                moved = await door.ask("POST", "/v1/groups/g/seek", {"topic": "orders", "to": "latest"})
                assert (moved[0], moved[1]["lag"], moved[1]["positions"]) == (200, 0, ends), moved
                offsets = {"topic": "orders", "offsets": {str(n): 0 for n in range(8)}}
                status, placed = await door.ask("POST", "/v1/groups/g/offsets", offsets)
                assert (status, placed["topics"][0]["lag"]) == (200, 40), placed
                for more in (of_topic, ""):
                    told = (await door.ask("GET", f"/v1/groups/g/offsets{more}"))[1]["topics"]
                    assert (told[0]["offsets"], told[0]["lag"]) == ({str(n): 0 for n in range(8)}, 40)
                    (shown,) = (await door.ask("GET", f"/v1/groups/g{more}"))[1]["topics"]
                    assert shown["lag"] == 40
                    listed = (await door.ask("GET", f"/v1/groups{more}"))[1]
                    assert (listed["total"], [group["lag"] for group in listed["groups"]]) == (1, [40])
                    assert len((await door.ask("GET", f"/v1/groups/g/assignment{more}"))[1]["topics"]) == 1
                paused = await door.ask("POST", "/v1/groups/g/pause", {"topic": "orders"})
                assert paused[1]["settings"]["paused"] is True
                await door.ask("POST", "/v1/groups/g/resume", {"topic": "orders"})
            _, found = await doors[0].ask("GET", "/v1/topics/orders/receive?group=g&limit=3")
            receipts = [message["receipt_handle"] for message in found["messages"]]
            assert (await doors[0].ask("DELETE", f"/v1/groups/g{of_topic}"))[0] == 409
            await doors[1].ask("POST", "/v1/messages/ack", {"receipt_handles": receipts})
            assert (await doors[0].ask("DELETE", f"/v1/groups/g{of_topic}"))[0] == 204
            assert (await doors[1].ask("GET", f"/v1/groups/g{of_topic}"))[0] == 404
            assert (await doors[0].ask("GET", "/v1/topics/orders/next?group=h&autoack=yes"))[0] == 200
            assert (await doors[1].ask("DELETE", "/v1/groups/h"))[0] == 204
            assert (await doors[0].ask("GET", "/v1/groups/h"))[0] == 404

    run(work())


def test_lists_of_all_topics_have_one_item_for_each_and_count_it_once(tmp_path: Path) -> None:
    async def work() -> None:
        async with spread_topic(tmp_path) as (servers, doors, client):
            other = servers.topic_of(1)
            await client.create_topic(other)
            await client.create_group("orders", "g")
            await client.publish_many("orders", [f"{n}" for n in range(30)])
            for n in range(8):
                await client.publish("orders", "x", partition=n)
            for door in doors:
                for sort in ("name", "messages"):
                    told = (await door.ask("GET", f"/v1/topics?sort={sort}&order=asc"))[1]
                    found = {topic["name"]: topic for topic in told["topics"]}
                    assert (told["total"], set(found)) == (2, {"orders", other})
                    shown = found["orders"]
                    assert (shown["messages"], shown["partitions"], len(shown["end_offsets"])) == (38, 8, 8)
                    assert (sum(shown["end_offsets"]), shown["groups"]) == (38, 1)
                names = [
                    topic["name"]
                    for skip in range(3)
                    for topic in (await door.ask("GET", f"/v1/topics?limit=1&skip={skip}"))[1]["topics"]
                ]
                assert names == sorted(["orders", other])
                overview = (await door.ask("GET", "/v1/overview"))[1]
                assert [topic["messages"] for topic in overview["busiest"] if topic["name"] == "orders"] == [38]
                assert [group["lag"] for group in overview["lagging"]] == [38]
                stats = (await door.ask("GET", "/v1/stats"))[1]
                assert (stats["topics"], stats["partitions"], stats["groups"]) == (2, 9, 1)
                queues = (await door.ask("GET", "/status"))[1]["queues"]
                assert sum(queues[f"orders-{n}"] for n in range(8)) == 38
                page = (await door.ask("GET", "/metrics"))[1].decode()
                series = [line.rpartition(" ")[0] for line in page.splitlines() if not line.startswith("#")]
                assert len(series) == len(set(series))
                figures = dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
                assert [float(figures[f"penstock_{what}"]) for what in ("topics", "partitions", "groups")] == [2, 9, 1]
                lags = [float(value) for name, value in figures.items() if name.startswith("penstock_group_lag")]
                assert lags == [38]
                ready = "/v1/priority/stats"
                topics = (await door.ask("GET", ready))[1]["topics"]
                assert [topic["topic"] for topic in topics].count("orders") == 1, topics

    run(work())


def test_delayed_messages_and_dead_letters_of_all_processes_are_listed_together(tmp_path: Path) -> None:
    async def work() -> None:
        async with spread_topic(tmp_path) as (_, doors, client):
            for n in range(8):
                later = {"value": f"{n}", "partition": n, "delay": 3600 + (n * 5) % 8}
                assert (await doors[n % 2].ask("POST", "/v1/topics/orders/publish", later))[0] == 200
            for door in doors:
                told = (await door.ask("GET", "/v1/topics/orders/delayed?limit=5"))[1]
                due = [message["due_at"] for message in told["delayed"]]
                assert (due, len(due), told["more"]) == (sorted(due), 5, True)
                rest = (await door.ask("GET", "/v1/topics/orders/delayed?limit=5&skip=5"))[1]
                assert (len(rest["delayed"]), rest["more"]) == (3, False)
                assert min(message["due_at"] for message in rest["delayed"]) > max(due)
            for n, door in enumerate((*doors, *doors)):
                place = f"/v1/topics/orders/delayed/{n}/0"
                assert (await door.ask("GET", place))[1]["partition"] == n
                assert (await door.ask("PATCH", place, {"delay": 7200}))[0] == 200
                assert (await door.ask("DELETE", place))[1] == {"cancelled": True}
                assert (await door.ask("GET", place))[0] == 404
            for n in range(8):
                await client.publish("orders", f"{n}", partition=n)
            found = (await doors[0].ask("GET", "/v1/topics/orders/receive?group=g&limit=20"))[1]["messages"]
            rejected = {"receipt_handles": [message["receipt_handle"] for message in found], "reason": "no milk"}
            assert (await doors[1].ask("POST", "/v1/messages/reject", rejected))[1] == {"settled": 8}
            for door in doors:
                letters = (await door.ask("GET", "/v1/topics/orders/dead-letters"))[1]["dead_letters"]
                assert {letter["value"] for letter in letters} == {str(n) for n in range(8)}
                causes = (await door.ask("GET", "/v1/topics/orders/dead-letters/causes"))[1]
                assert (causes["total"], [cause["count"] for cause in causes["causes"]]) == (8, [8])
                shown = await door.ask("GET", "/v1/topics/orders.dlq")
                assert (shown[0], shown[1]["messages"]) == (200, 8), shown
            one = {"ids": [letters[0]["id"]]}
            assert (await doors[0].ask("POST", "/v1/topics/orders/dead-letters/purge", one))[1] == {"purged": 1}
            assert (await doors[1].ask("POST", "/v1/topics/orders/dead-letters/redrive", {}))[1]["redriven"] == 7
            again = (await doors[1].ask("GET", "/v1/topics/orders/receive?group=g&limit=20"))[1]["messages"]
            assert len(again) == 7

    run(work())


def test_what_one_process_cannot_do_is_refused_with_what_to_use_instead(tmp_path: Path) -> None:
    async def work() -> None:
        async with spread_topic(tmp_path) as (_, doors, _client):
            for door in doors:
                status, told = await door.ask("POST", "/v1/groups/g/join", {"topics": ["orders"]})
                assert (status, "receive" in told["error"]) == (409, True), told

    run(work())


def test_C11_publishing_and_receiving_by_http_go_on_while_slices_move(tmp_path: Path) -> None:
    async def work() -> None:
        async with spread_topic(tmp_path) as (servers, doors, client):
            await client.create_group("orders", "g")
            published: dict[str, str] = {}
            acked: set[str] = set()
            unsure: set[str] = set()  # the process ended its connection before it answered
            stopping = asyncio.Event()

            async def publish(door: Door, name: str) -> None:
                while not stopping.is_set():
                    value = f"{name} {len(published)}"
                    body = {"value": value, "key": value}
                    status, told = await door.ask("POST", "/v1/topics/orders/publish", body)
                    assert status == 200, told
                    published[told["id"]] = value

            async def receive(door: Door) -> None:
                while not (stopping.is_set() and acked | unsure >= set(published) and not await left()):
                    path = "/v1/topics/orders/receive?group=g&limit=20&wait=0.2&visibility_timeout=2"
                    status, told = await door.ask("GET", path)
                    assert status in (200, 503), told
                    for message in told.get("messages", ()):
                        handle = {"receipt_handle": message["receipt_handle"]}
                        status, told = await door.ask("POST", "/v1/messages/ack", handle)
                        assert status in (200, 410, 503), told  # 410: its lease has ended with the move
                        if status != 410:
                            (acked if status == 200 else unsure).add(message["id"])

            async def left() -> int:
                return (await client.group("orders", "g")).lag

            tasks = [asyncio.create_task(publish(door, f"{n}")) for n, door in enumerate(doors)]
            tasks.append(asyncio.create_task(receive(doors[1])))
            for shard in shards_of("orders", SHARDS, SHARDS):
                await servers.move(shard, 1 - servers.map.shards[shard].process)
                await asyncio.sleep(0.1)
            stopping.set()
            try:
                await asyncio.wait_for(asyncio.gather(*tasks), 40)
            except TimeoutError:
                raise AssertionError(f"never acked: {set(published) - acked}, unsure: {unsure}") from None
            read = {str(message.id): message.value.decode() async for message in client.read("orders")}
            assert read == published
            assert acked | unsure == set(published)

    run(work())


def test_tokens_count_in_every_process_that_has_slices(tmp_path: Path) -> None:
    async def work() -> None:
        data = tmp_path / "data"
        async with opened(data, auth="tokens", processes=3) as (_, doors):
            tokens = TokenFile(str(data))
            admin = tokens.create("admin", ["admin"]).secret
            one = tokens.create("one", ["publish", "consume", "read"], topics=["orders"]).secret
            other = tokens.create("other", ["publish", "consume", "read"], topics=["cakes"]).secret

            async def ask(door: Door, secret: str, method: str, path: str, body: object = None) -> tuple[int, Any]:
                return await door.ask(method, path, body, authorization=f"Bearer {secret}")

            made = {"name": "orders", "partitions": 8, "spread": SHARDS}
            assert (await ask(doors[0], admin, "POST", "/v1/topics", made))[0] == 201
            messages = {"messages": [{"value": f"{n}", "key": f"key {n}"} for n in range(20)]}
            paths = (
                ("POST", "/v1/topics/orders/messages", messages),
                ("POST", "/v1/topics/orders/publish", {"value": "x"}),
                ("GET", "/v1/topics/orders", None),
                ("GET", "/v1/topics/orders/messages", None),
                ("GET", "/v1/topics/orders/receive?group=g&limit=100", None),
                ("GET", "/v1/groups?topic=orders", None),
            )
            for door in doors:
                for method, path, body in paths:
                    assert (await ask(door, one, method, path, body))[0] == 200, path
                    assert (await ask(door, other, method, path, body))[0] == 403, path
                    assert (await door.ask(method, path, body))[0] == 401, path

    run(work())
