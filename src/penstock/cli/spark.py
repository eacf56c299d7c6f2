"""`penstock spark`: Spark sessions in which topics are tables."""

from __future__ import annotations

import code
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.errors import REFUSED, CommandError
from penstock.cli.lazy import new_app
from penstock.cli.target import Target, targeted
from penstock.cli.terminal import echo

app = new_app("Open a Spark session in which topics are tables, and ship the package to a cluster.")

_BANNER = """Penstock on Spark {version}, with the topics of {where}. In here are:

  spark           the session; spark.read.format("penstock") and its sisters work
  topics          topics().show(): every topic and partition
  read_topic      read_topic("orders"): a topic as a DataFrame
  read_events     read_events("orders", per_message=True): what happened to its messages
  explode_events  explode_events(events): a row for each message of an event
  from_json       from_json(read_topic("orders")): values that are JSON, as columns

Leave with Ctrl-D."""


@app.command()
@targeted
def shell(
    target: Target,
    master: Annotated[
        str | None, typer.Option(metavar="URL", help="The Spark master (spark://…, sc://…); without it, local.")
    ] = None,
    execute: Annotated[
        str | None, typer.Option("--execute", "-e", metavar="PYTHON", help="Run this and leave, instead of asking.")
    ] = None,
) -> None:
    """Open a Python prompt with a Spark session in which topics are tables.

    With `--dir` it reads a data directory that no broker has open, or an archive. Spark needs Java 17 or newer; where
    there is none, `pip install 'penstock[java]'` brings one.

    In the session are `spark`, `topics()`, `read_topic(…)`, `read_events(…)`, `explode_events(…)` and `from_json(…)`.
    What `-e` prints is all that there is on standard output. An exception in it is exit code 1.

    For example:

        penstock spark shell
        penstock spark shell --dir ./data -e 'topics().show()'
        penstock spark shell -e 'read_topic("orders").groupBy("key").count().show()'
    """
    if target.directory is not None and not target.directory.is_dir():
        raise CommandError(f"{target.directory} is not a directory", "give a data directory, or an archive")
    with what_is_missing_told():
        from penstock.spark.options import Secrets
        from penstock.spark.shell import names, run, shortened

        directory = target.bucket if target.directory is None else str(target.directory)
        secrets = Secrets(target.token, target.tls, None if target.ca is None else str(target.ca))
        found = names(target.server if directory is None else None, directory, secrets, master)
    spark = found["spark"]
    try:
        if execute is None:
            _ask(found, _BANNER.format(version=spark.version, where=directory or target.server))
            return
        try:
            run(execute, found)
        except Exception as error:
            from penstock.model.errors import PenstockError

            if isinstance(error, PenstockError):
                raise  # is told in one line
            echo(shortened(error), err=True)
            raise typer.Exit(REFUSED) from None
    finally:
        spark.stop()


@contextlib.contextmanager
def what_is_missing_told() -> Iterator[None]:
    """Have it said in one line that PySpark or Java is not there."""
    from penstock.spark.java import JavaMissing

    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "pyspark":
            raise
        raise CommandError("PySpark 4.2 or newer is not installed", "pip install 'penstock[spark]'", REFUSED) from None
    except JavaMissing as error:
        text = str(error).removesuffix(f": {error.hint}")
        raise CommandError(text, error.hint, REFUSED) from None


def _ask(found: dict[str, Any], banner: str) -> None:
    with contextlib.suppress(ImportError):
        import readline
        import rlcompleter

        readline.set_completer(rlcompleter.Completer(found).complete)
        readline.parse_and_bind("tab: complete")
    code.interact(banner, local=found, exitmsg="")


@app.command()
def package(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it.", show_default=True)] = Path(
        "penstock.zip"
    ),
) -> None:
    """Write the package into an archive for `spark-submit --py-files`.

    So the workers of a cluster need no Penstock. They need `pyarrow`, `msgspec`, `pyroaring` and `google-crc32c`, and
    the same version of Python as the driver. Spark does not look for data sources in such archives: the job gets its
    session from `penstock.spark.session()`, or calls `penstock.spark.register(spark)`.

    The same package gives the same archive, byte for byte. A file that is there is replaced.

    For example:

        penstock spark package
        penstock spark package /shared/penstock.zip
        spark-submit --master spark://host:7077 --py-files penstock.zip job.py
    """
    from penstock.spark.packaging import build_archive

    echo(str(build_archive(file)))
