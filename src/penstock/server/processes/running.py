"""A server of several processes, from the configuration to the last of them."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable
from typing import NoReturn

import uvloop

from penstock.model.errors import PenstockError
from penstock.server.access.starting import check_exposure
from penstock.server.access.tls import server_context
from penstock.server.logs import set_up_logging
from penstock.server.processes.children import Child
from penstock.server.processes.member import run_member
from penstock.server.processes.supervisor import Supervisor
from penstock.server.settings.options import ServerConfig

_log = logging.getLogger("penstock.server")


def run_processes(
    config: ServerConfig, on_ready: Callable[[Supervisor], None], reload: Callable[[], ServerConfig]
) -> None:
    """Run a server of several processes until SIGINT or SIGTERM; SIGHUP has all of them read what they may again."""
    check_exposure(config)
    server_context(config)  # what is wrong with its files is told before anything is done
    _load()

    def run_child(child: Child, options: ServerConfig) -> NoReturn:
        assert child.end is not None
        set_up_logging(config.log_level, config.log_format, sys.stderr, {"member": child.number})
        place = (child.number, child.own_port, supervisor.sockets, supervisor.shards)
        code = 0
        try:
            uvloop.run(run_member(options, *place, child.end, reload))
        except (PenstockError, OSError) as error:
            _log.error("this process cannot go on: %s", error)
            code = 1
        except asyncio.CancelledError:
            code = 1
        except Exception:  # noqa: BLE001 - it must not go on as if it were the supervisor
            _log.exception("this process failed")
            code = 1
        logging.shutdown()
        sys.stderr.flush()
        _end(code)

    supervisor = Supervisor(config, run_child, reload)
    supervisor.run(on_ready)
    _log.info("stopped")


def _end(code: int) -> NoReturn:
    os._exit(code)  # nothing of the supervisor, which this was a copy of, is to be cleaned up here


def _load() -> None:
    """Load what processes need before they are forked: each has it then at once, and in memory that all share."""
    import pyarrow.parquet  # noqa: F401

    import penstock.server.http.app
    import penstock.server.http.listener
    import penstock.server.line.listener  # noqa: F401
