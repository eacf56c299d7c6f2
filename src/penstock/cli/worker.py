"""`penstock worker`: run the worker of a module, and in development start it again when its sources change."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.errors import INTERRUPTED, REFUSED, CommandError, warn
from penstock.cli.terminal import LogFormatter, show_traceback
from penstock.cli.values import parse_option_s
from penstock.model.errors import PenstockError

if TYPE_CHECKING:
    from penstock.worker import Worker


class LogLevel(StrEnum):
    """What is worth a line in the log."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def worker(
    target: Annotated[str, typer.Argument(metavar="MODULE:WORKER", help="Where it is.", show_default=False)],
    reload: Annotated[bool, typer.Option("--reload", help="Start again whenever a source file changes.")] = False,
    server: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Work with this server instead of the worker's own.")
    ] = None,
    token: Annotated[
        str | None, typer.Option(metavar="TEXT", help="A token for the server, instead of the worker's own.")
    ] = None,
    directory: Annotated[
        str | None, typer.Option("--dir", metavar="DIR", help="Work on this data directory or bucket instead.")
    ] = None,
    grace: Annotated[
        str, typer.Option(metavar="DURATION", help="How long handlers may take to finish when it stops.")
    ] = "30s",
    log_level: Annotated[LogLevel, typer.Option(help="What to log.")] = LogLevel.INFO,
) -> None:
    """Run a worker until Ctrl-C or SIGTERM: its functions are called with the messages of topics.

    MODULE is imported from the current directory or from where Python finds it; WORKER is the name of a
    `penstock.Worker` in it. One that does not say where it works uses the server at `PENSTOCK_SERVER` or
    127.0.0.1:9000, with the token in `PENSTOCK_TOKEN`, and by TLS as `PENSTOCK_TLS`, `PENSTOCK_CA`, `PENSTOCK_CERT` and
    `PENSTOCK_KEY` say.

    When it stops it receives no more and lets handlers finish; a second Ctrl-C stops at once. What is not done is
    given back.

        penstock worker shop.orders:worker
        penstock worker shop.orders:worker --server queue:9000 --grace 2m
        penstock worker shop.orders:worker --dir ./data --reload

    Exit codes:

    * 0: it was stopped

    * 1: the module or a hook failed, or the broker refused it

    * 2: wrong usage, or there is no such worker

    * 3: the server or the directory cannot be reached

    * 130: a second Ctrl-C stopped it at once
    """
    if server is not None and directory is not None:
        raise CommandError("--server and --dir exclude each other", "leave one of them out")
    grace_s = parse_option_s("--grace", grace, "30s")
    module, name = _split(target)
    sys.path.insert(0, str(Path.cwd()))
    if reload:
        given = {"--server": server, "--token": token, "--dir": directory, "--grace": grace, "--log-level": log_level}
        raise typer.Exit(_keep_running(target, module, given, grace_s))
    _log(log_level)
    try:
        found = _load(module, name)
        if server is not None or directory is not None:
            found.server, found.directory = server, directory
        found.token = token or found.token
        found.run(grace=grace_s)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except PenstockError:
        raise
    except OSError:  # of the module or of a hook, and not of the broker
        show_traceback(*sys.exc_info())
        raise typer.Exit(REFUSED) from None


def _split(target: str) -> tuple[str, str]:
    module, _, name = target.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), name)):
        raise CommandError(
            f"{target!r} does not name a worker", "give MODULE:WORKER, such as shop.orders:worker for shop/orders.py"
        )
    return module, name


def _load(module_name: str, name: str) -> Worker:
    from penstock.worker import Worker

    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # something that the module imports
        raise CommandError(
            f"there is no module {error.name!r}", "run this where it lies, or add its place to PYTHONPATH"
        ) from None
    except SyntaxError as error:
        raise CommandError(
            f"{error.filename}, line {error.lineno}: {error.msg}", "the module cannot be imported until it is right"
        ) from None
    found = getattr(module, name, None)
    if isinstance(found, Worker):
        return found
    there = [f"{module_name}:{other}" for other, value in vars(module).items() if isinstance(value, Worker)]
    hint = f"it has {', '.join(there)}" if there else f"it needs a line such as `{name} = penstock.Worker()`"
    if not hasattr(module, name):
        raise CommandError(f"the module {module_name!r} has no {name!r}", hint)
    raise CommandError(f"{module_name}:{name} is no penstock.Worker, but of the type {type(found).__name__!r}", hint)


def _log(level: LogLevel) -> None:
    import logging

    handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])


def _keep_running(target: str, module: str, given: Mapping[str, object], grace_s: float) -> int:
    from penstock.worker.reload import Reloader, sources_of

    command = [sys.executable, "-m", "penstock.cli.main", "worker", target]
    for option, value in given.items():
        if value is not None:
            command += [option, str(value)]
    return Reloader(command, sources_of(module), grace_s, warn).run()
