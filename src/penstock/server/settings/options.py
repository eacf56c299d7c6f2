"""The options of the server: every one, its default and what it means."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.model.config import GIB, MIB, BrokerConfig
from penstock.model.errors import InvalidArgument
from penstock.model.options import choice, configure, duration, option, size, text, whole
from penstock.model.units import format_size


def _host(value: object) -> str:
    if isinstance(value, str) and value and not set(value) & set(" \t\r\n/"):
        return value
    raise InvalidArgument(f"{value!r} is not a host name or an address such as '127.0.0.1'")


def _broker(value: object) -> BrokerConfig:
    if isinstance(value, BrokerConfig):
        fields = dataclasses.fields(value)
        return BrokerConfig.parse({field.name: getattr(value, field.name) for field in fields})
    if isinstance(value, Mapping):
        return BrokerConfig.parse(value)
    raise InvalidArgument(f"{value!r} is not a mapping of broker options")


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """How one server works: where it listens, what it takes from its clients, and the broker inside."""

    data_dir: str = option("./penstock-data", text)
    """The data directory; a relative one starts where the server was started."""
    host: str = option("127.0.0.1", _host)
    """The address to listen on: only this machine by default, `0.0.0.0` for all of its networks."""
    native_port: int = option(9000, whole(0, 65_535))
    """The port of the native protocol (0: any free port)."""
    log_level: str = option("info", choice("debug", "info", "warning", "error"))
    """The least important messages that are logged: `debug`, `info`, `warning` or `error`."""
    log_format: str = option("auto", choice("auto", "text", "json"))
    """Lines for people (`text`) or for machines (`json`); `auto` is text on a terminal and JSON otherwise."""
    max_connections: int = option(10_000, whole(1, 1_000_000))
    """Connections beyond this are refused."""
    max_frame_bytes: int = option(65 * MIB, size(64 * 1024, 2 * GIB))
    """The largest request; a batch of `max_batch_bytes` needs a little more than its own size."""
    max_buffered_bytes: int = option(512 * MIB, size(64 * 1024, 1 << 50))
    """What all connections together may hold in unfinished requests."""
    idle_timeout: float = option(90.0, duration(0.01))
    """A connection that sends nothing for so long is closed; clients ping to keep theirs."""
    shutdown_grace: float = option(10.0, duration())
    """How long a server that was asked to stop waits for requests under way."""
    broker: BrokerConfig = option(BrokerConfig(), _broker)
    """The options of the broker inside, with the defaults of its topics."""

    @classmethod
    def parse(cls, options: Mapping[str, Any]) -> ServerConfig:
        """The configuration with `options` set over the defaults."""
        config = configure(cls(), options, "server options")
        if config.max_buffered_bytes < config.max_frame_bytes:
            raise InvalidArgument(
                f"server options: max_buffered_bytes ({format_size(config.max_buffered_bytes)}) is less than one "
                f"request may take: {format_size(config.max_frame_bytes)} (max_frame_bytes)"
            )
        return config
