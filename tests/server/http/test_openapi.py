"""The description of the API: valid, complete, and true."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from penstock.model.errors import Overloaded
from penstock.server.http.description import description
from penstock.server.http.routes import TAGS
from penstock.version import __version__
from tests.server.http.harness import HttpRunning

_METHODS = ("get", "post", "put", "patch", "delete")
_ALSO_OPEN = {"/health", "/healthz", "/livez", "/readyz", "/version", "/v1/login", "/v1/logout"}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(description())
    return found


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method in _METHODS:
            if method in item:
                yield path, method, item[method]


def test_the_description_is_a_valid_document_of_openapi_3_1(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    assert document["info"]["version"] == __version__
    problems = [str(error) for error in OpenAPIV31SpecValidator(document).iter_errors()]
    assert problems == []


def test_every_operation_says_what_it_is(document: dict[str, Any]) -> None:
    for path, method, operation in operations(document):
        place = f"{method} {path}"
        assert operation["summary"], place
        assert "\n" not in operation["summary"], place
        assert " " in operation["summary"], f"{place}: {operation['summary']} is a name, not a sentence"
        assert not operation["summary"].endswith("."), place
        assert operation["tags"], place
        assert set(operation["tags"]) <= set(TAGS), place
        assert any(status.startswith("2") for status in operation["responses"]), place
        assert all(response["description"] for response in operation["responses"].values()), place
        for parameter in operation.get("parameters", ()):
            assert parameter["description"], f"{place}: {parameter['name']} says nothing"


def test_names_of_operations_are_short_and_used_once(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(set(names)) == len(names) > 30
    assert all(name.isidentifier() and name == name.lower() for name in names), names
    assert {"publish_message", "health", "healthz"} <= set(names)


def test_tags_come_in_the_order_of_a_reader_and_all_are_used(document: dict[str, Any]) -> None:
    assert [tag["name"] for tag in document["tags"]] == list(TAGS)
    used = {tag for _, _, operation in operations(document) for tag in operation["tags"]}
    assert used == set(TAGS)


def test_operations_that_need_a_token_say_so(document: dict[str, Any]) -> None:
    for path, method, operation in operations(document):
        assert operation["security"] in ([], [{"token": []}]), (method, path)
    without = {path for path, _, operation in operations(document) if not operation["security"]}
    assert "/v1/login" in without
    assert without <= _ALSO_OPEN


def test_what_is_said_of_tokens_is_what_the_server_does(tmp_path: Path, document: dict[str, Any]) -> None:
    with HttpRunning(tmp_path / "data", auth="tokens") as server:
        for path, method, operation in operations(document):
            if method != "get":
                continue
            filled = path.replace("{partition}", "0").replace("{offset}", "0").replace("{", "").replace("}", "")
            status = server.ask("GET", filled).status
            assert (status == 401) == bool(operation["security"]), (path, status)


def test_every_example_is_what_its_schema_asks_for(document: dict[str, Any]) -> None:
    checked = 0
    for path, method, operation in operations(document):
        bodies = [operation.get("requestBody", {}), *operation["responses"].values()]
        for media in (media for body in bodies for media in body.get("content", {}).values()):
            schema = {**media.get("schema", {}), "components": document["components"]}
            for example in media.get("examples", {}).values():
                problems = [
                    f"{error.json_path}: {error.message}"
                    for error in Draft202012Validator(schema).iter_errors(example["value"])
                ]
                assert problems == [], (method, path, problems)
                checked += 1
    assert checked > 50


def test_bodies_have_examples_and_fields_have_texts(document: dict[str, Any]) -> None:
    for path, method, operation in operations(document):
        media = operation.get("requestBody", {}).get("content", {}).get("application/json")
        assert media is None or media["examples"], (method, path)
    join = document["components"]["schemas"]["Join"]
    assert join["description"] == "A consumer that wants to join a group."
    assert "assigned" in join["properties"]["mode"]["description"]


def test_the_description_is_served_and_needs_no_token(tmp_path: Path, document: dict[str, Any]) -> None:
    with HttpRunning(tmp_path / "data", auth="tokens") as server:
        reply = server.ask("GET", "/docs/openapi.json")
        assert reply.status == 200
        assert reply.headers["content-type"].startswith("application/json")
        assert reply.json == document
        page = server.ask("GET", "/docs")
        assert page.status == 200
        assert page.headers["content-type"].startswith("text/html")
        assert server.refused("GET", "/docs/nothing")[0] == 404


def test_many_who_ask_first_have_the_description_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[bytes] = []

    def make() -> bytes:
        made.append(description())
        return made[-1]

    monkeypatch.setattr("penstock.server.http.description.description", make)
    description.cache_clear()
    with HttpRunning(tmp_path) as server, ThreadPoolExecutor(64) as people:
        replies = list(people.map(lambda _: server.ask("GET", "/docs/openapi.json"), range(64)))
    assert {reply.status for reply in replies} == {200}
    assert {reply.body for reply in replies} == {made[0]}
    assert len(made) == 1


def test_a_description_that_could_not_be_made_is_made_for_the_next_who_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = iter([Overloaded("too much is under way"), None])

    def make() -> bytes:
        error = next(failures)
        if error is not None:
            raise error
        return description()

    monkeypatch.setattr("penstock.server.http.description.description", make)
    with HttpRunning(tmp_path) as server:
        assert server.refused("GET", "/docs/openapi.json")[0] == 429
        assert server.get("/docs/openapi.json")["info"]["title"] == "Penstock"
