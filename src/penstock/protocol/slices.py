"""Requests for topics that are spread over shards, taken apart for their slices: bytes in, bytes out.

Which slice a message goes to is the same rule wherever it is applied (`placement.Spread`), so that repeating a request
finds what was done, whoever took it apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from penstock.model.batch import decode_payload, select
from penstock.model.message import IdRun
from penstock.model.placement import Spread, rows_of_slices, slice_name
from penstock.protocol.frames import Command
from penstock.protocol.publishing import (
    Micros,
    Publish,
    Published,
    Stage,
    decode_publish,
    decode_published,
    decode_stage,
)

_encode = msgspec.msgpack.Encoder().encode


class SliceRequest(NamedTuple):
    """What one slice is asked."""

    topic: str
    """The name of the slice."""
    body: bytes
    rows: Sequence[int]
    """Which messages of the whole request are in it."""


def split(command: int, body: bytes, topic: str, spread: Spread) -> list[SliceRequest]:
    """A request to publish or to stage messages, for each slice that gets some."""
    if command == Command.STAGE:
        stage = decode_stage(body)
        return [
            SliceRequest(part.topic, _encode(Stage(stage.stage, stage.writer, stage.number, part)), rows)
            for part, rows in _parts(stage.batch, topic, spread, stage.number)
        ]
    request = decode_publish(body)
    return [SliceRequest(part.topic, _encode(part), rows) for part, rows in _parts(request, topic, spread, 0)]


def renamed(command: int, body: bytes, topic: str) -> bytes:
    """The same request for a topic, or a slice of it, of another name."""
    if command == Command.STAGE:
        stage = decode_stage(body)
        if stage.batch.topic == topic:
            return body
        return _encode(msgspec.structs.replace(stage, batch=msgspec.structs.replace(stage.batch, topic=topic)))
    request = decode_publish(body)
    return body if request.topic == topic else _encode(msgspec.structs.replace(request, topic=topic))


def _parts(request: Publish, topic: str, spread: Spread, turn: int) -> list[tuple[Publish, Sequence[int]]]:
    keys, values, headers = decode_payload(request.payload)
    count, asked = len(values), request.partition
    origin = None if request.producer is None else f"{request.producer}/{request.sequence}"
    partitions = [asked] * count if isinstance(asked, int) else asked
    rows = rows_of_slices(topic, spread, count, partitions, keys, request.dedupe_ids, origin, turn)
    if len(rows) == 1:
        ((number, every),) = rows.items()
        return [(msgspec.structs.replace(request, topic=slice_name(topic, number)), every)]
    found: list[tuple[Publish, Sequence[int]]] = []
    for number, some in rows.items():
        payload = [
            None if keys is None else select(keys, some),
            select(values, some),
            None if headers is None else select(headers, some),
        ]
        part = Publish(
            slice_name(topic, number),
            _encode(payload),
            request.producer,
            request.sequence,
            request.priority if isinstance(request.priority, int) else bytes(select(request.priority, some)),
            _some(request.partition, some),
            _some(request.delay_us, some),
            _some(request.deliver_at_us, some),
            _some(request.expires_in_us, some),
            None if request.dedupe_ids is None else select(request.dedupe_ids, some),
        )
        found.append((part, some))
    return found


def _some(column: Micros, rows: Sequence[int]) -> Micros:
    return select(column, rows) if isinstance(column, list) else column


def join(command: int, parts: Sequence[tuple[Sequence[int], bytes]]) -> bytes:
    """The reply to the whole request, of the rows of each part and the reply to it."""
    if len(parts) == 1:
        return parts[0][1]
    if command == Command.STAGE:
        return _encode([sum(len(rows) for rows, _ in parts)])
    places: list[tuple[int, int]] = [(0, 0)] * sum(len(rows) for rows, _ in parts)
    runs: list[IdRun] = []
    for rows, reply in parts:
        published = decode_published(reply)
        runs += published.runs
        for row, identity in zip(rows, published.ids(""), strict=True):
            places[row] = (identity.partition, identity.offset)
    return _encode(Published(runs, places))
