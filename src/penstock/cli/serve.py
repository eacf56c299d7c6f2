"""`penstock serve`: run a server on a data directory."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.errors import REFUSED, UNREACHABLE, USAGE, CommandError
from penstock.cli.terminal import ERROR, echo, is_terminal

if TYPE_CHECKING:
    from penstock.server.brokers.running import Broker
    from penstock.server.config import Loaded
    from penstock.server.processes.supervisor import Supervisor
    from penstock.server.server import Server


def serve(
    directory: Annotated[
        str | None,
        typer.Argument(metavar="[DIR]", help="The data directory, made if it is new; or a bucket: s3://bucket/place."),
    ] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="A YAML file; see `penstock config`.")] = None,
    shards: Annotated[
        int | None, typer.Option(metavar="N", help="How many shards a new directory is divided into, for good (1).")
    ] = None,
    processes: Annotated[
        int | None, typer.Option(metavar="N", help="How many processes serve them (1); each has some of the shards.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="The address to listen on (127.0.0.1: only this machine).")] = None,
    native_port: Annotated[
        int | None, typer.Option(help="The port of the native protocol (9000; 0: any free one).")
    ] = None,
    http_port: Annotated[
        str | None, typer.Option(metavar="PORT", help="The port of HTTP (8080; 0: any, off: none).")
    ] = None,
    line_port: Annotated[
        str | None, typer.Option(metavar="PORT", help="The port of the text protocol (3000; 0: any, off: none).")
    ] = None,
    advertise: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="On a bucket: where clients and other brokers reach this one."),
    ] = None,
    balance_after: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="On a bucket: share shards evenly so long after brokers came or went (60s)."),
    ] = None,
    auth: Annotated[
        str | None, typer.Option(help="Who may use it: everybody who reaches it (off), or those with a token (tokens).")
    ] = None,
    tokens_dir: Annotated[
        str | None, typer.Option(metavar="DIR", help="Where the tokens are (the data directory).")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen where others reach it although anybody may use it.")
    ] = False,
    tls_cert: Annotated[
        str | None, typer.Option(metavar="FILE", help="The server's certificate (PEM): all ports speak TLS.")
    ] = None,
    tls_key: Annotated[str | None, typer.Option(metavar="FILE", help="The key of the certificate (PEM).")] = None,
    tls_client_ca: Annotated[
        str | None, typer.Option(metavar="FILE", help="Clients must show a certificate of these authorities (PEM).")
    ] = None,
    sync: Annotated[
        str | None, typer.Option(help="What an acknowledgement means: `always` on disk, `interval`, `never`.")
    ] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
    log_format: Annotated[str | None, typer.Option(help="text, json, or auto: text on a terminal.")] = None,
) -> None:
    """Run a server on a data directory, or on a bucket that several share, until Ctrl-C or SIGTERM.

    Options come from a YAML file, from the environment (`PENSTOCK_…`) and from flags; the later wins. SIGHUP has the
    defaults of new topics, tokens and certificates read again. Stopping answers what is under way and gives leases
    back: nothing is lost.

    For example:

        penstock serve ./data
        penstock serve ./data --native-port 9100 --log-format json
        penstock serve ./data --shards 8 --processes 4
        penstock serve s3://bucket/place --advertise broker-1.internal:9000
        penstock serve --config penstock.yaml
        penstock serve ./data --host 0.0.0.0 --auth tokens --tls-cert cert.pem --tls-key key.pem

    Exit codes:

    * 0: it was stopped

    * 1: the directory cannot be opened, or the disk failed

    * 2: wrong usage or configuration

    * 3: another broker has the directory, or the port is taken

    * 130, 143: a second Ctrl-C or SIGTERM ended it before it had finished
    """
    from penstock.server.config import ConfigError, load_config

    flags: dict[str, object] = {
        "data_dir": directory,
        "shards": shards,
        "processes": processes,
        "host": host,
        "native_port": native_port,
        "http_port": http_port,
        "line_port": line_port,
        "advertise": advertise,
        "balance_after": balance_after,
        "auth": auth,
        "tokens_dir": tokens_dir,
        "insecure": insecure or None,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
        "tls_client_ca": tls_client_ca,
        "broker_sync": sync,
        "log_level": log_level,
        "log_format": log_format,
    }
    try:
        loaded = load_config(config, os.environ, flags)
    except ConfigError as error:
        for problem in error.problems:
            echo(str(problem), err=True, mark=ERROR)
        raise CommandError(
            f"{len(error.problems)} problems in the configuration", "`penstock config example` shows one"
        ) from None
    _run(loaded, config, flags)


def _run(loaded: Loaded, file: Path | None, flags: dict[str, object]) -> None:
    import logging

    import uvloop

    from penstock.model.errors import DirectoryLocked, PenstockError
    from penstock.server.access.starting import StartRefused
    from penstock.server.config import ServerConfig, load_config
    from penstock.server.logs import set_up_logging
    from penstock.server.server import PortTaken
    from penstock.server.server import serve as run_server
    from penstock.storage.buckets import is_bucket

    options = loaded.config
    on_bucket = is_bucket(options.data_dir)
    named = (file, options.tls_cert, options.tls_key, options.tls_client_ca)
    if strangers := [] if on_bucket else _strangers(Path(options.data_dir), named):
        shown = ", ".join(strangers[:3]) + (" and more" if len(strangers) > 3 else "")
        raise CommandError(
            f"{options.data_dir} is no data directory, and it is not empty: it has {shown}",
            "give a directory that is empty or new, or one that Penstock made",
        )
    set_up_logging(options.log_level, options.log_format, sys.stderr)
    log = logging.getLogger("penstock.server")
    for notice in loaded.notices:
        log.warning("%s", notice)

    def reload() -> ServerConfig:
        return load_config(file, os.environ, flags).config

    try:
        if on_bucket:
            from penstock.server.brokers.running import serve_bucket

            uvloop.run(serve_bucket(options, _show_broker, reload))
        elif options.processes > 1:
            from penstock.server.processes.running import run_processes

            run_processes(options, _show_processes, reload)
        else:
            uvloop.run(run_server(options, _show_ready, reload))
    except DirectoryLocked as error:
        hint = "stop that broker first, or serve another directory"
        raise CommandError(str(error), hint, UNREACHABLE) from None
    except StartRefused as error:
        raise CommandError(str(error), error.hint, UNREACHABLE if isinstance(error, PortTaken) else USAGE) from None
    except PenstockError as error:
        raise CommandError(str(error), f"`penstock check {options.data_dir}` tells more", REFUSED) from None
    except OSError as error:
        hint = "look at the address, at the directory's permissions and at the disk"
        raise CommandError(str(error), hint, REFUSED) from None


def _strangers(directory: Path, named: Iterable[Path | str | None]) -> list[str]:
    """What somebody else put into a directory that is none of ours yet; what the configuration names may lie there."""
    from penstock.cli.target import flaw_of
    from penstock.server.access import tokens

    if not directory.is_dir() or flaw_of(directory) is None:
        return []
    known = {Path(path).resolve() for path in named if path is not None}
    ours = ("lost+found", "LOCK", *tokens.FILES)
    found = (path for path in directory.iterdir() if path.name not in ours and not path.name.startswith("."))
    return sorted(path.name for path in found if path.resolve() not in known)


def _show_processes(supervisor: Supervisor) -> None:
    """As `_show_ready`, for a server of several processes."""
    import logging

    config = supervisor.config
    places = {name: _written(*address) for name, address in supervisor.addresses.items()}
    numbers = {"shards": supervisor.shards, "processes": len(supervisor.children)}
    log = logging.getLogger("penstock.server")
    log.info("listening", extra={**places, "data": config.data_dir, **numbers})
    data = f"{config.data_dir} ({numbers['shards']} shards in {numbers['processes']} processes)"
    _greet(places, data, config.broker.sync, with_tls=config.tls_cert is not None)


def _show_broker(broker: Broker) -> None:
    """As `_show_ready`, for one of the brokers on a bucket."""
    import logging

    config, number = broker.config, broker.member.number
    places = {name: _written(*address) for name, address in broker.server.addresses.items()}
    held = {"shards": broker.shards, "broker": number}
    log = logging.getLogger("penstock.server")
    log.info("listening", extra={**places, "data": config.data_dir, **held})
    data = f"{config.data_dir} ({broker.shards} shards; this is broker {number})"
    _greet(places, data, "always", with_tls=config.tls_cert is not None)


def _show_ready(server: Server) -> None:
    """Say where it listens and where its data is: for people on a terminal, as a line of the log otherwise."""
    import logging

    status = server.broker.status()
    places = {name: _written(*address) for name, address in server.addresses.items()}
    found = status.recovery
    data = f"{status.directory} ({status.topics:,} topics, opened in {found.seconds:.2f} s)"
    logging.getLogger("penstock.server").info(
        "listening",
        extra={**places, "data": status.directory, "topics": status.topics, "epoch": status.epoch},
    )
    if found.torn_bytes:
        logging.getLogger("penstock.server").warning(
            "an unfinished write of %d bytes, which nobody was told of as done, was cut off", found.torn_bytes
        )
    _greet(places, data, status.sync, with_tls=server.services.tls is not None)


def _greet(places: dict[str, str], data: str, sync: str, *, with_tls: bool) -> None:
    """What people see on a terminal."""
    from penstock.version import __version__

    if not is_terminal("stderr"):
        return
    native = places["native"]
    durable = {"always": "on disk", "interval": "written, on disk a little later", "never": "written"}[sync]
    scheme = "https" if with_tls else "http"
    http = f"    http     {scheme}://{places['http']}  (dashboard, API at /docs)\n" if "http" in places else ""
    line = f"    text     {places['line']}\n" if "line" in places else ""
    echo(
        f"""
  Penstock {__version__}

    native   {native}
{http}{line}    data     {data}
    sync     {sync}: acknowledged means {durable}

  Try      penstock publish orders "two coffees" --server {native}
           penstock consume orders --group kitchen --server {native}
  Stop     Ctrl-C
""",
        err=True,
    )


def _written(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
