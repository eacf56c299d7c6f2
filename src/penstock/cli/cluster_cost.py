"""`penstock cluster cost`: what the bucket of a cluster costs, measured at its brokers or foretold."""

from __future__ import annotations

import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Annotated

import typer

from penstock.cli.errors import REFUSED, UNREACHABLE, CommandError
from penstock.cli.output import Format, FormatOption, new_table, show, show_duration
from penstock.cli.target import CaOption, TlsOption, TokenOption
from penstock.model.errors import InvalidArgument
from penstock.model.units import format_duration, format_size, parse_duration, parse_size
from penstock.storage.prices import EXPRESS, STANDARD, Prices, Traffic, forecast

_HTTP = "127.0.0.1:8080"
_TIMEOUT_S = 30.0
_PAGE_MAX = 64 << 20
_REQUESTS, _BYTES = "penstock_bucket_requests_total", "penstock_bucket_bytes_total"
_STORED = ("penstock_journal_bytes", "penstock_topic_segment_bytes")
_KINDS = {
    (_REQUESTS, "create"): "puts",
    (_REQUESTS, "put"): "puts",
    (_REQUESTS, "list"): "lists",
    (_REQUESTS, "get"): "gets",
    (_REQUESTS, "delete"): "deletes",
    (_BYTES, "sent"): "uploaded_bytes",
    (_BYTES, "received"): "downloaded_bytes",
}
"""What each sample counts, by its metric and its operation or direction."""
_ROWS = {
    "puts": "creates and puts",
    "lists": "lists",
    "gets": "gets",
    "deletes": "deletes",
    "uploaded_bytes": "bytes uploaded",
    "downloaded_bytes": "bytes downloaded",
    "stored_bytes": "bytes stored",
}


def cost(
    address: Annotated[
        str | None,
        typer.Argument(metavar="ADDRESS", help=f"The HTTP port of any broker ({_HTTP}).", show_default=False),
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.1, max=86_400, help="How long to measure.")] = 10.0,
    shards: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, max=100_000, help="Foretell instead: shards that always have work."),
    ] = None,
    interval: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Foretell: the time between two commits (100ms).")
    ] = None,
    members: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=10_000, help="Foretell: how many brokers (3).")
    ] = None,
    stored: Annotated[
        str | None, typer.Option(metavar="SIZE", help="How much lies in the bucket, if not what brokers tell.")
    ] = None,
    token: TokenOption = None,
    tls: TlsOption = False,
    ca: CaOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show what the bucket of a cluster costs a month, by the prices of S3 in us-east-1.

    The requests of all brokers are counted for some seconds, and taken for those of every second. With `--shards`,
    `--interval` or `--members`, nobody is asked: it is computed for so many brokers and busy shards.

    For example:

        penstock cluster cost broker-1:8080 --seconds 60
        penstock cluster cost --shards 4 --interval 250ms --members 3
        penstock cluster cost --shards 4 --stored 100GB -o json | jq '.dollars["S3 Standard"].total'
    """
    stored_bytes = None if stored is None else parse_size(stored)
    if (shards, interval, members) == (None, None, None):
        context = ssl.create_default_context(cafile=ca) if tls or ca is not None else None
        page = _Page(address or _HTTP, token, context)
        traffic = measure(page.read, seconds, time.sleep, time.monotonic, stored_bytes)
        said = f"measured for {show_duration(seconds)}"
    elif address is not None:
        raise CommandError("what is measured is not foretold", "give an address, or --shards, --interval and --members")
    else:
        interval_s = parse_duration(interval or "100ms")
        if interval_s < 0.001:
            raise InvalidArgument("--interval is less than 1ms")
        shards, members = 4 if shards is None else shards, members or 3
        traffic = forecast(shards, interval_s, members, stored_bytes or 0)
        said = f"foretold for {shards} busy shards, a commit every {format_duration(interval_s)}, {members} brokers"
    _show(traffic, said, output)


def measure(
    page: Callable[[], str],
    seconds: float,
    sleep: Callable[[float], None],
    clock: Callable[[], float],
    stored_bytes: int | None = None,
) -> Traffic:
    """What brokers ask of their bucket in a second, by two looks at the metrics of all; `clock` in seconds."""
    start_s, before = clock(), _counts(page())
    sleep(seconds)
    after, lasted_s = _counts(page()), clock() - start_s
    found = after.pop("stored_bytes")
    if any(count < before[name] for name, count in after.items()):
        raise CommandError("a broker has ended meanwhile, and its counts with it", "measure again", REFUSED)
    rates = {name: (count - before[name]) / lasted_s for name, count in after.items()}
    return Traffic(**rates, stored_bytes=found if stored_bytes is None else stored_bytes)


def _counts(page: str) -> dict[str, float]:
    """What brokers have counted since they started, by the fields of Traffic."""
    from prometheus_client.parser import text_string_to_metric_families

    counts = dict.fromkeys(_ROWS, 0.0)
    has_bucket = False
    for family in text_string_to_metric_families(page):
        for name, labels, value, *_ in family.samples:
            if name in (_REQUESTS, _BYTES):
                has_bucket = True
                counts[_KINDS[name, labels["operation" if name == _REQUESTS else "direction"]]] += value
            elif name in _STORED:
                counts["stored_bytes"] += value
    if not has_bucket:
        raise CommandError("this server has no bucket", "start it with `penstock serve s3://bucket/place`", REFUSED)
    return counts


class _Page:
    """The metrics of all brokers, as one of them tells them."""

    def __init__(self, address: str, token: str | None, context: ssl.SSLContext | None) -> None:
        self._url = f"http{'' if context is None else 's'}://{address}/metrics"
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._context = context

    def read(self) -> str:
        """The page as it is now."""
        request = urllib.request.Request(self._url, headers=self._headers)
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=self._context) as reply:
                return str(reply.read(_PAGE_MAX).decode())
        except urllib.error.HTTPError as error:
            with error:
                hint = "give the HTTP port of a broker, and a token of scope read if it asks for one (--token)"
                raise CommandError(f"{self._url}: {error}", hint, REFUSED) from None
        except (OSError, ValueError) as error:
            raise CommandError(
                f"{self._url}: {error}", "give the HTTP port of a broker: host:8080", UNREACHABLE
            ) from None


def _show(traffic: Traffic, said: str, output: Format) -> None:
    makers: list[Prices] = [STANDARD, EXPRESS]
    dollars = {prices.name: traffic.dollars(prices) for prices in makers}
    rates = {name: getattr(traffic, name) for name in _ROWS}
    rows = [
        [text, _amount(name, rates[name]), *(f"{costs[name]:,.2f}" for costs in dollars.values())]
        for name, text in _ROWS.items()
    ]
    rows.append(["total", "", *(f"{costs['total']:,.2f}" for costs in dollars.values())])
    table = new_table("", ">a second", *(f">{name}, $ a month" for name in dollars), rows=rows)
    show({"per_second": rates, "dollars": dollars}, output, said, "", table)


def _amount(name: str, amount: float) -> str:
    if name == "stored_bytes":
        return f"{format_size(round(amount))} in all"
    return format_size(round(amount)) if name.endswith("_bytes") else f"{amount:,.2f}"
