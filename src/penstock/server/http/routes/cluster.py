"""The processes of the server and their shards: shown, moved, drained, balanced."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import Router, get, post
from litestar.params import JSONBody
from msgspec import Meta

from penstock.model.placement import SHARDS_MAX
from penstock.model.processes import ClusterInfo
from penstock.server.http.caller import Caller, permits
from penstock.server.http.documenting import body_of, errors

Number = Annotated[int, Meta(ge=0, lt=SHARDS_MAX)]


class NewPlace(msgspec.Struct, forbid_unknown_fields=True):
    """A shard, and the process that is to have it."""

    shard: Number
    """The number of the shard."""
    process: Number
    """The number of a process that is up."""


class OneProcess(msgspec.Struct, forbid_unknown_fields=True):
    """A process."""

    process: Number
    """Its number."""


@get("/cluster", responses=errors())
async def show_cluster(caller: Caller) -> ClusterInfo:
    """Show the processes of the server, their shards, and the last moves."""
    found: ClusterInfo = await caller.call("cluster")
    return found


@post(
    "/cluster/move",
    status_code=200,
    operation_class=body_of(NewPlace, {"shard": 3, "process": 1}),
    responses=errors(),
    guards=permits("move_shard"),
)
async def move_shard(caller: Caller, data: JSONBody[NewPlace]) -> ClusterInfo:
    """Move a shard to another process, and wait until it is there.

    Only the topics of this shard pause, for a moment.
    """
    found: ClusterInfo = await caller.call("move_shard", shard=data.shard, process=data.process)
    return found


@post(
    "/cluster/drain",
    status_code=200,
    operation_class=body_of(OneProcess, {"process": 1}),
    responses=errors(),
    guards=permits("drain_process"),
)
async def drain_process(caller: Caller, data: JSONBody[OneProcess]) -> ClusterInfo:
    """Move all shards of a process to others, one after the other; it gets none until they are balanced."""
    found: ClusterInfo = await caller.call("drain_process", process=data.process)
    return found


@post("/cluster/balance", status_code=200, responses=errors())
async def balance_shards(caller: Caller) -> ClusterInfo:
    """Let all processes share the shards, with as few moves as that takes."""
    found: ClusterInfo = await caller.call("balance_shards")
    return found


ROUTES = Router("/v1", route_handlers=[show_cluster, move_shard, drain_process, balance_shards], tags=["processes"])
