"""Which broker a command works on: the options that say so, once for all commands."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.errors import CommandError
from penstock.cli.lazy import COMMAND
from penstock.model.bounds import nearest
from penstock.storage.buckets import is_bucket

if TYPE_CHECKING:
    from penstock.api.operations import BrokerOperations

PANEL = "Which broker"
_SERVER = "127.0.0.1:9000"
_QUOTED = re.compile(r"'([^']*)'")
"""The name that an error is about."""

TokenOption = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        envvar="PENSTOCK_TOKEN",
        help="A token for the server, if it asks for one.",
        rich_help_panel=PANEL,
    ),
]
TlsOption = Annotated[
    bool, typer.Option("--tls", envvar="PENSTOCK_TLS", help="Talk to the server by TLS.", rich_help_panel=PANEL)
]
CaOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        envvar="PENSTOCK_CA",
        help="TLS with a server whose certificate is of these authorities (PEM).",
        rich_help_panel=PANEL,
    ),
]


@dataclass(frozen=True, slots=True)
class Target:
    """A server, or a directory or a bucket that is opened here."""

    server: str = _SERVER
    token: str | None = None
    directory: Path | None = None
    bucket: str | None = None
    """Instead of a directory. What only reads can be done while brokers have it."""
    tls: bool = False
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    @property
    def secrets(self) -> dict[str, Any]:
        """What a client is made with beside the address."""
        return {"token": self.token, "tls": self.tls, "ca": self.ca, "cert": self.cert, "key": self.key}

    @contextlib.contextmanager
    def open(self, *, new: bool = False) -> Iterator[BrokerOperations]:
        """The broker, here or behind a server; with `new`, a directory is made if it is not there."""
        import penstock

        if self.bucket is not None:
            from penstock.embedded.looking import BucketVisitor

            broker: Any = BucketVisitor(self.bucket, new=new)
        elif self.directory is None:
            broker = penstock.connect(self.server, **self.secrets)
        else:
            if not new and (flaw := flaw_of(self.directory)) is not None:
                raise CommandError(flaw, "give the directory that the broker was opened with")
            broker = penstock.open(self.directory)
        with broker:
            try:
                yield broker
            except penstock.TopicNotFound as error:
                _suggest_topic(broker, error)
                raise


def flaw_of(directory: Path) -> str | None:
    """Why this is no directory of a broker."""
    from penstock.cluster.directory import DIVISION
    from penstock.shard.checkpoint_files import COPIES

    if not directory.exists():
        return f"{directory} does not exist"
    if not directory.is_dir():
        return f"{directory} is not a directory"
    if not {*COPIES, "journal", "topics", DIVISION} & set(os.listdir(directory)):
        return f"{directory} is not a Penstock directory: it has no checkpoint and no journal"
    return None


def targeted(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of its target, which it gets as one argument `target`."""

    def run(target: Target, **own: Any) -> None:
        function(target=target, **own)

    command = add_options(function, _options, run, instead_of="target")
    text = inspect.cleandoc(function.__doc__ or "")
    command.__doc__ = re.sub(r"((?:^    .*\n?)+)", _fence, text, flags=re.MULTILINE)
    return command


def add_options(
    function: Callable[..., Any], common: Callable[..., Any], run: Callable[..., None], *, instead_of: str
) -> Callable[..., None]:
    """A command with the options of a function and, instead of one argument, those of `common`.

    It calls `run` with what `common` returns for its options, and with the function's own options.
    """
    own = inspect.signature(function, eval_str=True).parameters
    shared = inspect.signature(common, eval_str=True).parameters
    parameters = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in (*own.values(), *shared.values())
        if parameter.name != instead_of
    ]

    @functools.wraps(function)
    def command(**given: Any) -> None:
        run(common(**{name: given.pop(name) for name in shared}), **given)

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _fence(block: re.Match[str]) -> str:
    """Examples between fences: typer would take their indentation away."""
    return f"```\n{inspect.cleandoc(block[0])}\n```\n"


def _options(
    ctx: typer.Context,
    server: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT", envvar="PENSTOCK_SERVER", help="Work with this server.", rich_help_panel=PANEL
        ),
    ] = _SERVER,
    token: TokenOption = None,
    tls: TlsOption = False,
    ca: CaOption = None,
    cert: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            envvar="PENSTOCK_CERT",
            help="A certificate to show to the server (PEM).",
            rich_help_panel=PANEL,
        ),
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option(
            "--cert-key",
            metavar="FILE",
            envvar="PENSTOCK_KEY",
            help="The key of that certificate (PEM).",
            rich_help_panel=PANEL,
        ),
    ] = None,
    directory: Annotated[
        str | None,
        typer.Option(
            "--dir",
            metavar="DIR",
            envvar="PENSTOCK_DIR",
            help="Work on this data directory instead, which no server may have open; or look at a bucket.",
            rich_help_panel=PANEL,
        ),
    ] = None,
) -> Target:
    """What was given, with what stands on the command line before what the environment says."""
    ctx.meta[COMMAND] = ctx.command_path
    by_hand = {name for name in ("server", "directory") if is_by_hand(ctx, name)}
    if len(by_hand) == 2:
        raise CommandError("--server and --dir exclude each other", "leave one of them out")
    given = None if by_hand == {"server"} else directory
    bucket = given if given is not None and is_bucket(given) else None
    path = None if given is None or bucket else Path(given)
    return Target(server, token, path, bucket, tls, ca, cert, tls_key)


def is_by_hand(ctx: typer.Context, name: str) -> bool:
    """Whether an option stands on the command line, and not only in the environment."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _suggest_topic(broker: BrokerOperations, error: Exception) -> None:
    """Say which topic may have been meant, if that can be found out."""
    asked = _QUOTED.search(str(error))
    with contextlib.suppress(Exception):
        near = nearest(asked[1] if asked else "", [topic.name for topic in broker.topics()])
        if near:
            error.add_note(f"did you mean {near[0]}?")
