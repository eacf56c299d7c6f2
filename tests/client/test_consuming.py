"""Consuming through a client: leases that are kept, given back and lost, and messages that come in the right order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.client import AsyncClient, Client
from penstock.client.remote import RemoteConsumer
from penstock.model.errors import LeaseLost
from penstock.model.message import Message
from penstock.server import workers
from penstock.testing.line import Line
from tests.server.harness import Running, run, soon, until


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with Running(tmp_path) as running:
        yield running


@pytest.fixture
def client(server: Running) -> Iterator[Client]:
    with Client(server.address) as connected:
        yield connected


def group(server: Running, name: str = "g", topic: str = "t") -> penstock.GroupInfo:
    return server.broker.group(topic, name)


# Leases.


def test_Q2_cancelling_receive_gives_messages_back(server: Running) -> None:
    async def main() -> None:
        async with AsyncClient(server.address) as client:
            async with await client.consumer("t", "g") as consumer:
                for _ in range(20):
                    receiving = asyncio.create_task(consumer.receive(5, wait=30))
                    await soon(server.waiters)
                    publishing = asyncio.create_task(client.publish("t", "x"))
                    receiving.cancel()  # somewhere between the request and the reply
                    with pytest.raises(asyncio.CancelledError):
                        await receiving
                    await publishing
                    message = (await soon_received(consumer, 1))[0]
                    await message.ack()
                assert (await client.group("t", "g")).members[0].in_flight == 0
            assert not server.waiters()

    run(main())


async def soon_received(consumer: Any, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        found += await consumer.receive(count, wait=10)
    return found


def test_a_seat_that_is_cancelled_while_it_is_taken_is_left_again(server: Running) -> None:
    async def main() -> None:
        with Line(server.port) as line:
            async with AsyncClient(line.address) as client:
                await client.publish("t", "x")
                line.hold_back()
                joining = asyncio.create_task(client.consumer("t", "g", name="me"))
                await asyncio.to_thread(line.held_back.wait, 30)
                joining.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await joining
                assert group(server).members
                line.let_go()
                await soon(lambda: not group(server).members)
                async with await client.consumer("t", "g", name="me") as consumer:
                    assert len(await consumer.receive(1, wait=5)) == 1

    run(main())


def test_ctrl_c_in_a_receive_that_waits_ends_it_and_loses_nothing(server: Running) -> None:
    program = """
import signal, sys
from penstock.client import Client
signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it may be ignored
with Client(sys.argv[1]) as client, client.consumer("t", "g", visibility_timeout=600) as consumer:
    try:
        print("ready", flush=True)  # from here on the signal may come
        while True:
            for message in consumer.receive(1, wait=600):
                message.release()
    except KeyboardInterrupt:
        print("interrupted", client.ping() < 60, flush=True)
"""
    with Client(server.address) as client:
        for number in range(4):
            words = [sys.executable, "-c", program, server.address]
            with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as child:
                assert child.stdout is not None
                assert child.stdout.readline() == "ready\n"
                if number:
                    client.publish("t", "x")  # so that it receives and releases all the time
                time.sleep(0.02 * number)
                child.send_signal(signal.SIGINT)
                assert child.stdout.readline() == "interrupted True\n"
                assert child.wait(30) == 0
        assert len(client.consumer("t", "g").receive(10, wait=5)) == 3


def test_ctrl_c_at_any_moment_of_a_plain_receive_leaves_no_lease_behind(server: Running, client: Client) -> None:
    """The signal may come when the messages are in this thread already."""
    client.publish_many("t", [f"{n}" for n in range(50)])
    with client.consumer("t", "g", visibility_timeout=600) as consumer:
        interrupted = 0
        previous = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            for moment in range(60):
                timer = threading.Timer(0.0002 * moment, os.kill, (os.getpid(), signal.SIGINT))
                received: list[Any] = []
                try:
                    timer.start()
                    received = consumer.receive(10, wait=5)
                    consumer.release(received)
                    timer.join()
                    time.sleep(0.5)
                except KeyboardInterrupt:
                    interrupted += 1
                    timer.join()
                    with contextlib.suppress(LeaseLost):  # what came before the signal is the caller's to give back
                        consumer.release(received)
        finally:
            signal.signal(signal.SIGINT, previous)
        assert interrupted == 60
        until(lambda: group(server).leased <= 10, "leases that are given back")


def test_ctrl_c_that_comes_just_before_a_plain_receive_waits_ends_it_too(client: Client) -> None:
    """Such a signal interrupts no wait, like one that another thread of the process happens to take."""

    def interrupt() -> None:
        time.sleep(0.3)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    began_s = time.monotonic()
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with client.consumer("t", "g") as consumer, pytest.raises(KeyboardInterrupt):
            threading.Thread(target=interrupt).start()
            consumer.receive(1, wait=120)
    finally:
        signal.signal(signal.SIGINT, previous)
    assert time.monotonic() - began_s < 60
    assert client.ping() < 60


@pytest.mark.parametrize("work", ["client.ping()", "client.publish('u', 'x')", "consumer.release(consumer.receive(1))"])
def test_exceptions_of_signal_handlers_at_any_moment_leave_a_plain_client_working(server: Running, work: str) -> None:
    program = f"""
import faulthandler, random, signal, sys
from penstock.client import Client
class Came(Exception): pass
def handler(*_): raise Came
faulthandler.dump_traceback_later(60, exit=True)
signal.signal(signal.SIGALRM, handler)
random.seed(7)
with Client(sys.argv[1]) as client, client.consumer("t", "g") as consumer:
    client.publish("t", "x")
    came = 0
    while came < 2000:
        try:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 1e-3))
            while True:
                {work}
        except Came:
            came += 1
    print("working", client.ping() < 60)
"""
    child = subprocess.run([sys.executable, "-c", program, server.address], capture_output=True, text=True, check=False)
    assert child.stdout == "working True\n", child.stderr


def test_auto_extend_keeps_leases_through_long_work_and_stops_when_they_are_settled(
    server: Running, client: Client
) -> None:
    client.publish_many("t", [f"{n}" for n in range(4)])
    with client.consumer("t", "g", visibility_timeout="3s", auto_extend=True) as consumer:
        first, second, third = consumer.receive(3)
        (short,) = consumer.receive(1, visibility_timeout="2s")
        time.sleep(3)
        assert group(server).leased == 4
        for message in (first, second, short):
            message.ack()
        third.release()
        (again,) = consumer.receive(1, wait=5)
        assert (again.offset, again.deliveries) == (2, 2)
        until(lambda: "extended" in [line.kind for line in client.trace(again.id).lines])
    with client.consumer("t", "g", visibility_timeout="600ms", auto_extend=True) as consumer:
        (held,) = consumer.receive(1, wait=5)
        held.ack()
        time.sleep(0.7)
    kinds = [line.kind for line in client.trace(held.id).lines]
    assert kinds[-1] == "acked"


def test_auto_extend_works_in_a_loop_and_ends_with_the_client(server: Running) -> None:
    with Client(server.address) as client, Client(server.address) as watcher:
        client.publish("t", "x")
        consumer = client.consumer("t", "g", visibility_timeout="2s", auto_extend=True)
        for message in consumer:
            time.sleep(3)
            assert group(server).leased == 1
            assert message.deliveries == 1
            break
        client.close()
        with watcher.consumer("t", "g") as other:
            (again,) = other.receive(1, wait=5)
            assert again.failures == 0


def test_auto_extend_lets_go_of_what_is_lost(server: Running) -> None:
    async def main() -> None:
        async with AsyncClient(server.address) as client:
            await client.publish_many("t", ["a", "b"])
            async with await client.consumer("t", "g", visibility_timeout="150ms", auto_extend=True) as consumer:
                received = await consumer.receive(2)
                assert isinstance(consumer.remote, RemoteConsumer)
                keeper = consumer.remote._keeper
                assert keeper is not None
                await client.seek_group("t", "g", "latest")  # which takes all leases back
                await soon(lambda: not keeper._held)
                with pytest.raises(penstock.LeaseLost) as lost:
                    await consumer.ack(received)
                assert lost.value.ids == (received[0].id, received[1].id)

    run(main())


def test_Q4_a_lost_lease_raises_LeaseLost_with_the_ids(server: Running, client: Client) -> None:
    client.publish_many("t", [f"{n}" for n in range(5)])
    with client.consumer("t", "g", visibility_timeout="200ms") as consumer:
        received = consumer.receive(5)
        consumer.extend(received[2:4], 60)
        until(lambda: group(server).leased == 2)
        with pytest.raises(penstock.LeaseLost, match=r"not leased.*the other 2 are finished") as lost:
            consumer.ack(received)
        assert set(lost.value.ids) == {received[n].id for n in (0, 1, 4)}
        with pytest.raises(penstock.LeaseLost) as lost:
            received[0].ack()
        assert lost.value.ids == (received[0].id,)
        received[2].ack()
        late = received[1]
        acts: list[Callable[[], object]] = [
            lambda: late.extend(1),
            late.release,
            lambda: late.fail("x"),
            lambda: late.kill("x"),
        ]
        for act in acts:
            with pytest.raises(penstock.LeaseLost):
                act()
    assert group(server).acked == 2


def test_Q4_messages_of_another_consumer_cannot_be_settled(server: Running, client: Client) -> None:
    client.publish_many("t", ["a", "b"])
    with client.consumer("t", "g") as one, client.consumer("t", "g") as other:
        (message,) = one.receive(1)
        with pytest.raises(penstock.LeaseLost):
            other.ack([message])
        one.ack([message])
    assert group(server).acked == 1


# Loops.


def test_O3_a_loop_holds_little_ready_while_there_are_lanes(server: Running, client: Client) -> None:
    client.publish_many("t", [Message(f"{n}", priority="normal" if n else "low") for n in range(30)])
    with client.consumer("t", "g") as consumer:
        messages = iter(consumer)
        next(messages).ack()
        urgent = client.publish("t", "urgent", priority="critical")
        following = [next(messages) for _ in range(2)]
        assert urgent in [message.id for message in following], "it is the next but one at most"
        assert group(server).leased <= 4


def test_a_loop_holds_many_ready_where_there_is_one_lane(server: Running, client: Client) -> None:
    client.publish_many("t", [f"{n}" for n in range(500)])
    with client.consumer("t", "g") as consumer:
        messages = iter(consumer)
        first = next(messages)
        until(lambda: group(server).leased == 101)
        first.ack()
        seen = [first.offset]
        for message in messages:
            message.ack()
            seen.append(message.offset)
            if len(seen) == 500:
                break
        assert seen == list(range(500))
        until(lambda: group(server).acked == 500)


def test_Q6_messages_that_wait_in_a_loop_for_too_long_come_again_and_did_not_fail(
    server: Running, client: Client
) -> None:
    client.publish_many("t", [f"{n}" for n in range(6)])
    with client.consumer("t", "g", visibility_timeout="1500ms") as consumer:
        seen = []
        for message in consumer:
            assert message.failures == 0
            time.sleep(0.5)
            message.ack()  # what is handed out is held
            seen.append(message.offset)
            if len(seen) == 6:
                break
    assert sorted(seen) == list(range(6))
    assert group(server).acked == 6


def test_a_loop_ends_when_its_consumer_or_client_is_closed(server: Running) -> None:
    for close_client in (False, True):
        with Client(server.address) as client:
            consumer = client.consumer("t", "g")
            ended = threading.Event()

            def loop(consumer: Any = consumer, ended: threading.Event = ended) -> None:
                for _ in consumer:
                    pass
                ended.set()

            thread = threading.Thread(target=loop)
            thread.start()
            until(server.waiters)
            (client if close_client else consumer).close()
            assert ended.wait(30)
            thread.join()
            assert list(consumer) == []


def test_a_loop_hears_that_its_topic_is_gone(server: Running, client: Client) -> None:
    client.publish("t", "x")
    with client.consumer("t", "g") as consumer:
        messages = iter(consumer)
        next(messages).ack()
        client.delete_topic("t")
        with pytest.raises(penstock.TopicNotFound, match="was deleted"):
            next(messages)
        with pytest.raises(penstock.TopicNotFound, match="was deleted"):
            consumer.receive(1)


def test_autoack_acks_what_is_handed_out_and_nothing_more(server: Running, client: Client) -> None:
    client.publish_many("t", [f"{n}" for n in range(20)])
    with client.consumer("t", "g", autoack=True) as consumer:
        assert len(consumer.receive(5)) == 5
        assert group(server).acked == 5
        seen = []
        for message in consumer:
            seen.append(message.offset)
            if len(seen) == 5:
                break
        assert seen == list(range(5, 10))
        assert group(server).acked <= 11
    with client.consumer("t", "g", autoack=True) as consumer:
        rest = consumer.receive(100)
    assert {message.offset for message in rest} | {10} == set(range(10, 20))


def test_several_tasks_share_one_loop(server: Running) -> None:
    async def main() -> None:
        async with AsyncClient(server.address) as client:
            await client.publish_many("t", [f"{n}" for n in range(200)])
            async with await client.consumer("t", "g") as consumer:
                seen: list[int] = []

                async def work() -> None:
                    async for message in consumer:
                        seen.append(message.offset)
                        await message.ack()
                        if len(seen) >= 200:
                            return

                tasks = [asyncio.create_task(work()) for _ in range(8)]
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in tasks:
                    task.cancel()
                assert sorted(seen) == list(range(200))

    run(main())


# Assigned partitions.


def test_G1_G2_G4_assigned_partitions_move_when_clients_come_and_go(server: Running) -> None:
    with Client(server.address) as client, Client(server.address) as second, Client(server.address) as third:
        client.create_topic("t", partitions=6)
        client.publish_many("t", [Message(f"{n}", partition=n % 6) for n in range(60)])
        one = client.consumer("t", "g", mode="assigned", name="one")
        assert owned(server) == {"one": (0, 1, 2, 3, 4, 5)}
        held = one.receive(100)
        two = second.consumer("t", "g", mode="assigned", name="two")
        assert two.receive(10) == [], "what is being worked on does not move"
        one.ack(held)
        assert sorted(map(len, owned(server).values())) == [3, 3]
        kept = set(owned(server)["one"])
        three = third.consumer("t", "g", mode="assigned", name="three")
        until(lambda: sorted(map(len, owned(server).values())) == [2, 2, 2])
        assert set(owned(server)["one"]) <= kept
        client.publish_many("t", [Message(f"{n}", partition=n % 6) for n in range(60)])
        for consumer in (one, two, three):
            received = consumer.receive(100)
            assert {message.partition for message in received} == set(owned(server)[consumer.name])
            consumer.ack(received)
        third.close()
        until(lambda: sorted(map(len, owned(server).values())) == [3, 3])
        del three
        assert group(server).lag == 0


def owned(server: Running) -> dict[str, tuple[int, ...]]:
    return {member.name: member.partitions for member in group(server).members}


def test_G3_a_client_that_is_not_heard_of_loses_its_partitions_and_cannot_ack(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        with Line(server.port) as line:
            async with AsyncClient(line.address) as zombie, AsyncClient(server.address) as client:
                await client.create_topic("t", partitions=2)
                await client.publish_many("t", [Message(f"{n}", partition=n % 2) for n in range(4)])
                late = await zombie.consumer("t", "g", mode="assigned", name="late", session_timeout="1500ms")
                received = await late.receive(10)
                assert len(received) == 4
                await asyncio.sleep(2)
                assert set(owned(server)) == {"late"}, "a client says by itself that it lives"
                assert isinstance(late.remote, RemoteConsumer)
                assert late.remote._beating is not None
                late.remote._beating.cancel()  # it hangs
                other = await client.consumer("t", "g", mode="assigned", name="other", session_timeout=30)
                again = await soon_received(other, 4)
                with pytest.raises(penstock.LeaseLost):
                    await late.ack(received)
                await other.ack(again)
                assert all(message.deliveries == 2 for message in again)
                assert group(server).acked == 4

    run(main())


# Closing.


def test_closing_a_client_gives_back_what_its_consumers_hold(server: Running) -> None:
    with Client(server.address) as watcher:
        watcher.publish_many("t", [f"{n}" for n in range(10)])
        client = Client(server.address)
        consumers = [client.consumer("t", "g") for _ in range(3)]
        for consumer in consumers:
            assert len(consumer.receive(2)) == 2
        next(iter(consumers[0]))
        client.close()
        client.close()
        assert group(server).members == ()
        assert group(server).leased == 0
        with watcher.consumer("t", "g") as consumer:
            assert len(consumer.receive(100)) == 10


def test_a_closed_client_says_so_whatever_is_asked_of_it(server: Running) -> None:
    with Client(server.address) as client:
        client.publish("t", "x")
        consumer = client.consumer("t", "g")
        (message,) = consumer.receive(1)
    for _ in range(2):
        for act in (
            lambda: client.publish("t", "x"),
            lambda: client.publish_soon("t", "x").result(30),
            lambda: client.publish_many("t", ["x"]),
            lambda: list(client.read("t")),
            lambda: client.consumer("t", "g"),
            lambda: consumer.receive(1),
            lambda: consumer.ack([message]),
            message.ack,
            client.topics,
            client.status,
            client.ping,
            client.flush,
        ):
            with pytest.raises(penstock.BrokerClosed):
                act()
    client.close()
    consumer.close()

    async def main() -> None:
        client = AsyncClient(server.address)
        with pytest.raises(penstock.BrokerClosed, match="not connected"):
            await client.publish("t", "x")
        await client.close()
        async with client:
            consumer = await client.consumer("t", "g")
        for _ in range(2):
            with pytest.raises(penstock.BrokerClosed):
                await client.publish("t", "x")
            with pytest.raises(penstock.BrokerClosed):
                await consumer.receive(1)
            with pytest.raises(penstock.BrokerClosed):
                await client.topics()
        with pytest.raises(penstock.BrokerClosed, match="entered once"):
            await client.__aenter__()

    run(main())


def test_closing_while_threads_are_at_work_leaves_nobody_waiting(server: Running) -> None:
    def work(act: Callable[[], object], outcomes: list[BaseException]) -> None:
        try:
            while True:
                act()
        except BaseException as error:  # noqa: BLE001 - looked at below
            outcomes.append(error)

    for _ in range(5):
        client = Client(server.address)
        consumer = client.consumer("t", "g")
        outcomes: list[BaseException] = []

        def receive(consumer: Any = consumer) -> None:
            consumer.ack(consumer.receive(5, wait=10))

        acts = 2 * [partial(client.publish, "t", "x"), receive, client.topics]
        threads = [threading.Thread(target=work, args=(act, outcomes)) for act in acts]
        for thread in threads:
            thread.start()
        time.sleep(0.05)
        client.close()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
        wrong = [error for error in outcomes if not isinstance(error, penstock.BrokerClosed | penstock.LeaseLost)]
        assert not wrong, wrong


def test_a_client_of_a_process_that_forks_is_of_no_use_to_the_child(server: Running, client: Client) -> None:
    child = os.fork()
    if not child:
        code = 1
        try:
            client.publish("t", "x")
        except penstock.BrokerClosed as error:
            code = 0 if "forked" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    client.publish("t", "the parent goes on")


def test_consumers_beyond_the_threads_of_a_server_are_served(server: Running, client: Client) -> None:
    consumers = [client.consumer("t", f"g{number}") for number in range(2 * workers._THREADS)]
    client.publish("t", "x")
    assert [len(consumer.receive(1, wait=10)) for consumer in consumers] == [1] * len(consumers)
