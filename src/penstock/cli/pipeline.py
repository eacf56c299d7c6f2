"""`penstock pipeline`: pipelines on Spark, checked, run, watched and stopped."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.errors import INTERRUPTED, REFUSED, USAGE, CommandError, warn
from penstock.cli.jobs.running import ConfOption, MasterOption, settings_of
from penstock.cli.lazy import COMMAND, new_app
from penstock.cli.output import Format, FormatOption, counted, new_table, show, show_duration
from penstock.cli.spark import what_is_missing_told
from penstock.cli.target import PANEL, CaOption, TlsOption, TokenOption
from penstock.cli.terminal import ERROR, echo
from penstock.cli.values import parse_option_s
from penstock.model.visible import visible

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.model.pipelines import PipelineReport
    from penstock.spark.jobs.place import Place
    from penstock.spark.pipelines.control import RunFiles
    from penstock.spark.pipelines.spec import Declared
    from penstock.spark.pipelines.supervising import Supervisor

app = new_app(
    """Run, check and watch pipelines on Spark: from topics, to topics and tables.

A file declares them, as YAML or in Python: sources, steps of SQL or Python, sinks; `docs/reference/pipelines.md` has
every key. They run local, or on any master with `--master`."""
)

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The file of the pipelines.", show_default=False)]
NamesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="NAME", help="Only these pipelines.", show_default=False)
]
ServerOption = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Another server than that of the file.", rich_help_panel=PANEL),
]


@app.command()
def run(
    ctx: typer.Context,
    file: FileArgument,
    names: NamesArgument = None,
    grace: Annotated[
        str, typer.Option(metavar="DURATION", help="How long batches may take to finish when it stops.")
    ] = "30s",
    master: MasterOption = None,
    conf: ConfOption = None,
    server: ServerOption = None,
    token: TokenOption = None,
    tls: TlsOption = False,
    ca: CaOption = None,
) -> None:
    """Run the pipelines of a file, until Ctrl-C or SIGTERM, or until they are done.

    Everything is checked first. Then there is a line for every batch: rows, rows a second, messages that are not read
    yet, seconds; in a pipe it is JSON. A pipeline that fails is started again by itself, after 1 second, then 2, up to
    a minute; one that cannot work at all is given up, and the others go on.

    When it stops, batches under way are finished; a second Ctrl-C stops at once, which does no harm either: what was
    begun is done again, once.

    For example:

        penstock pipeline run orders.yaml

        penstock pipeline run orders.yaml enrich minutes --master spark://host:7077

    Exit codes:

    * 0: they were stopped, or are done

    * 1: one was given up, they run already, or every row of a sink was refused

    * 2: the file has problems, and every one was told

    * 130: a second Ctrl-C stopped it at once
    """
    grace_s = parse_option_s("--grace", grace, "30s")
    with _problems_told(ctx):
        from penstock.cli.pipeline_lines import Lines
        from penstock.spark.pipelines.control import AlreadyRunning
        from penstock.spark.pipelines.running import run as run_all

        declared = _loaded(file, names)
        place = _place(declared, server, token, tls, ca)
        lines = Lines()
        with _session(declared, master, conf) as spark:

            def started(supervisor: Supervisor) -> None:
                lines.broken = lambda: supervisor.stop(grace_s)
                _stop_on_signals(supervisor, grace_s)

            try:
                reports = run_all(spark, declared, place, names=names or (), watch=lines, started=started)
            except AlreadyRunning as error:
                raise CommandError(str(error), "`penstock pipeline stop FILE` stops it", REFUSED) from None
    nothing_written = lines.tell_refused(reports)
    if nothing_written or any(report.state == "failed" for report in reports):
        raise typer.Exit(REFUSED)


@app.command()
def check(
    ctx: typer.Context,
    file: FileArgument,
    server: ServerOption = None,
    token: TokenOption = None,
    tls: TlsOption = False,
    ca: CaOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Tell every problem of a file, each with its place; Spark analyses the SQL against the schemas.

    No data is touched. A server that can be reached is asked for the topics that are read: those that are not there are
    told as notes.

    For example:

        penstock pipeline check orders.yaml

        penstock pipeline check pipelines.py -o json

    Exit codes:

    * 0: the file is fine

    * 2: it has problems
    """
    with _problems_told(ctx):
        from penstock.spark.pipelines.loading import load_partly
        from penstock.spark.pipelines.running import check as find
        from penstock.spark.pipelines.value_readers import Misdeclared

        declared, known = load_partly(file)
        if known and not any(pipeline.sources for pipeline in declared.pipelines.values()):
            raise Misdeclared(known)
        with _session(declared, None, None) as spark:
            found = find(spark, declared, _place(declared, server, token, tls, ca), known)
        if found.problems:
            raise Misdeclared(found.problems)
    queries: list[dict[str, Any]] = [
        {"pipeline": name, "query": query.name, "reads": list(query.reads), "writes": query.target or query.format}
        for name, planned in found.queries.items()
        for query in planned
    ]
    rows = [(each["query"], ", ".join(each["reads"]), each["writes"]) for each in queries]
    drawn = new_table("query", "reads", "writes", rows=rows)
    show({"file": str(file), "queries": queries, "notes": found.notes}, output, drawn, "", "fine")
    for note in found.notes:
        warn(visible(note))


@app.command("list")
def list_pipelines(ctx: typer.Context, file: FileArgument, output: FormatOption = Format.TABLE) -> None:
    """List the pipelines of a file, with what they read and write and how they are.

    For example:

        penstock pipeline list orders.yaml

        penstock pipeline list orders.yaml -o json
    """
    with _problems_told(ctx):
        declared = _loaded(file)
    answer: list[dict[str, Any]] = []
    for name, pipeline in declared.pipelines.items():
        report = _files(declared, name).report()
        sources, sinks = pipeline.sources.values(), pipeline.sinks.values()
        answer.append(
            {
                "pipeline": name,
                "state": None if report is None else report.state.value,
                "reads": [_first(source.topic, source.events, source.table, source.files) for source in sources],
                "writes": [_first(sink.topic, sink.table, "console") for sink in sinks],
                "trigger": str(pipeline.trigger),
            }
        )
    rows = [(e["pipeline"], e["state"], ", ".join(e["reads"]), ", ".join(e["writes"]), e["trigger"]) for e in answer]
    show(answer, output, new_table("pipeline", "state", "reads", "writes", "trigger", rows=rows))


@app.command()
def status(
    ctx: typer.Context, file: FileArgument, names: NamesArgument = None, output: FormatOption = Format.TABLE
) -> None:
    """Show how pipelines are, and the figures of their queries, as the process that runs them has left them.

    For example:

        penstock pipeline status orders.yaml

        penstock pipeline status orders.yaml orders -o json

    Exit codes:

    * 0: none has failed

    * 1: one is given up, or its process is gone
    """
    import msgspec

    with _problems_told(ctx):
        declared = _loaded(file, names)
    found = {name: _files(declared, name).report() for name in names or declared.pipelines}
    answer = [{"name": name, "state": None} if r is None else msgspec.to_builtins(r) for name, r in found.items()]
    drawn: list[Any] = []
    for name, report in found.items():
        drawn += [*([""] if drawn else []), *_drawn(name, report)]
    show(answer, output, *drawn)
    if any(report is not None and report.state == "failed" for report in found.values()):
        raise typer.Exit(REFUSED)


@app.command()
def stop(
    ctx: typer.Context,
    file: FileArgument,
    names: NamesArgument = None,
    timeout: Annotated[str, typer.Option(metavar="DURATION", help="How long to wait until they have stopped.")] = "60s",
) -> None:
    """Stop pipelines that another process runs, when the batches under way are done.

    For example:

        penstock pipeline stop orders.yaml

        penstock pipeline stop orders.yaml minutes

    Exit codes:

    * 0: they have stopped, or did not run

    * 1: one has not stopped in time
    """
    until_s = time.monotonic() + parse_option_s("--timeout", timeout, "60s")
    with _problems_told(ctx):
        declared = _loaded(file, names)
    held = {name: files for name in names or declared.pipelines if (files := _files(declared, name)).is_held}
    for files in held.values():
        files.ask_to_stop()
    for name, files in held.items():
        while files.is_held:
            if time.monotonic() >= until_s:
                raise CommandError(f"{name} has not stopped yet", "its batch may take long: look again", REFUSED)
            time.sleep(0.1)
        echo(f"{name} has stopped")
    for name in names or declared.pipelines:
        if name not in held:
            echo(f"{name} does not run")


# What they share.


@contextlib.contextmanager
def _problems_told(ctx: typer.Context) -> Iterator[None]:
    """Have every problem of a file told on a line of its own."""
    ctx.meta[COMMAND] = ctx.command_path
    with what_is_missing_told():
        from penstock.spark.jobs.failing import told_clearly
        from penstock.spark.pipelines.value_readers import Misdeclared
    try:
        with told_clearly():
            yield
    except Misdeclared as error:
        for problem in error.problems:
            echo(visible(str(problem)), err=True, mark=ERROR)
        raise typer.Exit(USAGE) from None


def _loaded(file: Path, names: list[str] | None = None) -> Declared:
    from penstock.spark.pipelines.loading import load
    from penstock.spark.pipelines.running import check_names

    declared = load(file)
    check_names(declared, names or ())
    return declared


def _place(declared: Declared, server: str | None, token: str | None, tls: bool, ca: Path | None) -> Place:
    from penstock.spark.pipelines.running import place_of

    return place_of(declared, server=server, token=token, tls=tls, ca=None if ca is None else str(ca))


@contextlib.contextmanager
def _session(declared: Declared, master: str | None, conf: list[str] | None) -> Iterator[SparkSession]:
    """A session of the command's own, stopped behind it."""
    with what_is_missing_told():
        from penstock.spark.pipelines.running import session_of

        spark = session_of(declared, master, settings_of(conf))
    try:
        yield spark
    finally:
        spark.stop()


def _stop_on_signals(supervisor: Supervisor, grace_s: float) -> None:
    """The first Ctrl-C or SIGTERM stops when batches are done, the second at once."""

    def heard(number: int, frame: FrameType | None) -> None:
        if all(pipeline.stopping.is_set() for pipeline in supervisor.pipelines):
            sys.stdout.flush()
            os._exit(INTERRUPTED)  # Spark goes when its driver does
        echo("stopping when the batches under way are done (once more: at once)", err=True)
        supervisor.stop(grace_s)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, heard)


def _files(declared: Declared, name: str) -> RunFiles:
    from penstock.spark.pipelines.control import RunFiles

    return RunFiles(declared.directory(name))


def _drawn(name: str, report: PipelineReport | None) -> list[Any]:
    """A pipeline for people."""
    if report is None:
        return [f"{name} never ran"]
    seconds = max(0.0, time.time() - report.started_us / 1e6)
    told = f"{name}  {report.state}  {report.file} on {report.host}, process {report.pid}, started "
    told += f"{show_duration(seconds)} ago, {counted(report.restarts, 'restart')}"
    rows = [
        (q.name, q.batches, q.rows, round(q.rows_per_second), q.lag, f"{q.batch_seconds:.1f} s", q.state_rows)
        for q in report.queries
    ]
    drawn: list[Any] = [told]
    if report.error is not None:
        drawn.append(f"  it failed: {visible(report.error)}")
    columns = ("query", ">batches", ">rows", ">rows/s", ">lag", ">batch", ">state")
    return [*drawn, new_table(*columns, rows=rows)] if rows else drawn


def _first(*given: str | None) -> str:
    return next(text for text in given if text is not None)
