"""How many connections the limit of open files allows."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
from collections.abc import Iterator

import pytest

from penstock.model.config import BrokerConfig
from penstock.server.access.starting import StartRefused
from penstock.server.config import ServerConfig
from penstock.server.descriptors import SpareDescriptor, connections_max, raise_limit

HARD = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
NEEDED = 240 + 34


@pytest.fixture(autouse=True)
def limit_as_before() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def allow(open_files: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, HARD))


def test_a_server_raises_its_limit_as_far_as_it_may() -> None:
    allow(900)
    raise_limit()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (HARD, HARD)


@pytest.mark.parametrize(("open_files", "connections"), [(NEEDED + 726, 726), (NEEDED + 1, 1), (4096, 1000)])
def test_connections_get_what_the_broker_does_not_need(open_files: int, connections: int) -> None:
    allow(open_files)
    assert connections_max(ServerConfig(max_connections=1000)) == connections


def test_many_small_journal_files_take_a_quarter_at_the_most() -> None:
    allow(1000)
    tiny = BrokerConfig(journal_file_bytes=4096)
    assert connections_max(ServerConfig(broker=tiny)) == 1000 - 240 - 250


def test_a_limit_that_leaves_no_connection_is_refused() -> None:
    allow(NEEDED)
    with pytest.raises(StartRefused, match="may open 274 files, and a server needs 274") as refused:
        connections_max(ServerConfig())
    assert "ulimit -n" in refused.value.hint


def test_H6_the_spare_descriptor_is_given_up_while_there_is_no_other() -> None:
    loop = asyncio.new_event_loop()
    spare = SpareDescriptor(loop)
    assert not spare.is_given_up()
    spare.start()
    assert not spare.is_given_up()
    with contextlib.ExitStack() as taken:
        allow(1 + max(map(int, os.listdir("/proc/self/fd"))))
        with contextlib.suppress(OSError):
            while True:
                taken.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        spare.start()
        assert spare.is_given_up()
        os.close(os.open(os.devnull, os.O_RDONLY))  # it is there for somebody who connects
        spare.start()
        assert spare.is_given_up()
    assert not spare.is_given_up()
    spare.stop()
    loop.close()
