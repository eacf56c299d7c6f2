"""`penstock cluster`: the processes of a server, and the shards that they have."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from penstock.cli.cluster_cost import cost
from penstock.cli.errors import CommandError
from penstock.cli.lazy import new_app
from penstock.cli.output import Format, FormatOption, new_table, show, show_duration
from penstock.cli.target import Target, targeted
from penstock.model.units import format_size

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock import Client
    from penstock.model.processes import ClusterInfo

app = new_app("Show the processes of a server and their shards, and move shards between them.")
app.command()(cost)

_Process = Annotated[int, typer.Argument(metavar="PROCESS", help="Its number, as it is shown.", show_default=False)]


@app.command("show")
@targeted
def show_cluster(target: Target, output: FormatOption = Format.TABLE) -> None:
    """Show the processes of a server, which shards they have, and the last moves.

    For example:

        penstock cluster show
        penstock cluster show -o json | jq '.shards[] | select(.state != "open")'
    """
    with _server(target) as client:
        found = client.cluster()
    _show(found, output)


@app.command()
@targeted
def move(
    target: Target,
    shard: Annotated[int, typer.Argument(metavar="SHARD", help="The number of the shard.", show_default=False)],
    process: Annotated[int, typer.Option("--to", metavar="PROCESS", help="Where it is to go.", show_default=False)],
    output: FormatOption = Format.TABLE,
) -> None:
    """Move a shard to another process, and wait until it is there.

    Only the topics of this shard pause, for a fraction of a second: nothing new of them is handed out for half a second
    at most, so that what is leased can be finished, then it changes hands. Clients follow, and repeat what was under
    way.

    For example:

        penstock cluster move 3 --to 1
        penstock cluster move 3 --to 1 -o json | jq '.moves[-1].seconds'
    """
    with _server(target) as client:
        found = client.move_shard(shard, process)
    _show(found, output)


@app.command()
@targeted
def drain(target: Target, process: _Process, output: FormatOption = Format.TABLE) -> None:
    """Move all shards of a process to the others, one after the other; it gets none until `balance`.

    For example:

        penstock cluster drain 2
        penstock cluster drain 2 -o json | jq '.processes[2].shards'
    """
    with _server(target) as client:
        found = client.drain_process(process)
    _show(found, output)


@app.command()
@targeted
def balance(target: Target, output: FormatOption = Format.TABLE) -> None:
    """Let all processes share the shards, with as few moves as that takes.

    For example:

        penstock cluster balance
        penstock cluster balance -o json | jq '.processes | map(.shards | length)'
    """
    with _server(target) as client:
        found = client.balance_shards()
    _show(found, output)


@contextlib.contextmanager
def _server(target: Target) -> Iterator[Client]:
    import penstock

    if target.directory is not None or target.bucket is not None:
        raise CommandError("processes are those of a server: --dir has none", "give --server")
    with penstock.connect(target.server, **target.secrets) as client:
        yield client


def _show(found: ClusterInfo, output: Format) -> None:
    show(msgspec.to_builtins(found, builtin_types=[datetime]), output, *drawn_cluster(found))


def drawn_cluster(found: ClusterInfo) -> list[RenderableType]:
    """The tables of processes and moves, and what is said of shards that are not open."""
    now = datetime.now(UTC)
    rows = [
        [
            process.number,
            process.state,
            str(process.pid),
            ", ".join(map(str, process.shards)) or "none",
            _age(process.since, now),
            process.restarts,
            format_size(process.resident_bytes),
            process.connections,
        ]
        for process in found.processes
    ]
    headings = (">process", "state", ">pid", "shards", ">up for", ">restarts", ">memory", ">connections")
    drawn: list[RenderableType] = [new_table(*headings, rows=rows)]
    drawn += [
        f"shard {shard.number} is {shard.state}{f': {shard.problem}' if shard.problem else ''}"
        for shard in found.shards
        if shard.state != "open"
    ]
    if found.moves:
        moves = [
            [move.shard, move.origin, move.target, _age(move.at, now), f"{move.seconds:.3f} s"]
            for move in found.moves[-5:]
        ]
        drawn += ["", new_table(">shard", ">from", ">to", ">ago", ">away for", rows=moves)]
    return drawn


def _age(time: datetime, now: datetime) -> str:
    return show_duration(max(0.0, (now - time).total_seconds()))
