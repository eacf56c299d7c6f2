"""The table of operations: every face has what it declares, a server does it by name, and its rules fit together."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from penstock import Broker
from penstock.aio import AsyncBroker
from penstock.api.operation import ALL, Operation
from penstock.api.operations import OPERATIONS, BrokerOperations, PipelineOperations, ProcessOperations, TokenOperations
from penstock.client import AsyncClient, Client
from penstock.model.tokens import Scope
from penstock.server.operations import HANDLERS

CHOOSING = {"filter", "progress"}
"""Arguments that are functions, which stay with whoever asks."""
NAMING = {
    "dead_letters": {"after"},
    "redrive": {"ids", "cause", "group"},
    "purge_dead_letters": {"ids"},
    "replay": {"only"},
    "seal_stage": {"staged"},
}
"""Arguments of calls that say what a function has chosen, or what whoever asks knows."""


def declared_in(interface: type) -> dict[str, Operation]:
    return {name: OPERATIONS[name] for name in vars(interface) if not name.startswith("_")}


def shown(parameters: Any) -> list[tuple[Any, ...]]:
    return [(one.name, one.kind, one.default, one.annotation) for one in parameters if one.name != "self"]


def test_every_operation_is_of_a_broker_of_pipelines_or_of_tokens() -> None:
    interfaces = (BrokerOperations, PipelineOperations, TokenOperations, ProcessOperations)
    assert [name for interface in interfaces for name in declared_in(interface)] == list(OPERATIONS)


@pytest.mark.parametrize("name", declared_in(BrokerOperations))
@pytest.mark.parametrize("face", [Broker, AsyncBroker, Client, AsyncClient], ids=lambda face: face.__name__)
def test_every_face_has_every_operation_with_the_declared_arguments(face: type, name: str) -> None:
    signature, declared = inspect.signature(getattr(face, name)), OPERATIONS[name].signature
    offered = [one for one in signature.parameters.values() if one.name != "auto_extend"]
    assert shown(offered) == shown(declared.parameters.values())
    results = {declared.return_annotation, declared.return_annotation.replace("Iterator", "AsyncIterator")}
    assert name == "consumer" or signature.return_annotation in results
    assert inspect.getdoc(getattr(face, name))


@pytest.mark.parametrize("name", declared_in(PipelineOperations))
@pytest.mark.parametrize("face", [Client, AsyncClient])
def test_both_clients_have_the_operations_on_pipelines(face: type, name: str) -> None:
    declared, signature = OPERATIONS[name].signature, inspect.signature(getattr(face, name))
    assert shown(signature.parameters.values()) == shown(declared.parameters.values())
    assert signature.return_annotation == declared.return_annotation


def test_a_server_does_by_name_what_is_declared_to_be_called_and_nothing_else() -> None:
    assert set(HANDLERS) == {name for name, operation in OPERATIONS.items() if operation.called}


@pytest.mark.parametrize("name", HANDLERS)
def test_a_call_takes_the_declared_arguments_that_can_travel(name: str) -> None:
    taken = {one.name: one.default for one in list(inspect.signature(HANDLERS[name]).parameters.values())[1:]}
    declared = {one.name: one.default for one in OPERATIONS[name].signature.parameters.values()}
    assert {one: taken[one] for one in taken if one not in NAMING.get(name, ())} == {
        one: declared[one] for one in declared if one not in CHOOSING
    }


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_route_is_an_argument(name: str) -> None:
    operation = OPERATIONS[name]
    assert operation.route == ALL or operation.route in operation.signature.parameters


def test_whatever_only_reads_may_be_repeated_and_takes_no_patience() -> None:
    for operation in OPERATIONS.values():
        if operation.scope is Scope.READ:
            assert (operation.repeatable, operation.is_patient) == (True, False), operation.name
