"""What all jobs of the command line share: their options, a session, a bar, and how the outcome is shown."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.errors import REFUSED, CommandError, warn
from penstock.cli.output import Format, FormatOption, cell, new_table, show
from penstock.cli.spark import what_is_missing_told
from penstock.cli.target import Target, targeted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.jobs.outcome import Outcome
    from penstock.spark.jobs.place import Place
    from penstock.spark.jobs.progress import Progress

_PANEL = "How it runs"
MasterOption = Annotated[
    str | None,
    typer.Option(metavar="URL", help="The Spark master (spark://…); without it, local.", rich_help_panel=_PANEL),
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option(
        "--conf", metavar="KEY=VALUE", help="A setting of Spark; may be given several times.", rich_help_panel=_PANEL
    ),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Tell what would be done, and do nothing.", rich_help_panel=_PANEL)
]


class Running:
    """A job that is about to run: where, with which session, and who listens."""

    def __init__(self, spark: SparkSession, place: Place, progress: Progress, *, dry_run: bool) -> None:
        self.spark = spark
        self.place = place
        self.progress = progress
        self.dry_run = dry_run


def place_of(target: Target) -> Place:
    """The place that a command was given."""
    from penstock.spark.jobs.place import Place

    if target.directory is not None:
        if not target.directory.is_dir():
            raise CommandError(f"{target.directory} is not a directory", "give a data directory, an archive or a lake")
        return Place(path=str(target.directory))
    ca = None if target.ca is None else str(target.ca)
    return Place(servers=target.server, token=target.token, tls=target.tls, ca=ca)


def job(function: Callable[..., Outcome]) -> Callable[..., None]:
    """A command out of a function that takes `run: Running` and its own options, and returns an Outcome."""

    @targeted
    @_with_common(function)
    def command(target: Target, common: dict[str, Any], **own: Any) -> None:
        _run(function, place_of(target), common, own)

    return command


def _run(function: Callable[..., Outcome], place: Place, common: dict[str, Any], own: dict[str, Any]) -> None:
    with what_is_missing_told():
        from penstock.spark.jobs.failing import told_clearly
    with session_for(common["master"], common["conf"]) as spark, told_clearly():
        from penstock.cli.jobs.bar import Bar

        with Bar(spark) as bar:
            outcome = function(run=Running(spark, place, bar, dry_run=common["dry_run"]), **own)
    show_outcome(outcome, common["output"])
    if not outcome.whole:
        raise typer.Exit(REFUSED)


def _with_common(function: Callable[..., Outcome]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of all jobs beside those of its function."""
    function.__annotations__.pop("return", None)  # `Outcome` is of Spark's side, which commands load when they run
    own = inspect.signature(function, eval_str=True).parameters
    common = inspect.signature(_common, eval_str=True).parameters

    def wrap(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def run(target: Target, **given: Any) -> None:
            command(target, {name: given.pop(name) for name in common}, **given)

        parameters = [
            inspect.Parameter("target", inspect.Parameter.KEYWORD_ONLY, annotation=Target),
            *(value.replace(kind=inspect.Parameter.KEYWORD_ONLY) for name, value in own.items() if name != "run"),
            *(value.replace(kind=inspect.Parameter.KEYWORD_ONLY) for value in common.values()),
        ]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return wrap


def _common(
    dry_run: DryRunOption = False,
    master: MasterOption = None,
    conf: ConfOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """The options of all jobs."""


@contextlib.contextmanager
def session_for(master: str | None, conf: list[str] | None) -> Iterator[SparkSession]:
    """A quiet session of a command's own, stopped behind it, Ctrl-C or not."""
    settings = settings_of(conf)
    with what_is_missing_told():
        from penstock.spark.jobs.sessions import job_session

        spark = job_session(master, settings)
    try:
        yield spark
    finally:
        spark.stop()


def settings_of(conf: list[str] | None) -> dict[str, str]:
    """The settings of Spark that were given."""
    settings = {}
    for given in conf or ():
        name, equals, value = given.partition("=")
        if not equals or not name.startswith("spark."):
            raise CommandError(f"--conf {given!r} is not spark.NAME=VALUE", "for example spark.driver.memory=4g")
        settings[name] = value
    return settings


def show_outcome(outcome: Outcome, output: Format) -> None:
    """The figures and the table for people, or all of it for programs."""
    drawn: list[Any] = []
    if outcome.rows:
        drawn += [new_table(*outcome.columns, rows=outcome.rows), ""]
    drawn.append(
        new_table(
            "",
            "",
            rows=[(name.replace("_", " "), cell(value)) for name, value in outcome.summary.items()],
            heading=False,
        )
    )
    if outcome.dry_run:
        drawn.append("nothing was done: this was a dry run")
    show(outcome.as_dict(), output, *drawn)
    if output is Format.TABLE:
        for note in outcome.notes:
            warn(note)
