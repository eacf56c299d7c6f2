"""Searching a topic whose slices are in several processes: partition after partition, each where it is."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from penstock.model.errors import InvalidArgument
from penstock.model.placement import Spread
from penstock.model.units import parse_digits
from penstock.server.http.gathering import parameters
from penstock.server.http.merging import LIMIT_MAX
from penstock.server.http.slice_asking import Asked, Part
from penstock.views.searching import Place

_LIMIT = "100"
_PAGE_BYTES = 8 << 20
_PAGE_S = 0.1
_decode = msgspec.json.decode
_encode = msgspec.json.encode


async def search(asked: Asked, spread: Spread) -> Part:
    """A page of messages; its cursor says which partition is next."""
    query = parameters(asked.scope)
    limit = parse_digits(query.get("limit", _LIMIT))
    asked_for = parse_digits(query["partition"]) if "partition" in query else None
    cursor = query.pop("cursor", None)
    place = Place(asked_for or 0, 0) if cursor is None else Place.parse(cursor)
    if limit is None or not 0 < limit <= LIMIT_MAX or ("partition" in query and asked_for is None):
        return await asked.slice(spread, 0, query=query)  # which refuses it
    if asked_for is not None and not asked_for < spread.partitions:
        raise InvalidArgument(f"{asked.topic} has partitions 0 to {spread.partitions - 1}")
    end = spread.partitions if asked_for is None else asked_for + 1
    return await _pages(asked, spread, query, max(place, Place(asked_for or 0, 0)), end, limit)


async def _pages(asked: Asked, spread: Spread, query: dict[str, str], place: Place, end: int, limit: int) -> Part:
    """What partitions have from a place on, until there is enough, or it has taken as long as a page may."""
    loop = asyncio.get_running_loop()
    until_s, size = loop.time() + _PAGE_S, 0
    found: list[Any] = []
    is_last = place.partition >= end
    while not is_last:
        number, page = place.partition, {"limit": str(limit - len(found)), "cursor": str(place)}
        reply = await asked.slice(
            spread, spread.of_partition(number), query={**query, **page, "partition": str(number)}
        )
        if reply.status != 200:
            return reply
        told = _decode(reply.body)
        found += told["messages"]
        size += len(reply.body)
        is_last = told["cursor"] is None and number + 1 >= end
        place = Place(number + 1, 0) if told["cursor"] is None else Place.parse(told["cursor"])
        if len(found) >= limit or size > _PAGE_BYTES or loop.time() > until_s:
            break
    return Part(200, _encode({"messages": found, "cursor": None if is_last else str(place)}))
