"""Connections that take file descriptors and do nothing: the broker keeps enough of them for its own files."""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from tests.abuse.harness import Target, processor_s
from tests.server.harness import until

OPEN_FILES = 400
FLOOD = OPEN_FILES + 50
VALUES = [b"%d " % number + bytes(8000) for number in range(200)]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Target]:
    """A server that may open few files, and begins a new journal file with every few messages."""
    started = Target(tmp_path / "data", broker_journal_file_bytes="64KiB", broker_max_unsettled_bytes="4MiB")
    started.open_files_max = OPEN_FILES
    with started:
        yield started


def open_files(target: Target) -> int:
    return len(os.listdir(f"/proc/{target.pid}/fd"))


def flood(target: Target, held: contextlib.ExitStack) -> None:
    """Connect again and again, hold on to every connection, and say nothing."""
    ports = (target.port, target.http_port, target.line_port)
    for port in itertools.islice(itertools.cycle(ports), FLOOD):
        connection = held.enter_context(socket.socket())
        connection.settimeout(10)
        connection.connect(("127.0.0.1", port))


def journal_files(target: Target) -> int:
    """The highest number that a journal file has had."""
    return max(int(file.name.partition(".")[0]) for file in target.path.glob("**/journal/*"))


def test_H6_idle_connections_on_all_ports_leave_the_journal_its_descriptors(small: Target) -> None:
    with penstock.connect(small.address) as client, small.unharmed(), contextlib.ExitStack() as held:
        flood(small, held)
        until(lambda: open_files(small) < OPEN_FILES - 100, "what is too much is closed")
        begun = journal_files(small)
        for value in VALUES:
            client.publish("t", value)
        assert journal_files(small) >= begun + 10
        assert [message.value for message in client.read("t")] == VALUES
        assert client.status().frozen is None
    assert '"94 connections are the most that 400 open files allow' in small.log()


def test_H6_a_server_without_descriptors_refuses_and_goes_on_when_there_are_some(small: Target) -> None:
    with penstock.connect(small.address) as client, contextlib.ExitStack() as held:
        for value in VALUES[:20]:
            client.publish("t", value)
        resource.prlimit(small.pid, resource.RLIMIT_NOFILE, (open_files(small), OPEN_FILES))
        flood(small, held)
        refused = []
        for value in VALUES[20:60]:
            try:
                client.publish("t", value)
            except penstock.Overloaded:
                refused.append(value)
        assert refused
        until(lambda: is_quiet(small), "an end of trying to accept who waits")
        assert client.status().frozen is None
        resource.prlimit(small.pid, resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
        for value in [*refused, *VALUES[60:]]:
            client.publish("t", value)
        assert sorted(message.value for message in client.read("t")) == sorted(VALUES)
    with penstock.connect(small.address) as client:
        client.settle()
        assert sorted(message.value for message in client.read("t")) == sorted(VALUES)


def is_quiet(target: Target) -> bool:
    """Whether the server does next to nothing for a while."""
    before_s = processor_s(target.pid)
    time.sleep(0.5)
    return processor_s(target.pid) - before_s < 0.1


def test_a_server_that_may_open_too_few_files_says_so_and_does_not_start(tmp_path: Path) -> None:
    target = Target(tmp_path / "data")
    target.open_files_max = 200
    with pytest.raises(AssertionError, match="this process may open 200 files, and a server needs"), target:
        pass
