"""A client has the operations of the embedded broker: the same names, arguments and defaults."""

from __future__ import annotations

import inspect

import pytest

from penstock.aio.broker import AsyncBroker
from penstock.aio.consumer import AsyncConsumer, AsyncDelivery
from penstock.client import AsyncClient, Client
from penstock.client.consumer import AsyncClientConsumer, AsyncReceived
from penstock.client.sync_consumer import ClientConsumer, ClientDelivery
from penstock.embedded.broker import Broker
from penstock.embedded.consumer import Consumer, Delivery

BOTH = {
    *("flush", "publish_soon", "ping", "report_pipeline", "pipelines", "stage_packed"),
    *("cluster", "move_shard", "drain_process", "balance_shards"),
    *("ask", "call", "join", "link", "pages", "partitions", "publisher", "slices"),
    *("letter_pages", "redrive_steps", "purge_chosen"),
}
EXTRA: dict[type, set[str]] = {
    Client: {*BOTH, "limits"},
    AsyncClient: {*BOTH, "closed", "links"},
    ClientConsumer: {"remote"},
    AsyncClientConsumer: {"remote"},
    ClientDelivery: set(),
    AsyncReceived: set(),
}
"""What only clients have; some of it is what the rest stands on."""
LEFT_OUT: dict[type, set[str]] = {
    Client: {"shard", "engine"},  # it is in another process
    AsyncClient: {"recovery"},  # a property cannot be awaited: `(await client.status()).recovery`
}
EXTRA_ARGUMENTS = {"consumer": ["auto_extend"]}
PAIRS = [
    (Broker, Client),
    (AsyncBroker, AsyncClient),
    (Consumer, ClientConsumer),
    (AsyncConsumer, AsyncClientConsumer),
    (Delivery, ClientDelivery),
    (AsyncDelivery, AsyncReceived),
]


def operations(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize(("embedded", "client"), PAIRS)
def test_a_client_has_every_operation_and_no_other_than_those_listed(embedded: type, client: type) -> None:
    instance_only = {"shard"} if embedded is Broker else set()
    left_out, extra = LEFT_OUT.get(client, set()), EXTRA[client]
    assert (operations(embedded) | instance_only) - operations(client) == left_out
    assert operations(client) - operations(embedded) <= extra


@pytest.mark.parametrize(("embedded", "client"), PAIRS)
def test_every_operation_takes_the_same_arguments_with_the_same_defaults(embedded: type, client: type) -> None:
    for name in operations(embedded) & operations(client):
        theirs, ours = inspect.getattr_static(embedded, name), inspect.getattr_static(client, name)
        if not inspect.isfunction(theirs) or not inspect.isfunction(ours):
            continue
        wanted = dict(inspect.signature(theirs).parameters)
        offered = dict(inspect.signature(ours).parameters)
        for extra in EXTRA_ARGUMENTS.get(name, []):
            offered.pop(extra, None)
        shown = [(p.name, p.kind, p.default, p.annotation) for p in offered.values() if p.name != "self"]
        if name in ("ack", "extend", "release", "fail", "kill", "hold"):  # each takes messages of its own kind
            shown = [(*rest, None) for *rest, _ in shown]
            assert shown == [(p.name, p.kind, p.default, None) for p in wanted.values() if p.name != "self"], name
        else:
            assert shown == [(p.name, p.kind, p.default, p.annotation) for p in wanted.values() if p.name != "self"], (
                name
            )
        assert inspect.iscoroutinefunction(theirs) == inspect.iscoroutinefunction(ours), name


@pytest.mark.parametrize(("embedded", "client"), [(Broker, Client), (AsyncBroker, AsyncClient)])
def test_consumers_of_a_client_have_no_required_argument_more(embedded: type, client: type) -> None:
    consumer = inspect.signature(inspect.getattr_static(client, "consumer"))
    for extra in EXTRA_ARGUMENTS["consumer"]:
        assert consumer.parameters[extra].default is False


def test_whatever_has_a_context_or_is_iterated_over_is_so_in_a_client() -> None:
    for embedded, client in PAIRS:
        for name in ("__enter__", "__exit__", "__aenter__", "__aexit__", "__iter__", "__aiter__", "__anext__"):
            assert hasattr(embedded, name) == hasattr(client, name), (client, name)
