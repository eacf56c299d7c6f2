"""Publishing by HTTP, from the body of a request to that of its reply: which requests publish, and what they do.

It stands beside the framework and not in it: these two requests are the busy ones, and Litestar would take most of
their time (see decision 19). They come here by three ways, which only read requests and send replies:

- `express`: a small plain publish of one message, straight from the parser; it calls `begin_one`.
- `front`: what else is one of `OPERATIONS`, such as batches, large and chunked bodies; as an ASGI request.
- `routes`: clients that know other paths (GoQueue), and the description of all; through the framework.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import parse_qsl

import msgspec

from penstock.cluster.publishing import publish_intake, publish_single
from penstock.model.errors import InvalidArgument
from penstock.model.intake import check_message, check_messages, check_producer
from penstock.model.message import Message
from penstock.model.units import to_datetime
from penstock.server.access.principal import Principal, Scope
from penstock.server.http.bodies import Published, Result, Results
from penstock.server.http.decoding import decode_batch, decode_message

if TYPE_CHECKING:
    from penstock.journal import Commit
    from penstock.model.batch import Batch
    from penstock.model.config import BrokerConfig
    from penstock.model.intake import Intake
    from penstock.model.message import MessageIds
    from penstock.model.singles import Single
    from penstock.server.services import Services

Headers = Iterable[tuple[bytes, bytes]]
Done = TypeVar("Done")
RAW = b"application/octet-stream"
HEADER_PREFIX = b"x-penstock-header-"
_PREFIXES = ("/v1/topics/", "/topics/")
_HERE_BYTES_MAX = 256 << 10
RAW_OPTIONS = ("key", "priority", "delay", "deliver_at", "partition", "dedupe_id", "expires_in")

ReadMessage = Callable[["BrokerConfig", bytes, bytes, Headers], Message]

_encode = msgspec.json.Encoder().encode


def read_message(config: BrokerConfig, body: bytes, query: bytes, headers: Headers) -> Message:
    """The message of a request."""
    return _raw_message(body, query, headers) if _is_raw(headers) else decode_message(body, config)


def read_goqueue_message(config: BrokerConfig, body: bytes, _query: bytes, _headers: Headers) -> Message:
    """The message of a request of GoQueue: its value is bytes as Go writes them, its key is text."""
    return decode_message(body, config, value_encoding="base64")


def publish_of(path: str) -> tuple[str, str] | None:
    """The operation and the topic of a path to publish to; None for all other paths."""
    if not path.startswith(_PREFIXES):
        return None
    topic, _, operation = path[path.index("topics/") + 7 :].partition("/")
    return (operation, topic) if operation in OPERATIONS else None


async def publish_one(
    services: Services,
    principal: Principal,
    topic: str,
    body: bytes,
    query: bytes,
    headers: Headers,
    read: ReadMessage = read_message,
) -> bytes:
    """Publish the message of a request; the reply, once it is durable."""
    principal.require(Scope.PUBLISH, topic)
    now_us = services.clock.wall_us()
    checked = await _do(services, body, partial(_read_one, services, body, query, headers, now_us, read))
    reply, commit = _publish_checked(services, principal, topic, now_us, *checked)
    await services.commits.wait(commit)
    return reply


def begin_one(
    services: Services, principal: Principal, topic: str, body: bytes, query: bytes, headers: Headers
) -> tuple[bytes, Commit | None]:
    """As `publish_one` for a small body: the reply, to be sent once the commit is done."""
    principal.require(Scope.PUBLISH, topic)
    now_us = services.clock.wall_us()
    return _publish_checked(
        services, principal, topic, now_us, *_read_one(services, body, query, headers, now_us, read_message)
    )


def _read_one(
    services: Services, body: bytes, query: bytes, headers: Headers, now_us: int, read: ReadMessage
) -> tuple[int | None, Single]:
    config = services.shards.config
    message = read(config, body, query, headers)
    return message.partition, check_message(message, config, now_us)


def _publish_checked(
    services: Services, principal: Principal, topic: str, now_us: int, partition: int | None, single: Single
) -> tuple[bytes, Commit | None]:
    identity, commit = publish_single(services.shards, topic, single, partition, now_us, name=principal.producer_name)
    due_us = single.deliver_at_us
    place = (identity.topic, identity.partition, identity.offset)
    due_at = to_datetime(due_us) if due_us else None
    return _encode(Published(str(identity), *place, single.priority, bool(due_us), due_at)), commit


async def publish_batch(
    services: Services, principal: Principal, topic: str, body: bytes, query: bytes, headers: Headers
) -> bytes:
    """Publish the batch of a request; the reply, once it is durable."""
    principal.require(Scope.PUBLISH, topic)
    if _is_raw(headers):
        raise InvalidArgument('a batch is JSON: {"messages": [{"value": "…"}]}')
    now_us = services.clock.wall_us()
    intake, producer, sequence = await _do(services, body, partial(_read_batch, services.shards.config, body, now_us))
    check_producer(intake.batch, producer, sequence)
    ids, commit = publish_intake(services.shards, topic, intake, now_us, principal.producer_name)
    await services.commits.wait(commit)
    return await _do(services, body, partial(_write_results, intake.batch, ids))


OPERATIONS = {"publish": publish_one, "messages": publish_batch}
"""What is done with requests to publish, by the last part of their path."""


async def _do(services: Services, body: bytes, work: Callable[[], Done]) -> Done:
    """Do what takes long with a large body in a thread: the event loop goes on meanwhile."""
    return work() if len(body) <= _HERE_BYTES_MAX else await services.workers.run(work)


def _read_batch(config: BrokerConfig, body: bytes, now_us: int) -> tuple[Intake, str | None, int | None]:
    messages, batch = decode_batch(body, config)
    return check_messages(messages, config, now_us), batch.producer, batch.sequence


def _write_results(batch: Batch, ids: MessageIds) -> bytes:
    places = ids.places or [(run.partition, run.base + place) for run in ids.runs for place in range(run.count)]
    priorities: Iterable[int] = batch.priorities or [batch.priority] * len(places)
    if batch.deliver_at is None:
        results = [Result(*place, priority) for place, priority in zip(places, priorities, strict=True)]
    else:
        results = [
            Result(*place, priority, bool(due_us), to_datetime(due_us) if due_us else None)
            for place, priority, due_us in zip(places, priorities, batch.deliver_at, strict=True)
        ]
    return _encode(Results(results, len(results)))


def _is_raw(headers: Headers) -> bool:
    return any(name == b"content-type" and value.lower().startswith(RAW) for name, value in headers)


def _raw_message(body: bytes, query: bytes, headers: Headers) -> Message:
    """A message whose value is the body as it is; the rest is in the query and in headers."""
    options: dict[str, str] = {}
    try:
        given = parse_qsl(query.decode(), keep_blank_values=True, strict_parsing=bool(query), errors="strict")
    except ValueError as error:
        raise InvalidArgument(f"the query cannot be read: {error}") from error
    for name, text in given:
        if name not in RAW_OPTIONS or name in options:
            raise InvalidArgument(f"the query: {name!r:.80} is not one of {', '.join(RAW_OPTIONS)}, each at most once")
        options[name] = text
    own = {
        name[len(HEADER_PREFIX) :].decode("latin-1"): value.decode("latin-1")
        for name, value in headers
        if name.startswith(HEADER_PREFIX)
    }
    return Message(
        body,
        options.get("key"),
        own or None,
        _number(options.get("priority", "normal")) or 0,
        _number(options.get("delay")),
        options.get("deliver_at"),
        _whole("partition", options.get("partition")),
        options.get("dedupe_id"),
        _number(options.get("expires_in")),
    )


def _number(text: str | None) -> str | int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 16 else text


def _whole(what: str, text: str | None) -> int | None:
    number = _number(text)
    if isinstance(number, str):
        raise InvalidArgument(f"{what}: {number!r:.80} is not a whole number")
    return number
