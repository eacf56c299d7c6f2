"""Publishing to a topic whose slices are in several processes: each message goes to the process of its slice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from penstock.cluster.publishing import rows_of
from penstock.model.batch import select
from penstock.model.errors import InvalidArgument
from penstock.model.intake import check_message, check_messages, check_producer
from penstock.model.placement import Spread
from penstock.server.http.decoding import decode_batch
from penstock.server.http.intake import Incoming
from penstock.server.http.publishing import RAW, read_goqueue_message, read_message
from penstock.server.http.slice_asking import Asked, Part, all_of

if TYPE_CHECKING:
    from penstock.server.http.forwarding import Send
    from penstock.server.services import Services

_HERE_BYTES_MAX = 256 << 10  # larger bodies are worked on in a thread
_GOQUEUE = "/goqueue/"
Done = TypeVar("Done")


class _Batch(msgspec.Struct):
    """A batch whose messages are passed on as they came."""

    messages: list[msgspec.Raw]
    encoding: str | None = None
    producer: str | None = None
    sequence: int | None = None


class _Results(msgspec.Struct):
    results: list[msgspec.Raw]
    published: int


_decode_batch = msgspec.json.Decoder(_Batch).decode
_decode_results = msgspec.json.Decoder(_Results).decode
_encode = msgspec.json.Encoder().encode


async def publish_one(services: Services, asked: Asked, spread: Spread, incoming: Incoming, send: Send) -> int:
    """Pass a message on to the process of its slice, which answers; the status."""
    body = await incoming.read()
    number = await _do(services, body, partial(_slice_of, services, asked, spread, body))
    return await asked.pass_on(spread, number, incoming, send, body)


def _slice_of(services: Services, asked: Asked, spread: Spread, body: bytes) -> int:
    read = read_goqueue_message if asked.scope["path"].startswith(_GOQUEUE) else read_message
    config = services.shards.config
    message = read(config, body, asked.scope["query_string"], asked.scope["headers"])
    single = check_message(message, config, services.clock.wall_us())
    number = spread.of_message(asked.topic, message.partition, single.key, single.dedupe_id)
    return next(services.shards.turns) % spread.slices if number is None else number


async def publish_many(services: Services, asked: Asked, spread: Spread, incoming: Incoming, send: Send) -> int | Part:
    """Have each process publish the messages of its slices: the status, or one reply for all.

    Where one refuses its part, that is the reply. What others published stays: who sends all of it again with the same
    producer and sequence, or with dedupe ids, has it once.
    """
    body = await incoming.read()
    if any(name == b"content-type" and value.lower().startswith(RAW) for name, value in asked.scope["headers"]):
        raise InvalidArgument('a batch is JSON: {"messages": [{"value": "…"}]}')
    rows, parts = await _do(services, body, partial(_split, services, asked.topic, spread, body))
    if len(rows) == 1:
        return await asked.pass_on(spread, next(iter(rows)), incoming, send, body)
    asking = [asyncio.create_task(asked.slice(spread, number, part)) for number, part in parts.items()]
    replies = await all_of(asking)
    refused = next((reply for reply in replies if reply.status != 200), None)
    return refused or Part(200, await _do(services, body, partial(_join, rows.values(), replies)))


def _split(
    services: Services, topic: str, spread: Spread, body: bytes
) -> tuple[dict[int, Sequence[int]], dict[int, bytes]]:
    """The rows of each slice, and the request for it where there are several."""
    config = services.shards.config
    messages, batch = decode_batch(body, config)
    intake = check_messages(messages, config, services.clock.wall_us())
    check_producer(intake.batch, batch.producer, batch.sequence)
    rows = rows_of(topic, spread, intake, next(services.shards.turns))
    if len(rows) == 1:
        return rows, {}
    raw = _decode_batch(body)
    whole: dict[str, Any] = {"encoding": raw.encoding, "producer": raw.producer, "sequence": raw.sequence}
    return rows, {number: _encode({**whole, "messages": select(raw.messages, some)}) for number, some in rows.items()}


def _join(rows: Iterable[Sequence[int]], replies: Sequence[Part]) -> bytes:
    """What the processes replied, in the order of the messages."""
    found: dict[int, msgspec.Raw] = {}
    for some, reply in zip(rows, replies, strict=True):
        found.update(zip(some, _decode_results(reply.body).results, strict=True))
    return _encode(_Results([found[row] for row in range(len(found))], len(found)))


async def _do(services: Services, body: bytes, work: Callable[[], Done]) -> Done:
    return work() if len(body) <= _HERE_BYTES_MAX else await services.workers.run(work)
