"""The description of the API is true: whatever is sent, the reply is one that it tells of."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks

from penstock.model.pipelines import PipelineReport, PipelineState, QueryReport
from penstock.server.access.tokens import TokenFile
from tests.server.http.harness import HttpRunning, Reply

METHODS = ("get", "post", "put", "patch", "delete")
KEPT = {
    "topic": "orders",
    "group": "kitchen",
    "partition": 0,
    "offset": 3,
    "name": "yearly",
    "pipeline": "hourly",
    "queue": "tasks",
}
"""What is there, under the names that paths have for it."""
OPEN = {"/health", "/healthz", "/livez", "/readyz", "/version", "/v1/login"}
STREAMS = {"/v1/topics/{topic}/stream", "/v1/live"}
CONTRACT = """
GET /v1/topics · POST /v1/topics · GET /v1/topics/{topic} · PATCH /v1/topics/{topic} · DELETE /v1/topics/{topic}
GET /v1/topics/{topic}/partitions · POST /v1/topics/{topic}/publish · POST /v1/topics/{topic}/messages
GET /v1/topics/{topic}/partitions/{partition}/messages · GET /v1/topics/{topic}/messages
GET /v1/topics/{topic}/messages/{partition}/{offset} · POST /v1/topics/{topic}/replay
GET /v1/groups · POST /v1/groups · GET /v1/groups/{group} · DELETE /v1/groups/{group} · POST /v1/groups/{group}/seek
POST /v1/groups/{group}/join · POST /v1/groups/{group}/heartbeat · POST /v1/groups/{group}/leave
GET /v1/groups/{group}/poll · GET /v1/groups/{group}/offsets · POST /v1/groups/{group}/offsets
GET /v1/groups/{group}/assignment · GET /v1/topics/{topic}/receive · GET /v1/topics/{topic}/next
POST /v1/messages/ack · POST /v1/messages/nack · POST /v1/messages/release · POST /v1/messages/reject
POST /v1/messages/visibility · GET /v1/topics/{topic}/stream · GET /v1/live · GET /v1/overview
GET /v1/topics/{topic}/delayed · GET /v1/topics/{topic}/delayed/{partition}/{offset}
DELETE /v1/topics/{topic}/delayed/{partition}/{offset} · PATCH /v1/topics/{topic}/delayed/{partition}/{offset}
GET /v1/pipelines · GET /v1/pipelines/{pipeline} · PUT /v1/pipelines/{pipeline}
GET /v1/schedules · PUT /v1/schedules/{name} · DELETE /v1/schedules/{name}
POST /v1/schedules/{name}/pause · POST /v1/schedules/{name}/resume
GET /v1/topics/{topic}/dead-letters · GET /v1/topics/{topic}/dead-letters/causes
POST /v1/topics/{topic}/dead-letters/redrive · POST /v1/topics/{topic}/dead-letters/purge
GET /v1/traces/{topic}/{partition}/{offset} · GET /v1/traces/{identity} · GET /v1/traces · GET /v1/traces/search
GET /v1/priority/stats · GET /v1/delay/stats · GET /v1/reliability/stats · GET /v1/rebalance/stats · GET /v1/stats
GET /status · GET /health · GET /healthz · GET /readyz · GET /livez · GET /version · GET /metrics
POST /api/v1/queue/{queue}/enqueue · GET /api/v1/queue/{queue}/dequeue · GET /api/v1/queue/{queue}/list-items
GET /v1/cluster · POST /v1/cluster/move · POST /v1/cluster/drain · POST /v1/cluster/balance
POST /v1/login · POST /v1/logout · GET /v1/whoami
"""
NOT_HERE = ("is not a receipt handle", "is not in orders/0", "this server is one process")
"""What is said to examples that are about something that is not there."""
CHECKED = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
)


def fill(server: HttpRunning) -> None:
    """Have something of each kind there."""
    broker = server.broker
    broker.create_topic("orders", partitions=2)
    for number in range(8):
        broker.publish("orders", f"{number}", key=f"{number}", partition=0, delay="1h" if number == 3 else None)
    with broker.consumer("orders", "kitchen") as consumer:
        for message in consumer.receive(2):
            message.kill("no milk")
    broker.publish("tasks", "x")
    broker.schedule("yearly", "0 0 1 1 *", "orders", "x")
    queries = (QueryReport(name="hourly.totals", reads=("orders",)),)
    server.server.services.pipelines.take(PipelineReport(name="hourly", state=PipelineState.RUNNING, queries=queries))


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpRunning]:
    with HttpRunning(tmp_path_factory.mktemp("data"), broker={"sync": "never"}) as running:
        fill(running)
        yield running


@pytest.fixture(scope="module")
def document(filled: HttpRunning) -> Any:
    return filled.get("/docs/openapi.json")


def operations(document: Any) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                yield method.upper(), path, item[method]


def with_names(path: str) -> str:
    """A path with what is there."""
    for name, value in {**KEPT, "identity": "orders/0/0"}.items():
        path = path.replace(f"{{{name}}}", quote(str(value), safe=""))
    return path


def test_every_route_of_the_contract_is_described(document: Any) -> None:
    wanted = {route.strip() for line in CONTRACT.splitlines() for route in line.split("·") if route.strip()}
    found = {f"{method} {path}" for method, path, _ in operations(document)}
    assert wanted <= found, wanted - found


def test_every_operation_is_described_with_its_errors_and_an_example(document: Any) -> None:
    tags = {tag["name"] for tag in document["tags"]}
    names: set[str] = set()
    for method, path, operation in operations(document):
        where = f"{method} {path}"
        assert operation.get("summary"), where
        assert set(operation.get("tags", ())) & tags, where
        assert operation["operationId"] not in names, where
        names.add(operation["operationId"])
        responses = operation["responses"]
        assert any(status.startswith("2") for status in responses), where
        if path not in OPEN:
            assert {"400", "401", "403", "429", "503"} <= responses.keys(), where
        for status in ("400", "401", "403", "404", "409", "410", "413", "429", "507"):
            if status in responses:
                schema = responses[status]["content"]["application/json"]["schema"]
                assert schema["$ref"].endswith("/Problem"), where
        for name, media in operation.get("requestBody", {}).get("content", {}).items():
            given = media.get("examples") or media.get("example")
            assert given or name != "application/json", f"{where}: no example"


def request_of(operation: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The body and the query of a request as the description shows it."""
    content = operation.get("requestBody", {}).get("content", {})
    shown = content.get("application/json", {}).get("examples", {})
    body = next(iter(shown.values()))["value"] if shown else b"x" if content else None
    query = {
        parameter["name"]: KEPT.get(parameter["name"], parameter.get("example", "1"))
        for parameter in operation.get("parameters", ())
        if parameter["in"] == "query" and parameter.get("required")
    }
    return body, query


def ask_all(server: HttpRunning, document: Any, token: str | None) -> Iterator[tuple[str, str, Reply]]:
    """Send what the description shows of each operation that needs a token, and does not go on for ever."""
    for method, path, operation in operations(document):
        if path not in OPEN | STREAMS:
            body, query = request_of(operation)
            yield method, path, server.ask(method, with_names(path), body, query=query, token=token)


def test_every_example_is_understood(tmp_path: Path) -> None:
    with HttpRunning(tmp_path) as server:
        fill(server)
        refused = [
            f"{method} {path}: {reply.body.decode()}"
            for method, path, reply in ask_all(server, server.get("/docs/openapi.json"), None)
            if reply.status == 400 and not any(text in reply.json["error"] for text in NOT_HERE)
        ]
    assert refused == []


def test_every_operation_asks_for_a_token_that_is_for_it(tmp_path: Path, document: Any) -> None:
    tokens = TokenFile(str(tmp_path))
    elsewhere = tokens.create("elsewhere", ["admin"], ["mine.*"], None).secret
    nothing_but_reading = tokens.create("reader", ["read"], ["*"], None).secret
    with HttpRunning(tmp_path, auth="tokens") as server:
        fill(server)
        for token in (None, "pst_wrong", "pst_0123456789abcdef_wrong"):
            for method, path, reply in ask_all(server, document, token):
                assert reply.status == 401, f"{method} {path}: {reply}"
        for method, path, reply in ask_all(server, document, elsewhere):
            if "{topic}" in path or "{queue}" in path:
                assert reply.status == 403, f"{method} {path}: {reply}"
            assert b"orders" not in reply.body or reply.status >= 400, f"{method} {path}: {reply}"
        for method, path, reply in ask_all(server, document, nothing_but_reading):
            if method != "GET" and path not in {"/v1/logout", "/v1/login"}:
                assert reply.status >= 400, f"{method} {path}: {reply}"
        assert len(list(server.broker.read("orders"))) == 8
        assert [schedule.name for schedule in server.broker.schedules()] == ["yearly"]


# What nobody thought of.


def sensible(case: Any, known: dict[str, Any]) -> None:
    """Have a request be about what is there, and not wait."""
    for name in case.path_parameters or {}:
        case.path_parameters[name] = known.get(name, case.path_parameters[name])
    for name in ("wait", "timeout"):
        if name in (case.query or {}):
            case.query[name] = 0
    if isinstance(case.body, dict) and case.body.get("rate"):
        case.body["rate"] = 1_000_000


def examples(strategy: Any, count: int, act: Callable[[Any, bool], None]) -> None:
    """Do something with so many examples, the same ones every time."""

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=strategy, about_known=st.booleans())
    def each(case: Any, about_known: bool) -> None:
        act(case, about_known)

    each()


def can_be_wrong(operation: dict[str, Any]) -> bool:
    """Whether anything in a request can have the wrong type."""
    kinds = [parameter["schema"] for parameter in operation.get("parameters", ())]
    return "application/json" in operation.get("requestBody", {}).get("content", {}) or any(
        kind.get("type") != "string" for kind in kinds
    )


@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore:Do not use the `random` module")  # the server's threads do, beside the strategies
def test_whatever_is_sent_the_reply_is_one_that_is_described(filled: HttpRunning, document: Any) -> None:
    load_all_checks()
    checks = [CHECKS.get_one(name) for name in CHECKED]
    for _, _, described in operations(document):
        described.pop("security", None)  # this server asks nobody; tokens have a test of their own
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=filled.url)
    problems: dict[str, str] = {}

    def send(label: str, mode: GenerationMode, case: Any, about_known: bool) -> None:
        if mode is GenerationMode.POSITIVE:
            sensible(case, KEPT if about_known else {})
        try:
            case.call_and_validate(checks=checks, timeout=30)
        except Exception as error:  # noqa: BLE001 - told below, all at once
            problems.setdefault(label, f"{error}\n{case.as_curl_command()}"[:2000])

    every: Any = schema.get_all_operations()
    for found in every:
        operation: Any = found.ok()
        if operation.path in STREAMS or (operation.method, operation.path) == ("delete", "/v1/topics/{topic}"):
            continue
        for mode, count in ((GenerationMode.POSITIVE, 10), (GenerationMode.NEGATIVE, 4)):
            if mode is GenerationMode.POSITIVE or can_be_wrong(operation.definition.raw):
                strategy = operation.as_strategy(generation_mode=mode)
                examples(strategy, count, functools.partial(send, f"{operation.label} ({mode.value})", mode))
    assert not problems, "\n\n".join(f"{label}: {text}" for label, text in problems.items())
