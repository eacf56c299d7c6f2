"""Clients come and go by the thousand, and nothing of them stays behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.client import AsyncClient, Client
from penstock.protocol.consuming import Push, Receive
from penstock.protocol.frames import HEADER, Command
from penstock.protocol.session import Call, Read, encode
from tests.server.harness import Raw, Running, run, until


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with Running(tmp_path) as running:
        yield running


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def in_peace(server: Running) -> tuple[int, int, int]:
    """Descriptors, threads and the server's tasks, when all is quiet."""
    until(lambda: server.connections == 0, "the last connection to end")
    gc.collect()
    threads = [thread for thread in threading.enumerate() if not thread.name.startswith("penstock-request")]
    return descriptors(), len(threads), server.tasks()  # the server's own threads are few, and come when needed


def just_connect(raw: Raw) -> None:
    raw.ask(Command.PING, b"")


def vanish_in_a_frame(raw: Raw) -> None:
    raw.socket.sendall(HEADER.pack(1, Command.PUBLISH, 1, 100_000) + bytes(70_000))


def vanish_while_a_receive_waits(raw: Raw) -> None:
    raw.send(Command.RECEIVE, encode(Receive(raw.subscribe("empty"), 10, 600.0)))


def vanish_with_leases(raw: Raw) -> None:
    raw.ask(Command.RECEIVE, encode(Receive(raw.subscribe("t"), 3)))


def vanish_while_being_pushed_to(raw: Raw) -> None:
    raw.send(Command.PUSH, encode(Push(raw.subscribe("t", max_in_flight=50), 50)))


def vanish_with_much_under_way(raw: Raw) -> None:
    number = raw.subscribe("t")
    for _ in range(5):
        raw.send(Command.READ, encode(Read("t", 0)))
        raw.send(Command.CALL, encode(Call("topics")))
        raw.send(Command.RECEIVE, encode(Receive(number, 1)))


def vanish_while_subscribing(raw: Raw) -> None:
    raw.send(Command.SUBSCRIBE, encode({"topics": ["t"], "group": "g"}))


WAYS: list[Callable[[Raw], None]] = [
    just_connect,
    vanish_in_a_frame,
    vanish_while_a_receive_waits,
    vanish_with_leases,
    vanish_while_being_pushed_to,
    vanish_with_much_under_way,
    vanish_while_subscribing,
]


def test_R4_a_thousand_clients_that_vanish_leave_nothing_behind(server: Running) -> None:
    server.broker.publish_many("t", [bytes(2000)] * 60)
    for way in WAYS:  # once, so that everything is there that stays: topics, groups, threads
        for _ in range(20):
            with Raw(server.port) as raw:
                way(raw)
    before = in_peace(server)
    for number in range(1000):
        raw = Raw(server.port, hello=number % 50 > 0)
        if number % 50:
            WAYS[number % len(WAYS)](raw)
        if number % 3 == 0:
            raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
        raw.close()
    after = in_peace(server)
    assert after[0] <= before[0] + 2, "descriptors"
    assert after[1] <= before[1] + 1, "threads"
    assert after[2] <= before[2], "tasks"
    for topic in ("t", "empty"):
        until(lambda topic=topic: not server.broker.group(topic, "g").members, "members are left")  # type: ignore[misc]
        until(lambda topic=topic: server.broker.group(topic, "g").leased == 0, "leases are given back")  # type: ignore[misc]
        assert server.waiters(topic) == 0
    listener = server.native
    assert (listener.buffered_bytes, len(listener.commits), listener.workers.busy) == (0, 0, False)
    timers = [timer for timer in _timers(server) if not timer.cancelled()]
    assert len(timers) < 20
    with Client(server.address) as client, client.consumer("t", "g") as consumer:
        assert len(consumer.receive(100)) == 60


def _timers(server: Running) -> list[Any]:
    found = server.call(lambda: list(getattr(server._loop, "_scheduled", [])))
    return list(found)


def test_R4_clients_that_are_opened_and_closed_leave_nothing_behind(server: Running) -> None:
    def plain() -> None:
        with Client(server.address) as client:
            client.publish("t", "x")
            with client.consumer("t", "g", auto_extend=True) as consumer:
                for message in consumer.receive(1):
                    message.ack()
            next(iter(client.consumer("u", "g", start="earliest")))

    server.broker.publish("u", "x")
    plain()

    async def many(count: int) -> None:
        async def one(number: int) -> None:
            async with AsyncClient(server.address) as client:
                report = await client.publish_soon("t", "x")
                consumer = await client.consumer("t", "g", auto_extend=True, mode="shared")
                if number % 2:
                    await report
                    for message in await consumer.receive(1):
                        await message.ack()
                if number % 3 == 0:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(0.01):
                            async for _ in consumer:
                                pass

        await asyncio.gather(*(one(number) for number in range(count)))
        assert len(asyncio.all_tasks()) <= 2

    run(many(20))
    before = in_peace(server)
    for _ in range(5):
        run(many(50))
    for _ in range(40):
        plain()
    after = in_peace(server)
    assert after[0] <= before[0] + 2
    assert after[1] <= before[1]
    assert after[2] <= before[2]
    assert server.broker.group("t", "g").members == ()


def test_R4_connections_that_cannot_be_made_leave_nothing_behind(server: Running) -> None:
    from penstock.model.errors import ConnectionLost
    from tests.server.harness import free_port

    port = free_port()
    with pytest.raises(ConnectionLost):  # the first one opens what the process keeps
        Client(f"127.0.0.1:{port}")
    before = descriptors(), threading.active_count()
    for _ in range(20):
        with pytest.raises(ConnectionLost):
            Client(f"127.0.0.1:{port}")
    gc.collect()
    assert descriptors() <= before[0] + 2  # the server has its own work
    assert threading.active_count() <= before[1]


def test_Q2_what_a_vanished_client_held_goes_to_another_at_once(server: Running) -> None:
    with Client(server.address) as client, client.consumer("t", "g") as consumer:
        for way in (vanish_with_leases, vanish_while_being_pushed_to):
            client.publish_many("t", [f"{n}" for n in range(3)])
            raw = Raw(server.port)
            way(raw)
            until(lambda: server.broker.group("t", "g").leased == 3)
            raw.close()
            received: list[Any] = []
            while len(received) < 3:
                received += until(lambda: consumer.receive(10, wait=5))
            assert all((message.deliveries, message.failures) == (2, 0) for message in received)
            consumer.ack(received)
