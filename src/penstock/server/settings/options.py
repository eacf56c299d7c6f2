"""The options of the server: every one, its default and what it means."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.model.bounds import shown
from penstock.model.config import GIB, MIB, BrokerConfig
from penstock.model.errors import InvalidArgument
from penstock.model.options import choice, configure, duration, option, optional, size, text, whole, yes_or_no
from penstock.model.placement import SHARDS_MAX
from penstock.model.units import format_size

_PORT_MAX = 65_535


def _host(value: object) -> str:
    if isinstance(value, str) and value and not set(value) & set(" \t\r\n/"):
        return value
    raise InvalidArgument(f"{shown(value)} is not a host name or an address such as '127.0.0.1'")


def _advertised(value: object) -> str:
    host, colon, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    if colon and _host(host) and port.isascii() and port.isdecimal() and 0 < int(port[:6]) <= _PORT_MAX:
        return f"{host}:{port}"
    raise InvalidArgument(f"{shown(value)} is not a host and a port such as 'broker-1.internal:9000'")


def _port(value: object) -> int | None:
    """A port; `off` for none."""
    if value in (None, "off") or value is False:  # YAML reads off as False
        return None
    try:
        return whole(0, 65_535)(value)
    except InvalidArgument as error:
        raise InvalidArgument(f"{error}, or 'off'") from error


def _words(pattern: str, all_of_them: str, one: str) -> Callable[[object], str]:
    """A parser of words with spaces between them, each of which fits a pattern."""

    def parse(value: object) -> str:
        if not isinstance(value, str):
            raise InvalidArgument(f"{shown(value)} is not text with {all_of_them}")
        for item in value.split():
            if not re.fullmatch(pattern, item):
                raise InvalidArgument(f"{shown(item)} is not {one}")
        return value

    return parse


_origins = _words(
    r"https?://[^\s/*,]+", "origins such as 'https://app.example'", "an origin such as 'https://app.example'"
)
_names = _words(
    r"[A-Za-z0-9._-]{1,253}|[0-9A-Fa-f:.]{2,45}",
    "names such as 'penstock.internal'",
    "the name of a host such as 'penstock.internal', without a port",
)


def _broker(value: object) -> BrokerConfig:
    if isinstance(value, BrokerConfig):
        fields = dataclasses.fields(value)
        return BrokerConfig.parse({field.name: getattr(value, field.name) for field in fields})
    if isinstance(value, Mapping):
        return BrokerConfig.parse(value)
    raise InvalidArgument(f"{shown(value)} is not a mapping of broker options")


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """How one server works: where it listens, what it takes from its clients, and the broker inside."""

    data_dir: str = option("./penstock-data", text)
    """The data directory; a relative one starts where the server was started. Or a bucket: `s3://bucket/place`."""
    shards: int | None = option(None, optional(whole(1, SHARDS_MAX)))
    """How many shards a new data directory is divided into, for good (none: one); others are as they were made."""
    processes: int = option(1, whole(1, 256))
    """How many processes serve the shards of the directory, which has at least as many; limits hold for each."""
    host: str = option("127.0.0.1", _host)
    """The address to listen on: only this machine by default, `0.0.0.0` for all of its networks."""
    advertise: str | None = option(None, optional(_advertised))
    """Where clients and other brokers on a bucket reach this one, `host:port` (none: `host` and the native port)."""
    balance_after: float = option(60.0, duration())
    """How long no broker on the bucket may have come or gone before shards are shared evenly."""
    native_port: int = option(9000, whole(0, 65_535))
    """The port of the native protocol (0: any free port)."""
    http_port: int | None = option(8080, _port)
    """The port of HTTP, with the dashboard and the metrics (0: any free port, `off`: none)."""
    line_port: int | None = option(3000, _port)
    """The port of the text protocol (0: any free port, `off`: none)."""
    auth: str = option("off", choice("off", "tokens"))
    """Who may use the server: everybody who reaches it (`off`), or those with a token (`tokens`)."""
    tokens_dir: str | None = option(None, optional(text))
    """The directory with the tokens (none: the data directory): on a bucket, a copy on each machine."""
    insecure: bool = option(False, yes_or_no)  # noqa: FBT003 - a default
    """Listen on an address that others reach although anybody may use the server."""
    tls_cert: str | None = option(None, optional(text))
    """The file of the server's certificate (PEM, with its chain): all ports speak TLS."""
    tls_key: str | None = option(None, optional(text))
    """The file of the certificate's private key (PEM)."""
    tls_client_ca: str | None = option(None, optional(text))
    """Certificates of authorities (PEM): clients must show a certificate that one of them has signed (mutual TLS)."""
    max_request_bytes: int = option(64 * MIB, size(1024, 2 * GIB))
    """The largest body of an HTTP request."""
    max_line_bytes: int = option(1 * MIB, size(256, 64 * MIB))
    """The longest line of the text protocol."""
    rate_limit: int = option(0, whole(0, 1_000_000_000))
    """Requests a second that one token (without tokens, one address) may send by HTTP and text (0: any number)."""
    cors_origins: str = option("", _origins)
    """Origins of other web pages that may use the HTTP port from a browser, with spaces between; none by default."""
    http_hosts: str = option("", _names)
    """Names, beside `localhost` and `host`, to which a server without tokens answers by HTTP, with spaces between."""
    metrics_topics_max: int = option(200, whole(0, 100_000))
    """Topics that have metrics of their own; the others are summed up."""
    otlp_endpoint: str | None = option(None, optional(text))
    """Where message traces are sent to as OpenTelemetry spans, such as `http://127.0.0.1:4318` (extra `otel`)."""
    otlp_percent: int = option(100, whole(0, 100))
    """The share of messages whose traces are sent; those that belong to a sampled trace always are."""
    log_level: str = option("info", choice("debug", "info", "warning", "error"))
    """The least important messages that are logged: `debug`, `info`, `warning` or `error`."""
    log_format: str = option("auto", choice("auto", "text", "json"))
    """Lines for people (`text`) or for machines (`json`); `auto` is text on a terminal and JSON otherwise."""
    max_connections: int = option(10_000, whole(1, 1_000_000))
    """Connections of all ports together; more are refused. The limit of open files may allow fewer."""
    max_frame_bytes: int = option(65 * MIB, size(64 * 1024, 2 * GIB))
    """The largest request; a batch of `max_batch_bytes` needs a little more than its own size."""
    max_buffered_bytes: int = option(512 * MIB, size(64 * 1024, 1 << 50))
    """What all connections together may hold in unfinished requests."""
    idle_timeout: float = option(90.0, duration(0.01))
    """A connection that sends nothing for so long is closed; clients ping to keep theirs."""
    login_timeout: float = option(30.0, duration(0.01))
    """How long a client may take to say who it is: HELLO on the native port, AUTH on a text port that asks for it."""
    request_timeout: float = option(30.0, duration(0.01))
    """How long the head of a request may take to arrive, or its body, which gets a second more for each 8 KiB of it."""
    unread_timeout: float = option(60.0, duration(0.01))
    """How long a client may leave replies unread; for large ones it gets a second more for each 8 KiB."""
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
        if (config.tls_cert is None) != (config.tls_key is None):
            raise InvalidArgument("server options: tls_cert and tls_key go together: give both or none")
        if config.tls_client_ca is not None and config.tls_cert is None:
            raise InvalidArgument("server options: tls_client_ca needs tls_cert and tls_key")
        return config
