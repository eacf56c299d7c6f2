"""Publishing through a client: together where that can be, each with its own outcome, never without a limit."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.client import AsyncClient, Client, outbox, publisher
from penstock.model.errors import ConnectionLost
from penstock.protocol.frames import Command
from penstock.testing.line import Line
from tests.server.harness import Running, run, soon, until


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with Running(tmp_path, broker={"max_value_bytes": "1MiB"}) as running:
        yield running


def count_requests(client: AsyncClient, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The requests that are sent from now on."""
    sent: list[int] = []
    send = client.link.send

    def counted(command: int, *arguments: Any, **options: Any) -> int:
        sent.append(command)
        return send(command, *arguments, **options)

    monkeypatch.setattr(client.link, "send", counted)
    return sent


def test_messages_of_one_moment_travel_together(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with AsyncClient(server.address, batch_size=40) as client:
            sent = count_requests(client, monkeypatch)
            ids = await asyncio.gather(*(client.publish("t", f"{n}") for n in range(100)))
            assert [identity.offset for identity in ids] == list(range(100))
            assert sent == [Command.PUBLISH] * 3
            assert [message.value async for message in client.read("t")] == [b"%d" % n for n in range(100)]

    run(main())


def test_linger_waits_a_little_for_more_and_flush_does_not_wait(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with AsyncClient(server.address, linger=1000) as client:
            sent = count_requests(client, monkeypatch)
            reports = [await client.publish_soon("t", f"{n}") for n in range(10)]
            reports.append(await client.publish_soon("u", "x"))
            await asyncio.sleep(0.05)
            assert sent == []
            await client.flush()
            assert [report.done() for report in reports] == [True] * 11
            assert len(sent) == 2
            await client.flush()  # nothing waits
        async with AsyncClient(server.address, linger="30ms") as client:
            assert (await client.publish("t", "last")).offset == 10
        async with AsyncClient(server.address, linger=1000) as client:
            report = await client.publish_soon("t", "sent by closing")
        assert report.result().offset == 11

    run(main())


def test_one_bad_message_among_those_of_a_moment_fails_alone(server: Running) -> None:
    async def main() -> None:
        async with AsyncClient(server.address) as client:
            await client.create_topic("t", partitions=2)
            bad: list[dict[str, Any]] = [
                {"value": b"x" * (2 << 20)},
                {"value": 7},
                {"value": "x", "priority": "urgent"},
                {"value": "x", "partition": 9},  # which only the server can tell
                {"value": "x", "partition": 2**70},
                {"value": "x", "delay": "30d"},
            ]
            for options in bad:
                outcomes = await asyncio.gather(
                    *(client.publish("t", f"{n}") for n in range(5)),
                    client.publish("t", **options),
                    *(client.publish("t", f"{n}") for n in range(5)),
                    return_exceptions=True,
                )
                assert isinstance(outcomes[5], penstock.InvalidArgument), options
                assert "of the batch" not in str(outcomes[5])
                assert sum(isinstance(outcome, penstock.MessageId) for outcome in outcomes) == 10
            assert len([message async for message in client.read("t")]) == 60

    run(main())


def test_many_bad_messages_at_once_are_told_one_by_one_within_the_limits(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with AsyncClient(server.address, batch_size=5000) as client:
            await client.create_topic("t", partitions=2)
            sending = client.publisher._under_way
            most = 0
            link_send = client.link.send

            def send(*arguments: Any, **options: Any) -> int:
                nonlocal most
                most = max(most, len(sending))
                return link_send(*arguments, **options)

            monkeypatch.setattr(client.link, "send", send)
            outcomes = await asyncio.gather(
                *(client.publish("t", "x", partition=n % 3) for n in range(3000)), return_exceptions=True
            )
            assert sum(isinstance(outcome, penstock.InvalidArgument) for outcome in outcomes) == 1000
            assert most <= 512
            assert len([message async for message in client.read("t")]) == 2000

    run(main())


def test_different_topics_and_dedupe_ids_do_not_mix(server: Running) -> None:
    async def main() -> None:
        async with AsyncClient(server.address) as client:
            first = await asyncio.gather(
                *(client.publish("t", f"{n}", dedupe_id=f"d{n % 3}") for n in range(9)),
                *(client.publish("t", f"plain {n}") for n in range(3)),
                *(client.publish("u", f"{n}") for n in range(3)),
            )
            assert len(set(first[:9])) == 3
            assert len(set(first)) == 9
            assert await client.publish("t", "again", dedupe_id="d1") == first[1]

    run(main())


def test_delivery_reports_tell_where_each_message_went(server: Running) -> None:
    with Client(server.address) as client:
        told: list[Any] = []
        reports = [client.publish_soon("t", f"{n}") for n in range(1000)]
        reports.append(client.publish_soon("t", "x", priority="urgent"))
        reports[0].add_done_callback(told.append)
        client.flush()
        assert [report.result().offset for report in reports[:-1]] == list(range(1000))
        assert isinstance(reports[-1].exception(), penstock.InvalidArgument)
        assert told == [reports[0]]
        assert len(list(client.read("t"))) == 1000


def test_R1_background_publishes_wait_when_too_many_are_under_way(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "_UNREPORTED_MAX", 50)
    with Line(server.port) as line, Client(line.address) as client:
        client.publish("t", "first")
        line.hold_back()
        taken: list[concurrent.futures.Future[Any]] = []

        def publish() -> None:
            taken.extend(client.publish_soon("t", f"{number}") for number in range(200))

        thread = threading.Thread(target=publish)
        thread.start()
        until(lambda: len(taken) == 50)
        time.sleep(0.1)
        assert len(taken) == 50
        line.cut()  # and what was under way goes again
        thread.join(30)
        client.flush()
        assert len(taken) == 200
        assert sorted(report.result().offset for report in taken) == list(range(1, 201))
        assert len(list(client.read("t"))) == 201


def test_R1_the_bytes_of_background_publishes_have_a_limit(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "_UNREPORTED_BYTES_MAX", 1 << 20)
    monkeypatch.setattr(publisher, "_WAITING_BYTES_MAX", 1 << 20)
    monkeypatch.setattr(publisher, "_UNDER_WAY_BYTES_MAX", 1 << 20)

    with Line(server.port) as line, Client(line.address) as client:
        line.hold_back()
        taken: list[Any] = []
        thread = threading.Thread(
            target=lambda: taken.extend(client.publish_soon("t", b"x" * 300_000) for _ in range(12))
        )
        thread.start()
        until(lambda: len(taken) == 4)
        time.sleep(0.1)
        assert len(taken) == 4
        line.cut()
        thread.join(30)
        client.flush()
        assert len(list(client.read("t"))) == 12

    async def main(line: Line) -> None:
        async with AsyncClient(line.address) as client:
            line.hold_back()
            taken: list[Any] = []

            async def publish() -> None:
                while len(taken) < 30:
                    taken.append(await client.publish_soon("u", b"x" * 300_000))

            task = asyncio.create_task(publish())
            await soon(lambda: len(taken) >= 7)
            await asyncio.sleep(0.1)
            assert len(taken) <= 9  # as much under way as may be, and as much waiting
            line.cut()
            await task
            await client.flush()
            assert len([message async for message in client.read("u")]) == 30

    with Line(server.port) as line:
        run(main(line))


def test_flush_waits_for_what_was_published_before_and_not_for_what_comes(server: Running) -> None:
    with Client(server.address) as client:
        stopping = threading.Event()

        def publish() -> None:
            while not stopping.is_set():
                client.publish("t", "x")

        threads = [threading.Thread(target=publish) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(20):
                report = client.publish_soon("t", "mine")
                client.flush()
                assert report.done()
        finally:
            stopping.set()
            for thread in threads:
                thread.join()


def test_a_batch_too_large_for_a_frame_is_refused_and_does_not_break_the_connection(tmp_path: Path) -> None:
    with Running(tmp_path, max_frame_bytes="64KiB") as server, Client(server.address) as client:
        for _ in range(2):
            with pytest.raises(penstock.LimitExceeded, match="max_frame_bytes"):
                client.publish_many("t", [b"x" * 1000] * 100)
        with pytest.raises(penstock.LimitExceeded, match="max_frame_bytes"):
            client.publish("t", b"x" * 100_000)
        reports = [client.publish_soon("t", b"x" * 30_000) for _ in range(20)]  # together they would be too large
        client.flush()
        assert sorted(report.result().offset for report in reports) == list(range(20))
        assert server.connections == 1


def test_L7_L4_a_batch_with_dedupe_ids_for_some_is_not_repeated_blindly(server: Running) -> None:
    """Those without an id could not be recognised: what is not known is told."""
    with Line(server.port) as line, Client(line.address) as client:
        client.publish("t", "first")
        line.hold_back()
        mixed = [penstock.Message("a", dedupe_id="a"), penstock.Message("b")]
        with concurrent.futures.ThreadPoolExecutor(1) as threads:
            publishing = threads.submit(client.publish_many, "t", mixed)
            assert line.held_back.wait(30)
            line.cut()
            with pytest.raises(ConnectionLost, match="not known whether it was done"):
                publishing.result(30)
        assert [message.value for message in client.read("t")] == [b"first", b"a", b"b"]


def test_publishing_inside_a_report_is_refused_where_it_would_wait_for_itself(server: Running) -> None:
    with Client(server.address) as client:
        told: list[Any] = []

        def publish_again(_: Any) -> None:
            try:
                client.publish("t", "inside")
            except RuntimeError as error:
                told.append(error)
            told.append(client.publish_soon("t", "in the background"))

        client.publish_soon("t", "x").add_done_callback(publish_again)
        until(lambda: len(told) == 2)
        assert "cannot wait inside its own callbacks" in str(told[0])
        assert told[1].result(30).offset == 1


def test_one_client_serves_many_threads(server: Running) -> None:
    with Client(server.address) as client, client.consumer("t", "g", max_in_flight=10_000) as consumer:
        published: list[set[Any]] = [set() for _ in range(16)]
        received: list[list[Any]] = [[] for _ in range(16)]
        total = 16 * 50

        def work(number: int) -> None:
            for n in range(50):
                published[number].add(client.publish("t", f"{number}.{n}"))
                for message in consumer.receive(2):
                    message.ack()
                    received[number].append(message.id)
                client.status()
            while sum(map(len, received)) < total:
                messages = consumer.receive(10, wait=0.1)
                consumer.ack(messages)
                received[number] += [message.id for message in messages]

        threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        everything = [identity for some in received for identity in some]
        assert len(everything) == total
        assert set(everything) == set().union(*published)
        assert client.group("t", "g").acked == total


def test_two_clients_in_one_loop_know_nothing_of_each_other(server: Running) -> None:
    async def main() -> None:
        async with AsyncClient(server.address) as one, AsyncClient(server.address) as other:
            await asyncio.gather(
                *(client.publish("t", f"{n}") for n in range(50) for client in (one, other)),
            )
            assert len([message async for message in one.read("t")]) == 100
            await one.close()
            await other.publish("t", "still here")
            with pytest.raises(penstock.BrokerClosed):
                await one.publish("t", "x")

    run(main())
