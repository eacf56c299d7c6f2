"""Whether the server is well, for whoever has to know: load balancers, orchestrators, people. No token is needed."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

import msgspec
from litestar import Response, Router, get
from litestar.enums import MediaType
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import QueryParameter

from penstock.cluster.shards import Shards
from penstock.server.http.caller import Caller
from penstock.server.http.documenting import errors
from penstock.shard.shard import Shard
from penstock.version import __version__
from penstock.views.info import journal_size


class Check(msgspec.Struct):
    """One thing that must be right."""

    name: str
    ok: bool
    text: str


class Health(msgspec.Struct, omit_defaults=True):
    """Whether messages can be published, and why not."""

    status: Literal["ok", "not ready"]
    checks: list[Check] | None = None
    """With `?verbose`, or where something is wrong."""


class Alive(msgspec.Struct):
    """It answers."""

    status: Literal["ok"]


class Version(msgspec.Struct):
    """What runs here."""

    name: str
    version: str


_READY = {
    **errors(),
    200: ResponseSpec(Health, description="It can take messages.", generate_examples=False),
    503: ResponseSpec(Health, description="It cannot take messages now.", generate_examples=False),
}
Verbose = Annotated[
    str | None,
    QueryParameter(description="Tell every check; any value will do, but `false`, `no` and `0`.", max_length=10),
]


def checks(shards: Shards) -> list[Check]:
    """Everything that publishing needs, looked at now; it may wait for the disk. The worst shard counts."""
    found: dict[str, Check] = {}
    for shard in shards:
        for check in _checks_of(shard):
            if check.name not in found or not check.ok:
                found[check.name] = check
    return list(found.values())


def _checks_of(shard: Shard) -> list[Check]:
    found = [_check("open", not shard.closed, "it takes requests", "the broker is closing")]
    writable = shard.frozen is None
    found.append(_check("journal", writable, "it can be written", "a write or a sync has failed: restart the server"))
    try:
        free_bytes = shard.storage.free_bytes()
    except OSError:
        found.append(_check("disk", ok=False, well="", ill="the disk does not tell how much is free"))
    else:
        room = free_bytes > shard.config.min_free_bytes
        ill = "it is full: less is free than must be (min_free_bytes)"
        if room and shard.meters.space.recent():
            room, ill = False, "it is full: something was refused for lack of space within the last seconds"
        found.append(_check("disk", room, "there is room", ill))
    settled = journal_size(shard).size_bytes <= shard.config.max_unsettled_bytes
    found.append(_check("settling", settled, "it keeps up", "too much journal waits to be settled"))
    return found


def _check(name: str, ok: bool, well: str, ill: str) -> Check:
    return Check(name, ok, well if ok else ill)


async def _ready(caller: Caller, verbose: str | None) -> Response[Health]:
    found = await caller.services.workers.run(partial(checks, caller.services.shards))
    well = all(check.ok for check in found)
    told = found if not well or (verbose is not None and verbose.lower() not in ("false", "no", "0")) else None
    headers = {} if well else {"retry-after": "1"}
    status_code = 200 if well else 503
    health = Health("ok" if well else "not ready", told)
    return Response(health, status_code=status_code, headers=headers, media_type=MediaType.JSON)


@get("/readyz", responses=_READY)
async def readyz(caller: Caller, verbose: Verbose = None) -> Response[Health]:
    """Whether messages can be published: the disk is well and has room. 503 where they cannot."""
    return await _ready(caller, verbose)


@get(["/health", "/healthz"], responses=_READY)
async def health(caller: Caller, verbose: Verbose = None) -> Response[Health]:
    """The same as `/readyz`."""
    return await _ready(caller, verbose)


@get("/livez", responses=errors())
async def livez() -> Alive:
    """Whether the server answers at all; it need not be able to write."""
    return Alive("ok")


@get("/version", responses=errors())
async def version() -> Version:
    """What runs here."""
    return Version("penstock", __version__)


ROUTES = Router("/", route_handlers=[readyz, health, livez, version], tags=["broker"])
