"""Names of topics and groups for the shell's completion: what can be found out at little cost, and never an error."""

from __future__ import annotations

import contextlib
from typing import Any

import typer

_PATIENCE_S = 0.3


def complete_topic(ctx: typer.Context, incomplete: str) -> list[str]:
    """Topics that begin so."""
    return sorted(name for name in _known(ctx) if name.startswith(incomplete))


def complete_group(ctx: typer.Context, incomplete: str) -> list[str]:
    """Groups that begin so, of the topic that was given."""
    known = _known(ctx)
    groups = known.get(ctx.params.get("topic") or "", set().union(*known.values()))
    return sorted(name for name in groups if name.startswith(incomplete))


def _known(ctx: typer.Context) -> dict[str, set[str]]:
    """The groups of each topic."""
    directory, server = ctx.params.get("directory"), ctx.params.get("server")
    with contextlib.suppress(Exception):  # nobody wants to read of it while typing
        if directory is not None:
            return _noted(str(directory))
        if server is not None:
            names = {"token": "token", "tls": "tls", "ca": "ca", "cert": "cert", "key": "tls_key"}
            return _asked(server, {name: ctx.params[given] for name, given in names.items() if given in ctx.params})
    return {}


def _noted(directory: str) -> dict[str, set[str]]:
    """What the last checkpoint of a directory says, which can be read while a broker has it open."""
    from penstock.cluster.directory import part_name, shards_of
    from penstock.journal.bucket_reading import open_root_for_reading
    from penstock.shard.checkpoint_files import read_checkpoint

    root = open_root_for_reading(directory)
    count = shards_of(root)
    places = [root] if count is None else [root.part(part_name(number)) for number in range(count)]
    checkpoints = [found for place in places if (found := read_checkpoint(place)) is not None]
    return {
        topic.name: {name for state in topic.delivery or () if state is not None for name in state.groups}
        for checkpoint in checkpoints
        for topic in checkpoint.topics
    }


def _asked(server: str, secrets: dict[str, Any]) -> dict[str, set[str]]:
    """What a server says, if it is there and quick."""
    import socket

    import penstock

    host, _, port = server.rpartition(":")
    socket.create_connection((host, int(port)), _PATIENCE_S).close()
    with penstock.connect(server, **secrets) as client:
        known: dict[str, set[str]] = {topic.name: set() for topic in client.topics()}
        for group in client.groups():
            known.setdefault(group.topic, set()).add(group.name)
    return known
