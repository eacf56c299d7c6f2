"""Every operation of the API with every kind of token: what it takes, and that nothing of others is seen or touched."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.model.pipelines import PipelineReport, PipelineState, QueryReport
from penstock.server.access.tokens import TokenFile
from penstock.server.http.description import description
from tests.server.http.harness import HttpRunning, Reply

_SCOPES = ("publish", "consume", "read", "admin")
_FOREIGN, _OWN = "foreign.orders", "own.orders"
_SECRETS = ("foreign", "classified", "hush")
_CHANGES: dict[str, Any] = {"retention_hours": 1}
_HANDLE = {"receipt_handle": "0123456789abcdef:{topic}/0/0@1"}
_MEMBER = {"member_id": "0123456789abcdef"}
_MESSAGE = {"value": "x"}
_REPORT = {"state": "running", "queries": [{"name": "q", "reads": ["{topic}"]}]}

# What each operation takes: "open" needs no token, "any" needs one; and a body where one is needed.
_OPERATIONS: dict[tuple[str, str], tuple[str, Any]] = {
    ("POST", "/v1/login"): ("open", {"token": "x"}),
    ("GET", "/readyz"): ("open", None),
    ("GET", "/healthz"): ("open", None),
    ("GET", "/health"): ("open", None),
    ("GET", "/livez"): ("open", None),
    ("GET", "/version"): ("open", None),
    ("POST", "/v1/logout"): ("any", {}),
    ("GET", "/v1/whoami"): ("any", None),
    ("GET", "/v1/topics/{topic}/dead-letters"): ("read", None),
    ("GET", "/v1/topics/{topic}/dead-letters/causes"): ("read", None),
    ("POST", "/v1/topics/{topic}/dead-letters/redrive"): ("admin", {}),
    ("POST", "/v1/topics/{topic}/dead-letters/purge"): ("admin", {}),
    ("GET", "/v1/topics/{topic}/delayed"): ("read", None),
    ("GET", "/v1/topics/{topic}/delayed/{partition}/{offset}"): ("read", None),
    ("DELETE", "/v1/topics/{topic}/delayed/{partition}/{offset}"): ("publish", None),
    ("PATCH", "/v1/topics/{topic}/delayed/{partition}/{offset}"): ("publish", {"delay": 1}),
    ("GET", "/v1/groups"): ("read", None),
    ("POST", "/v1/groups"): ("consume", {"topic": "{topic}", "group": "made"}),
    ("GET", "/v1/groups/{group}"): ("read", None),
    ("DELETE", "/v1/groups/{group}"): ("consume", None),
    ("POST", "/v1/groups/{group}/seek"): ("consume", {"topic": "{topic}", "to": "latest"}),
    ("POST", "/v1/groups/{group}/pause"): ("consume", {"topic": "{topic}"}),
    ("POST", "/v1/groups/{group}/resume"): ("consume", {"topic": "{topic}"}),
    ("GET", "/v1/groups/{group}/offsets"): ("read", None),
    ("POST", "/v1/groups/{group}/offsets"): ("consume", {"topic": "{topic}", "offsets": {"0": 0}}),
    ("GET", "/v1/groups/{group}/assignment"): ("read", None),
    ("GET", "/v1/overview"): ("read", None),
    ("POST", "/v1/topics/{topic}/publish"): ("publish", _MESSAGE),
    ("POST", "/goqueue/v1/topics/{topic}/publish"): ("publish", {"value": "AAEC"}),
    ("GET", "/v1/topics/{topic}/messages"): ("read", None),
    ("POST", "/v1/topics/{topic}/messages"): ("publish", {"messages": [_MESSAGE]}),
    ("GET", "/v1/topics/{topic}/stream"): ("consume", None),
    ("GET", "/v1/live"): ("read", None),
    ("POST", "/api/v1/queue/{queue}/enqueue"): ("publish", b"x"),
    ("GET", "/api/v1/queue/{queue}/dequeue"): ("consume", None),
    ("GET", "/api/v1/queue/{queue}/list-items"): ("read", None),
    ("GET", "/v1/topics/{topic}/partitions/{partition}/messages"): ("read", None),
    ("GET", "/v1/topics/{topic}/messages/{partition}/{offset}"): ("read", None),
    ("POST", "/v1/topics/{topic}/replay"): ("consume", {"group": "again"}),
    ("GET", "/v1/topics/{topic}/receive"): ("consume", None),
    ("GET", "/v1/topics/{topic}/next"): ("consume", None),
    ("POST", "/v1/messages/ack"): ("consume", _HANDLE),
    ("POST", "/v1/messages/nack"): ("consume", _HANDLE),
    ("POST", "/v1/messages/release"): ("consume", _HANDLE),
    ("POST", "/v1/messages/reject"): ("consume", _HANDLE),
    ("POST", "/v1/messages/visibility"): ("consume", {**_HANDLE, "visibility_timeout": 1}),
    ("POST", "/v1/groups/{group}/join"): ("consume", {"topics": ["{topic}"]}),
    ("POST", "/v1/groups/{group}/heartbeat"): ("consume", _MEMBER),
    ("POST", "/v1/groups/{group}/leave"): ("consume", _MEMBER),
    ("GET", "/v1/groups/{group}/poll"): ("consume", None),
    ("GET", "/v1/schedules"): ("read", None),
    ("PUT", "/v1/schedules/{name}"): ("publish", {"cron": "0 0 1 1 *", "topic": "{topic}", "value": "x"}),
    ("DELETE", "/v1/schedules/{name}"): ("publish", None),
    ("POST", "/v1/schedules/{name}/pause"): ("publish", {}),
    ("POST", "/v1/schedules/{name}/resume"): ("publish", {}),
    ("GET", "/v1/pipelines"): ("read", None),
    ("GET", "/v1/pipelines/{pipeline}"): ("read", None),
    ("PUT", "/v1/pipelines/{pipeline}"): ("consume", _REPORT),
    ("GET", "/v1/cluster"): ("read", None),
    ("POST", "/v1/cluster/move"): ("admin", {"shard": 0, "process": 0}),
    ("POST", "/v1/cluster/drain"): ("admin", {"process": 0}),
    ("POST", "/v1/cluster/balance"): ("admin", None),
    ("GET", "/v1/stats"): ("read", None),
    ("GET", "/v1/priority/stats"): ("read", None),
    ("GET", "/v1/delay/stats"): ("read", None),
    ("GET", "/v1/reliability/stats"): ("read", None),
    ("GET", "/v1/rebalance/stats"): ("read", None),
    ("GET", "/status"): ("read", None),
    ("GET", "/metrics"): ("read", None),
    ("GET", "/v1/topics"): ("read", None),
    ("POST", "/v1/topics"): ("admin", {"name": "{topic}"}),
    ("GET", "/v1/topics/{topic}"): ("read", None),
    ("DELETE", "/v1/topics/{topic}"): ("admin", None),
    ("PATCH", "/v1/topics/{topic}"): ("admin", _CHANGES),
    ("GET", "/v1/topics/{topic}/partitions"): ("read", None),
    ("GET", "/v1/traces/{topic}/{partition}/{offset}"): ("read", None),
    ("GET", "/v1/traces/{identity}"): ("read", None),
    ("GET", "/v1/traces"): ("read", None),
    ("GET", "/v1/traces/search"): ("read", None),
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpRunning]:
    """A server that asks for tokens, and has something of others."""
    with HttpRunning(tmp_path_factory.mktemp("guarded"), auth="tokens") as running:
        broker = running.broker
        for topic in (_FOREIGN, "foreign.delayed"):
            broker.publish_many(topic, ["classified 1", "classified 2", "classified 3"])
            broker.publish(topic, "classified later", key="classified", delay=3600, priority="high")
        with broker.consumer(_FOREIGN, "hush", name="hush-1") as consumer:
            consumer.receive(1)[0].kill("classified cause")
        broker.create_group("foreign.delayed", "hush")
        broker.schedule("hush-schedule", "0 0 1 1 *", _FOREIGN, "classified")
        running.server.services.pipelines.take(
            PipelineReport(
                name="hush-pipeline",
                state=PipelineState.FAILED,
                error="classified",
                queries=(QueryReport(name="q", reads=(_OWN, _FOREIGN)),),
            )
        )
        broker.publish(_OWN, "mine")
        broker.create_group(_OWN, "hush")
        yield running


@pytest.fixture(scope="module")
def tokens(guarded: HttpRunning) -> dict[str, str]:
    """A token of each scope, for topics of one's own."""
    file = TokenFile(guarded._config.data_dir)
    return {scope: file.create(f"my-{scope}", [scope], ("own.*",)).secret for scope in _SCOPES}


def asked(
    server: HttpRunning,
    method: str,
    path: str,
    body: Any,
    topic: str,
    token: str | None,
    headers: dict[str, str] | None = None,
) -> Reply:
    """The reply to an operation that is about a topic."""
    names = {"topic": topic, "queue": topic, "group": "hush", "name": "hush-schedule", "partition": "0", "offset": "1"}
    for name, value in {**names, "pipeline": "hush-pipeline", "identity": f"{topic}%2F0%2F1"}.items():
        path = path.replace("{" + name + "}", value)
    if path.endswith(("/stream", "/receive")):
        path += "?group=hush"
    if path.endswith("/poll"):
        path += f"?member_id={_MEMBER['member_id']}"
    if isinstance(body, dict):
        body = json.loads(json.dumps(body).replace("{topic}", topic))
    return server.ask(method, path, body, token=token, headers=headers)


def test_every_operation_is_in_the_table() -> None:
    described = json.loads(description())["paths"]
    methods = ("get", "post", "put", "patch", "delete")
    found = {(method.upper(), path) for path, each in described.items() for method in each if method in methods}
    assert found == set(_OPERATIONS)


@pytest.mark.parametrize(("method", "path"), _OPERATIONS)
def test_without_a_token_only_what_is_open_is_answered(guarded: HttpRunning, method: str, path: str) -> None:
    scope, body = _OPERATIONS[method, path]
    for secret in (None, "pst_000000000000_" + "x" * 43):
        reply = asked(guarded, method, path, body, _FOREIGN, secret)
        if scope == "open" and path != "/v1/login":
            assert reply.status == 200
        else:
            assert reply.status == 401
        assert not any(text in reply.body.decode() for text in _SECRETS)


@pytest.mark.parametrize(("method", "path"), _OPERATIONS)
def test_each_operation_takes_its_scope(guarded: HttpRunning, tokens: dict[str, str], method: str, path: str) -> None:
    wanted, body = _OPERATIONS[method, path]
    if wanted in ("open", "any"):
        return
    for scope, secret in tokens.items():
        if scope in (wanted, "admin"):
            continue
        reply = asked(guarded, method, path, body, _OWN, secret)
        assert reply.status == 403, (scope, reply)
        assert not any(text in reply.body.decode() for text in _SECRETS), reply.body


_WITH_JSON = [
    (method, path)
    for (method, path), (_, body) in _OPERATIONS.items()
    if body is not None and not path.endswith(("/logout", "/pause", "/resume", "/enqueue"))
]


@pytest.mark.parametrize(("method", "path"), _WITH_JSON)
def test_H3_permission_is_checked_before_a_body_is_read(
    guarded: HttpRunning, tokens: dict[str, str], method: str, path: str
) -> None:
    wanted, _ = _OPERATIONS[method, path]
    for scope, secret in tokens.items() if wanted != "open" else ():
        reply = asked(guarded, method, path, b"{", _OWN, secret)
        assert reply.status == (400 if scope in (wanted, "admin") else 403), (scope, reply)


@pytest.mark.parametrize(("method", "path"), _WITH_JSON)
def test_a_body_that_is_no_publish_has_a_small_limit(
    guarded: HttpRunning, tokens: dict[str, str], method: str, path: str
) -> None:
    if path.endswith(("/publish", "/messages")):
        return
    announced = {"Content-Length": str((4 << 20) + 1)}
    reply = asked(guarded, method, path, None, _OWN, tokens["admin"], announced)
    assert (reply.status, "the limit is" in reply.body.decode()) == (413, True)


@pytest.mark.parametrize(("method", "path"), _OPERATIONS)
def test_nothing_of_other_topics_is_seen_or_touched(
    guarded: HttpRunning, tokens: dict[str, str], method: str, path: str
) -> None:
    wanted, body = _OPERATIONS[method, path]
    if wanted in ("open", "any") or path == "/v1/live":
        return
    before = _state(guarded)
    parts = ("{topic}", "{queue}", "{identity}", "{name}", "{pipeline}")
    about_topic = any(part in path + json.dumps(str(body)) for part in parts)
    for scope in {wanted, "admin"}:
        reply = asked(guarded, method, path, body, _FOREIGN, tokens[scope])
        if about_topic or path == "/metrics":
            assert reply.status in (403, 404), (scope, reply)
        text = reply.body.decode().replace(_FOREIGN, "").replace("hush-schedule", "").replace("/hush-pipeline", "")
        text = text.replace('"hush"', "").replace("'hush'", "")  # which were asked for
        assert not any(secret in text for secret in _SECRETS), (scope, text)
        if not about_topic:
            assert _FOREIGN not in reply.body.decode(), (scope, reply.body)
    assert _state(guarded) == before


def _state(server: HttpRunning) -> tuple[Any, ...]:
    broker = server.broker
    topics = [topic for topic in broker.topics() if topic.name.startswith("foreign")]
    groups = [(info.topic, info.name, info.lag, info.dead) for topic in topics for info in broker.groups(topic.name)]
    delayed = [(str(each.id), each.due_at) for topic in topics for each in broker.delayed(topic.name)]
    letters = [str(letter.id) for letter in broker.dead_letters(_FOREIGN)]
    return topics, groups, delayed, letters, [(each.name, each.paused, each.topic) for each in broker.schedules()]


def test_queries_do_not_lead_around_the_topics_of_a_token(guarded: HttpRunning, tokens: dict[str, str]) -> None:
    admin = tokens["admin"]
    for path in (
        f"/v1/groups?topic={_FOREIGN}",
        f"/v1/groups/hush?topic={_FOREIGN}",
        f"/v1/groups/hush/offsets?topic={_FOREIGN}",
        f"/v1/groups/hush/assignment?topic={_FOREIGN}",
        f"/v1/traces?topic={_FOREIGN}",
        f"/v1/traces/search?topic={_FOREIGN}",
        f"/v1/topics/{_FOREIGN}.dlq/messages",
        f"/v1/topics/{_FOREIGN}.dlq/dead-letters",
        f"/v1/topics//{_FOREIGN}/messages",
    ):
        assert guarded.refused("GET", path, token=admin)[0] == 403, path
    for path in (
        "/v1/topics?search=foreign",
        "/v1/topics?search=*",
        "/v1/topics?sort=backlog",
        "/v1/groups?search=*",
        "/v1/traces?limit=1000",
        "/v1/traces/search?consumer_group=hush",
        "/v1/traces/search?status=dead",
        f"/v1/topics/{_OWN}/dead-letters?after={_FOREIGN}.dlq/0/0",
        f"/v1/topics/{_OWN}/messages?cursor={_FOREIGN}",
        "/v1/groups/hush",
        "/v1/groups/hush/offsets",
    ):
        reply = guarded.ask("GET", path, token=admin)
        assert b"classified" not in reply.body and b"foreign.delayed" not in reply.body, (path, reply.body)
        assert b'"topic":"foreign' not in reply.body and b'"name":"foreign' not in reply.body
    assert guarded.refused("DELETE", f"/v1/groups/hush?topic={_FOREIGN}", token=admin)[0] == 403


def test_letters_go_to_no_topic_of_others_and_no_schedule_either(guarded: HttpRunning, tokens: dict[str, str]) -> None:
    admin = tokens["admin"]
    redrive = f"/v1/topics/{_OWN}/dead-letters/redrive"
    for to in (_FOREIGN, f"{_FOREIGN}.dlq"):
        assert guarded.refused("POST", redrive, {"to": to}, token=admin)[0] == 403
    taken = {"cron": "* * * * *", "topic": _OWN, "value": "x"}
    assert guarded.refused("PUT", "/v1/schedules/hush-schedule", taken, token=admin)[0] == 403
    assert guarded.refused("PATCH", f"/v1/topics/{_OWN}", {"archive": "/tmp/x"}, token=admin)[0] == 403
    assert guarded.refused("POST", "/v1/topics", {"name": "own.made", "archive": "/tmp/x"}, token=admin)[0] == 403


def test_a_member_of_others_is_as_if_it_were_not_there(guarded: HttpRunning, tokens: dict[str, str]) -> None:
    file = TokenFile(guarded._config.data_dir)
    theirs = file.create("theirs", ["consume"], ("foreign.*",)).secret
    joined = guarded.ask("POST", "/v1/groups/hush/join", {"topics": ["foreign.delayed"]}, token=theirs).json
    member = {"member_id": joined["member_id"]}
    for scope in ("consume", "admin", "read"):
        for method, path, body in (
            ("GET", f"/v1/groups/hush/poll?member_id={member['member_id']}", None),
            ("POST", "/v1/groups/hush/heartbeat", member),
            ("POST", "/v1/groups/hush/leave", member),
        ):
            status, text = guarded.refused(method, path, body, token=tokens[scope])
            assert status in (403, 404) and "foreign" not in text, text
    poll = f"/v1/groups/hush/poll?member_id={member['member_id']}"
    (message,) = guarded.ask("GET", f"{poll}&limit=1", token=theirs).json["messages"]
    handle = {"receipt_handle": message["receipt_handle"]}
    forged = {"receipt_handle": message["receipt_handle"].replace("foreign.delayed", _OWN)}
    assert guarded.refused("POST", "/v1/messages/ack", handle, token=tokens["consume"])[0] == 403
    assert guarded.refused("POST", "/v1/messages/ack", forged, token=tokens["consume"])[0] == 410
    assert guarded.ask("POST", "/v1/messages/ack", handle, token=theirs).status == 200
    guarded.ask("POST", "/v1/groups/hush/leave", member, token=theirs)


def test_joining_takes_every_topic(guarded: HttpRunning, tokens: dict[str, str]) -> None:
    both = {"topics": [_OWN, _FOREIGN]}
    assert guarded.refused("POST", "/v1/groups/new/join", both, token=tokens["consume"])[0] == 403
    assert not [info for info in guarded.broker.groups(_OWN) if info.name == "new"]
