"""The way past the event loop: a thread that is alone asks the server itself, and nobody can tell the difference."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

import penstock
from penstock.client import Client
from penstock.client.direct import Direct
from penstock.client.sync_consumer import ClientDelivery
from penstock.testing.line import Line
from tests.server.harness import Child, Running, until

HOUR = "1h"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with Running(tmp_path) as running:
        yield running


@pytest.fixture
def client(server: Running) -> Iterator[Client]:
    with Client(server.address) as connected:
        alone(connected)
        yield connected


def direct(client: Client) -> Direct:
    return client._directs.first


def alone(client: Client) -> None:
    """Ask one by one until the loop has lent its socket."""

    def is_lent() -> bool:
        client.ping()
        return direct(client).generation > 0

    until(is_lent, "the loop to lend its socket")


def end_of(broker: Client | penstock.Broker) -> int:
    return sum(partition.end_offset for topic in broker.topics() for partition in topic.partitions)


def used(client: Client) -> int:
    return direct(client).uses


# What a thread does itself.


def test_a_thread_that_is_alone_publishes_receives_and_acks_without_the_loop(client: Client) -> None:
    before = used(client)
    ids = [client.publish("t", f"{number}") for number in range(20)]
    consumer = client.consumer("t", "g")
    alone(client)
    found = [message for _ in range(20) for message in consumer.receive(1, wait=5)]
    for message in found:
        message.ack()
    assert [message.id for message in found] == ids
    assert consumer.receive(1) == []
    assert used(client) - before > 50
    assert client.group("t", "g").lag == 0


def test_what_the_server_refuses_is_told_to_the_thread_that_asked(client: Client) -> None:
    with pytest.raises(penstock.TopicNotFound):
        client.group("t", "nobody")
    client.publish("t", b"1")
    with pytest.raises(penstock.InvalidArgument):
        client.publish("not a name!", b"")
    with pytest.raises(penstock.LimitExceeded):
        client.publish("t", bytes(client.limits.max_value_bytes + 1))
    consumer = client.consumer("t", "g")
    (message,) = consumer.receive(1, wait=5)
    message.release()
    alone(client)
    before = used(client)
    with pytest.raises(penstock.LeaseLost) as lost:
        message.ack()
    assert lost.value.ids == (message.id,)
    assert used(client) == before + 1


def test_replies_that_come_in_many_pieces_are_put_together(client: Client) -> None:
    values = [bytes([number]) * 5000 for number in range(60)]
    client.publish_many("t", values)
    consumer = client.consumer("t", "g")
    alone(client)
    before = used(client)
    found = consumer.receive(60, wait=5)
    consumer.ack(found)
    assert [message.value for message in found] == values
    assert used(client) == before + 2


def test_requests_that_are_large_go_by_the_loop(client: Client) -> None:
    value = bytes(100_000)
    client.publish("t", value)
    assert next(iter(client.read("t"))).value == value


# The loop takes the socket back.


def test_a_socket_that_nobody_uses_goes_back_to_the_loop(client: Client) -> None:
    until(lambda: not direct(client).generation, "the loop to take it back")
    client.publish("t", b"1")
    assert end_of(client) == 1


def test_a_thread_that_waits_for_messages_keeps_nobody_waiting(client: Client) -> None:
    consumer = client.consumer("t", "g")
    client.create_topic("u")
    alone(client)
    found: list[penstock.StoredMessage] = []
    waiting = threading.Thread(target=lambda: found.extend(consumer.receive(1, wait=60)))
    waiting.start()
    until(lambda: not direct(client).generation, "the thread to wait")
    reports = [client.publish_soon("u", bytes(3000)) for _ in range(2000)]  # more than a socket takes at once
    client.publish_many("u", [bytes(3000)] * 2000)
    assert len({report.result(30) for report in reports}) == 2000
    client.publish("t", b"now")
    waiting.join(30)
    assert [message.value for message in found] == [b"now"]


def test_threads_that_come_and_go_lose_nothing_and_double_nothing(client: Client) -> None:
    def work(number: int) -> None:
        random_of_thread = random.Random(number)
        consumer = client.consumer("t", f"g{number}")
        for _ in range(60):
            kind = random_of_thread.random()
            if kind < 0.4:
                ids.append(client.publish("t", b"one"))
            elif kind < 0.5:
                ids.extend(client.publish_many("t", [b"many"] * random_of_thread.randint(1, 3000)))
            elif kind < 0.6:
                ids.append(client.publish_soon("t", b"soon").result(30))
            elif kind < 0.9:
                consumer.ack(consumer.receive(random_of_thread.randint(1, 50)))
            else:
                time.sleep(random_of_thread.random() * 0.05)  # the others are alone for a while
        consumer.close()

    ids: list[penstock.MessageId] = []
    client.create_topic("t")
    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(set(ids)) == len(ids) == end_of(client)
    assert used(client) > 0


def test_a_consumer_in_a_loop_gets_what_is_pushed_while_others_publish(client: Client) -> None:
    def publish() -> None:
        for number in range(200):
            client.publish("t", f"{number}")

    consumer = client.consumer("t", "g")
    publishing = threading.Thread(target=publish)
    publishing.start()
    for number, message in zip(range(200), consumer, strict=False):
        assert message.value == b"%d" % number
        message.ack()
    publishing.join(30)


def test_closing_the_client_ends_the_wait_of_a_thread(client: Client) -> None:
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            consumer.receive(1, wait=60)
        except penstock.PenstockError as error:
            errors.append(error)

    consumer = client.consumer("t", "g")
    alone(client)
    waiting = threading.Thread(target=wait)
    waiting.start()
    until(lambda: not direct(client).generation, "the thread to wait")
    client.close()
    waiting.join(10)
    assert not waiting.is_alive()
    assert [type(error) for error in errors] == [penstock.BrokerClosed]


def test_a_forked_process_does_not_use_the_socket_of_its_parent(client: Client) -> None:
    child = os.fork()
    if not child:
        try:
            client.publish("t", b"from the child")
        except penstock.BrokerClosed:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    client.publish("t", b"from the parent")


# Connections break.


def test_a_publish_whose_reply_is_lost_is_repeated_and_there_once(server: Running) -> None:
    with Line(server.port) as line, Client(line.address) as client:
        for number in range(20):
            alone(client)
            line.hold_back()
            publishing = threading.Thread(target=client.publish, args=("t", f"{number}"))
            publishing.start()
            assert line.held_back.wait(30)  # so the message is there
            line.cut()
            publishing.join(30)
            assert not publishing.is_alive()
        assert [message.value for message in client.read("t")] == [b"%d" % number for number in range(20)]


def test_a_question_whose_connection_breaks_is_asked_again(server: Running) -> None:
    with Line(server.port) as line, Client(line.address) as client:
        client.create_topic("t")
        for _ in range(5):
            alone(client)
            line.cut()
            assert [topic.name for topic in client.topics()] == ["t"]


def test_a_consumer_whose_connection_breaks_subscribes_again(server: Running) -> None:
    with Line(server.port) as line, Client(line.address) as client:
        consumer = client.consumer("t", "g", visibility_timeout=HOUR)
        client.publish("t", b"1")
        alone(client)
        (message,) = consumer.receive(1, wait=5)
        line.cut()
        with pytest.raises((penstock.LeaseLost, penstock.ConnectionLost)):
            message.ack()
        (again,) = consumer.receive(1, wait=30)
        again.ack()
        assert client.group("t", "g").lag == 0


def test_killed_servers_lose_nothing_that_was_acknowledged_and_double_nothing(tmp_path: Path) -> None:
    with Child(tmp_path) as child, Client(child.address) as client:
        published: list[penstock.MessageId] = []

        def publish() -> None:
            published.extend(client.publish("t", f"{number}") for number in range(3000))

        publishing = threading.Thread(target=publish)
        publishing.start()
        for kills in range(3):
            until(lambda: len(published) > 500 * (kills + 1), "messages")  # noqa: B023 - called at once
            child.kill()
            child.start()
        publishing.join(60)
        assert [message.value for message in client.read("t")] == [b"%d" % number for number in range(3000)]


# Interruptions.


class Interrupted(BaseException):
    """What a signal handler raises."""


@contextlib.contextmanager
def interruptions(seed: int) -> Iterator[list[str]]:
    """Interrupt the code under test in this thread again and again, at any moment; where that was."""

    def interrupt(_number: int, frame: FrameType | None) -> None:
        code = None if frame is None else frame.f_code
        if code is not None and (code.co_filename.endswith("client/direct.py") or code.co_name == "_receive_here"):
            places.append(code.co_name)
            raise Interrupted

    def send() -> None:
        pause_s = random.Random(seed)
        while not over.wait(pause_s.random() * 0.002):
            signal.pthread_kill(main, signal.SIGUSR1)

    places: list[str] = []
    main, over = threading.get_ident(), threading.Event()
    before = signal.signal(signal.SIGUSR1, interrupt)
    sending = threading.Thread(target=send)
    sending.start()
    try:
        yield places
    finally:
        over.set()
        sending.join()
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("seed", range(3))
def test_an_interrupted_publish_is_there_once_or_not_at_all(client: Client, seed: int) -> None:
    published: dict[int, penstock.MessageId] = {}
    with interruptions(seed) as places:
        number = 0
        while number < 500 or (len(places) < 30 and number < 20_000):
            with contextlib.suppress(Interrupted):
                published[number] = client.publish("t", f"{number}")
            number += 1
    client.publish("t", "last")
    stored = {message.value: message.id for message in client.read("t")}
    assert len(stored) == end_of(client), "none is there twice"
    assert all(stored[b"%d" % number] == identity for number, identity in published.items())
    assert len(places) >= 30


@pytest.mark.parametrize("seed", range(3))
def test_messages_of_an_interrupted_receive_are_given_back_at_once(client: Client, seed: int) -> None:
    count = 400
    client.publish_many("t", [f"{number}" for number in range(count)])
    consumer = client.consumer("t", "g", visibility_timeout=HOUR)
    acked: set[int] = set()
    alone(client)
    with interruptions(seed) as places:
        turns = 0
        while len(acked) < count // 2 or (len(places) < 30 and turns < 5000):
            turns += 1
            found: list[ClientDelivery] = []
            with contextlib.suppress(Interrupted):
                found = consumer.receive(1)
            for message in found:
                if len(acked) < count // 2:
                    with contextlib.suppress(Interrupted, penstock.LeaseLost):
                        message.ack()
                        acked.add(message.offset)
                else:
                    with contextlib.suppress(Interrupted, penstock.LeaseLost):
                        consumer.release([message])
    assert len(places) >= 30

    def is_done() -> bool:
        consumer.ack(consumer.receive(100))
        return client.group("t", "g").lag == 0

    until(is_done, "all messages to come at once, though they may be leased for an hour")
