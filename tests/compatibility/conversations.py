"""What is said to the HTTP port and to the text port of a server, the same to all of them, and what they answer."""

from __future__ import annotations

import http.client
import json
import re
import socket
from typing import Any

from tests.patience import PATIENCE_S, until

_TIMES = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(Z|\+00:00)")
_VOLATILE = {
    *("retained_until", "oldest_unacked_s", "size_bytes", "journal_bytes", "visible_until", "next_at", "due_at"),
    *("published_at", "died_at", "timestamp", "time", "history", "member_id", "started_at", "uptime_s"),
    *("producer", "per_second", "rates", "deliver_at"),
}
"""When it was, and names that a server makes up."""

Answers = dict[str, tuple[int, Any]]


def over_http(port: int) -> Answers:
    """The answers to a conversation in JSON, by what was asked for; without what differs from time to time.

    Of errors the status and the fields are told: their words may get better.
    """
    answers: Answers = {}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)

    def ask(method: str, path: str, body: object = None, label: str = "") -> Any:
        data = None if body is None else json.dumps(body).encode()
        connection.request(method, path, data, {"content-type": "application/json"} if data else {})
        response = connection.getresponse()
        content = response.read()
        found = json.loads(content) if "json" in (response.getheader("content-type") or "") else content.decode()
        label = label or f"{method} {path}"
        assert label not in answers, label
        answers[label] = (response.status, sorted(found) if response.status >= 400 else _lasting(found))
        return found

    def received(path: str, label: str = "") -> list[str]:
        return [message["receipt_handle"] for message in ask("GET", path, label=label)["messages"]]

    ask("POST", "/v1/topics", {"name": "orders", "num_partitions": 2, "retention_hours": 168})
    ask("POST", "/v1/topics", {"name": "orders"}, "a topic that is there")
    ask("PATCH", "/v1/topics/orders", {"visibility_timeout": 60, "max_deliveries": 2, "retry_backoff": 0})
    one = {"key": "c7", "value": "two coffees", "priority": "high", "headers": {"source": "web"}}
    ask("POST", "/v1/topics/orders/publish", one)
    for label in ("once", "once more"):
        ask("POST", "/v1/topics/orders/publish", {"value": "deduped", "partition": 0, "dedupe_id": "d"}, label)
    many = [{"value": f"{n}", "partition": n % 2} for n in range(6)]
    many += [{"value": "AAEC", "encoding": "base64", "partition": 1}, {"value": "later", "partition": 0, "delay": 3000}]
    ask("POST", "/v1/topics/orders/messages", {"messages": many})
    ask("GET", "/v1/topics/orders/partitions/0/messages?limit=3")
    ask("GET", "/v1/topics/orders/messages/1/0")
    handles = received("/v1/topics/orders/receive?group=kitchen&limit=20")
    ask("POST", "/v1/messages/ack", {"receipt_handles": handles[:2]}, "ack")
    ask("POST", "/v1/messages/ack", {"receipt_handles": handles[:1]}, "ack again")
    ask("POST", "/v1/messages/visibility", {"receipt_handles": handles[2:3], "visibility_timeout": 100}, "extend")
    ask("POST", "/v1/messages/release", {"receipt_handles": handles[2:3]}, "release")
    ask("POST", "/v1/messages/nack", {"receipt_handles": handles[3:4], "reason": "not now", "delay": 0}, "nack")
    ask("POST", "/v1/messages/reject", {"receipt_handles": handles[4:6], "reason": "broken"}, "reject")
    ask("POST", "/v1/messages/ack", {"receipt_handles": ["orders/0/0/nonsense"]}, "no receipt")
    until(lambda: _letters(port, "orders") == 2)
    ask("GET", "/v1/topics/orders/dead-letters")
    ask("GET", "/v1/topics/orders/dead-letters/causes")
    ask("POST", "/v1/topics/orders/dead-letters/redrive", {})
    ask("POST", "/v1/topics/orders/dead-letters/purge", {})
    ask("GET", "/v1/topics/orders/next?group=other&autoack=true")
    (delayed,) = ask("GET", "/v1/topics/orders/delayed")["delayed"]
    place = delayed["id"].removeprefix("orders/")
    ask("PATCH", f"/v1/topics/orders/delayed/{place}", {"delay": 4000}, "reschedule")
    ask("DELETE", f"/v1/topics/orders/delayed/{place}", label="cancel")
    ask("DELETE", f"/v1/topics/orders/delayed/{place}", label="cancel again")
    ask("POST", "/v1/topics/orders/replay", {"group": "again", "from_offset": 1, "to_offset": 3})
    ask("POST", "/v1/groups", {"topic": "orders", "group": "made", "start": "latest", "visibility_timeout": 30})
    ask("POST", "/v1/groups/made/seek", {"topic": "orders", "to": "earliest"})
    ask("POST", "/v1/groups/reader/offsets", {"topic": "orders", "offsets": {"0": 2, "1": 1}})
    ask("GET", "/v1/groups/reader/offsets")
    ask("GET", "/v1/groups/kitchen")
    member = ask("POST", "/v1/groups/crew/join", {"topics": ["orders"], "mode": "assigned", "client_id": "m1"})
    named = {"member_id": member["member_id"]}
    ask("POST", "/v1/groups/crew/heartbeat", named)
    received(f"/v1/groups/crew/poll?member_id={member['member_id']}&limit=3", "poll")
    ask("POST", "/v1/groups/crew/leave", named)
    schedule = {"cron": "0 7 * * 1-5", "zone": "Europe/Vienna", "topic": "reports", "value": "daily"}
    ask("PUT", "/v1/schedules/daily", schedule)
    for step in ("pause", "resume"):
        ask("POST", f"/v1/schedules/daily/{step}")
    ask("GET", "/v1/schedules")
    ask("DELETE", "/v1/schedules/daily")
    ask("GET", "/v1/traces/orders/1/0")
    ask("POST", "/api/v1/queue/jobs/enqueue", {"value": "sweep"})
    ask("GET", "/api/v1/queue/jobs/list-items")
    ask("GET", "/api/v1/queue/jobs/dequeue")
    ask("DELETE", "/v1/groups/again?topic=orders")
    ask("GET", "/v1/topics/orders/partitions")
    ask("DELETE", "/v1/topics/orders")
    for path in ("/v1/topics/orders", "/v1/groups/nobody", "/v1/nothing", "/v1/traces/jobs/0/99"):
        ask("GET", path)
    ask("POST", "/v1/topics/jobs/publish", {"valu": "x"}, "a wrong field")
    ask("POST", "/v1/topics/jobs/publish", {"value": "x", "priority": "urgent"}, "a wrong priority")
    ask("GET", "/livez")
    ask("GET", "/readyz")
    connection.close()
    return answers


def _letters(port: int, topic: str) -> int:
    """How many dead letters there are."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    connection.request("GET", f"/v1/topics/{topic}/dead-letters")
    page = json.loads(connection.getresponse().read())
    connection.close()
    return len(page.get("dead_letters", ()))


def _lasting(found: Any) -> Any:
    if isinstance(found, dict):
        found = {name: _lasting(value) for name, value in found.items() if name not in _VOLATILE}
        if "receipt_handle" in found:
            found["receipt_handle"] = found["receipt_handle"].partition(":")[2].partition("@")[0]  # which message
        return found
    if isinstance(found, list):
        return [_lasting(value) for value in found]
    return _TIMES.sub("TIME", found) if isinstance(found, str) else found


_SAID = r"""
PRODUCE work 0 new user: alex
PRODUCE work 0   "quoted"  and \ more
{"priority": 200, "data": "sweep the floor", "track": "jobs"}
{"priority": 0, "data": {"fire": "kitchen"}, "track": "jobs"}
{"priority": 200, "data": "two\nlines", "track": "jobs"}
{"priority": 200, "date": "no data", "track": "jobs"}
consume jobs 0 all
ACK jobs 0 1
ACK jobs 0 1
ACK jobs 0 99
CONSUME work 0
CONSUME work 0
CONSUME work 0
ACK work 0 0
CONSUME work 7
PRODUCE work 7 nowhere
PRODUCE a/b 0 x
PRODUCE work
NONSENSE
PING
QUIT
"""


def over_text(port: int) -> list[str]:
    """The lines that answer a conversation in text; of errors, that they are some."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
        connection.sendall(_SAID.encode())
        with connection.makefile("rb") as heard:
            lines = heard.read().decode().splitlines()
    return ["ERROR: " if line.startswith("ERROR: ") else line for line in lines]
