"""Connections break, servers pause and come back: clients go on, and say what is known of what was under way."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.client import AsyncClient, Client, link
from penstock.model.errors import ConnectionLost, RequestTimeout
from penstock.protocol.frames import REPLY, Command, frame
from penstock.protocol.session import Welcome, encode
from penstock.testing.line import Line
from tests.server.harness import Child, Running, free_port, run, soon, until


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with Running(tmp_path) as running:
        yield running


@pytest.fixture
def line(server: Running) -> Iterator[Line]:
    with Line(server.port) as between:
        yield between


def group(server: Running, name: str = "g", topic: str = "t") -> penstock.GroupInfo:
    return server.broker.group(topic, name)


# What is known.


def test_no_server_is_an_error_that_says_where() -> None:
    port = free_port()
    with pytest.raises(ConnectionLost, match=f"no Penstock server answers at 127.0.0.1:{port}: .*refused"):
        Client(f"127.0.0.1:{port}")
    for address in ("", "host:", "host:abc", "host:0", "http://host:9000", 7):
        if address != "":
            with pytest.raises(penstock.InvalidArgument, match="is not the address of a server"):
                Client(address)  # type: ignore[arg-type]


def test_a_port_of_something_else_is_told_from_a_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(ConnectionLost, match=r"closed the connection at once: .*HTTP"):
            Client(f"127.0.0.1:{listener.getsockname()[1]}")
        thread.join()


def test_a_server_that_says_nothing_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        started_s = time.monotonic()
        with pytest.raises(ConnectionLost, match="no answer in time"):
            Client(f"127.0.0.1:{listener.getsockname()[1]}", timeout="200ms")
        assert time.monotonic() - started_s < 5


def test_a_connection_that_ends_right_after_the_welcome_is_made_again() -> None:
    """The loss may be heard of before the welcome is dealt with."""
    welcome = Welcome(1, "x", "y", 1, "always", 90.0, {})
    served = 0

    async def main() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal served
            served += 1
            await reader.read(1000)
            writer.write(frame(Command.HELLO | REPLY, 0, encode(welcome)))
            if served < 3:
                writer.transport.abort() if served == 2 else writer.close()
                return
            while data := await reader.read(1000):
                if data[1] == Command.PING:
                    writer.write(frame(Command.PING | REPLY, int.from_bytes(data[2:6], "big"), b"\xc0"))
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as listener:
            port = listener.sockets[0].getsockname()[1]
            async with AsyncClient(f"127.0.0.1:{port}") as client:
                await soon(lambda: served == 3)
                assert await client.ping() < 10

    run(main())
    assert served == 3


def test_what_cannot_be_repeated_and_lost_its_reply_is_told_as_unknown(server: Running, line: Line) -> None:
    with Client(line.address) as client, concurrent.futures.ThreadPoolExecutor(4) as threads:
        client.publish("t", "x")
        consumer = client.consumer("t", "g")
        (message,) = consumer.receive(1)
        line.hold_back()
        asked: list[concurrent.futures.Future[Any]] = [
            threads.submit(client.create_topic, "made"),
            threads.submit(message.ack),
            threads.submit(client.seek_group, "t", "g", 0),
        ]
        assert line.held_back.wait(30)
        until(lambda: "made" in [topic.name for topic in server.broker.topics()])
        until(lambda: len(client._client.link._requests) == 3)
        line.cut()
        for future in asked:
            with pytest.raises(ConnectionLost, match=r"before the reply to (CALL|ACK) came: it is not known"):
                future.result(30)
        assert "made" in [topic.name for topic in client.topics()]


def test_questions_are_asked_again_on_the_next_connection(server: Running, line: Line) -> None:
    with Client(line.address) as client, concurrent.futures.ThreadPoolExecutor(8) as threads:
        client.publish_many("t", [f"{n}" for n in range(10)])
        line.hold_back()
        asked: list[concurrent.futures.Future[Any]] = [
            threads.submit(client.topics),
            threads.submit(client.status),
            threads.submit(lambda: list(client.read("t"))),
            threads.submit(client.offset_at, "t", 0),
            threads.submit(client.ping),
            threads.submit(client.trace, "t/0/0"),
        ]
        assert line.held_back.wait(30)
        until(lambda: len(client._client.link._requests) == 6)
        line.cut()
        assert all(future.result(30) is not None for future in asked)
        assert len(asked[2].result()) == 10
        assert line.connections == 2


def test_requests_while_there_is_no_connection_wait_and_then_say_that_they_were_not_sent(
    server: Running, line: Line
) -> None:
    with Client(line.address, timeout="700ms") as client, concurrent.futures.ThreadPoolExecutor(8) as threads:
        client.publish("t", "x")
        consumer = client.consumer("t", "g")
        line.refusing = True
        line.cut()
        until(lambda: not client._client.link.connected)
        acts = (
            lambda: client.publish("t", "y"),
            lambda: client.publish_many("t", ["y"]),
            client.topics,
            lambda: client.create_topic("u"),
            client.settle,
            lambda: client.consumer("t", "h"),
            lambda: consumer.receive(1),
        )
        started_s = time.monotonic()
        for future in [threads.submit(act) for act in acts]:
            with pytest.raises(ConnectionLost, match=r"could not be reached in time.*(was not|nothing was) sent"):
                future.result(30)
        assert 0.5 < time.monotonic() - started_s < 10
        line.refusing = False
        until(lambda: client._client.link.connected)
        assert client.publish("t", "z").offset == 1
        assert [message.value for message in client.read("t")] == [b"x", b"z"]


def test_a_paused_server_leads_to_a_timeout_that_says_what_is_not_known(tmp_path: Path) -> None:
    threads = concurrent.futures.ThreadPoolExecutor(8)
    with threads, Child(tmp_path / "data") as child, Client(child.address, timeout="600ms") as client:
        client.publish("t", "first")
        consumer = client.consumer("t", "g")
        acts = [
            ("PUBLISH", lambda: client.publish("t", "lost?")),
            ("PUBLISH", lambda: client.publish_many("t", ["lost?"])),
            ("CALL", lambda: client.create_topic("u")),
            ("CALL", lambda: list(client.read("t"))),
            ("PING", client.ping),
            ("RECEIVE", lambda: consumer.receive(1)),
        ]
        child.pause()
        try:
            for (name, _), future in zip(acts, [threads.submit(act) for _, act in acts], strict=True):
                with pytest.raises(RequestTimeout, match=f"did not answer {name} within .* s: it is not known whether"):
                    future.result(30)
        finally:
            child.signal(signal.SIGCONT)
        assert client.publish("t", "after").offset == 3
        values = [message.value for message in client.read("t")]
        assert values == [b"first", b"lost?", b"lost?", b"after"], "what timed out was done after all, once each"
        child.pause()
        timer = threading.Timer(0.3, child.signal, (signal.SIGCONT,))
        timer.start()
        assert client.publish("t", "x").offset == 4, "a shorter pause is waited for"
        timer.join()


def test_a_server_that_is_silent_for_too_long_is_left_and_connected_to_again(
    server: Running, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "_SWEEP_S", 0.02)
    with Client(line.address) as client:
        client.publish("t", "x")
        client._client.link.welcome.idle_timeout_s = 0.3
        line.hold_back()  # as a network does that has lost its way
        until(lambda: line.connections == 2, "a second connection")
        line.cut()
        assert client.publish("t", "y").offset == 1


def test_an_idle_client_pings_and_stays_connected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "_SWEEP_S", 0.02)
    with Running(tmp_path, idle_timeout="1500ms") as server, Line(server.port) as line, Client(line.address) as client:
        client.publish("t", "x")
        time.sleep(2)
        assert line.connections == 1
        assert server.connections == 1


def test_attempts_to_connect_become_rarer(server: Running, line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    with Client(line.address) as client:
        slept: list[float] = []
        sleep = asyncio.sleep

        async def counted(delay: float, *arguments: Any) -> Any:
            if asyncio.current_task() is client._client.link._reconnecting:  # the server sleeps now and then, too
                slept.append(delay)
            return await sleep(min(delay, 0.01), *arguments)

        monkeypatch.setattr(asyncio, "sleep", counted)
        line.refusing = True
        line.cut()
        until(lambda: len(slept) >= 9)
        assert slept[0] <= 0.05
        assert all(0.5 <= delay <= 2.0 for delay in slept[6:9])
        line.refusing = False
        assert client.ping() < 30


def test_connecting_again_takes_none_of_the_random_numbers_of_the_program(server: Running, line: Line) -> None:
    with Client(line.address) as client:
        before = random.getstate()
        line.cut()
        assert client.ping() < 30
        assert line.connections == 2
        assert random.getstate() == before


# Publishing.


@pytest.mark.parametrize("batch", [False, True])
def test_L4_a_publish_whose_reply_was_lost_is_there_exactly_once(batch: bool, server: Running, line: Line) -> None:
    with Client(line.address) as client, concurrent.futures.ThreadPoolExecutor(8) as threads:
        client.create_topic("t", partitions=3)
        client.publish("t", "first", partition=0)
        for round_ in range(10):
            line.hold_back()
            if batch:
                values = [penstock.Message(f"{round_}.{n}", key=f"{n}") for n in range(7)]
                asked: list[Any] = [threads.submit(client.publish_many, "t", values)]
            else:
                asked = [threads.submit(client.publish, "t", f"{round_}.{n}") for n in range(7)]
            assert line.held_back.wait(30)  # it is committed, and its reply is on the way
            line.cut()
            told = [future.result(30) for future in asked]
            ids = [identity for one in told for identity in (one if batch else [one])]
            found = {message.id: message.value.decode() for message in client.read("t")}
            assert sorted(found[identity] for identity in ids) == [f"{round_}.{n}" for n in range(7)]
        assert len(found) == 71
        assert len(set(found.values())) == 71


def test_L4_a_flood_of_publishes_survives_lines_that_are_cut_all_the_time(server: Running, line: Line) -> None:
    async def main() -> None:
        async with AsyncClient(line.address, batch_size=20) as client:
            stopping = asyncio.Event()
            published: dict[str, penstock.MessageId] = {}

            async def publish(name: str) -> None:
                number = 0
                while not stopping.is_set():
                    value = f"{name}.{number}"
                    published[value] = await client.publish("t", value)
                    number += 1

            async def publish_soon(name: str) -> None:
                reports = {}
                number = 0
                while not stopping.is_set():
                    value = f"{name}.{number}"
                    reports[value] = await client.publish_soon("t", value)
                    number += 1
                    if number % 50 == 0:
                        await client.flush()
                await client.flush()
                published.update({value: report.result() for value, report in reports.items()})

            async def publish_many(name: str) -> None:
                number = 0
                while not stopping.is_set():
                    values = [f"{name}.{number}.{n}" for n in range(10)]
                    published.update(zip(values, await client.publish_many("t", values), strict=True))
                    number += 1

            kinds = (publish, publish, publish_soon, publish_many, publish_many)
            tasks = [asyncio.create_task(kind(f"{number}")) for number, kind in enumerate(kinds)]
            for _ in range(15):
                await asyncio.sleep(0.05)
                line.cut()
            stopping.set()
            await asyncio.gather(*tasks)
            stored = {message.id: message.value.decode() async for message in client.read("t")}
            assert len(set(stored.values())) == len(stored), "nothing is there twice"
            assert {identity: value for value, identity in published.items()} == stored
            assert line.connections > 10

    run(main())


# Consuming.


def test_Q4_what_was_received_before_a_connection_was_lost_cannot_be_acked_and_comes_again(
    server: Running, line: Line
) -> None:
    with Client(line.address) as client:
        client.publish_many("t", [f"{n}" for n in range(4)])
        with client.consumer("t", "g", auto_extend=True) as consumer:
            received = consumer.receive(2)
            line.cut()
            again = until(lambda: consumer.receive(10, wait=5))
            assert [message.offset for message in again] == [0, 1, 2, 3]
            assert [message.deliveries for message in again] == [2, 2, 1, 1]
            acts: list[Callable[[], object]] = [
                lambda: consumer.ack(received),
                received[0].ack,
                lambda: received[1].extend(10),
                lambda: received[1].fail("no"),
                lambda: received[1].kill("no"),
                lambda: consumer.release(received),
            ]
            for act in acts:
                with pytest.raises(penstock.LeaseLost, match="not leased"):
                    act()
            assert group(server).leased == 4
            consumer.ack(again)
    assert group(server).acked == 4


def test_Q4_messages_in_hand_while_there_is_no_connection_cannot_be_acked_later(server: Running, line: Line) -> None:
    with Client(line.address) as client, concurrent.futures.ThreadPoolExecutor(1) as threads:
        client.publish("t", "x")
        consumer = client.consumer("t", "g", name="mine")
        (message,) = consumer.receive(1)
        line.refusing = True
        line.cut()
        until(lambda: not client._client.link.connected)
        acking = threads.submit(message.ack)
        until(lambda: group(server).leased == 0)
        line.refusing = False
        with pytest.raises(penstock.LeaseLost):
            acking.result(30)
        (again,) = until(lambda: consumer.receive(1, wait=5))
        again.ack()
    assert group(server).acked == 1


def test_a_receive_that_waits_goes_on_waiting_on_the_next_connection(server: Running, line: Line) -> None:
    with Client(line.address) as client, concurrent.futures.ThreadPoolExecutor(1) as threads:
        consumer = client.consumer("t", "g")
        receiving = threads.submit(consumer.receive, 5, 30)
        until(server.waiters)
        line.cut()
        until(lambda: line.connections == 2)
        server.broker.publish("t", "x")
        assert [message.value for message in receiving.result(30)] == [b"x"]


@pytest.mark.parametrize("first", [0, 1])
def test_loops_go_on_after_lost_connections_each_with_its_own_topic(first: int, server: Running, line: Line) -> None:
    """Consumers get other numbers on the next connection: nobody may get what is meant for another."""

    async def main() -> None:
        async with AsyncClient(line.address) as client:
            consumers = [await client.consumer(name, "g") for name in ("a", "b")]
            seen: dict[str, list[bytes]] = {"a": [], "b": []}

            async def loop(place: int) -> None:
                async for message in consumers[place]:
                    assert message.topic == "ab"[place]
                    try:
                        await message.ack()
                    except (penstock.LeaseLost, ConnectionLost):
                        continue
                    seen[message.topic].append(message.value)

            def both_saw(value: bytes) -> bool:
                return all(value in values for values in seen.values())

            tasks = []
            for place in (first, 1 - first):
                tasks.append(asyncio.create_task(loop(place)))
                await soon(partial(server.waiters, "ab"[place]))
            for round_ in range(5):
                await asyncio.gather(*(client.publish(name, f"{round_}") for name in "ab"))
                await soon(partial(both_saw, b"%d" % round_), "a message in a loop")
                line.cut()
                await soon(lambda: not client.link.connected)
            for task in tasks:
                assert not task.done()
                task.cancel()
            assert {len(values) for values in seen.values()} == {5}

    run(main())


def test_a_consumer_with_a_name_takes_its_seat_again(server: Running, line: Line) -> None:
    """Also where the server has not noticed yet that its old connection is gone."""
    with Client(line.address) as client:
        client.publish("t", "x")
        with client.consumer("t", "g", name="me") as consumer:
            assert len(consumer.receive(1)) == 1
            for _ in range(3):
                line.cut()
                (message,) = until(lambda: consumer.receive(1, wait=5))
            assert message.deliveries == 4
            assert [member.name for member in group(server).members] == ["me"]


def test_G1_an_assigned_consumer_has_its_partitions_again_after_a_lost_connection(server: Running, line: Line) -> None:
    with Client(line.address) as client:
        client.create_topic("t", partitions=4)
        client.publish_many("t", [penstock.Message(f"{n}", partition=n % 4) for n in range(8)])
        with client.consumer("t", "g", mode="assigned") as consumer:
            assert len(consumer.receive(100)) == 8
            line.cut()
            again = until(lambda: consumer.receive(100, wait=5))
            assert len(again) == 8
            consumer.ack(again)
        assert group(server).acked == 8


def test_closing_while_there_is_no_server_takes_no_time(tmp_path: Path) -> None:
    with Running(tmp_path) as server:
        client = Client(server.address)
        consumer = client.consumer("t", "g", auto_extend=True, mode="assigned")
        client.publish("t", "x")
        assert consumer.receive(1)
    started_s = time.monotonic()
    consumer.close()
    client.close()
    assert time.monotonic() - started_s < 5


def test_what_is_published_while_there_is_no_server_is_given_up_by_closing(tmp_path: Path) -> None:
    with Running(tmp_path) as server:
        client = Client(server.address, timeout="300ms")
    report = client.publish_soon("t", "x")
    client.close()
    assert isinstance(report.exception(30), ConnectionLost | penstock.BrokerClosed)


def test_a_server_that_stops_says_goodbye_and_its_clients_find_the_next_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock.client")
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        with Running(tmp_path) as server:
            client = Client(server.address)
            client.publish("t", "x")
            consumer = client.consumer("t", "g", name="me")
            (message,) = consumer.receive(1)
            receiving = threads.submit(consumer.receive, 1, 30)
        assert "says goodbye: the server is stopping" in caplog.text
        with Running(tmp_path, server.port) as again, client:
            (returned,) = receiving.result(30)
            assert (returned.id, returned.deliveries, returned.failures) == (message.id, 2, 0)
            with pytest.raises(penstock.LeaseLost):
                message.ack()
            returned.ack()
            assert client.publish("t", "y").offset == 1
            assert client.status().epoch == 2
            assert group(again).acked == 1
