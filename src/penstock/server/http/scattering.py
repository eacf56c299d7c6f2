"""Requests about topics whose slices are in several processes: the process of the topic's home has all of them answer.

It knows how the topic is spread. What is about one message goes to the process that has it; what is about the whole
topic is asked of each process for the slices that it has (`orders#`), and the replies become one.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode

import msgspec

from penstock.model.placement import Spread, part_name
from penstock.server.http.destinations import names_topic_in_body, topic_in_address, topic_in_body
from penstock.server.http.forwarding import Forwarder, Scope, Send
from penstock.server.http.gathering import Gatherer, Reply
from penstock.server.http.intake import Incoming, Receive
from penstock.server.http.merging import Gathered, gathered
from penstock.server.http.merging_topics import gathered_of_topic
from penstock.server.http.scattered_publishing import publish_many, publish_one
from penstock.server.http.scattered_receiving import Receiving
from penstock.server.http.scattered_search import search
from penstock.server.http.scattered_sockets import relay_to_all
from penstock.server.http.scattered_streams import stream
from penstock.server.http.slice_asking import Asked, Part
from penstock.server.scattered import ScatteredTopics

if TYPE_CHECKING:
    from penstock.server.services import Services

_OF_TOPIC = re.compile(r"(?:/v1|/goqueue/v1)/topics/[^/]+(?P<rest>(?:/.*)?)")
_AT_ONE = re.compile(r"/partitions/(\d{1,9})/messages|/(?:messages|delayed)/(\d{1,9})/\d+")
_JSON = b"application/json"


class Scattering:
    """Answers requests about such topics, as far as their routes cannot."""

    def __init__(self, services: Services, topics: ScatteredTopics, forwarder: Forwarder, gatherer: Gatherer) -> None:
        self._services, self._topics = services, topics
        self._forwarder, self._gatherer = forwarder, gatherer

    async def answer(self, scope: Scope, incoming: Incoming, send: Send) -> int | Reply | None:
        """The status of what was answered, or a reply to be sent; None if the request is for the route here."""
        method, path = scope["method"], scope["path"]
        topic, body = topic_in_address(path, scope["query_string"]), b""
        if topic is None and names_topic_in_body(method, path):
            body = await incoming.read()
            incoming.put_back(body)
            topic = topic_in_body(body)
        spread = None if topic is None else self._spread_of(topic)
        if topic is None or spread is None:
            return None
        found = _OF_TOPIC.fullmatch(path)
        if found is not None:
            asked = Asked(self._forwarder, self._topics, scope, topic)
            reply = await self._of_topic(asked, spread, method, found["rest"], incoming, send)
            if reply is not None:
                return Reply(reply.status, _JSON, reply.body) if isinstance(reply, Part) else reply
        merged = gathered_of_topic(method, path) or gathered(method, path)
        if merged is None:
            return None
        if not body and method == "PATCH":
            body = await incoming.read()
        return await self._gather(merged._replace(found_anywhere=True), scope, topic, body)

    async def relay(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Talk for the client of a WebSocket to all processes that have slices of its topic; whether there are such."""
        topic = topic_in_address(scope["path"], b"")
        spread = None if topic is None else self._spread_of(topic)
        if topic is None or spread is None:
            return False
        asked = Asked(self._forwarder, self._topics, scope, topic)
        places = {process: partial(self._topics.place_of, process) for process in asked.processes(spread)}
        await relay_to_all(places, asked.of_part(), receive, send)
        return True

    async def _of_topic(
        self, asked: Asked, spread: Spread, method: str, rest: str, incoming: Incoming, send: Send
    ) -> int | Part | None:
        """The answer to what is about messages; None if it is about something else."""
        if method == "POST" and rest == "/publish":
            return await publish_one(self._services, asked, spread, incoming, send)
        if method == "POST" and rest == "/messages":
            return await publish_many(self._services, asked, spread, incoming, send)
        if method == "GET" and rest == "/messages":
            return await search(asked, spread)
        if method == "GET" and rest in ("/receive", "/next"):
            receiving = Receiving(self._services, asked, spread, incoming)
            return await (receiving.many() if rest == "/receive" else receiving.one())
        if method == "GET" and rest == "/stream":
            return await stream(asked, spread, incoming, send)
        place = _AT_ONE.fullmatch(rest)
        if place is not None:
            partition = int(place[1] or place[2])
            if partition < spread.partitions:
                return await asked.pass_on_as_it_is(spread, spread.of_partition(partition), incoming, send)
        return None

    async def _gather(self, merged: Gathered, scope: Scope, topic: str, body: bytes) -> Reply:
        """What all processes reply about the slices that they have."""
        part = part_name(topic)
        found = _OF_TOPIC.fullmatch(scope["path"])
        asked: dict[str, Any] = {**scope}
        if found is not None:
            asked["path"] = f"/v1/topics/{part}{found['rest']}"
            asked["raw_path"] = quote(asked["path"]).encode()
        else:
            given = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True, max_num_fields=100)
            named = [(name, part if name == "topic" else text) for name, text in given]
            asked["query_string"] = urlencode(named).encode()
        if body and found is None:
            body = msgspec.json.encode({**msgspec.json.decode(body), "topic": part})
        return await self._gatherer.answer(merged, asked, body)

    def _spread_of(self, topic: str) -> Spread | None:
        try:
            return self._topics.spread_of(topic)
        except ValueError:  # no name of a topic: whoever handles it says so
            return None
