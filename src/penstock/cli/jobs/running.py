"""What all jobs of the command line share: their options, a session, a bar, and how the outcome is shown."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.errors import REFUSED, CommandError, warn
from penstock.cli.output import Format, FormatOption, cell, new_table, show
from penstock.cli.spark import what_is_missing_told
from penstock.cli.target import Target, add_options, targeted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.jobs.outcome import Outcome, Progress
    from penstock.spark.jobs.place import Place

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
WhereOption = Annotated[
    str | None, typer.Option(metavar="SQL", help="A condition over the columns of messages, such as 'priority < 64'.")
]
FromFixedTimeOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="From this time on, such as 2026-01-31T12:00:00Z.")
]


@dataclass(frozen=True)
class CommonOptions:
    """The options of all jobs."""

    dry_run: DryRunOption = False
    master: MasterOption = None
    conf: ConfOption = None
    output: FormatOption = Format.TABLE


@dataclass(frozen=True)
class Running:
    """A job that is about to run: where, with which session, and who listens."""

    spark: SparkSession
    place: Place
    progress: Progress
    dry_run: bool

    def __call__(self, work: Callable[..., Outcome], *arguments: Any, **options: Any) -> Outcome:
        """Run the function of the job with arguments of its own."""
        return work(self.spark, self.place, *arguments, **options, dry_run=self.dry_run, progress=self.progress)


def place_of(target: Target) -> Place:
    """The place that a command was given."""
    from penstock.spark.jobs.place import Place

    if target.directory is not None:
        if not target.directory.is_dir():
            raise CommandError(f"{target.directory} is not a directory", "give a data directory, an archive or a lake")
        return Place(path=str(target.directory))
    if target.bucket is not None:
        return Place(path=target.bucket)
    ca = None if target.ca is None else str(target.ca)
    return Place(servers=target.server, token=target.token, tls=target.tls, ca=ca)


def job(function: Callable[..., Outcome]) -> Callable[..., None]:
    """A command out of a function that takes `run: Running` and its own options, and returns an Outcome."""
    function.__annotations__.pop("return", None)  # `Outcome` is of Spark's side, which commands load when they run

    def run(common: CommonOptions, target: Target, **own: Any) -> None:
        place = place_of(target)
        with what_is_missing_told():
            from penstock.spark.jobs.failing import told_clearly
        with session_for(common.master, common.conf) as spark, told_clearly():
            from penstock.cli.jobs.bar import Bar

            with Bar(spark) as bar:
                outcome = function(run=Running(spark, place, bar, common.dry_run), **own)
        show_outcome(outcome, common.output)
        if not outcome.whole:
            raise typer.Exit(REFUSED)

    return targeted(add_options(function, CommonOptions, run, instead_of="run"))


@contextlib.contextmanager
def session_for(master: str | None, conf: list[str] | None) -> Iterator[SparkSession]:
    """A quiet session of a command's own, stopped behind it, Ctrl-C or not."""
    settings = settings_of(conf)
    with what_is_missing_told():
        from penstock.spark.sessions import job_session

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
