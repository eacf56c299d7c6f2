"""The topic of the schedules behind a server: whatever a client sends to whichever port, only the broker writes it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import penstock
from penstock.api.operation import ALL
from penstock.api.operations import OPERATIONS
from penstock.client import AsyncClient, Client
from penstock.cluster.shards import Shards
from penstock.model.schedules import SCHEDULES
from penstock.server.access.principal import Scope
from penstock.server.operations import HANDLERS
from tests.server.http.harness import HttpRunning
from tests.server.line.harness import Talk

FORGED = "x"
ARGUMENTS: dict[str, Any] = {
    "topic": SCHEDULES,
    "name": SCHEDULES,
    "identity": f"{SCHEDULES}/0/0",
    "group": "g",
    "to": "g",
    "cron": "* * * * *",
    "value": "x",
    "before": {"0": 1},
    "positions": {"0": 0},
    "delay": 1,
}
HTTP: dict[str, tuple[str, str, Any]] = {
    "publish": ("POST", f"/v1/topics/{SCHEDULES}/publish", {"value": FORGED}),
    "publish many": ("POST", f"/v1/topics/{SCHEDULES}/messages", {"messages": [{"value": FORGED}]}),
    "receive": ("GET", f"/v1/topics/{SCHEDULES}/receive?group=g", None),
    "next": ("GET", f"/v1/topics/{SCHEDULES}/next?group=g", None),
    "join": ("POST", "/v1/groups/g/join", {"topics": [SCHEDULES]}),
    "make a group": ("POST", "/v1/groups", {"topic": SCHEDULES, "group": "g"}),
    "place a group": ("POST", "/v1/groups/g/offsets", {"topic": SCHEDULES, "offsets": {"0": 0}}),
    "make": ("POST", "/v1/topics", {"name": SCHEDULES}),
    "change": ("PATCH", f"/v1/topics/{SCHEDULES}", {"retention_age": "1s"}),
    "delete": ("DELETE", f"/v1/topics/{SCHEDULES}", None),
    "replay": ("POST", f"/v1/topics/{SCHEDULES}/replay", {"group": "g"}),
    "cancel": ("DELETE", f"/v1/topics/{SCHEDULES}/delayed/0/0", None),
    "give another time": ("PATCH", f"/v1/topics/{SCHEDULES}/delayed/0/0", {"delay": "1s"}),
    "schedule": ("PUT", "/v1/schedules/s", {"cron": "* * * * *", "topic": SCHEDULES, "value": FORGED}),
    "redrive": ("POST", f"/v1/topics/{SCHEDULES}/dead-letters/redrive", {}),
    "redrive into it": ("POST", "/v1/topics/t/dead-letters/redrive", {"to": SCHEDULES}),
    "enqueue": ("POST", f"/api/v1/queue/{SCHEDULES}/enqueue", FORGED),
    "dequeue": ("GET", f"/api/v1/queue/{SCHEDULES}/dequeue", None),
}


def _beside_schedules(shards: Shards) -> str:
    """A topic whose schedules are in the topic that is shown: there is one in each shard."""
    names = (f"t{number}" for number in range(1000))
    return next(name for name in names if shards.of(name) is shards.of(SCHEDULES))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpRunning]:
    with HttpRunning(tmp_path_factory.mktemp("reserved") / "data", line_port=0) as server:
        server.broker.schedule("real", "0 0 1 1 *", _beside_schedules(server.broker.shards), "x")
        server.broker.publish("t", "x")
        yield server


@pytest.fixture
def server(running: HttpRunning) -> Iterator[HttpRunning]:
    """A server of whose schedules nothing has changed when the test is over."""
    broker = running.broker
    before = list(broker.read(SCHEDULES)), list(broker.events(SCHEDULES))
    yield running
    assert (list(broker.read(SCHEDULES)), list(broker.events(SCHEDULES))) == before
    assert [schedule.name for schedule in broker.schedules()] == ["real"]
    assert broker.groups() == []


CHANGING = [name for name in HANDLERS if OPERATIONS[name].scope is not Scope.READ and OPERATIONS[name].route != ALL]
MORE: dict[str, dict[str, Any]] = {"reschedule_delayed": {"delay": 1}, "schedule": {"name": "other"}}


@pytest.mark.parametrize("name", CHANGING)
def test_H7_no_operation_changes_the_topic_of_the_schedules(server: HttpRunning, name: str) -> None:
    parameters = list(inspect.signature(HANDLERS[name]).parameters.values())[1:]
    needed = [one.name for one in parameters if one.default is one.empty and one.kind is not one.VAR_KEYWORD]
    given = {one: ARGUMENTS[one] for one in needed} | MORE.get(name, {})

    async def ask() -> None:
        async with AsyncClient(server.address) as client:
            await client.call(name, object, **given)

    if name == "purge_dead_letters":
        asyncio.run(ask())
        return
    says = "has no group" if name in ("delete_group", "seek_group", "reset_group") else "the broker's own"
    with pytest.raises(penstock.PenstockError, match=says):
        asyncio.run(ask())


NATIVE: dict[str, Callable[[Client], object]] = {
    "publish": lambda client: client.publish(SCHEDULES, FORGED),
    "publish many": lambda client: client.publish_many(SCHEDULES, [FORGED]),
    "publish later": lambda client: client.publish(SCHEDULES, FORGED, delay=1),
    "publish with a key": lambda client: client.publish(SCHEDULES, FORGED, key="k"),
    "stage": lambda client: client.stage_many("s", SCHEDULES, [FORGED]),
    "consume": lambda client: client.consumer(SCHEDULES, "g").receive(),
}


@pytest.mark.parametrize("act", NATIVE.values(), ids=NATIVE)
def test_H7_no_client_of_the_native_port_does(server: HttpRunning, act: Callable[[Client], object]) -> None:
    with Client(server.address) as client, pytest.raises(penstock.InvalidArgument, match="the broker's own"):
        act(client)


@pytest.mark.parametrize(("method", "path", "body"), HTTP.values(), ids=HTTP)
def test_H7_no_request_by_http_does(server: HttpRunning, method: str, path: str, body: Any) -> None:
    reply = server.ask(method, path, body)
    assert reply.status == 400
    assert b"the broker's own" in reply.body


def test_H7_no_line_of_text_does(server: HttpRunning) -> None:
    talk = Talk(server.server.addresses["line"][1])
    for line in (
        f"PRODUCE {SCHEDULES} 0 {FORGED}",
        f"CONSUME {SCHEDULES} 0",
        f"CONSUME {SCHEDULES} 0 ALL",
        f'{{"priority": 1, "data": "{FORGED}", "track": "{SCHEDULES}"}}',
    ):
        assert "the broker's own" in talk.say(line)
    talk.close()


def test_it_is_read_on_all_ports_as_any_other(server: HttpRunning) -> None:
    with Client(server.address) as client:
        assert [message.key for message in client.read(SCHEDULES)] == [b"real"]
        assert len(client.delayed(SCHEDULES)) == 1
    assert len(server.get(f"/v1/topics/{SCHEDULES}/messages")["messages"]) == 1
