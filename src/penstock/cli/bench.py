"""`penstock bench`: measure a server from outside, with a baseline beside it."""

from __future__ import annotations

import contextlib
import logging
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from penstock.cli.errors import REFUSED, UNREACHABLE, CommandError
from penstock.cli.lazy import COMMAND, new_app
from penstock.cli.output import Format, FormatOption, new_table, show
from penstock.cli.target import add_options, flaw_of, is_by_hand
from penstock.cli.terminal import is_terminal, new_console
from penstock.storage.buckets import is_bucket

if TYPE_CHECKING:
    from rich.table import Table

    from penstock.bench.figures import Figure
    from penstock.bench.place import Measure, Place, Result

_HELP = """Measure how fast this machine publishes and consumes.

Without `--server` (and without `PENSTOCK_SERVER`) a server is started for it, as a process of its own on a directory
that goes afterwards. Every run reads back from the server how much it has, and fails if that is not what was
acknowledged. docs/how-to/measure.md tells how to read the figures.

    penstock bench all
    penstock bench publish --batch 1 --connections 1 --window 1
    penstock bench latency --rate 50000 --batch 10

Exit codes: 0, measured and verified; 1, something failed or is missing; 2, wrong usage; 3, no server answers.
"""

app = new_app(_HELP)

_PANEL = "Which server"
_SECONDS = 3.0

BatchOption = Annotated[int, typer.Option(metavar="NUMBER", min=1, max=100_000, help="Messages a request.")]
SizeOption = Annotated[int, typer.Option(metavar="BYTES", min=1, max=16 << 20, help="The length of each value.")]
SecondsOption = Annotated[
    float | None,
    typer.Option(metavar="NUMBER", min=0.01, help="How long to measure.  [default: 3]", show_default=False),
]
ConnectionsOption = Annotated[
    int, typer.Option(metavar="NUMBER", min=1, max=5000, help="Connections that publish at the same time.")
]
WindowOption = Annotated[
    int, typer.Option(metavar="NUMBER", min=1, max=512, help="Requests under way on each connection.")
]


class _Where(NamedTuple):
    """The server to measure (None: one that is started for it), and where to write."""

    server: str | None
    token: str | None
    directory: Path | None


class BenchSession:
    """One call of a command: where it measures, and how it shows what it found."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def measure(self, what: str, measure: Measure[Result]) -> Result:
        """Run one figure on a server that is warm, and say on a terminal what is being measured."""
        from penstock.bench.standard import warm

        waiting = new_console(stderr=True).status(f"measuring: {what}") if is_terminal("stderr") else None
        with waiting or contextlib.nullcontext():
            return self._place.measure(warm(measure))

    def show(self, figures: Sequence[Figure], output: Format, *drawn: Table) -> None:
        """The figures: as they were drawn, or each with everything about it."""
        from penstock.bench.figures import details, surroundings

        parts: list[Any] = list(drawn)
        if parts:
            verified = sum(figure.messages for figure in figures)
            parts += ["", f"verified: {verified:,} messages acknowledged, and all of them there", ""]
        else:
            for figure in figures:
                parts += [f"{figure.what}\n", new_table("", "", rows=details(figure), heading=False), ""]
        conditions = self._place.conditions()
        parts.append(new_table("", "", rows=surroundings(conditions), heading=False))
        answer = {"figures": [figure.as_json() for figure in figures], "conditions": conditions}
        show(answer, output, *parts)


def _options(
    ctx: typer.Context,
    server: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", envvar="PENSTOCK_SERVER", help="Measure this server.", rich_help_panel=_PANEL
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            envvar="PENSTOCK_TOKEN",
            help="A token for the server, if it asks for one.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    own_server: Annotated[
        bool,
        typer.Option(
            "--own-server",
            help="Start one for this, also where PENSTOCK_SERVER names another; the default without one.",
            rich_help_panel=_PANEL,
        ),
    ] = False,
    directory: Annotated[
        str | None,
        typer.Option(
            "--dir",
            metavar="DIR",
            help="Write below this directory: it decides which disk is measured.  [default: where temporary files go]",
            show_default=False,
            rich_help_panel=_PANEL,
        ),
    ] = None,
) -> _Where:
    """What was given."""
    ctx.meta[COMMAND] = ctx.command_path
    if own_server:
        if is_by_hand(ctx, "server"):
            raise CommandError("--server and --own-server exclude each other", "leave one of them out")
        server = None
    if directory is not None and is_bucket(directory):
        raise CommandError("a bucket is measured through a broker that is on it", "give --server")
    path = None if directory is None else Path(directory)
    if path is not None and path.exists() and flaw_of(path) is None:
        raise CommandError(f"{path} holds the data of a broker", "give another directory on the same disk")
    return _Where(server, token, path)


def _placed(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of where to measure, which it gets as one argument `session`."""

    def run(where: _Where, **own: Any) -> None:
        from penstock.bench.place import Place

        with _told(), Place(*where) as place:
            function(session=BenchSession(place), **own)

    return add_options(function, _options, run, instead_of="session")


@app.command()
@_placed
def publish(
    session: BenchSession,
    batch: BatchOption = 1000,
    connections: ConnectionsOption = 1,
    window: WindowOption = 8,
    size: SizeOption = 100,
    rate: Annotated[
        float | None,
        typer.Option(metavar="NUMBER", min=0.1, help="Messages a second by a schedule, not as fast as it goes."),
    ] = None,
    seconds: SecondsOption = None,
    count: Annotated[
        int | None,
        typer.Option(metavar="NUMBER", min=1, help="Publish so many messages, in whole batches, instead of --seconds."),
    ] = None,
    topic: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Publish to this topic, not to one that is made and deleted.")
    ] = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Measure publishing, beside a bare loopback round trip that writes and syncs the same bytes.

    Full speed has so many requests under way, and sends the next when one is answered. With `--rate` requests are due
    by a schedule, and latency counts from when they were due.

        penstock bench publish
        penstock bench publish --batch 1 --connections 64 --window 1
        penstock bench publish --batch 1 --connections 1 --window 1
        penstock bench publish --batch 100 --rate 200000 --seconds 10 -o json

    The third gives the ratio to the bare round trip: how much more than the disk and the network one message takes.
    """
    from penstock.bench.publishing import Publishing
    from penstock.bench.publishing import publish as measure

    if seconds is not None and count is not None:
        raise CommandError("--seconds and --count exclude each other", "leave one of them out")
    plan = Publishing(batch, connections, window, size, rate, seconds or _SECONDS, count, topic)
    figure = session.measure(plan.what, lambda target: measure(target, plan))
    session.show([figure], output)


@app.command()
@_placed
def consume(
    session: BenchSession,
    batch: Annotated[
        int, typer.Option(metavar="NUMBER", min=1, max=100_000, help="Messages that are asked for, and acked, at once.")
    ] = 1000,
    window: Annotated[int, typer.Option(metavar="NUMBER", min=1, max=100, help="Batches under way.")] = 4,
    count: Annotated[
        int, typer.Option(metavar="NUMBER", min=1, help="Messages to consume, which are published first.")
    ] = 500_000,
    size: SizeOption = 100,
    output: FormatOption = Format.TABLE,
) -> None:
    """Measure receiving and acking with the client's consumer, beside publishing the same messages.

    They are published first; then one consumer receives and acks batch after batch, some at a time.

        penstock bench consume
        penstock bench consume --batch 100 --count 2000000
        penstock bench consume --server 127.0.0.1:9000 -o json
    """
    from penstock.bench.consuming import Consuming
    from penstock.bench.consuming import consume as measure

    plan = Consuming(batch, window, size, count)
    figure = session.measure(plan.what, lambda target: measure(target, plan))
    session.show([figure], output)


@app.command()
@_placed
def latency(
    session: BenchSession,
    rate: Annotated[float, typer.Option(metavar="NUMBER", min=0.1, help="Messages a second.")] = 50_000,
    batch: BatchOption = 10,
    connections: ConnectionsOption = 1,
    window: WindowOption = 64,
    size: Annotated[int, typer.Option(metavar="BYTES", min=8, max=16 << 20, help="The length of each value.")] = 100,
    seconds: SecondsOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Measure how long messages take from publisher to consumer, at a fixed rate.

    Each message carries the time at which it was to be sent by the schedule, and its latency counts from then, also
    when it was sent late because the server did not take more: no coordinated omission.

        penstock bench latency
        penstock bench latency --rate 1000 --batch 1 --seconds 10
        penstock bench latency --rate 200000 --batch 100 --connections 4
    """
    from penstock.bench.latency import Schedule
    from penstock.bench.latency import latency as measure

    plan = Schedule(rate, batch, connections, window, size, seconds or _SECONDS)
    figure = session.measure(plan.what, lambda target: measure(target, plan))
    session.show([figure], output)


@app.command()
@_placed
def queues(
    session: BenchSession,
    number: Annotated[
        int, typer.Option("--queues", metavar="NUMBER", min=1, max=1_000_000, help="How many topics.")
    ] = 10_000,
    rounds: Annotated[
        int, typer.Option(metavar="NUMBER", min=1, help="How many batches each topic gets, in turn with the others.")
    ] = 1,
    batch: BatchOption = 100,
    window: WindowOption = 32,
    size: SizeOption = 100,
    output: FormatOption = Format.TABLE,
) -> None:
    """Measure publishing to and consuming from many topics in turn, beside the same with one.

    Each topic gets a batch in turn, then one consumer of all of them takes everything. On a server that was not started
    for this the topics are deleted afterwards, which takes some time for many.

        penstock bench queues
        penstock bench queues --queues 1000 --rounds 10
    """
    from penstock.bench.queues import Queues
    from penstock.bench.queues import queues as measure

    plan = Queues(number, rounds, batch, window, size)
    figures = session.measure(f"{number:,} queues", lambda target: measure(target, plan))
    session.show(figures, output)


@app.command("all")
@_placed
def measure_all(
    session: BenchSession,
    quick: Annotated[bool, typer.Option("--quick", help="A tenth of each: only to see that it works.")] = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """Measure the standard figures: the table of docs/how-to/measure.md, in about half a minute.

    Each figure has a fresh server of its own, unless one is given.

        penstock bench all
        penstock bench all --quick
        penstock bench all --dir /mnt/disk -o json
    """
    from penstock.bench.figures import summary
    from penstock.bench.standard import FULL, QUICK, STANDARD

    effort = QUICK if quick else FULL
    measured: list[tuple[str, Figure]] = []
    for standard in STANDARD:
        figure = session.measure(standard.what, standard.measure(effort))
        measured.append((standard.what, figure))
    columns = ("figure", ">messages/s", ">p50", ">p99", "beside it, in the same run")
    session.show([figure for _, figure in measured], output, new_table(*columns, rows=summary(measured)))


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """A run that failed is told in one line; one that is ended takes its server with it."""
    from penstock.bench.figures import Mismatch, RunFailed
    from penstock.model.errors import ConnectionLost

    logging.getLogger("penstock").addHandler(logging.NullHandler())  # a connection that is lost is told once
    before = signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        yield
    except ConnectionLost as error:
        hint = "start it with `penstock serve DIR`, or measure one of its own with --own-server"
        raise CommandError(str(error), hint, UNREACHABLE) from error
    except Mismatch as error:
        raise CommandError(str(error), "what is measured is wrong: look at the server's log", REFUSED) from error
    except RunFailed as error:
        raise CommandError(str(error), "look at the server's log and at its machine", REFUSED) from error
    finally:
        signal.signal(signal.SIGTERM, before)
