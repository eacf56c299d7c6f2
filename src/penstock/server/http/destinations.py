"""Which process a request is for, where a server has several: told by its path, its query or its body.

A request about one topic is for the owner of that topic. What a receipt or the id of a member names is where it was
given out. All else is for any process.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import parse_qs

import msgspec

from penstock.server.membership import Membership

_IN_PATH = re.compile(
    r"(?:/v1|/goqueue/v1)/topics/(?P<topic>[^/]+)(?:/.*)?"
    r"|/(?:api/v1/)?queue/(?P<queue>[^/]+)/.*"
    r"|/v1/traces/(?P<traced>[^/]+)/\d+/\d+"
    r"|/v1/traces/(?P<identity>[^/]+)"
)
_WITH_TOPIC = re.compile(r"/v1/groups(?:/[^/]+(?:/(?:seek|offsets|pause|resume))?)?|/v1/topics|/v1/schedules/[^/]+")
_WITH_RECEIPTS = re.compile(r"/v1/messages/(?:ack|nack|release|reject|visibility)")
_WITH_MEMBER = re.compile(r"/v1/groups/[^/]+/(?:heartbeat|leave)")
_JOIN = re.compile(r"/v1/groups/[^/]+/join")
_MEMBER = re.compile(r"(\d{1,18})-[0-9a-f]{16}")
_WITH_BODY = ("POST", "PUT", "PATCH", "DELETE")
_NAMES_ONLY = frozenset({"search"})  # what stands below /v1/traces and is no id


class _Named(msgspec.Struct):
    """What a body may name."""

    topic: str | None = None
    name: str | None = None
    topics: list[str] = []
    member_id: str | None = None
    receipt_handle: str | None = None
    receipt_handles: list[str] | None = None


_decode = msgspec.json.Decoder(_Named).decode


def by_address(membership: Membership, path: str, query: bytes) -> int | None:
    """The process that a path and a query name; None if they name none."""
    topic = topic_in_address(path, query)
    if topic is not None:
        return _owner(membership, topic)
    given = _given(path, query)
    return _of_member(given["member_id"][0]) if "member_id" in given else None


def topic_in_address(path: str, query: bytes) -> str | None:
    """The topic that a path and a query name, if they name no member."""
    found = _IN_PATH.fullmatch(path)
    if found is not None:
        topic = found["topic"] or found["queue"] or found["traced"]
        if topic is None and found["identity"] not in _NAMES_ONLY:
            topic = found["identity"].partition("/")[0]
        if topic is not None:
            return topic
    given = _given(path, query)
    return given["topic"][0] if "topic" in given and "member_id" not in given else None


def _given(path: str, query: bytes) -> dict[str, list[str]]:
    if not query or not path.startswith(("/v1/groups", "/v1/traces")):
        return {}
    return parse_qs(query.decode("latin-1"), max_num_fields=100)


def may_be_told_by_body(method: str, path: str) -> bool:
    """Whether the body of a request may name the process that it is for."""
    patterns = (_WITH_TOPIC, _WITH_RECEIPTS, _WITH_MEMBER, _JOIN)
    return method in _WITH_BODY and any(pattern.fullmatch(path) for pattern in patterns)


def names_topic_in_body(method: str, path: str) -> bool:
    """Whether the body of a request may name the topic that it is about."""
    return method in _WITH_BODY and _WITH_TOPIC.fullmatch(path) is not None


def has_receipts(path: str) -> bool:
    """Whether the body of a request names receipts."""
    return _WITH_RECEIPTS.fullmatch(path) is not None


def by_body(membership: Membership, path: str, body: bytes) -> int | None:
    """The process that a body names; None if it names none, or several, or is no such body: it is judged here then."""
    try:
        named = _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if _WITH_RECEIPTS.fullmatch(path):
        handles = [*(named.receipt_handles or ()), *([named.receipt_handle] if named.receipt_handle else ())]
        return _one(_of_member(handle.partition(":")[0]) for handle in handles)
    if _WITH_MEMBER.fullmatch(path):
        return None if named.member_id is None else _of_member(named.member_id)
    if _JOIN.fullmatch(path):
        return _one(_owner(membership, topic) for topic in named.topics)
    topic = named.name if path == "/v1/topics" else named.topic
    return None if topic is None else _owner(membership, topic)


def topic_in_body(body: bytes) -> str | None:
    """The topic that the body of such a request names."""
    try:
        return _decode(body).topic
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def split_by_process(handles: Iterable[str]) -> dict[int | None, list[str]]:
    """Receipts by the process that gave them out."""
    found: dict[int | None, list[str]] = {}
    for handle in handles:
        found.setdefault(_of_member(handle.partition(":")[0]), []).append(handle)
    return found


def _owner(membership: Membership, topic: str) -> int | None:
    try:
        return membership.owner_of(topic)
    except ValueError:  # no name of a topic: whoever handles it says so
        return None


def _of_member(member_id: str) -> int | None:
    found = _MEMBER.fullmatch(member_id)
    return None if found is None else int(found[1])


def _one(processes: Iterable[int | None]) -> int | None:
    found = set(processes)
    return found.pop() if len(found) == 1 else None
